package http

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpfront "github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/terms"
)

func TestASlowClientHoldsNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t, helloDoor(), nil)
	url, _ := serve(t, s)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	fmt.Fprint(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(c).ReadString(0); err != io.EOF ||
		time.Since(began) > 20*time.Second {
		t.Errorf("a header that never ends was waited for %s: %v", time.Since(began), err)
	}
	eventually(t, "it is counted", func() bool { return s.refusals() == 1 })
}

func TestAClientThatDoesNotReadOrWriteIsGivenUp(t *testing.T) {
	big := says(
		`{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat(
			"AAAA",
			2<<20,
		) + `"}]}`,
	)
	s := newServer(
		t,
		&fakeDoor{Calls: map[string]func(context.Context,
			terms.Request) terms.Answer{"hello": big}},
		func(o *opts) { o.MaxOutput = 64 << 20 },
	)
	s.web.ioTimeout = 300 * time.Millisecond
	url, _ := serve(t, s)
	for name, body := range map[string]string{"does not read": fmt.Sprintf(modernCall, "{}"),
		"does not write": ""} {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// so that the kernel does not take the answer for the client
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		fmt.Fprintf(
			c,
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: "+
				"application/json, text/event-stream\r\nMcp-Protocol-Version: 2026-07-28\r\n"+
				"Mcp-Method: tools/call\r\nMcp-Name: hello\r\nContent-Length: %d\r\n\r\n%s",
			len(fmt.Sprintf(modernCall, "{}")),
			body,
		)
		if body == "" {
			if status, err := bufio.NewReader(c).ReadString('\n'); err != nil ||
				!strings.Contains(status, "400") ||
				time.Since(began) > 20*time.Second {
				t.Errorf("%s: %v %s after %s", name, err, status, time.Since(began))
			}
			continue
		}
		eventually(t, "the call has begun", func() bool { return s.web.running.Load() == 1 })
		// less than it would be held without the limit
		if !mcpfront.WaitFor(func() bool { return s.web.running.Load() == 0 }, 20*time.Second) {
			t.Errorf("%s: still held", name)
		}
	}
}

func TestSessionsAreCappedEndAndBelongToTheirUser(t *testing.T) {
	s := newServer(
		t,
		helloDoor(),
		func(o *opts) { o.MaxSessions = 2; o.SessionIdle = time.Hour },
	)
	url, _ := serve(t, s)
	begin := func(url, who string) (*http.Response, string) {
		req, err := http.NewRequest("POST", url+"/mcp", strings.NewReader(initialize))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Content-Type":   {"application/json"},
			"Accept":         {"application/json, text/event-stream"},
			"Test-Principal": {who},
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res, res.Header.Get("Mcp-Session-Id")
	}
	_, a := begin(url, "anna")
	begin(url, "bert")
	res, _ := begin(url, "carl")
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("third session of two: %d %v", res.StatusCode, res.Header)
	}
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if status, _ := send(t, url, "POST", "/mcp", list,
		map[string]string{"Mcp-Session-Id": a, "Test-Principal": "bert"}); status != 403 {
		t.Errorf("bert with anna's session: %d", status)
	}
	if status, body := send(t, url, "POST", "/mcp", list,
		map[string]string{"Mcp-Session-Id": a, "Test-Principal": "anna"}); status != 200 {
		t.Errorf("anna with her session: %d %s", status, body)
	}
	if status, body := send(t, url, "POST", "/mcp", modernList,
		map[string]string{"Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "tools/list"}); status != 200 {
		t.Errorf("a client without sessions does not need room: %d %s", status, body)
	}
	if status, _ := send(t, url, "DELETE", "/mcp", "",
		map[string]string{"Mcp-Session-Id": a, "Test-Principal": "anna"}); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	eventually(t, "room after DELETE", func() bool { return s.open() == 1 })
	if res, _ := begin(url, "carl"); res.StatusCode != 200 {
		t.Errorf("no room after DELETE: %d", res.StatusCode)
	}
	idle := newServer(t, helloDoor(), func(o *opts) {
		o.MaxSessions = 1
		o.SessionIdle = 100 * time.Millisecond
	})
	url, _ = serve(t, idle)
	if res, _ := begin(url, "anna"); res.StatusCode != 200 {
		t.Errorf("the first session of one: %d", res.StatusCode)
	}
	eventually(t, "idle sessions end", func() bool { return idle.open() == 0 })
	if res, _ := begin(url, "bert"); res.StatusCode != 200 {
		t.Errorf("no room after an idle session: %d", res.StatusCode)
	}
}

