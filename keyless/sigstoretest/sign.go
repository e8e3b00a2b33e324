package sigstoretest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"
	"time"
)

// Signing says who signs what, and what is wrong with it.
type Signing struct {
	Artifact        []byte
	Issuer, Subject string    // the subject is a URL or an address
	Issued, Logged  time.Time // zero: a moment ago, and now

	WithoutSCT bool // the certificate was not logged
	ForServers bool // the certificate is for TLS servers
}

// Sign returns the bundle that cosign would write.
func (i *Instance) Sign(s Signing) ([]byte, error) {
	if s.Issued.IsZero() {
		s.Issued = time.Now().Add(-time.Second)
	}
	if s.Logged.IsZero() {
		s.Logged = time.Now()
	}
	s.Issued, s.Logged = s.Issued.UTC().Truncate(time.Second), s.Logged.UTC()
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := i.certificate(key, s)
	if err != nil {
		return nil, err
	}
	sig, err := sign(key, s.Artifact)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(s.Artifact)
	entry, err := i.entry(digest[:], sig, cert, s.Logged.Unix())
	if err != nil {
		return nil, err
	}
	return json.Marshal(object{
		"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": object{
			"certificate": object{"rawBytes": cert}, "tlogEntries": []any{entry}},
		"messageSignature": object{"signature": sig,
			"messageDigest": object{"algorithm": "SHA2_256", "digest": digest[:]}},
	})
}

// entry logs a signature as the second of two leaves.
func (i *Instance) entry(digest, sig, cert []byte, when int64) (object, error) {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	body, err := json.Marshal(object{ // keys in order, no space: RFC 8785 for these values
		"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": object{
			"data": object{"hash": object{"algorithm": "sha256",
				"value": hex.EncodeToString(digest)}},
			"signature": object{"content": sig,
				"publicKey": object{"content": certificate}}}})
	if err != nil {
		return nil, err
	}
	_, id := spki(i.Log)
	promised, err := json.Marshal(object{"body": base64.StdEncoding.EncodeToString(body),
		"integratedTime": when, "logID": hex.EncodeToString(id), "logIndex": 1})
	if err != nil {
		return nil, err
	}
	promise, err := sign(i.Log, promised)
	if err != nil {
		return nil, err
	}
	mine := sha256.Sum256(append([]byte{0}, body...))
	other := sha256.Sum256([]byte("\x00another leaf"))
	root := sha256.Sum256(bytes.Join([][]byte{{1}, other[:], mine[:]}, nil))
	checkpoint, err := i.checkpoint(root[:])
	if err != nil {
		return nil, err
	}
	return object{
		"logIndex": "1", "logId": object{"keyId": id},
		"integratedTime":    strconv.FormatInt(when, 10),
		"kindVersion":       object{"kind": "hashedrekord", "version": "0.0.1"},
		"inclusionPromise":  object{"signedEntryTimestamp": promise},
		"canonicalizedBody": body,
		"inclusionProof": object{"logIndex": "1", "treeSize": "2", "rootHash": root[:],
			"hashes": []any{other[:]}, "checkpoint": object{"envelope": checkpoint}},
	}, nil
}

// checkpoint is the signed note of a tree of two leaves.
func (i *Instance) checkpoint(root []byte) (string, error) {
	const origin = "log.example" // and the number of the tree, as Rekor 1 has it
	text := fmt.Sprintf("%s - 1\n2\n%s\n", origin, base64.StdEncoding.EncodeToString(root))
	sig, err := sign(i.Log, []byte(text))
	if err != nil {
		return "", err
	}
	_, id := spki(i.Log)
	return fmt.Sprintf("%s\n— %s %s\n", text, origin,
		base64.StdEncoding.EncodeToString(append(id[:4:4], sig...))), nil
}
