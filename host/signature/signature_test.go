package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/signature"
	"github.com/caponier-mcp/caponier/test/needs"
)

var module = []byte("\x00asm a module")

// sshKey makes a key pair with ssh-keygen, and returns the private key's file and the public key.
func sshKey(t *testing.T, kind string) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	run(t, "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", file)
	data, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return file, strings.TrimSpace(string(data))
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	needs.Program(t, name)
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func sshSign(t *testing.T, key, namespace string, data []byte) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", key, file)
	sig, err := os.ReadFile(file + ".sig")
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// want holds an error against the reason that it must give; "" is none.
func want(t *testing.T, what string, err error, why string) {
	t.Helper()
	switch {
	case why == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case why != "" && (err == nil || !strings.Contains(err.Error(), why)):
		t.Errorf("%s: got %v, want an error with %q", what, err, why)
	}
}

func TestOpenSSHSignatures(t *testing.T) {
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		file, public := sshKey(t, kind)
		k, err := signature.ParseKey(public)
		if err != nil {
			t.Fatal(err)
		}
		sig := sshSign(t, file, signature.Namespace, module)
		want(t, kind, signature.Verify(sig, module, k, time.Now()), "")
		want(t, kind+" over another digest", signature.Verify(sig, append([]byte{1}, module...), k,
			time.Now()), "is not of this module")
		want(t, kind+" for something else", signature.Verify(sshSign(t, file, "git", module),
			module, k, time.Now()), `the signature is for "git"`)
		_, other := sshKey(t, kind)
		o, err := signature.ParseKey(other)
		if err != nil {
			t.Fatal(err)
		}
		want(t, kind+" by another key", signature.Verify(sig, module, o, time.Now()),
			"signed with another key")
		for n := range sig { // no byte of it can differ and count for another message
			bad := append([]byte{}, sig...)
			bad[n] ^= 1
			if signature.Verify(bad, append([]byte{1}, module...), k, time.Now()) == nil {
				t.Fatalf("byte %d", n)
			}
		}
	}
}

func TestAKeyIsValidOnlyInItsPeriod(t *testing.T) {
	file, public := sshKey(t, "ed25519")
	sig := sshSign(t, file, signature.Namespace, module)
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for options, why := range map[string]string{
		`valid-before="20260601115900Z"`:                           "has expired",
		`valid-before="20260601120000Z"`:                           "",
		`valid-before="20260601120001Z"`:                           "",
		`valid-after="202606011201Z"`:                              "is valid from",
		`valid-after="20260531Z"`:                                  "",
		`namespaces="git,caponier-plugin",valid-before="20270101"`: "",
		`namespaces="git"`:                                         "the key is for",
		`cert-authority`:                                           "is not read here",
		`valid-before="soon"`:                                      "is not a time",
		`valid-before="2026060"`:                                   "is not a time",
		`only-on-mondays`:                                          "is not read here",
	} {
		signers, err := signature.ParseSigners([]byte("# who\n\nann@x " + options + " " + public))
		if err == nil {
			_, err = signature.By(signers, sig, module, now)
		}
		want(t, options, err, why)
		if err != nil && strings.Contains(why, "is") {
			continue
		}
		// OpenSSH's own answer is the same.
		allowed := filepath.Join(t.TempDir(), "allowed")
		if e := os.WriteFile(allowed, []byte("ann@x "+options+" "+public+"\n"), 0o600); e != nil {
			t.Fatal(e)
		}
		sigFile := allowed + ".sig"
		if e := os.WriteFile(sigFile, sig, 0o600); e != nil {
			t.Fatal(e)
		}
		c := exec.Command("ssh-keygen", "-Y", "verify", "-f", allowed, "-I", "ann@x", "-n",
			signature.Namespace, "-s", sigFile, "-Overify-time=20260601120000Z")
		c.Stdin = strings.NewReader(string(module))
		if e := c.Run(); (e == nil) != (err == nil) {
			t.Errorf("%s: ssh-keygen says %v, we say %v", options, e, err)
		}
	}
}

type pair struct {
	key    *ecdsa.PrivateKey
	public string
}

func cosignKey(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pair{key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

func (p pair) bundle(t *testing.T, data []byte) string {
	t.Helper()
	sum := sha256.Sum256(data)
	sig, err := ecdsa.SignASN1(rand.Reader, p.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json",`+
		`"verificationMaterial":{"publicKey":{"hint":"x"},"tlogEntries":[]},`+
		`"messageSignature":{"messageDigest":{"algorithm":"SHA2_256","digest":%q},`+
		`"signature":%q}}`, b64(sum[:]), b64(sig))
}

func TestCosignSignatures(t *testing.T) {
	p, other := cosignKey(t), cosignKey(t)
	k, err := signature.ParseKey(p.public)
	if err != nil {
		t.Fatal(err)
	}
	good := p.bundle(t, module)
	swap := func(old, with string) string { return strings.Replace(good, old, with, 1) }
	for _, x := range []struct{ what, bundle, why string }{
		{"good", good, ""},
		{"another digest", p.bundle(t, []byte("else")), "the bundle is over sha256:"},
		{"another key", other.bundle(t, module), "has not made"},
		{"key twice", swap(`{"publicKey"`, `{"publicKey":{"hint":"y"},"publicKey"`), "reading"},
		{"signature twice", swap(`"signature":`, `"signature":"AA==","signature":`), "reading"},
		{"in other case", swap(`"signature":`, `"Signature":`), "has no signature"},
		{"both cases", swap(`"signature":`, `"Signature":"AA==","signature":`), "repeats"},
		{"another version", swap("v0.3", "v0.2"), "the bundle is"},
		{"keyless", swap(`"publicKey":{"hint":"x"}`, `"certificate":{"rawBytes":"AA=="}`),
			"keyless: it has a certificate"},
		{"keyless, as it was written before",
			swap(`"publicKey":{"hint":"x"}`, `"x509CertificateChain":{}`), "keyless"},
		{"attestation", swap("messageSignature", "dsseEnvelope"), "attestation"},
		{"weak digest", swap("SHA2_256", "SHA1"), "want SHA2_256"},
		{"no base64", swap(`"signature":"`, `"signature":"!`), "signature:"},
		{"cut", good[:len(good)-1], "reading"},
		{"more behind", good + "{}", "reading"},
		{"number", swap(`{"hint":"x"}`, "1"), "not an object"},
		{"text", "hello", "neither"},
		{"empty", "", "neither"},
		{"large", "{" + strings.Repeat(" ", signature.Max) + "}", "at most"},
	} {
		want(t, x.what, signature.Verify([]byte(x.bundle), module, k, time.Now()), x.why)
		if got := signature.Keyless([]byte(x.bundle)); got != (x.what == "keyless") {
			t.Errorf("%s: keyless is %v", x.what, got)
		}
	}
	file, public := sshKey(t, "ed25519")
	s, err := signature.ParseKey(public)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "kinds", signature.Verify([]byte(good), module, s, time.Now()), "key is OpenSSH's")
	want(t, "kinds", signature.Verify(sshSign(t, file, signature.Namespace, module), module, k,
		time.Now()), "the key is not")
	want(t, "zero", signature.Verify([]byte(good), module, signature.Key{}, time.Now()), "key is")
}

func FuzzBundle(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
	k, err := signature.ParseKey(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
		Bytes: der})))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}`))
	f.Add([]byte("-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"))
	f.Fuzz(func(t *testing.T, sig []byte) { // nobody has signed anything with this key
		if signature.Verify(sig, module, k, time.Now()) == nil {
			t.Fatalf("%q counts", sig)
		}
	})
}