func TestMoreThanLoopbackNeedsProofAndTLS(t *testing.T) {
	for _, c := range []struct {
		name   string
		proves bool
		change func(*opts)
		says   string
	}{
		{"without authentication", false, func(o *opts) { o.BehindProxy = true },
			"needs callers who prove who they are"},
		{"without TLS", true, func(*opts) {}, "needs TLS"},
		{"without a readable certificate", true, func(o *opts) {
			o.TLSCert, o.TLSKey = "/nowhere", "/nowhere"
		}, "front.tls_cert"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(
				t,
				helloDoor(),
				func(o *opts) { o.Identity = fixedIdentity{c.proves}; c.change(o) },
			)
			err := s.web.Serve(t.Context(), anywhere{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := New(Options{}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "identity.http") {
		t.Errorf("without an identity: %v", err)
	}
}

// anywhere is a listener that claims an address beyond loopback and accepts nobody.
type anywhere struct{ net.Listener }

func (anywhere) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1),
		Port: 80}
}
func (anywhere) Accept() (net.Conn, error) { return nil, io.EOF }
func (anywhere) Close() error              { return nil }

func TestTLSIsServedAndOldTLSIsNot(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der},
		"key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, _ := serve(
		t,
		newServer(
			t,
			helloDoor(),
			func(o *opts) {
				o.TLSCert, o.TLSKey = filepath.Join(dir, "cert"),
					filepath.Join(dir, "key")
			},
		),
	)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	for version, good := range map[uint16]bool{tls.VersionTLS13: true, tls.VersionTLS12: true,
		tls.VersionTLS11: false} {
		client := http.Client{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{
					RootCAs:    pool,
					MinVersion: tls.VersionTLS10,
					MaxVersion: version,
				},
				DisableKeepAlives: true,
			},
		}
		res, err := client.Get(strings.Replace(url, "http:", "https:", 1) + "/health")
		if (err == nil) != good {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			res.Body.Close()
		}
	}
	if got := rawHTTP(t, url,
		"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); strings.Contains(
		got,
		"healthy",
	) {
		t.Error("plain HTTP is answered where there is TLS")
	}
}

func TestTooManyCallsAtOnceAreTurnedAway(t *testing.T) {
	door, started, _ := blockingDoor()
	s := newServer(t, door, func(o *opts) { o.MaxCalls = 4 })
	url, _ := serve(t, s)
	call := func(who, tool string) string {
		_, body := send(
			t,
			url,
			"POST",
			"/mcp",
			strings.Replace(fmt.Sprintf(modernCall, "{}"), "hello", tool, 1),
			map[string]string{
				"Mcp-Protocol-Version": "2026-07-28",
				"Mcp-Method":           "tools/call",
				"Mcp-Name":             tool,
				"Test-Principal":       who,
			},
		)
		return body
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, who := range []string{"anna", "anna", "bert", "bert"} {
		go func() {
			req := must(
				http.NewRequestWithContext(
					ctx,
					"POST",
					url+"/mcp",
					strings.NewReader(
						strings.Replace(fmt.Sprintf(modernCall, "{}"), "hello", "wait", 1),
					),
				),
			)
			req.Header = http.Header{
				"Content-Type":         {"application/json"},
				"Accept":               {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {"2026-07-28"},
				"Mcp-Method":           {"tools/call"},
				"Mcp-Name":             {"wait"},
				"Test-Principal":       {who},
			}
			if res, err := http.DefaultClient.Do(req); err == nil {
				res.Body.Close()
			}
		}()
		soon(t, "start", started)
		if who == "anna" {
			continue
		}
		if got := call("anna", "hello"); !strings.Contains(got, "-32016") {
			t.Errorf("anna's third call: %s", got)
		}
	}
	if got := call("carl", "hello"); !strings.Contains(got, "-32016") {
		t.Errorf("a fifth call of four: %s", got)
	}
	cancel()
	eventually(t, "room again", func() bool {
		return strings.Contains(call("anna", "hello"), `"isError"`) ||
			strings.Contains(call("anna", "hello"), `"content":[]`)
	})
}

func TestTheClientsCredentialsGoNoFurther(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	seen := make(chan http.Header, 10)
	h := s.web.private(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }),
	)
	req, err := http.NewRequest("POST", "/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer canary")
	req.Header.Set("Cookie", "canary")
	fixedIdentity{}.Middleware(h).ServeHTTP(nopResponse{}, req)
	if got := fmt.Sprint(<-seen); strings.Contains(got, "canary") {
		t.Errorf("handlers see %s", got)
	}
}

