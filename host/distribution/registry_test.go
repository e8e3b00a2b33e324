package distribution_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/distribution"
	"github.com/caponier-mcp/caponier/test/needs"
	"golang.org/x/crypto/bcrypt"
	"oras.land/oras-go/v2/registry/remote/auth"
)

var (
	sshSig = []byte("-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n")
	bundle = []byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}`)
	sbom   = []byte(`{"spdxVersion":"SPDX-2.3"}`)
	about  = distribution.About{Name: "acme", Version: "1.0.0", Description: "d",
		Licence: "MIT", ABI: "1.3", Imports: []string{"ssh_exec"}, Tools: []string{"look"}}
	module = []byte("\x00asm not run")
)

// certificate writes one of this machine, with its key.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "r"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return cert, key
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// dockerRegistry starts Debian's registry with TLS and a password, and returns its address and CA.
func dockerRegistry(t *testing.T) (host string, ca []byte) {
	t.Helper()
	program := needs.Program(t, "docker-registry")
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "htpasswd"), []byte("ann:"+string(hash)+"\n"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host = l.Addr().String()
	l.Close()
	write(t, filepath.Join(dir, "config.yml"), fmt.Appendf(nil, "version: 0.1\n"+
		"log: {level: error}\n"+
		"storage: {filesystem: {rootdirectory: %s/data}}\nhttp: {addr: %q, tls: {certificate: %s, "+
		"key: %s}}\nauth: {htpasswd: {realm: r, path: %s/htpasswd}}\n", dir, host, cert, key, dir))
	c := exec.Command(program, "serve", filepath.Join(dir, "config.yml"))
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", host); err == nil {
			conn.Close()
			break
		} else if time.Now().After(end) {
			t.Fatal("the registry does not start")
		}
	}
	if ca, err = os.ReadFile(cert); err != nil {
		t.Fatal(err)
	}
	return host, ca
}

func password(word string) auth.CredentialFunc {
	return func(context.Context, string) (auth.Credential, error) {
		return auth.Credential{Username: "ann", Password: word}, nil
	}
}

// refused holds an error against the reason that it must give.
func refused(t *testing.T, what string, err error, why string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: got %v, want an error with %q", what, err, why)
	}
}

// The registry has no referrers API: signatures and SBOM come by the tag.
func TestAPluginGoesThroughARegistry(t *testing.T) {
	host, ca := dockerRegistry(t)
	ctx := t.Context()
	a := distribution.Artifact{About: about, Module: module, SBOMs: [][]byte{sbom},
		Signatures: [][]byte{sshSig, bundle}}
	o := distribution.Options{CA: ca, Credential: password("secret")}
	ref, err := distribution.Push(ctx, "oci://"+host+"/acme/look:v1", a, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := distribution.Push(ctx, "oci://"+host+"/acme/look:v2", a, o)
	if err != nil || again != ref {
		t.Errorf("the same plugin is %s, then %s, %v", ref, again, err)
	}
	got, err := distribution.Pull(ctx, ref, o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Module, module) || fmt.Sprint(got.About) != fmt.Sprint(about) ||
		len(got.SBOMs) != 1 || len(got.Signatures) != 2 {
		t.Errorf("got %+v", got)
	}
	_, err = distribution.Pull(ctx, "oci://"+host+"/acme/look:v1", o)
	refused(t, "a tag", err, "use "+ref)
	_, err = distribution.Pull(ctx, ref, distribution.Options{CA: ca})
	refused(t, "no credential", err, "credential not found")
	_, err = distribution.Pull(ctx, ref, distribution.Options{CA: ca, Credential: password("x")})
	refused(t, "wrong password", err, "401")
	_, err = distribution.Pull(ctx, ref, distribution.Options{Credential: password("secret")})
	refused(t, "another CA", err, "certificate")
	_, err = distribution.Pull(ctx, "oci://"+host+"/acme/look@sha256:"+strings.Repeat("0", 64), o)
	refused(t, "a digest that is not there", err, "not found")
	_, err = distribution.Push(ctx, "oci://"+host+"/acme/look:v3", distribution.Artifact{
		Module: make([]byte, distribution.MaxModule+1)}, o)
	refused(t, "a module that nobody can pull", err, "at most")
	_, err = distribution.Push(ctx, "oci://"+host+"/acme/look:v3", distribution.Artifact{
		Module: module, Signatures: [][]byte{[]byte("hello")}}, o)
	refused(t, "a signature that is none", err, "neither an OpenSSH signature")
}

func TestReferencesThatAreNone(t *testing.T) {
	plain := distribution.Options{PlainHTTP: true}
	for ref, why := range map[string]string{
		"": "is no reference", "docker.io/x:y": "is no reference", "https://x/y:z": "no reference",
		"oci://": "no reference", "oci://127.0.0.1:1/UP@sha256:x": "no reference",
		"oci://127.0.0.1:1/a": "no digest",
		"oci://127.0.0.1:1/a@sha512:" + strings.Repeat("0", 128):            "want the digest",
		"oci://example.org/a@sha256:" + strings.Repeat("0", 64):             "loopback only",
		"oci://localhost.example.org/a@sha256:" + strings.Repeat("0", 64):   "loopback only",
		"oci://127.0.0.1.example.org/a@sha256:" + strings.Repeat("0", 64):   "loopback only",
		"oci://user@127.0.0.1/a@sha256:" + strings.Repeat("0", 64):          "no reference",
		"oci://169.254.169.254/latest@sha256:" + strings.Repeat("0", 64):    "loopback only",
		"oci://127.0.0.1:1/a/../../b@sha256:" + strings.Repeat("0", 64):     "no reference",
		"oci://127.0.0.1:1/a%2fb@sha256:" + strings.Repeat("0", 64):         "no reference",
		"oci://127.0.0.1:1/a\nb@sha256:" + strings.Repeat("0", 64):          "no reference",
		"oci://127.0.0.1:1/a:v1@sha256:" + strings.Repeat("0", 64) + "?x=1": "no reference",
	} {
		_, err := distribution.Pull(t.Context(), ref, plain)
		refused(t, ref, err, why)
	}
	_, err := distribution.Push(t.Context(), "oci://127.0.0.1:1/a@sha256:"+strings.Repeat("0", 64),
		distribution.Artifact{}, plain)
	refused(t, "push without a tag", err, "no tag")
	_, err = distribution.Pull(t.Context(), "oci://127.0.0.1:1/a:v1",
		distribution.Options{CA: []byte("x")})
	refused(t, "a CA that is none", err, "no certificate")
}
