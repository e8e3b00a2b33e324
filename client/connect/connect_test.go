package connect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// talk bridges these lines to a handler, and returns what the client and people saw.
func talk(t *testing.T, handler http.HandlerFunc, lines ...string) (out, say string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	return talkTo(t, server.URL+"/mcp", lines...)
}

func talkTo(t *testing.T, url string, lines ...string) (out, say string) {
	t.Helper()
	var o, s strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Run(ctx, Options{URL: url, Token: "cap_secret", Out: &o, Say: &s,
		In: strings.NewReader(strings.Join(lines, "\n") + "\n")}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(o.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the client gets %q", line)
		}
	}
	if strings.Contains(o.String()+s.String(), "cap_secret") {
		t.Error("the token is shown")
	}
	return o.String(), s.String()
}

const (
	call  = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`
	begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
	begun = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`
	noted = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func TestWhatTheClientIsTold(t *testing.T) {
	old := pauses
	pauses = []time.Duration{time.Millisecond}
	t.Cleanup(func() { pauses = old })
	answer := func(status int, kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
	}
	ok := `{"jsonrpc":"2.0","id":7,"result":{}}`
	for _, c := range []struct {
		claim   string
		handler http.HandlerFunc
		line    string
		out     []string
		say     string
	}{
		{"JSON", answer(200, "application/json; charset=utf-8",
			"{\n\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n"), call, []string{ok}, ""},
		{"a stream", answer(200, "text/event-stream", "event: message\nid: 1\ndata: "+
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n: ping\n\ndata: "+
			"{\"jsonrpc\":\"2.0\",\ndata: \"id\":7,\"result\":{}}\n\n"), call,
			[]string{"notifications/progress", ok}, ""},
		{"nothing for a notification", answer(202, "", ""), noted, nil, ""},
		{"401", answer(401, "text/plain", "no such token"), call,
			[]string{`"id":7`, "does not accept the token (401)", "caponier token new"}, "401"},
		{"a redirection", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		}, call, []string{"not followed"}, "not followed"},
		{"the host's own error", answer(400, "application/json",
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"m"}}`), call,
			[]string{`"code":-32600`}, ""},
		{"an error page", answer(502, "text/html", "<html>bad gateway"), call,
			[]string{`"id":7`, "502 Bad Gateway"}, "502"},
		{"a wrong path", answer(404, "text/plain", "not found"), call,
			[]string{"usually ends in /mcp"}, "404"},
		{"a stream that ends early", answer(200, "text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n"), call,
			[]string{`"method":"x"`, "whether the call ran is not known"}, "not known"},
		{"no JSON in a stream", answer(200, "text/event-stream", "data: hello\n\n"), call,
			[]string{"whether the call ran is not known"}, "something else than JSON"},
		{"not a message", answer(200, "", ""), "hello", []string{`"code":-32700`, `"id":null`}, ""},
	} {
		out, say := talk(t, c.handler, c.line)
		got := strings.Split(strings.TrimSpace(out), "\n")
		for _, want := range c.out {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the client gets %q; want %q", c.claim, out, want)
			}
		}
		if len(c.out) == 0 && out != "" || len(got) > 2 || (c.say == "") != (say == "") ||
			!strings.Contains(say, c.say) {
			t.Errorf("%s: the client gets %q, people %q", c.claim, out, say)
		}
	}
}

func TestAHostThatIsAwayIsTriedAgainAndOneThatHangsUpIsNot(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	old := pauses
	pauses = []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}
	t.Cleanup(func() { pauses = old })
	out, say := talkTo(t, "http://"+addr+"/mcp", call)
	if !strings.Contains(out, `"id":7`) || !strings.Contains(out,
		"cannot be reached, nothing was sent") ||
		!strings.Contains(say, "cannot be reached") {
		t.Errorf("away: %q %q", out, say)
	}
	requests := 0
	out, _ = talk(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	}, call)
	if requests != 1 || !strings.Contains(out, "whether the call ran is not known") {
		t.Errorf("a call whose connection was lost was sent %d times: %q", requests, out)
	}
}

func TestASessionThatIsGoneIsBegunAgainUnseen(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	sessions := 0
	out, say := talk(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var m message
		_ = json.NewDecoder(r.Body).Decode(&m)
		seen = append(seen, r.Method+" "+m.Method+" "+r.Header.Get("Mcp-Session-Id")+" "+
			r.Header.Get("Mcp-Protocol-Version"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.Method == "initialize":
			sessions++
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions))
			io.WriteString(w, begun)
		case m.Method == "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "tools/call" && r.Header.Get("Mcp-Session-Id") == "s1":
			w.WriteHeader(http.StatusNotFound)
		default:
			io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{}}`)
		}
	}, begin, noted, call)
	if strings.Count(out, `"id":1,`) != 1 || !strings.Contains(out, `"id":7,"result"`) ||
		!strings.Contains(say, "another one") {
		t.Errorf("the client gets %q, people %q", out, say)
	}
	all := strings.Join(seen, "|")
	for _, want := range []string{"POST initialize  |", "POST tools/call s1 2025-11-25",
		"POST notifications/initialized s2 2025-11-25", "POST tools/call s2 2025-11-25",
		"DELETE  s2"} {
		if !strings.Contains(all+"|", want) {
			t.Errorf("no %q in %s", want, all)
		}
	}
}

// Without a session the headers say what the body does, and closing a request cancels it.
func TestNewerVersionsHaveNoSession(t *testing.T) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	gone := make(chan bool, 1)
	out, say := talk(t, func(w http.ResponseWriter, r *http.Request) {
		var m message
		_ = json.NewDecoder(r.Body).Decode(&m)
		if r.Header.Get("Mcp-Method") != m.Method || r.Header.Get("Mcp-Name") != "x" ||
			r.Header.Get("Mcp-Protocol-Version") != "2026-07-28" ||
			r.Header.Get("Authorization") != "Bearer cap_secret" {
			t.Errorf("headers: %v", r.Header)
		}
		<-r.Context().Done()
		gone <- true
	}, `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x",`+meta+`}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a",`+meta+`}}`)
	if out != "" || say != "" {
		t.Errorf("a cancelled call is answered: %q %q", out, say)
	}
	select {
	case <-gone:
	default: // the request was cancelled before it was sent
	}
}

func TestOptionsThatWouldShowTheTokenAreRefused(t *testing.T) {
	for _, url := range []string{"http://192.0.2.1/mcp", "http://host.example/mcp",
		"ftp://127.0.0.1/", "https://", "127.0.0.1:8000", "https://u:p@host.example/mcp"} {
		if err := Run(t.Context(), Options{URL: url, In: strings.NewReader("")}); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{" cap_x\n": "cap_x", "": "", "a b": "", "a\nb": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Token(file); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
}
