package http

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// tokened knows only who brings a token, as every identity that proves something.
type tokened struct{ fixedIdentity }

func (i tokened) Middleware(next http.Handler) http.Handler {
	inner := i.fixedIdentity.Middleware(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// wire is one connection, written by hand.
type wire struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, url string) *wire {
	t.Helper()
	c := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))
	t.Cleanup(func() { c.Close() })
	return &wire{c, t, bufio.NewReader(c)}
}

// gap is the time between two requests whose order the server has to see.
const gap = 300 * time.Millisecond

const withToken = "Authorization: Bearer x\r\n"

// ask sends a request and gives the status of its answer, whose body it reads.
func (l *wire) ask(method, path, headers string) int {
	l.t.Helper()
	body := ""
	if method == "POST" {
		body = modernList
		headers += fmt.Sprintf(
			"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
				"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: "+
				"%d\r\n",
			len(body),
		)
	}
	if err := l.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		l.t.Fatal(err)
	}
	fmt.Fprintf(l, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", method, path, headers, body)
	res, err := http.ReadResponse(l.r, nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		l.t.Error(err)
	}
	return res.StatusCode
}

// closed says whether the server has hung up within the time.
func (l *wire) closed(within time.Duration) bool {
	if err := l.SetReadDeadline(time.Now().Add(within)); err != nil {
		return true
	}
	_, err := l.r.Peek(1)
	timeout, is := err.(net.Error)
	return err != nil && !(is && timeout.Timeout())
}

