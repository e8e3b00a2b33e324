package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// fields returns an object that has the keys of must, and no others than those and may.
func fields(v any, name string, must, may []string) (map[string]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the bundle's %s is not an object", name)
	}
	for _, key := range must {
		if m[key] == nil {
			return nil, fmt.Errorf("the bundle's %s has no %s", name, key)
		}
	}
	for key := range m {
		if !slices.Contains(must, key) && !slices.Contains(may, key) {
			return nil, fmt.Errorf("the bundle's %s has %q, which is not read here", name, key)
		}
	}
	return m, nil
}

// Keyless reports whether sig is a Sigstore bundle with a certificate, which [Verify] refuses.
func Keyless(sig []byte) bool {
	v, err := abi.Decode(sig, Max)
	if err != nil {
		return false
	}
	bundle, _ := v.(map[string]any)
	material, _ := bundle["verificationMaterial"].(map[string]any)
	return material["certificate"] != nil
}

// verifyBundle reads what `cosign sign-blob --key` writes.
func verifyBundle(sig, module []byte, k Key) error {
	signed, digest, err := parseBundle(sig)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(module)
	if !bytes.Equal(digest, sum[:]) {
		return fmt.Errorf("the bundle is over sha256:%x, the module is %s", digest, Digest(module))
	}
	if !ecdsa.VerifyASN1(k.ecdsa, sum[:], signed) {
		return fmt.Errorf("%w: %s has not made the bundle's signature", errOtherKey, k)
	}
	return nil
}

func parseBundle(data []byte) (signed, digest []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) { return nil, nil, err }
	v, err := abi.Decode(data, Max)
	if err != nil {
		return fail(fmt.Errorf("reading the bundle: %w", err))
	}
	outer, _ := v.(map[string]any)
	if outer["dsseEnvelope"] != nil {
		return fail(errors.New("the bundle holds an attestation, want the signature of a module " +
			"(cosign sign-blob)"))
	}
	if outer, err = fields(v, "document", []string{"mediaType", "verificationMaterial",
		"messageSignature"}, nil); err != nil {
		return fail(err)
	}
	if outer["mediaType"] != bundleType {
		return fail(fmt.Errorf("the bundle is %q, want %q", outer["mediaType"], bundleType))
	}
	material, _ := outer["verificationMaterial"].(map[string]any)
	if material["certificate"] != nil || material["x509CertificateChain"] != nil {
		return fail(errors.New("the bundle is keyless: it has a certificate, and no key"))
	}
	if material, err = fields(outer["verificationMaterial"], "verificationMaterial",
		[]string{"publicKey"}, []string{"tlogEntries", "timestampVerificationData"}); err != nil {
		return fail(err)
	}
	if _, err = fields(material["publicKey"], "publicKey", nil, []string{"hint"}); err != nil {
		return fail(err)
	}
	message, err := fields(outer["messageSignature"], "messageSignature",
		[]string{"messageDigest", "signature"}, nil)
	if err != nil {
		return fail(err)
	}
	d, err := fields(message["messageDigest"], "messageDigest",
		[]string{"algorithm", "digest"}, nil)
	if err != nil {
		return fail(err)
	}
	if d["algorithm"] != "SHA2_256" {
		return fail(fmt.Errorf("the bundle's digest is %q, want SHA2_256", d["algorithm"]))
	}
	if signed, err = base64Of(message["signature"]); err != nil {
		return fail(fmt.Errorf("the bundle's signature: %w", err))
	}
	if digest, err = base64Of(d["digest"]); err != nil {
		return fail(fmt.Errorf("the bundle's digest: %w", err))
	}
	return signed, digest, nil
}

func base64Of(v any) ([]byte, error) {
	text, ok := v.(string)
	if !ok {
		return nil, errors.New("is no text")
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}
