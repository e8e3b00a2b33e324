package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// callOf is a tool call with n bytes in its arguments, or another message as large.
func callOf(method string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":"hello","arguments":`+
		`{"text":%q},%s}}`, method, strings.Repeat("a", n), modernMeta)
}

func post(t *testing.T, url, who, method string, body io.Reader) (int, string, http.Header) {
	t.Helper()
	req := must(http.NewRequest("POST", url+"/mcp", body))
	req.Header = http.Header{"Content-Type": {"application/json"}, "Test-Principal": {who},
		"Accept": {"application/json, text/event-stream"}, "Mcp-Method": {method},
		"Mcp-Protocol-Version": {"2026-07-28"}}
	if method == "tools/call" {
		req.Header.Set("Mcp-Name", "hello")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer res.Body.Close()
	return res.StatusCode, string(must(io.ReadAll(res.Body))), res.Header
}

// chunked hides the length of a body.
type chunked struct{ io.Reader }

func TestOnlyAToolCallMayBeLarge(t *testing.T) {
	const most = 1 << 20
	s := newServer(t, helloDoor(), func(o *opts) { o.MaxBody = most })
	url, _ := serve(t, s)
	fits := func(method string, n int) string { // a message of n bytes
		return callOf(method, n-len(callOf(method, 0)))
	}
	late := strings.Replace(callOf("tools/call", 100_000), `"method":"tools/call",`, "", 1)
	late = strings.TrimSuffix(late, "}") + `,"method":"tools/call"}`
	for name, c := range map[string]struct {
		method, body string
		status       int
		says         string
	}{
		"a call": {"tools/call", callOf("tools/call", 10), 200, "hi"},
		"a call of 64 KiB": {"tools/call", fits("tools/call", smallBody), 200,
			"hi"},
		"a call of 64 KiB and 1": {"tools/call", fits("tools/call", smallBody+1), 200,
			"hi"},
		"a call of the limit": {"tools/call", fits("tools/call", most), 200, "hi"},
		"a call over the limit": {"tools/call", fits("tools/call", most+1), 413,
			"over the limit of 1048576"},
		"a large ping": {"ping", fits("ping", smallBody+1), 413,
			"anything but tools/call"},
		"a large list": {"tools/list", callOf("tools/list", 200_000), 413,
			"anything but tools/call"},
		"a large call, its method last": {"tools/call", late, 413, "method before its params"},
		"a large list that calls itself so": {"tools/call", callOf("tools/list", 200_000), 413,
			"anything but"},
		"no JSON": {"tools/call", strings.Repeat("x", 200_000), 413, "anything but"},
	} {
		for _, how := range []string{"with a length", "in chunks"} {
			var body io.Reader = strings.NewReader(c.body)
			if how == "in chunks" {
				body = chunked{body}
			}
			status, got, _ := post(t, url, "anna", c.method, body)
			if status != c.status || !strings.Contains(got, c.says) {
				t.Errorf("%s %s: %d %.200s, want %d %s", name, how, status, got, c.status, c.says)
			}
		}
	}
	if used, waiting := s.web.bodies.Held(); used+waiting != 0 {
		t.Errorf("%d bytes are held when all is answered", used)
	}
}

// hold sends all of a large call but its last byte.
func hold(t *testing.T, url, who string, n int, begin []byte) net.Conn {
	t.Helper()
	c := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTest-Principal: %s\r\n"+
		"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hello\r\n"+
		"Content-Length: %d\r\n\r\n", who, n)
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(begin) // the server may refuse it before the end
	return c
}

