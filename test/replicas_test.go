package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs/balancer"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// replica is one of several hosts, on an address that it keeps when it starts again.
type replica struct {
	*site
	at  string
	cmd *exec.Cmd
}

// replicas are two hosts behind a balancer.
type replicas struct {
	*twoHosts
	hosts [2]*replica
	front *balancer.Balancer
}

// newReplicas starts two hosts with one database, and HAProxy as docs/scale.md configures it.
func newReplicas(t *testing.T, prepare func(*twoHosts)) *replicas {
	t.Helper()
	w := &replicas{twoHosts: newTwoHosts(t, nil)}
	w.a.rewrite(t, "calls_per_minute: 120", "calls_per_minute: 100000",
		"target_calls_per_minute: 60", "target_calls_per_minute: 100000")
	if prepare != nil {
		prepare(w.twoHosts)
	}
	for i, s := range []*site{w.a, w.b} {
		w.hosts[i] = &replica{site: s, at: freeAddress(t)}
		w.hosts[i].run(t)
		t.Cleanup(w.hosts[i].kill)
	}
	w.front = balancer.Start(t, "../docs/scale.md", false, w.hosts[0].at, w.hosts[1].at)
	c := w.caller("")
	waitFor(t, "both hosts behind the balancer", func() bool {
		c.call(t.Context(), "steps_run", map[string]any{"n": 1}, nil)
		return w.hosts[0].has(t, `"kind":"call"`) && w.hosts[1].has(t, `"kind":"call"`)
	})
	return w
}

// run starts the host and returns when it is ready.
func (r *replica) run(t *testing.T) {
	t.Helper()
	r.cmd = r.command("serve", "--http", r.at)
	said := &bytes.Buffer{}
	r.cmd.Stderr = said
	must(t, r.cmd.Start())
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := http.Get("http://" + r.at + "/ready")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			r.kill()
			t.Fatalf("it is not ready: %v\n%s", err, said)
		}
	}
}

// kill ends the host at once (kill -9).
func (r *replica) kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// caller is a simple client of MCP 2026-07-28: one request for each call, which is never repeated.
type caller struct {
	http.Client
	url, token string
}

// caller returns a client of the balancer, or of one host.
func (w *replicas) caller(host string) *caller {
	c := &caller{url: w.front.URL, token: w.token,
		Client: http.Client{Transport: w.front.Transport(), Timeout: 30 * time.Second}}
	if host != "" {
		c.url = "http://" + host + "/mcp"
	}
	return c
}

// told is an answer to a call.
type told struct {
	Result struct {
		IsError       bool
		ResultType    string
		RequestState  string
		InputRequests map[string]any
		Content       []struct{ Text string }
		Meta          map[string]map[string]any `json:"_meta"`
	}
	Error *struct {
		Code    int
		Message string
	}
}

func (s told) text() (text string) {
	for _, c := range s.Result.Content {
		text += c.Text
	}
	if s.Error != nil {
		text += s.Error.Message
	}
	return text
}

func (s told) outcome() string {
	how, _ := s.Result.Meta["io.caponier/call"]["outcome"].(string)
	return how
}

// call makes a call once. Every end of it but an answer is an error.
func (c *caller) call(ctx context.Context, tool string, args, more map[string]any) (
	s told, err error) {
	params := map[string]any{"name": tool, "arguments": args, "_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": map[string]any{
			"elicitation": map[string]any{"form": map[string]any{}}},
		"io.modelcontextprotocol/clientInfo": map[string]any{"name": "t", "version": "1"}}}
	for k, v := range more {
		params[k] = v
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
		"params": params})
	if err != nil {
		return s, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", c.url, bytes.NewReader(body))
	if err != nil {
		return s, err
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Mcp-Name": tool,
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Authorization": "Bearer " + c.token} {
		req.Header.Set(k, v)
	}
	res, err := c.Do(req)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return s, err
	}
	if i := bytes.Index(data, []byte("data: {")); i >= 0 {
		data, _, _ = bytes.Cut(data[i+len("data: "):], []byte("\n"))
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %.200s", res.Status, data)
	}
	if s.Error != nil {
		return s, errors.New(s.Error.Message)
	}
	return s, nil
}

// which returns the hosts whose journals name the mark in a record of this type, in order.
func (w *replicas) which(t *testing.T, mark, kind string) (on []string) {
	t.Helper()
	for _, r := range w.hosts {
		files, err := filepath.Glob(filepath.Join(r.dir, "lab/journal/*.jsonl"))
		must(t, err)
		for _, f := range files {
			data, err := os.ReadFile(f)
			must(t, err)
			for line := range strings.Lines(string(data)) {
				if strings.Contains(line, mark) && strings.Contains(line, `"type":"intent"`) &&
					strings.Contains(line, `"kind":"`+kind+`"`) {
					on = append(on, r.at)
				}
			}
		}
	}
	return on
}

var yes = map[string]any{"go": map[string]any{"action": "accept",
	"content": map[string]any{"yes": true}}}

