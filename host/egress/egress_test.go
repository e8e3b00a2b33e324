package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestARequestIsSentAsItWasDecided(t *testing.T) {
	w := lab(t, Options{})
	var got *http.Request
	var body []byte
	a := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		rw.Header().Set("X-Answer", "1")
		rw.WriteHeader(201)
		io.WriteString(rw, "hello\x00")
	})
	v, err := w.ask(
		abi.HTTPRequest{Method: "POST", URL: a + "/p%2Fq?x=1&x=2",
			Headers: [][2]string{{"x-mine", "v"}}, Data: abi.Data{Text: "body"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.RequestURI != "/p%2Fq?x=1&x=2" ||
		!strings.HasPrefix(got.Host, "a.example:") ||
		got.Header.Get("X-Mine") != "v" ||
		string(body) != "body" ||
		got.Header.Get("User-Agent") != "caponier" {
		t.Errorf("the server got %v %q %q %v %q", got.Method, got.RequestURI, got.Host, got.Header,
			body)
	}
	if v.Status != 201 || v.Text != "" || v.B64 != "aGVsbG8A" || v.Bytes != 6 ||
		fmt.Sprint(v.Hops) != "[]" ||
		!strings.Contains(fmt.Sprint(v.Headers), "{X-Answer 1}") &&
			!strings.Contains(fmt.Sprint(v.Headers), "[X-Answer 1]") {
		t.Errorf("the guest got %+v", v)
	}
	if len(w.intents) != 3 || w.intents[1].Phase != "lookup" || w.intents[2].Phase != "effect" ||
		len(w.lookups) != 1 {
		t.Errorf(
			"journaled %+v after look-ups %v, want the call, the lookup and the effect of one "+
				"look-up",
			w.intents, w.lookups)
	}
}

func TestNothingIsKeptBetweenRequests(t *testing.T) {
	w := lab(t, Options{})
	seen, conns := "", map[string]bool{}
	a := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		seen += r.Header.Get("Cookie")
		conns[r.RemoteAddr] = true
		http.SetCookie(rw, &http.Cookie{Name: "sid", Value: "1", Path: "/"})
	})
	for range 3 {
		if _, err := w.ask(abi.HTTPRequest{URL: a + "/"}); err != nil {
			t.Fatal(err)
		}
	}
	if seen != "" || len(conns) != 3 {
		t.Errorf("cookies %q came back on %d connections, want none on 3", seen, len(conns))
	}
}

// Each redirect takes the door again; the server behind a refused one is never reached.
func TestRedirectsAreDecidedAgain(t *testing.T) {
	w := lab(t, Options{})
	var reached atomic.Int64
	secret := w.serve("secret.example", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	w.listed = w.listed[:0]
	end := w.serve("end.example",
		func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(rw, "%s %v", r.Method,
				r.Header)
		})
	to := ""
	a := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/again" {
			fmt.Fprint(rw, "again")
			return
		}
		rw.Header().Set("Location", to)
		rw.WriteHeader(302)
	})
	ask := func(location string, hops int) (abi.HTTPResponse, error) {
		to = location
		return w.ask(
			abi.HTTPRequest{URL: a + "/", MaxHops: hops,
				Headers: [][2]string{{"X-Api-Key", "k"}, {"Accept", "text/x"}}},
		)
	}
	_, err := ask(secret+"/", 3)
	refusedFor(t, err, "egress", "lookup")
	for _, spelling := range []string{"http://169.254.169.254/",
		"http://[::ffff:169.254.169.254]/latest", "http://2852039166/", "http://0xa9fea9fe/", "http://127.1:1/", "http://LOCALHOST/"} {
		if _, err := ask(spelling, 3); err == nil {
			t.Errorf("the redirect to %s was followed", spelling)
		}
	}
	w.names["rebound.example"], w.listed = []string{"169.254.169.254"}, append(w.listed,
		"rebound.example")
	_, err = ask("http://rebound.example/", 3)
	refusedFor(t, err, "class metadata", "effect")
	if reached.Load() != 0 {
		t.Error("a server was reached by a redirect that was refused")
	}
	v, err := ask("/again", 3)
	if err != nil || v.Text != "again" || len(v.Hops) != 1 || v.Hops[0].Status != 302 ||
		v.Hops[0].URL != a+"/" {
		t.Errorf("a relative redirect gave %+v, %v", v, err)
	}
	v, err = ask(end+"/", 1)
	if err != nil || !strings.Contains(v.Text, "text/x") || strings.Contains(v.Text, "X-Api-Key") {
		t.Errorf("across origins the server got %q, %v; want Accept without X-Api-Key", v.Text, err)
	}
	if v, err = ask(end+"/", 0); err != nil || v.Status != 302 {
		t.Errorf("a redirect that was not to be followed gave %+v, %v; want it as the answer", v,
			err)
	}
	if v, err = ask("/", 3); err != nil || v.Status != 302 || len(v.Hops) != 3 {
		t.Errorf("a loop ended with %+v, %v; want the last redirect after 3", v, err)
	}
}

