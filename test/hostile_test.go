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

// crowd gives a site the operator demo and the viewer eve, each with a token.
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

// hostileRequests are what costs a host most for what it costs its sender.
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

// TestHostileClients is no test: it is what TestAHostileViewerSlowsNobody runs beside itself, as
// clients on another machine would.
func TestHostileClients(t *testing.T) {
	url, token := os.Getenv("HOSTILE_URL"), os.Getenv("HOSTILE_TOKEN")
	if url == "" {
		return
	}
	bodies := hostileRequests()
	var all sync.WaitGroup
	var answered, refused atomic.Int64
	report := func() {
		fmt.Printf("hostile: %d answered, %d refused\n", answered.Load(), refused.Load())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
		report()
		os.Exit(0)
	}()
	for n := range 100 {
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
		all.Go(func() {
			for k := n; ; k++ {
				for session == "" {
					send(`{"jsonrpc":"2.0","id":1,"method":"initialize",` +
						`"params":{"protocolVersion":` +
						`"2025-06-18","capabilities":{},"clientInfo":{"name":"e","version":"1"}}}`)
				}
				if send(bodies[k%len(bodies)]) == http.StatusOK {
					answered.Add(1)
				} else {
					refused.Add(1)
				}
				if total := answered.Load() + refused.Load(); total == 1 || total%200 == 0 {
					report()
				}
			}
		})
	}
	all.Wait()
}

// TestAHostileViewerSlowsNobody: 100 clients of a viewer send the dearest requests that there are,
// one after the other. An operator's calls are answered meanwhile. With CAPONIER_MEASURE set, on a
// quiet machine, 95 of 100 of them take at most three times as long as alone.
func TestAHostileViewerSlowsNobody(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // nice is what makes clients on this machine as those on another
	}
	measured := setting(t, "CAPONIER_MEASURE") != ""
	s := newSite(t)
	data := filepath.Join(s.dir, "site/data.yaml")
	s.replace(t, data, `calls_per_minute: \d+`, "calls_per_minute: 1000000")
	tokens := s.crowd(t)
	url := s.serveHTTP(t)
	good, err := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1"}, nil).Connect(
		t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1,
			HTTPClient: &http.Client{Transport: bearer(tokens["demo"])}}, nil)
	must(t, err)
	defer good.Close()
	call := func() time.Duration {
		began := time.Now()
		r, err := good.CallTool(t.Context(), &mcp.CallToolParams{Name: "proxmox_container_status",
			Arguments: map[string]any{"vmid": 101}})
		if err != nil || r.IsError {
			t.Errorf("the operator's call: %v %+v", err, r)
		}
		return time.Since(began)
	}
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestHostileClients$")
	cmd.Env = append(os.Environ(), "HOSTILE_URL="+url, "HOSTILE_TOKEN="+tokens["eve"])
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	call()
	must(t, cmd.Start())
	said := bufio.NewScanner(stdout)
	if !said.Scan() { // the first answer or refusal
		t.Fatal("the hostile clients ended without a word")
	}
	last := make(chan string)
	go func() {
		line := said.Text()
		for said.Scan() {
			if strings.HasPrefix(said.Text(), "hostile: ") {
				line = said.Text()
			}
		}
		last <- line
	}()
	// In turns with and without them, since what else runs on this machine changes.
	var alone, beside []time.Duration
	rounds := 1
	if measured {
		rounds = 5
	}
	for range rounds {
		for range 20 {
			beside = append(beside, call())
		}
		must(t, cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(3 * time.Second) // what they sent is answered
		for range 20 {
			alone = append(alone, call())
		}
		must(t, cmd.Process.Signal(syscall.SIGCONT))
		time.Sleep(200 * time.Millisecond)
	}
	must(t, stdin.Close())
	requests := <-last
	_ = cmd.Wait()
	slices.Sort(alone)
	slices.Sort(beside)
	at := func(took []time.Duration, percent int) time.Duration {
		return took[len(took)*percent/100]
	}
	ratio := float64(at(beside, 95)) / float64(at(alone, 95))
	t.Logf("p95 alone %s, beside %s: %.1f times; p50 %s and %s; %s", at(alone, 95),
		at(beside, 95), ratio, at(alone, 50), at(beside, 50), requests)
	if measured && ratio > 3 {
		t.Errorf("beside hostile clients p95 is %.1f times as long as alone, want at most 3", ratio)
	}
}
