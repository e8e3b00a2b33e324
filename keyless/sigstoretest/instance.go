// Package sigstoretest is a small instance of Sigstore for tests: it issues certificates, logs them
// and the signatures, and writes bundles and the trusted root.
//
// It is written from the specifications with the standard library alone, and shares no code with
// what reads its bundles: Sigstore's bundle format 0.3 and trusted root
// (https://github.com/sigstore/protobuf-specs), Fulcio's certificates
// (https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md), RFC 6962 for certificate
// transparency and Merkle trees, Rekor's entry and promise, and the checkpoint
// (https://github.com/C2SP/C2SP/blob/main/tlog-checkpoint.md).
package sigstoretest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"time"
)

// Instance is a CA, a certificate transparency log and a transparency log. Signing with a copy that
// has another key makes a forgery.
type Instance struct {
	CA, CTLog, Log *ecdsa.PrivateKey
	root           *x509.Certificate
	began          time.Time
}

// New returns an instance that has been there for a day.
func New() (*Instance, error) {
	i := &Instance{began: time.Now().Add(-24 * time.Hour).UTC().Truncate(time.Second)}
	for _, k := range []**ecdsa.PrivateKey{&i.CA, &i.CTLog, &i.Log} {
		var err error
		if *k, err = NewKey(); err != nil {
			return nil, err
		}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"sigstoretest"},
			CommonName: "ca"},
		NotBefore: i.began, NotAfter: i.began.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, i.CA.Public(), i.CA)
	if err != nil {
		return nil, err
	}
	i.root, err = x509.ParseCertificate(der)
	return i, err
}

// NewKey returns a key on P-256.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// spki returns a public key as X.509 has it, and its digest, by which logs are named.
func spki(k *ecdsa.PrivateKey) (der, id []byte) {
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		panic(err) // a key on P-256 has a form
	}
	sum := sha256.Sum256(der)
	return der, sum[:]
}

func sign(k *ecdsa.PrivateKey, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	return ecdsa.SignASN1(rand.Reader, k, sum[:])
}

type object = map[string]any

// TrustedRoot returns the trusted_root.json of the instance.
func (i *Instance) TrustedRoot() ([]byte, error) {
	since := object{"start": i.began.Format(time.RFC3339)}
	log := func(k *ecdsa.PrivateKey, url string) object {
		der, id := spki(k)
		return object{"baseUrl": url, "hashAlgorithm": "SHA2_256", "logId": object{"keyId": id},
			"publicKey": object{"rawBytes": der, "keyDetails": "PKIX_ECDSA_P256_SHA_256",
				"validFor": since}}
	}
	return json.MarshalIndent(object{
		"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"tlogs":     []any{log(i.Log, "https://log.example")},
		"ctlogs":    []any{log(i.CTLog, "https://ct.example")},
		"certificateAuthorities": []any{object{
			"subject": object{"organization": "sigstoretest", "commonName": "ca"},
			"uri":     "https://ca.example", "validFor": since,
			"certChain": object{"certificates": []any{object{"rawBytes": i.root.Raw}}},
		}},
	}, "", "  ")
}
