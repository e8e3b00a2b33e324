package sigstoretest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"math/big"
	"net/url"
	"strings"
	"time"
)

// Lifetime is how long a certificate is valid.
const Lifetime = 10 * time.Minute

var (
	oidIssuer = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
	oidSCTs   = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
)

// certificate issues the certificate of a key, and embeds the timestamp of the certificate
// transparency log unless the signing is to be without.
func (i *Instance) certificate(key *ecdsa.PrivateKey, s Signing) ([]byte, error) {
	t := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: s.Issued, NotAfter: s.Issued.Add(Lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	}
	if s.ForServers {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	if strings.Contains(s.Subject, "://") {
		u, err := url.Parse(s.Subject)
		if err != nil {
			return nil, err
		}
		t.URIs = []*url.URL{u}
	} else if s.Subject != "" {
		t.EmailAddresses = []string{s.Subject}
	}
	if s.Issuer != "" {
		value, err := asn1.MarshalWithParams(s.Issuer, "utf8")
		if err != nil {
			return nil, err
		}
		t.ExtraExtensions = []pkix.Extension{{Id: oidIssuer, Value: value}}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, i.root, key.Public(), i.CA)
	if err != nil || s.WithoutSCT {
		return der, err
	}
	pre, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	list, err := i.timestamp(pre.RawTBSCertificate, s.Issued)
	if err != nil {
		return nil, err
	}
	t.ExtraExtensions = append(t.ExtraExtensions, pkix.Extension{Id: oidSCTs, Value: list})
	return x509.CreateCertificate(rand.Reader, t, i.root, key.Public(), i.CA)
}

// timestamp returns the list of one signed certificate timestamp as the extension has it
// (RFC 6962, sections 3.2 and 3.3).
func (i *Instance) timestamp(tbs []byte, at time.Time) ([]byte, error) {
	when := uint64(at.UnixMilli())
	issuer := sha256.Sum256(i.root.RawSubjectPublicKeyInfo)
	text := []byte{0, 0} // version 1, certificate_timestamp
	text = binary.BigEndian.AppendUint64(text, when)
	text = append(append(text, 0, 1), issuer[:]...) // precert_entry
	text = append(text, byte(len(tbs)>>16), byte(len(tbs)>>8), byte(len(tbs)))
	text = append(append(text, tbs...), 0, 0) // no extensions
	sig, err := sign(i.CTLog, text)
	if err != nil {
		return nil, err
	}
	_, id := spki(i.CTLog)
	sct := append([]byte{0}, id...)
	sct = binary.BigEndian.AppendUint64(sct, when)
	sct = append(sct, 0, 0, 4, 3) // no extensions; SHA-256 with ECDSA
	sct = append(binary.BigEndian.AppendUint16(sct, uint16(len(sig))), sig...)
	list := binary.BigEndian.AppendUint16(nil, uint16(len(sct)+2))
	list = append(binary.BigEndian.AppendUint16(list, uint16(len(sct))), sct...)
	return asn1.Marshal(list)
}