func TestIdleConnectionsShutNobodyOut(t *testing.T) {
	for name, c := range map[string]struct {
		use  func(*wire) int // of each of three connections
		want int
	}{
		"that sent nothing": {func(*wire) int { return 0 }, 0},
		"that look at the health": {func(l *wire) int {
			return l.ask("GET", "/health", "")
		}, 200},
		"that were refused": {func(l *wire) int {
			return l.ask("POST", "/mcp", "")
		}, 401},
		"that are in the middle of a header": {func(l *wire) int {
			fmt.Fprint(l, "GET /health HTTP/1.1\r\nX: ")
			return 0
		}, 0},
		"that promise a body": {func(l *wire) int {
			fmt.Fprint(l, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
			return 0
		}, 0},
		"of a known caller, between two of its": {func(l *wire) int {
			return l.ask("POST", "/mcp", withToken)
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(
				t,
				newServer(
					t,
					helloDoor(),
					func(o *opts) { o.MaxConns, o.Identity = 3, tokened{} },
				),
			)
			var idle []*wire
			for range 3 {
				l := dial(t, url)
				if got := c.use(l); got != c.want {
					t.Fatalf("%d, want %d", got, c.want)
				}
				idle = append(idle, l)
				time.Sleep(gap) // so that it is known which is the oldest
			}
			if got := dial(t, url).ask("POST", "/mcp", withToken); got != 200 {
				t.Errorf("a fourth connection of three: %d", got)
			}
			if !idle[0].closed(5 * time.Second) {
				t.Error("the oldest is still open")
			}
		})
	}
}

func TestForANewConnectionTheLeastUsefulOneIsClosed(t *testing.T) {
	url, _ := serve(
		t,
		newServer(t, helloDoor(), func(o *opts) { o.MaxConns, o.Identity = 3, tokened{} }),
	)
	known, again, stranger := dial(t, url), dial(t, url), dial(t, url)
	for _, l := range []*wire{known, again, known} {
		if got := l.ask("POST", "/mcp", withToken); got != 200 {
			t.Fatal(got)
		}
		time.Sleep(gap)
	}
	if got := stranger.ask("GET", "/health", ""); got != 200 {
		t.Fatal(got)
	}
	next := dial(t, url)
	if got := next.ask("POST", "/mcp", withToken); got != 200 || !stranger.closed(10*time.Second) {
		t.Errorf("%d: a stranger's newer connection goes first", got)
	}
	if got := dial(t, url).ask("POST", "/mcp", withToken); got != 200 ||
		!again.closed(10*time.Second) ||
		known.closed(50*time.Millisecond) {
		t.Errorf("%d: then the one that was idle for longest", got)
	}
	if got := next.ask("POST", "/mcp", ""); got != 401 {
		t.Fatal(got)
	}
	if got := dial(t, url).ask("POST", "/mcp", withToken); got != 200 ||
		!next.closed(5*time.Second) ||
		known.closed(50*time.Millisecond) {
		t.Errorf(
			"%d: a known caller's connection is a stranger's after a request without a token",
			got,
		)
	}
}

func TestAConnectionAtWorkIsNotClosedForANewOne(t *testing.T) {
	door, started, _ := blockingDoor()
	s := newServer(t, door, func(o *opts) { o.MaxConns, o.Identity = 1, tokened{} })
	url, stop := serve(t, s)
	busy := dial(t, url)
	body := strings.Replace(fmt.Sprintf(modernCall, "{}"), "hello", "wait", 1)
	fmt.Fprintf(
		busy,
		"POST /mcp HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\nAccept: "+
			"application/json, text/event-stream\r\nMcp-Protocol-Version: 2026-07-28\r\n"+
			"Mcp-Method: tools/call\r\nMcp-Name: wait\r\nContent-Length: %d\r\n\r\n%s",
		withToken,
		len(body),
		body,
	)
	soon(t, "start", started)
	waiting := dial(t, url)
	fmt.Fprint(waiting, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if busy.closed(200*time.Millisecond) || waiting.closed(50*time.Millisecond) ||
		waiting.r.Buffered() > 0 {
		t.Error("the call was cut off, or there are two connections of one")
	}
	busy.Close()
	if waiting.closed(20*time.Second) || waiting.r.Buffered() == 0 {
		t.Error("the next one is not served when there is room")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestOneCallersStreamsDoNotTakeAllConnections(t *testing.T) {
	s := newServer(t, helloDoor(), func(o *opts) { o.MaxConns, o.Identity = 8, tokened{} })
	url, _ := serve(t, s)
	listen := func(who string) string {
		body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen",` +
			`"params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
		l := dial(t, url)
		_ = l.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(
			l,
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\n%sTest-Principal: %s\r\nContent-Type: "+
				"application/json\r\nAccept: application/json, text/event-stream\r\n"+
				"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n"+
				"Content-Length: %d\r\n\r\n%s",
			withToken,
			who,
			len(body),
			body,
		)
		status, err := l.r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(status)
	}
	for i, c := range []struct{ who, want string }{{"anna", "200 OK"}, {"anna", "200 OK"},
		{"anna", "503 Service Unavailable"}, {"bert", "200 OK"}, {"bert", "200 OK"},
		{"carl", "503 Service Unavailable"}} {
		if got := listen(c.who); got != "HTTP/1.1 "+c.want {
			t.Errorf("stream %d, of %s: %s", i+1, c.who, got)
		}
	}
	if got := dial(t, url).ask("POST", "/mcp", withToken); got != 200 {
		t.Errorf("a list beside the streams: %d", got)
	}
}

func TestAStrangersConnectionEndsSoon(t *testing.T) {
	slow := func(ctx context.Context, r terms.Request) terms.Answer {
		select {
		case <-ctx.Done():
			return terms.Answer{CallID: "C1", Outcome: terms.Unknown, Err: ctx.Err()}
		case <-time.After(3 * time.Second):
			return says(`{"content":[{"type":"text","text":"slowly"}]}`)(ctx, r)
		}
	}
	s := newServer(
		t,
		&fakeDoor{
			Calls: map[string]func(context.Context, terms.Request) terms.Answer{"hello": slow},
		},
		func(o *opts) { o.Identity = tokened{} },
	)
	s.web.unauthTimeout = time.Second
	url, _ := serve(t, s)
	known := dial(t, url)
	if got := known.ask("POST", "/mcp", withToken); got != 200 {
		t.Fatal(got)
	}
	for name, begin := range map[string]string{
		"nothing sent":                "",
		"idle after a look at health": "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"idle after a refusal":        "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a body that never comes": "POST /health HTTP/1.1\r\nHost: localhost\r\n" +
			"Content-Length: 100\r\n\r\n",
		"a body that never comes, /mcp": "POST /mcp HTTP/1.1\r\nHost: localhost\r\n" +
			"Content-Length: 100\r\n\r\n",
		"a body that comes bit by bit": "POST /health HTTP/1.1\r\nHost: localhost\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := dial(t, url)
			began := time.Now()
			_ = l.SetDeadline(began.Add(30 * time.Second))
			_, err := io.WriteString(l, begin)
			if err == nil {
				_, err = io.Copy(io.Discard, l.r)
			}
			if timeout, is := err.(net.Error); is && timeout.Timeout() ||
				time.Since(began) > 20*time.Second {
				t.Errorf("still open after %s: %v", time.Since(began), err)
			}
		})
	}
	if _, body := send(t, url, "POST", "/mcp", fmt.Sprintf(modernCall, "{}"),
		map[string]string{"Authorization": "Bearer x", "Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "tools/call", "Mcp-Name": "hello"}); !strings.Contains(
		body,
		"slowly",
	) {
		t.Errorf("a known caller's call has only a stranger's time: %s", body)
	}
	if got := known.ask("POST", "/mcp", withToken); got != 200 {
		t.Errorf("a known caller's connection was closed as well: %d", got)
	}
}