func TestDefaultsAreAHundredSessionsHalfOfThemForOneCallerAndOneHour(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	if s.web.opts.SessionIdle != time.Hour {
		t.Errorf("an idle session ends after %s", s.web.opts.SessionIdle)
	}
	url, _ := serve(t, s)
	for i, who := range append(slices.Repeat([]string{"anna"}, 51),
		append(slices.Repeat([]string{"bert"}, 50), "carl")...) {
		want, says := 200, ""
		if i == 50 || i == 101 {
			want, says = 503, "all 100 sessions are taken, or you have half of them"
		}
		if status, body := send(t, url, "POST", "/mcp", initialize,
			map[string]string{"Test-Principal": who}); status != want ||
			!strings.Contains(body, says) {
			t.Errorf("session %d, of %s: %d %s, want %d", i+1, who, status, body, want)
		}
	}
	if status, _ := send(t, url, "POST", "/mcp", modernList,
		map[string]string{"Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "tools/list"}); status != 200 {
		t.Errorf("who needs no session is turned away: %d", status)
	}
}

// revocable admits everybody until it is told not to.
type revocable struct {
	fixedIdentity
	revoked atomic.Bool
}

func (v *revocable) Admitted(context.Context) error {
	if v.revoked.Load() {
		return errors.New("the token was revoked")
	}
	return nil
}

func TestAnOpenStreamEndsWithItsToken(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			who := &revocable{}
			s := newServer(t, helloDoor(), func(o *opts) { o.Identity = who })
			s.web.recheck = 50 * time.Millisecond
			url, _ := serve(t, s)
			headers := http.Header{
				"Content-Type":         {"application/json"},
				"Accept":               {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {version},
			}
			ask := func(method, body string) *http.Response {
				t.Helper()
				req := must(http.NewRequest(method, url+"/mcp", strings.NewReader(body)))
				req.Header = headers.Clone()
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			var stream *http.Response
			if version == sessionVersions[len(sessionVersions)-1] {
				res := ask("POST", initialize)
				res.Body.Close()
				headers.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
				stream = ask("GET", "")
			} else {
				headers.Set("Mcp-Method", "subscriptions/listen")
				stream = ask("POST", `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen",`+
					`"params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`)
			}
			defer stream.Body.Close()
			if stream.StatusCode != 200 {
				body, _ := io.ReadAll(stream.Body)
				t.Fatalf("no stream: %d %s", stream.StatusCode, body)
			}
			ended := make(chan error, 1)
			go func() { _, err := io.Copy(io.Discard, stream.Body); ended <- err }()
			select {
			case <-ended:
				t.Fatal("the stream ended while its token was good")
			case <-time.After(300 * time.Millisecond):
			}
			who.revoked.Store(true)
			_ = soon(t, "the stream ends", ended)
		})
	}
}