func TestTheTimeIsForAllRedirectsTogether(t *testing.T) {
	w := lab(t, Options{})
	a := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		time.Sleep(300 * time.Millisecond)
		http.Redirect(rw, r, "/", http.StatusFound)
	})
	_, err := w.ask(abi.HTTPRequest{URL: a + "/", MaxHops: 4, Common: abi.Common{TimeoutMS: 1000}})
	failedWith(t, err, "timeout", "timed out", terms.Failed)
}

func TestRedirects(t *testing.T) {
	from, _ := parseURL("https://a.example/dir/x")
	for name, tt := range map[string]struct {
		method   string
		status   int
		location string
		want     string // METHOD URL body headers credential, "" when it is not followed
		err      string
	}{
		"303 after POST becomes GET": {"POST", 303, "y",
			"GET https://a.example/dir/y  [[X 1]] c", ""},
		"302 after POST becomes GET": {"POST", 302, "/y",
			"GET https://a.example/y  [[X 1]] c", ""},
		"302 after DELETE stays": {"DELETE", 302, "/y",
			"DELETE https://a.example/y b [[Content-Type t] [X 1]] c", ""},
		"307 after POST stays": {"POST", 307, "/y",
			"POST https://a.example/y b [[Content-Type t] [X 1]] c", ""},
		"307 after POST to another origin is not": {"POST", 307, "https://b.example/", "", ""},
		"307 to another port is another origin": {"POST", 307, "https://a.example:8443/", "",
			""},
		"303 to another origin drops the credential": {"POST", 303, "https://b.example/",
			"GET https://b.example/  [] ", ""},
		"another scheme is another origin": {"GET", 301, "http://a.example/",
			"GET http://a.example/ b [] ", ""},
		"the same origin with its port": {"POST", 308, "https://A.example:443/#f",
			"POST https://a.example:443/ b [[Content-Type t] [X 1]] c", ""},
		"304 is no redirect": {"GET", 304, "/y", "", ""},
		"no location":        {"GET", 302, "", "", ""},
		"a user name": {"GET", 302, "https://u:p@a.example/", "",
			"user name"},
		"another protocol": {"GET", 302, "file:///etc/passwd", "",
			"http://"},
		"an address in octal": {"GET", 302, "http://0177.0.0.1/", "",
			"a host is"},
		"a control character": {"GET", 302, "https://a.example/\r\nX: y", "",
			"not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			op := abi.HTTPRequest{Method: tt.method, URL: from.String(), Data: abi.Data{Text: "b"},
				Headers: [][2]string{{"Content-Type", "t"}, {"X", "1"}}, Credential: "c",
				MaxHops: 1}
			n, yes, err := next(op, from, tt.status, tt.location)
			if tt.err != "" {
				failedWith(t, err, "bad_redirect", tt.err, terms.Failed)
				return
			}
			got := ""
			if yes {
				got = fmt.Sprintf("%s %s %s %v %s", n.Method, n.URL, n.Text, n.Headers,
					n.Credential)
			}
			if err != nil || got != tt.want || yes && (n.Hop != 1 || len(n.Hops) != 1) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// A name that means another address the second time is asked once: only what was decided is
// dialled.
func TestRebinding(t *testing.T) {
	w := lab(t, Options{})
	var reached atomic.Int64
	a := w.serve("a.example", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	real := w.e.opts.Resolve
	w.e.opts.Resolve = func(ctx context.Context, host string) (ips []netip.Addr, err error) {
		ips, err = real(ctx, host)
		w.names["a.example"] = []string{"169.254.169.254"}
		return ips, err
	}
	if _, err := w.ask(abi.HTTPRequest{URL: a + "/"}); err != nil || reached.Load() != 1 ||
		len(w.lookups) != 1 {
		t.Errorf("error %v, %d requests after look-ups %v; want one after one", err, reached.Load(),
			w.lookups)
	}
	_, err := w.ask(abi.HTTPRequest{URL: a + "/"})
	refusedFor(t, err, "class metadata", "effect")

	// Facts that were not decided for this address give no connection.
	tg, _ := parseURL(a + "/")
	for why, addrs := range map[string][]terms.Addr{"another class": {{IP: "127.0.0.1",
		Class: "global"}}, "no facts": nil} {
		_, err := w.e.Execute(
			context.Background(),
			terms.Question{Call: &terms.Call{Tool: &terms.Tool{Name: "curl"}},
				Op:    abi.HTTPRequest{Method: "GET", URL: tg.String()},
				Facts: terms.Facts{Addrs: addrs}},
			terms.Decision{Allow: true},
		)
		if err == nil || !strings.Contains(err.Error(), "decided") || reached.Load() != 1 {
			t.Errorf(
				"%s: error %v after %d requests, want one about what was decided, and no new "+
					"request",
				why, err, reached.Load())
		}
	}
	if err := decided([]terms.Addr{{IP: "127.0.0.1", Class: "loopback"}}, "tcp4", "127.0.0.1:81",
		80); err == nil {
		t.Error("another port was dialled")
	}
	if err := decided([]terms.Addr{{IP: "127.0.0.1", Class: "loopback"}}, "tcp4", "127.0.0.2:80",
		80); err == nil {
		t.Error("another address was dialled")
	}
}

func TestHostileServers(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 64 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	bomb := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		rw.Write(packed.Bytes())
	}
	for name, tt := range map[string]struct {
		serve   http.HandlerFunc
		op      abi.HTTPRequest
		code    string
		words   string
		outcome terms.Outcome
	}{
		"a gzip bomb": {serve: bomb, code: "too_large",
			words: "longer than allowed", outcome: terms.Failed},
		"a gzip bomb that is to be saved": {serve: bomb, op: abi.HTTPRequest{Save: true},
			code: "too_large", words: "longer than allowed", outcome: terms.Failed},
		"a body without end": {serve: func(rw http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := rw.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, code: "too_large", words: "longer than allowed", outcome: terms.Failed},
		"a slow body": {serve: func(rw http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				rw.Write([]byte("x"))
				rw.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		}, op: abi.HTTPRequest{Common: abi.Common{TimeoutMS: 2000}}, code: "timeout",
			words: "did not end in time", outcome: terms.Failed},
		"no answer to a GET": {serve: func(rw http.ResponseWriter,
			r *http.Request) {
			<-r.Context().Done()
		}, op: abi.HTTPRequest{Common: abi.Common{TimeoutMS: 200}}, code: "timeout",
			words: "timed out", outcome: terms.Failed},
		"no answer to a POST": {serve: func(rw http.ResponseWriter,
			r *http.Request) {
			io.ReadAll(r.Body)
			<-r.Context().Done()
		},
			op: abi.HTTPRequest{Method: "POST",
				Common: abi.Common{TimeoutMS: 2000}}, code: "timeout", words: "timed out",
			outcome: terms.Unknown},
		"a connection that breaks after a POST": {serve: func(rw http.ResponseWriter,
			r *http.Request) {
			panic(http.ErrAbortHandler)
		},
			op: abi.HTTPRequest{Method: "POST",
				Data: abi.Data{Text: "x"}}, code: "connection", words: "POST",
			outcome: terms.Unknown},
		"headers without end": {serve: func(rw http.ResponseWriter, r *http.Request) {
			for i := range 2000 {
				rw.Header().Set(fmt.Sprint("X-", i), strings.Repeat("y", 100))
			}
		}, code: "connection", words: "header", outcome: terms.Failed},
		"an encoding that was not asked for": {serve: func(rw http.ResponseWriter,
			r *http.Request) {
			rw.Header().Set("Content-Encoding", "br")
			rw.Write([]byte("x"))
		}, code: "body", words: "not asked for", outcome: terms.Failed},
		"two encodings": {serve: func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip, gzip")
			rw.Write([]byte("x"))
		}, code: "body", words: "not asked for", outcome: terms.Failed},
		"gzip that is none": {serve: func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Write([]byte("not gzip at all"))
		}, code: "body", words: "gzip", outcome: terms.Failed},
		"a body shorter than it says": {serve: func(rw http.ResponseWriter, r *http.Request) {
			c, b, _ := rw.(http.Hijacker).Hijack()
			b.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
			b.Flush()
			c.Close()
		}, code: "body", words: "EOF", outcome: terms.Failed},
		"an answer that is not HTTP": {serve: func(rw http.ResponseWriter, r *http.Request) {
			c, b, _ := rw.(http.Hijacker).Hijack()
			b.WriteString("SSH-2.0-" + strings.Repeat("x", 5000) + "\r\n")
			b.Flush()
			c.Close()
		}, code: "connection", words: "malformed", outcome: terms.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			w := lab(t, Options{MaxBody: 2 << 20})
			tt.op.URL = w.serve("a.example", tt.serve) + "/"
			began := time.Now()
			_, err := w.ask(tt.op)
			failedWith(t, err, tt.code, tt.words, tt.outcome)
			if n := len(err.Error()); n > 500 {
				t.Errorf("the error has %d bytes", n)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %s", d)
			}
			if held, _ := w.e.room.Held(); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
		})
	}
}