// One caller that holds back the last byte of 450 large bodies takes its share of the budget and no
// more memory; others are served meanwhile.
func TestHeldBodiesHaveABudget(t *testing.T) {
	const size = 4_000_000
	s := newServer(t, helloDoor(), nil)
	url, _ := serve(t, s)
	begin := []byte(callOf("tools/call", size)[:size-1])
	var before, now runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&before)
	held := make([]net.Conn, 450)
	var wg sync.WaitGroup
	for i := range held {
		wg.Go(func() { held[i] = hold(t, url, "hostile", size, begin) })
	}
	wg.Wait()
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	eventually(t, "the share is full", func() bool {
		used, _ := s.web.bodies.Held()
		return used > 8<<20
	})
	status, got, header := post(t, url, "hostile", "tools/call",
		strings.NewReader(callOf("tools/call", size-1000)))
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(got, "memory") {
		t.Errorf("one more of the hostile caller: %d %.200s", status, got)
	}
	if !strings.Contains(s.numbers(), `caponier_refused_requests_total{reason="memory"}`) {
		t.Error("nothing is counted")
	}
	if used, _ := s.web.bodies.Held(); used > 16<<20 {
		t.Errorf("one principal holds %d bytes of 64 MiB", used)
	}
	runtime.GC()
	runtime.ReadMemStats(&now)
	grown := (int64(now.HeapAlloc) - int64(before.HeapAlloc)) >> 20
	t.Logf("450 held bodies of 4 MB: heap grew by %d MiB, system by %d MiB", grown,
		(int64(now.Sys)-int64(before.Sys))>>20)
	if system := (int64(now.Sys) - int64(before.Sys)) >> 20; grown > 64 || system > 64+64 {
		t.Errorf("the heap grew by %d MiB, the process by %d MiB", grown, system)
	}
	var took []time.Duration
	for range 10 {
		began := time.Now()
		if status, got, _ := post(t, url, "good", "tools/call",
			strings.NewReader(callOf("tools/call", 1<<20))); status != 200 {
			t.Errorf("another caller meanwhile: %d %.200s", status, got)
		}
		took = append(took, time.Since(began))
	}
	t.Logf("calls of 1 MiB of another caller: %v", took)
}

// Pings with 200,000 keys do not stop the calls of others: the limit of values ends them early, and
// decoding is shared fairly (host/fair holds the order of turns).
func TestLargePingsDoNotStopOthers(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	url, _ := serve(t, s)
	var meta strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&meta, `"k%d":1,`, i)
	}
	ping := func(method string) string {
		return fmt.Sprintf(
			`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":"hello","x":{%s},%s}}`,
			method, strings.TrimSuffix(meta.String(), ","), modernMeta)
	}
	if status, got, _ := post(t, url, "hostile", "ping",
		strings.NewReader(ping("ping"))); status != 413 {
		t.Errorf("a ping of 2 MB: %d %.200s", status, got)
	}
	status, got, _ := post(t, url, "hostile", "tools/call", strings.NewReader(ping("tools/call")))
	if status != 400 || !strings.Contains(got, "more than 10000 values") {
		t.Errorf("a call with 200,000 keys: %d %.200s", status, got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			for ctx.Err() == nil {
				post(t, url, "hostile", "tools/call", strings.NewReader(ping("tools/call")))
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	for range 10 {
		began := time.Now()
		if status, got, _ := post(t, url, "good", "tools/call",
			strings.NewReader(callOf("tools/call", 10))); status != 200 {
			t.Errorf("another caller meanwhile: %d %.200s", status, got)
		}
		t.Logf("another caller's call took %s", time.Since(began))
	}
	stop()
	wg.Wait()
}

// What is no call has a share of its own, of which one principal has half.
func TestPingsAndNotificationsCountAgainstTheirPrincipal(t *testing.T) {
	slow, release := make(chan error, 10), make(chan error)
	door := helloDoor()
	s := newServer(t, door, func(o *opts) {
		o.MaxCalls = 2
		o.Listing = func(ctx context.Context, p terms.Principal, _ *terms.Tool) terms.Decision {
			if p.ID == "hostile" {
				slow <- nil
				<-release
			}
			return terms.Decision{Tier: terms.Green}
		}
	})
	url, _ := serve(t, s)
	go post(t, url, "hostile", "tools/list", strings.NewReader(modernList))
	soon(t, "a list that takes long", slow)
	for _, method := range []string{"tools/list", "resources/list", "completion/complete"} {
		body := strings.Replace(modernList, "tools/list", method, 1)
		if _, got, _ := post(t, url, "hostile", method, strings.NewReader(body)); !strings.Contains(
			got, "-32016") {
			t.Errorf("%s beside a list of the same principal: %s", method, got)
		}
		if status, got, _ := post(t, url, "good", "tools/list",
			strings.NewReader(modernList)); status !=
			200 {
			t.Errorf("a list of another principal: %d %s", status, got)
		}
	}
	close(release)
}

func TestAHostWithAnOddPortIsRefused(t *testing.T) {
	url, _ := serve(t, newServer(t, helloDoor(), func(o *opts) {
		o.Hosts = []string{"ops.example"}
	}))
	for host, want := range map[string]int{
		"127.0.0.1:80": 200, "localhost:1": 200, "[::1]:80": 200, "ops.example:80": 200,
		"127.0.0.1:80.evil.test": 403, "localhost:evil.test": 403, "[::1]:80.evil.test": 403,
		"127.0.0.1:": 200, "ops.example:80.evil.test": 403, "[::1]evil.test": 403,
		"[::1": 403, "127.0.0.1:80:80": 403, "a@localhost": 403, "localhost#x": 403,
		"localhost?x": 403, "127.0.0.1%00.evil": 403,
	} {
		raw := "GET /health HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
		got := rawHTTP(t, url, raw)
		if status := fmt.Sprint("HTTP/1.1 ", want); !strings.HasPrefix(got, status) &&
			!(want == 403 && strings.HasPrefix(got, "HTTP/1.1 400")) {
			t.Errorf("%s: %.60s, want %d", host, got, want)
		}
	}
}

// hangs is an identity whose provider does not answer.
type hangs struct {
	fixedIdentity
	most time.Duration
}

func (h hangs) Middleware(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(h.most):
			http.Error(w, "callers cannot be identified now", http.StatusServiceUnavailable)
		case <-r.Context().Done():
		}
	})
}

