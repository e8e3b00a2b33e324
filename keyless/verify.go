package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	sigstore "github.com/sigstore/sigstore-go/pkg/verify"
)

// verify returns the identity for which a CA of the trusted root issued the certificate that signed
// the digest. The certificate must be in a certificate transparency log and the signature in a
// transparency log, and it must have been made while the certificate was valid, by the time of that
// log or of a timestamp authority: all three of the trusted root, without a network (Sigstore's
// client specification, https://github.com/sigstore/architecture-docs, "Verification").
func verify(q question) (issuer, subject string, err error) {
	digest, err := parseDigest(q.Digest)
	if err != nil {
		return "", "", err
	}
	trusted, err := root.NewTrustedRootFromJSON([]byte(q.TrustedRoot))
	if err != nil {
		return "", "", fmt.Errorf("reading the trusted root: %w", err)
	}
	signed, err := parseBundle(q.Bundle)
	if err != nil {
		return "", "", fmt.Errorf("reading the bundle: %w", err)
	}
	v, err := sigstore.NewVerifier(trusted, sigstore.WithSignedCertificateTimestamps(1),
		sigstore.WithTransparencyLog(1), sigstore.WithObserverTimestamps(1))
	if err != nil {
		return "", "", err
	}
	// The site's policy receives the identity and decides whether it may sign.
	result, err := v.Verify(signed, sigstore.NewPolicy(
		sigstore.WithArtifactDigest("sha256", digest), sigstore.WithoutIdentitiesUnsafe()))
	if err != nil {
		return "", "", err
	}
	c := result.Signature.Certificate
	if c.Issuer == "" || c.SubjectAlternativeName == "" {
		return "", "", errors.New("the certificate names no issuer, or no subject")
	}
	return c.Issuer, c.SubjectAlternativeName, nil
}

func parseDigest(text string) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	digest, err := hex.DecodeString(digits)
	if !ok || err != nil || len(digest) != 32 {
		return nil, fmt.Errorf("%q is no digest: want sha256: and 64 hexadecimal digits", text)
	}
	return digest, nil
}

// parseBundle reads a bundle of version 0.3 that holds the signature of a file, made with a
// certificate. An attestation describes a file, and is not a signature of it.
func parseBundle(text string) (*bundle.Bundle, error) {
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON([]byte(text)); err != nil {
		return nil, err
	}
	if !b.MinVersion("v0.3") {
		return nil, fmt.Errorf("it is %q, want version 0.3", b.MediaType)
	}
	if content, err := b.VerificationContent(); err != nil {
		return nil, err
	} else if content.Certificate() == nil {
		return nil, errors.New("it has no certificate: it is signed with a key")
	}
	if b.GetMessageSignature() == nil {
		return nil, errors.New("it holds an attestation, want the signature of a module " +
			"(cosign sign-blob)")
	}
	return b, nil
}
