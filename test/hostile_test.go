package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// crowd adds the operator demo and the viewer eve to a site, each with a token.
func (s *site) crowd(t *testing.T) (tokens map[string]string) {
	t.Helper()
	s.append(t, "\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"demo\"\n"+
		"[[identity.principals]]\nid = \"eve\"\n", filepath.Join(s.dir, "tokens.json"))
	const demo = "  demo: {auth: [config, token], roles: [operator]}"
	s.rewrite(t, demo, demo+"\n  eve: {auth: [token], roles: [viewer]}")
	tokens = map[string]string{}
	for _, name := range []string{"demo", "eve"} {
		out, err := s.command("token", "new", name).Output()
		must(t, err)
		tokens[name] = strings.TrimSpace(string(out))
	}
	return tokens
}

// unhurried lets everybody make as many calls as they want.
func (s *site) unhurried(t *testing.T) {
	s.replace(t, filepath.Join(s.dir, "site/data.yaml"), `calls_per_minute: \d+`,
		"calls_per_minute: 1000000")
}

// hostileRequests are the requests that cost a host most, compared with the cost for their sender.
func hostileRequests() (bodies []string) {
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":1,`, i)
		}
		return "{" + b.String() + `"z":1}`
	}
	message := func(method, params string) {
		bodies = append(bodies,
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	}
	call := func(tool, args string) {
		message("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
	}
	message("tools/list", "{}")
	message("resources/list", "{}")
	message("ping", `{"_meta":`+keys(5000)+`}`)
	call("proxmox_container_status", `{"vmid":101}`)
	call("proxmox_container_exec_command", `{"vmid":101,"command":"`+
		strings.Repeat("true; ", 2000)+`true"}`) // refused, after it was read
	call("proxmox_container_status", keys(20_000))
	call("proxmox_container_status", `{"vmid":"`+strings.Repeat("1", 900_000)+`"}`)
	return bodies
}

// TestHostileClients is not a test. startHostile runs it in another process, like clients on
// another machine. It prints a line when it has started, and at its end.
func TestHostileClients(t *testing.T) {
	url, token := os.Getenv("HOSTILE_URL"), os.Getenv("HOSTILE_TOKEN")
	if url == "" {
		return
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
		close(ended)
	}()
	if os.Getenv("HOSTILE_KIND") == "bodies" {
		fmt.Printf("hostile: %d sessions\n", holdBodies(t, url, token))
		<-ended
		os.Exit(0)
	}
	var answered, refused atomic.Int64
	first := make(chan struct{})
	began := sync.OnceFunc(func() { close(first) })
	for n := range 100 {
		go ask(t, url, token, n, func(ok bool) {
			if ok {
				answered.Add(1)
			} else {
				refused.Add(1)
			}
			began()
		})
	}
	<-first
	fmt.Println("hostile: begun")
	<-ended
	fmt.Printf("hostile: %d answered, %d refused\n", answered.Load(), refused.Load())
	os.Exit(0)
}

// ask sends the dearest requests in a session, one after the other, beginning with the nth.
func ask(t *testing.T, url, token string, n int, told func(ok bool)) {
	bodies := hostileRequests()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	session := ""
	send := func(body string) int {
		req, err := http.NewRequest(http.MethodPost, url+"/mcp", strings.NewReader(body))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for k := n; ; k++ {
		for session == "" {
			send(`{"jsonrpc":"2.0","id":1,"method":"initialize",` +
				`"params":{"protocolVersion":` +
				`"2025-06-18","capabilities":{},"clientInfo":{"name":"e","version":"1"}}}`)
		}
		told(send(bodies[k%len(bodies)]) == http.StatusOK)
	}
}

// hostileClients is a process of hostile clients.
type hostileClients struct {
	*exec.Cmd
	stdin io.Closer
	lines chan string // closed at its end
	line  string      // the latest
}

// startHostile starts hostile clients in another process with a low priority. Kind is "bodies" for
// clients that send bodies slowly, and "" for clients that send expensive requests.
func startHostile(t *testing.T, url, token, kind string) *hostileClients {
	t.Helper()
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestHostileClients$")
	cmd.Env = append(os.Environ(), "HOSTILE_URL="+url, "HOSTILE_TOKEN="+token,
		"HOSTILE_KIND="+kind)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	h := &hostileClients{Cmd: cmd, stdin: stdin, lines: make(chan string, 10)}
	go func() {
		defer close(h.lines)
		for said := bufio.NewScanner(stdout); said.Scan(); {
			if strings.HasPrefix(said.Text(), "hostile: ") {
				h.lines <- said.Text()
			}
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	return h
}

// told reports whether they have printed something.
func (h *hostileClients) told() bool {
	select {
	case h.line = <-h.lines:
		return true
	default:
		return false
	}
}

// end ends them, and returns what they said last.
func (h *hostileClients) end() string {
	h.stdin.Close()
	for line := range h.lines {
		h.line = line
	}
	return h.line
}

// latencies are how long calls took.
type latencies []time.Duration

func (l latencies) at(percent int) time.Duration {
	return slices.Sorted(slices.Values(l))[len(l)*percent/100]
}

func (l latencies) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond / 10) }
	return fmt.Sprintf("p50 %s, p95 %s of %d", ms(l.at(50)), ms(l.at(95)), len(l))
}

// dial opens a session over HTTP.
func dial(t *testing.T, url, token string) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1,
			HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
}

// operator opens a session, and returns a function that makes a call in it and returns its
// duration.
func (s *site) operator(t *testing.T, url, token string) func() time.Duration {
	good, err := dial(t, url, token)
	must(t, err)
	t.Cleanup(func() { good.Close() })
	return func() time.Duration {
		began := time.Now()
		r, err := good.CallTool(t.Context(), &mcp.CallToolParams{Name: "proxmox_container_status",
			Arguments: map[string]any{"vmid": 101}})
		if err != nil || r.IsError {
			t.Fatalf("the operator's call: %v %+v", err, r)
		}
		return time.Since(began)
	}
}

// 100 clients of a viewer send the most expensive requests, one after the other, from another
// process than the operator and the node. 95 of 100 calls of the operator take at most three times
// as long as without these clients. The load of the machine varies, so the test makes calls with
// and without the clients in turns, and passes if one of five tries does.
func TestAHostileViewerSlowsNobody(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // nice is what makes clients on this machine as those on another
	}
	s := newSite(t)
	s.unhurried(t)
	tokens := s.crowd(t)
	url := s.serveHTTP(t)
	call := s.operator(t, url, tokens["demo"])
	call()
	clients := startHostile(t, url, tokens["eve"], "")
	waitFor(t, "the hostile clients", clients.told)
	ratio := 0.0
	for try := 0; try < 5 && (try == 0 || ratio > 3); try++ {
		var alone, beside latencies
		for range 5 {
			for range 12 {
				beside = append(beside, call())
			}
			must(t, clients.Process.Signal(syscall.SIGSTOP))
			time.Sleep(2 * time.Second) // what they sent is answered
			for range 12 {
				alone = append(alone, call())
			}
			must(t, clients.Process.Signal(syscall.SIGCONT))
			time.Sleep(200 * time.Millisecond)
		}
		ratio = float64(beside.at(95)) / float64(alone.at(95))
		t.Logf("alone %s, beside %s: %.1f times", alone, beside, ratio)
	}
	t.Log(clients.end())
	if ratio > 3 {
		t.Errorf("beside hostile clients p95 is %.1f times as long as alone, want at most 3", ratio)
	}
}