// The identity has as long as a connection without a known caller has; its answer must arrive.
func TestAnIdentityProviderThatHangsIsAnswered503(t *testing.T) {
	const most = 500 * time.Millisecond
	s := newServer(t, helloDoor(), func(o *opts) { o.Identity = hangs{most: most} })
	s.web.unauthTimeout = most
	url, _ := serve(t, s)
	if status, got, _ := post(t, url, "anna", "tools/list",
		strings.NewReader(modernList)); status !=
		503 {
		t.Errorf("%d %s", status, got)
	}
}

// A subject that the provider knows and the site does not gets no session and no stream.
func TestACallerWithoutAGrantGetsNoSession(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	url, _ := serve(t, s)
	for name, c := range map[string]struct {
		method, body string
		headers      map[string]string
	}{
		"initialize": {"POST", initialize, nil},
		"a stream":   {"GET", "", map[string]string{"Accept": "text/event-stream"}},
		"discover": {"POST", strings.Replace(modernList, "tools/list", "server/discover", 1),
			map[string]string{"Mcp-Protocol-Version": "2026-07-28",
				"Mcp-Method": "server/discover"}},
		"a subscription": {"POST", strings.Replace(modernList, "tools/list", "subscriptions/listen",
			1),
			map[string]string{"Mcp-Protocol-Version": "2026-07-28",
				"Mcp-Method": "subscriptions/listen"}},
	} {
		headers := map[string]string{"Test-Principal": "nothing"}
		for k, v := range c.headers {
			headers[k] = v
		}
		status, body := send(t, url, c.method, "/mcp", c.body, headers)
		if status != 403 || !strings.Contains(body, "granted") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if s.open() != 0 {
		t.Errorf("%d sessions", s.open())
	}
	if status, _ := send(t, url, "POST", "/mcp", initialize, nil); status != 200 {
		t.Errorf("a caller with a grant: %d", status)
	}
}

// The gate asks the caller's identity before each operation of a running call.
func TestARunningCallAsksWhetherItsCallerIsStillAdmitted(t *testing.T) {
	who := &revoking{}
	door := helloDoor()
	var before, after error
	door.Calls["hello"] = func(ctx context.Context, r terms.Request) terms.Answer {
		before = r.Current(ctx)
		who.revoked = errors.New("the token was revoked")
		after = r.Current(ctx)
		return says(`{"content":[]}`)(ctx, r)
	}
	url, _ := serve(t, newServer(t, door, func(o *opts) { o.Identity = who }))
	if status, got, _ := post(t, url, "anna", "tools/call",
		strings.NewReader(callOf("tools/call", 1))); status != 200 {
		t.Fatalf("%d %s", status, got)
	}
	if before != nil || after != who.revoked {
		t.Errorf("before %v, after %v", before, after)
	}
}

type revoking struct {
	fixedIdentity
	revoked error
}

func (r *revoking) Current(context.Context) error { return r.revoked }