func TestAPortThatIsClosed(t *testing.T) {
	w := lab(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	w.names["a.example"], w.listed = []string{"127.0.0.1"}, []string{"a.example", "none.example"}
	_, err = w.ask(abi.HTTPRequest{Method: "POST", URL: fmt.Sprintf("http://a.example:%d/", port)})
	failedWith(t, err, "connection", "refused", terms.Failed)
	_, err = w.ask(abi.HTTPRequest{URL: "http://none.example/"})
	failedWith(t, err, "dns", "no such host", terms.Failed)
}

func TestCertificatesAreVerified(t *testing.T) {
	s := httptest.NewUnstartedServer(
		http.HandlerFunc(
			func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "ok") }),
	)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	w := lab(t, Options{})
	_, err := w.ask(abi.HTTPRequest{URL: w.named("example.com", s) + "/"})
	failedWith(t, err, "connection", "certificate", terms.Failed)
	w = lab(t, Options{CAFile: ca})
	if v, err := w.ask(abi.HTTPRequest{URL: w.named("example.com", s) + "/"}); err != nil ||
		v.Text != "ok" {
		t.Errorf("a certificate of ca_file gave %+v, %v", v, err)
	}
	_, err = w.ask(abi.HTTPRequest{URL: w.named("other.test", s) + "/"})
	failedWith(t, err, "connection", "not other.test", terms.Failed)
	old := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = s.Config.ErrorLog
	old.StartTLS()
	defer old.Close()
	_, err = w.ask(abi.HTTPRequest{URL: w.named("example.com", old) + "/"})
	failedWith(t, err, "connection", "protocol version", terms.Failed)
}

