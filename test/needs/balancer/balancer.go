// Package balancer runs HAProxy for tests, with the configuration that docs/scale.md shows.
package balancer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
)

// Balancer is HAProxy before some hosts. It ends with its test.
type Balancer struct {
	t     testing.TB
	bin   string
	file  string // its configuration
	dir   string
	cmd   *exec.Cmd
	URL   string // of MCP
	Roots *x509.CertPool
}

// Config returns the configuration that the page shows.
func Config(t testing.TB, page string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "```haproxy\n")
	text, _, ended := strings.Cut(rest, "\n```")
	if !found || !ended {
		t.Fatalf("%s shows no configuration of HAProxy", page)
	}
	return text + "\n"
}

// Start starts HAProxy with the configuration of the page. Only addresses, and the file with the
// certificate, are others; plain takes TLS away, for clients that take no authority.
func Start(t testing.TB, page string, plain bool, hosts ...string) *Balancer {
	t.Helper()
	path := "/usr/sbin/haproxy"
	if _, err := os.Stat(path); err != nil {
		needs.Skip(t, "HAProxy is not installed")
	}
	b := &Balancer{t: t, bin: path, dir: t.TempDir()}
	b.file = filepath.Join(b.dir, "haproxy.cfg")
	at, text := free(t), Config(t, page)
	scheme, bind := "https", at+" ssl crt "+b.certificate()
	if plain {
		scheme, bind = "http", at
	}
	pairs := []string{":443 ssl crt /etc/haproxy/caponier.pem", bind, "10.0.0.11:8642", hosts[0],
		"10.0.0.12:8642", hosts[1]}
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("the configuration of %s has no %q, or has it twice", page, pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "-c", "-f", b.file).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("WARNING")) {
		t.Fatalf("HAProxy does not take it: %v\n%s", err, out)
	}
	b.URL = scheme + "://" + at + "/mcp"
	b.Run()
	t.Cleanup(b.Kill)
	return b
}

func free(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificate makes one for 127.0.0.1, with its key in one file.
func (b *Balancer) certificate() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		b.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		b.t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	b.Roots = x509.NewCertPool()
	b.Roots.AppendCertsFromPEM(text)
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	file := filepath.Join(b.dir, "caponier.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// Transport trusts the balancer.
func (b *Balancer) Transport() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: b.Roots},
		MaxIdleConnsPerHost: 64}
}

// Run starts it, also again after Kill, and returns when it accepts connections.
func (b *Balancer) Run() {
	b.t.Helper()
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	b.cmd = exec.Command(b.bin, "-db", "-f", b.file)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	at := strings.TrimSuffix(b.URL[strings.Index(b.URL, "//")+2:], "/mcp")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	said, _ := os.ReadFile(filepath.Join(b.dir, "log"))
	b.t.Fatalf("HAProxy does not accept connections:\n%s", said)
}

// Kill ends it at once (kill -9).
func (b *Balancer) Kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.cmd = nil
}