// A question of a plugin that was asked by one host is answered through the balancer on any: each
// once, and only to the call that asked it.
func TestAQuestionIsAnsweredOnAnyReplica(t *testing.T) {
	w := newReplicas(t, nil)
	a, b, both := w.caller(w.hosts[0].at), w.caller(w.hosts[1].at), w.caller("")
	other := 0
	for i := range 20 {
		mark := fmt.Sprintf("question-%d-end", i)
		ask, reply := both, both
		if i == 0 { // whatever the balancer does
			ask, reply = a, b
		}
		on := map[string]any{"mark": mark}
		q, err := ask.call(t.Context(), "steps_ask", on, nil)
		if err != nil || q.Result.ResultType != "input_required" || q.Result.RequestState == "" {
			t.Fatalf("asked: %+v, %v", q, err)
		}
		answer := map[string]any{"requestState": q.Result.RequestState, "inputResponses": yes}
		if i == 1 {
			_, err := b.call(t.Context(), "steps_ask", map[string]any{"mark": "other"}, answer)
			if err == nil || !strings.Contains(err.Error(), "requestState was not given") {
				t.Errorf("to another call: %v", err)
			}
			continue // it counts once
		}
		r, err := reply.call(t.Context(), "steps_ask", on, answer)
		if err != nil || r.outcome() != "succeeded" {
			t.Fatalf("answered: %s %v", r.text(), err)
		}
		if _, err := a.call(t.Context(), "steps_ask", on, answer); err == nil ||
			!strings.Contains(err.Error(), "requestState was not given") {
			t.Errorf("a second time: %v", err)
		}
		if hosts := slices.Compact(slices.Sorted(slices.Values(w.which(t, mark, "call")))); len(
			hosts) == 2 {
			other++
		}
	}
	if other == 0 {
		t.Error("no question was answered on another host")
	}
	t.Logf("%d of 20 were answered on another host", other)
	rows := w.server.Rows(w.database, "SELECT count(*)::text FROM caponier.rounds")
	if rows[0] != "0" {
		t.Errorf("%s rounds are left", rows[0])
	}
}

// An approval that the user of the client gives, too.
func TestAnApprovalIsGivenOnAnyReplica(t *testing.T) {
	w := newReplicas(t, func(w *twoHosts) {
		w.a.rewrite(t, "channels: [cli, web]", "channels: [cli, web, client]")
	})
	a, b := w.caller(w.hosts[0].at), w.caller(w.hosts[1].at)
	on := map[string]any{"vmid": 102, "node": "pve1"}
	q, err := a.call(t.Context(), "proxmox_start_container", on, nil)
	if err != nil || q.Result.InputRequests["caponier.approval"] == nil {
		t.Fatalf("asked: %+v, %v", q, err)
	}
	approve := map[string]any{"action": "accept", "content": map[string]any{"approve": true}}
	answer := map[string]any{"requestState": q.Result.RequestState,
		"inputResponses": map[string]any{"caponier.approval": approve}}
	r, err := b.call(t.Context(), "proxmox_start_container", on, answer)
	if err != nil || r.outcome() != "succeeded" {
		t.Errorf("answered on another host: %s %v", r.text(), err)
	}
	if r, err := a.call(t.Context(), "proxmox_start_container", on, answer); err == nil {
		t.Errorf("a second time: %s", r.text())
	}
	starts := 0
	for _, e := range w.a.lab.Effects() {
		if strings.Contains(fmt.Sprint(e), "pct start 102") {
			starts++
		}
	}
	if starts != 1 {
		t.Errorf("it ran %d times", starts)
	}
}

// A session of an older version stays on the host that began it. When that host is gone, the client
// is told that the session is, and a new one begins.
func TestSessionsStayOnTheirReplica(t *testing.T) {
	w := newReplicas(t, nil)
	begin := func() *mcp.ClientSession {
		s, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(
			t.Context(), &mcp.StreamableClientTransport{Endpoint: w.front.URL, MaxRetries: -1,
				DisableStandaloneSSE: true, HTTPClient: &http.Client{
					Transport: authorized{w.front.Transport(), w.token}}},
			&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	call := func(s *mcp.ClientSession, mark string) error {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "proxmox_container_exec_command", Arguments: map[string]any{"vmid": 101,
				"command": "echo " + mark}})
		if err == nil && res.IsError {
			t.Errorf("%s: %s", mark, whole(running{answer: res}))
		}
		return err
	}
	used, sessions := map[string]int{}, []*mcp.ClientSession{}
	for i := range 6 {
		s, mark := begin(), fmt.Sprintf("session-%d-end", i)
		for range 5 {
			must(t, call(s, mark))
		}
		hosts := w.which(t, mark, "call")
		if len(hosts) != 5 || len(slices.Compact(hosts)) != 1 {
			t.Errorf("session %d was on %v", i, hosts)
		}
		used[hosts[0]]++
		sessions = append(sessions, s)
	}
	if len(used) != 2 {
		t.Errorf("sessions on %v: the balancer balances none", used)
	}
	w.hosts[0].kill()
	gone := 0
	for i, s := range sessions {
		if err := call(s, "after"); err != nil {
			if gone++; !errors.Is(err, mcp.ErrSessionMissing) {
				t.Errorf("session %d: %v", i, err)
			}
		}
	}
	if gone != used[w.hosts[0].at] {
		t.Errorf("%d sessions are gone, want %d", gone, used[w.hosts[0].at])
	}
	must(t, call(begin(), "anew"))
}

// authorized adds a token to each request.
type authorized struct {
	http.RoundTripper
	token string
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.token)
	return a.RoundTripper.RoundTrip(r)
}