func TestRatesAndMemoryAreLimited(t *testing.T) {
	w := lab(t, Options{PerHost: 2, PerPrincipal: 3, MaxBody: 1 << 20})
	ok := func(rw http.ResponseWriter, r *http.Request) {}
	a, b := w.serve("a.example", ok), w.serve("b.example", ok)
	for i, tt := range []struct{ url, words string }{{a, ""}, {a, ""},
		{a, "to a.example: more than 2 requests in 60 seconds; come back at 14:01:01 UTC"}, {b,
			"by p: more than 3"}} {
		_, err := w.ask(abi.HTTPRequest{URL: tt.url + "/"})
		if tt.words != "" {
			failedWith(t, err, "rate", tt.words, terms.Failed)
		} else if err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	w.counts = map[string]int64{}
	w.e.room.TryAcquireN("another", memory)
	_, err := w.ask(abi.HTTPRequest{URL: a + "/"})
	failedWith(t, err, "busy", "try again", terms.Failed)
	w.e.room.ReleaseN("another", memory)
	if _, err := w.ask(abi.HTTPRequest{URL: a + "/"}); err != nil {
		t.Error(err)
	}
}

func TestBodiesAreInlineOrSaved(t *testing.T) {
	w := lab(t, Options{})
	a := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
		io.WriteString(rw, `{"a":1}`)
	})
	for name, tt := range map[string]struct {
		op     abi.HTTPRequest
		max    int64
		inline bool
		code   string
	}{
		"inline": {inline: true}, "saved": {op: abi.HTTPRequest{Save: true}},
		"saved when over max_bytes": {op: abi.HTTPRequest{Save: true, MaxBytes: 6}},
		"inline when not over max_bytes": {op: abi.HTTPRequest{Save: true, MaxBytes: 7},
			inline: true}, "over max_bytes": {op: abi.HTTPRequest{MaxBytes: 6}, code: "too_large"},
		"over what policy obliges to": {op: abi.HTTPRequest{Save: true}, max: 6,
			code: "too_large"}} {
		t.Run(name, func(t *testing.T) {
			w.ob, w.kept, tt.op.URL = terms.Obligations{
				MaxBytes: tt.max,
			}, map[string]string{}, a+"/"
			v, err := w.ask(tt.op)
			if tt.code != "" {
				failedWith(t, err, tt.code, "", terms.Failed)
				return
			}
			if err != nil || tt.inline != (v.Text == `{"a":1}`) || tt.inline == (v.Blob == "b1") ||
				tt.inline == (w.kept["p application/json"] == `{"a":1}`) ||
				v.Bytes != 7 {
				t.Errorf("got %+v, %v, kept %v", v, err, w.kept)
			}
		})
	}
}

func TestGzipIsRead(t *testing.T) {
	w := lab(t, Options{})
	a := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("asked for %q", r.Header.Get("Accept-Encoding"))
		}
		rw.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(rw)
		io.WriteString(z, strings.Repeat("hello ", 1000))
		z.Close()
	})
	v, err := w.ask(abi.HTTPRequest{URL: a + "/"})
	if err != nil || v.Text != strings.Repeat("hello ", 1000) ||
		strings.Contains(fmt.Sprint(v.Headers), "Encoding") {
		t.Errorf("got %d bytes, %v, %v", len(v.Text), v.Headers, err)
	}
	if v, err = w.ask(abi.HTTPRequest{Method: "HEAD", URL: a + "/"}); err != nil ||
		v.Status != 200 ||
		v.Bytes != 0 {
		t.Errorf("HEAD gave %+v, %v", v, err)
	}
}

func TestValidateNamesTheWrongOption(t *testing.T) {
	good := Credential{Name: "c", Origins: []string{"https://a.example"}, Tools: []string{"t"},
		Secret: "12345678"}
	with := func(f func(*Credential)) Options {
		c := good
		f(&c)
		return Options{Credentials: []Credential{c}}
	}
	for words, o := range map[string]Options{
		"egress.timeout:":            {Timeout: -1},
		"egress.max_body:":           {MaxBody: 65 << 20},
		"egress.per_host:":           {PerHost: -1},
		"egress.per_principal:":      {PerPrincipal: -1},
		"egress.usd_micros_per_day:": {USDMicrosPerDay: -1},
		"name is missing":            with(func(c *Credential) { c.Name = "" }),
		"origins and tools":          with(func(c *Credential) { c.Tools = nil }),
		"at least 8 characters":      with(func(c *Credential) { c.Secret = "short" }),
		"on one line":                with(func(c *Credential) { c.Secret = "12345678\r\nX: y" }),
		"only by the host":           with(func(c *Credential) { c.Header = "host" }),
		"an origin ends": with(func(c *Credential) {
			c.Origins = []string{"https://a.example/v1"}
		}),
		"begins with http": with(func(c *Credential) { c.Origins = []string{"a.example"} }),
		"twice":            {Credentials: []Credential{good, good}},
		"model is missing": {Prices: []Price{{Origin: "https://a.example"}}},
		"prices are 0":     {Prices: []Price{{Origin: "https://a.example", Model: "m", Input: -1}}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), words) ||
			!strings.HasPrefix(err.Error(), "egress.") {
			t.Errorf("error %v, want one with %q that begins with its key", err, words)
		}
	}
	given := Options{Credentials: []Credential{good}}
	o, err := given.ready()
	if err != nil || o.Credentials[0].Header != "Authorization" ||
		o.Credentials[0].Prefix != "Bearer " || o.Timeout != 30*time.Second ||
		!reflect.DeepEqual(o.Credentials[0].origins, []string{"https://a.example:443"}) {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	if !reflect.DeepEqual(given, Options{Credentials: []Credential{good}}) {
		t.Errorf("the options that were given changed: %+v", given)
	}
}

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	o, err := Options{}.ready()
	if err != nil {
		t.Fatal(err)
	}
	if o.Timeout != 30*time.Second || o.MaxBody != 10<<20 ||
		o.PerHost != 60 ||
		o.PerPrincipal != 300 ||
		o.USDMicrosPerDay != 0 {
		t.Errorf("%+v", o)
	}
}
