package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// site is a lab with a configuration for the real binary.
type site struct {
	dir, config string
	lab         *pvelab.Lab
	host        *os.Process        // of the last serveHTTP
	answers     *mcp.ClientSession // of the host that makes the calls; nil starts one for each
}

func newSite(t *testing.T, modules ...string) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	s.config = filepath.Join(s.dir, "config.toml")
	dir, tiers := filepath.Join(s.dir, "plugins"), ""
	must(t, os.MkdirAll(dir, 0o755))
	for _, m := range append([]string{filepath.Join(plugins, "containers.wasm")}, modules...) {
		data, err := os.ReadFile(m)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(m)), data, 0o644))
		for _, tool := range guestTools[strings.TrimSuffix(filepath.Base(m), ".wasm")] {
			tiers += "  \"tool:" + tool + "\": yellow\n"
		}
	}
	must(t, os.CopyFS(filepath.Join(s.dir, "site"), os.DirFS("../examples/lab/site")))
	data, err := os.ReadFile(filepath.Join(s.dir, "site", "data.yaml"))
	must(t, err)
	must(
		t,
		os.WriteFile(
			filepath.Join(s.dir, "site", "data.yaml"),
			bytes.Replace(data, []byte("\ntiers:\n"), []byte("\ntiers:\n"+tiers), 1),
			0o644,
		),
	)
	must(t, lockFor(dir, filepath.Join(s.dir, "plugins.lock")))
	s.lab, err = pvelab.Start(
		context.Background(),
		pvelab.Options{State: filepath.Join(s.dir, "lab"), Config: s.config, Plugins: dir,
			Lock: filepath.Join(s.dir, "plugins.lock"), Site: filepath.Join(s.dir, "site")},
	)
	must(t, err)
	t.Cleanup(func() { s.lab.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(bin, append([]string{"--config", s.config}, args...)...)
	cmd.Env = append(
		os.Environ(),
		"CAPONIER_SANDBOX_CACHE_DIR="+filepath.Join(filepath.Dir(bin), "cache"),
	)
	return cmd
}

func (s *site) stdio(t *testing.T, flags ...string) *mcp.ClientSession {
	t.Helper()
	cmd := s.command(append([]string{"serve"}, flags...)...)
	cmd.Stderr = t.Output()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

// journaled waits until a record of the journal matches.
func (s *site) journaled(t *testing.T, re string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(
		50 * time.Millisecond) {
		if s.has(t, re) {
			return
		}
	}
	t.Fatalf("no record of the journal matches %s", re)
}

// sleeping waits until n guests have begun to sleep for a minute.
func (s *site) sleeping(t *testing.T, n int) {
	t.Helper()
	waitFor(t, "a command in a guest", func() bool {
		return strings.Count(effectsOf(t, s.lab.Effects()), `"argv":["sleep","60"]`) >= n
	})
}

// has reports whether a record of the journal matches.
func (s *site) has(t *testing.T, re string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "lab/journal/*.jsonl"))
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(f)
		must(t, err)
		if regexp.MustCompile(re).Match(data) {
			return true
		}
	}
	return false
}

func TestCancellingACallEndsItsOperation(t *testing.T) {
	s := newSite(t)
	session := s.stdio(t)
	if _, err := session.CallTool(t.Context(),
		&mcp.CallToolParams{Name: "proxmox_container_status",
			Arguments: map[string]any{"vmid": 101}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		s.sleeping(t, 1)
		cancel()
	}()
	began := time.Now()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "proxmox_container_exec_command",
		Arguments: map[string]any{"vmid": 101, "command": "sleep 60",
			"timeout": 100}}); err == nil {
		t.Fatal("a cancelled call returned")
	}
	s.journaled(t, `"type":"outcome".*"op":"ssh_exec".*"outcome":"unknown"`)
	s.journaled(
		t,
		`"type":"outcome".*"kind":"call".*"tool":"proxmox_container_exec_command".`+
			`*"outcome":"unknown"`,
	)
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("the call went on for %s after it was cancelled", took)
	}
}

func TestBudgetIsAProtocolErrorThatSaysWhatItIs(t *testing.T) {
	s := newSite(t, filepath.Join(guests, "broken.wasm"))
	session := s.stdio(t)
	_, err := session.CallTool(
		t.Context(),
		&mcp.CallToolParams{Name: "broken_loop", Arguments: map[string]any{}},
	)
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		t.Fatalf("error %T %v, want a JSON-RPC error", err, err)
	}
	var data struct {
		Kind, Tool      string
		LimitMS         int64  `json:"limit_ms"`
		MayHaveExecuted bool   `json:"may_have_executed"`
		CallID          string `json:"call_id"`
	}
	must(t, json.Unmarshal(wire.Data, &data))
	if wire.Code != -32001 || data.Kind != "budget" || data.Tool != "broken_loop" ||
		data.LimitMS != 1000 ||
		data.MayHaveExecuted ||
		data.CallID == "" {
		t.Errorf("code %d, data %+v", wire.Code, data)
	}
	res, err := session.CallTool(
		t.Context(),
		&mcp.CallToolParams{
			Name:      "proxmox_container_status",
			Arguments: map[string]any{"vmid": 101},
		},
	)
	if err != nil || res.IsError {
		t.Errorf("the process is not healthy afterwards: %v %+v", err, res)
	}
}

func TestHTTP(t *testing.T) {
	s := newSite(t)
	f, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(
		"\n[identity]\nhttp = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n",
	)
	must(t, err)
	must(t, f.Close())
	cmd := s.command("serve", "--http", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	url := ""
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if m := regexp.MustCompile(`url=(http://\S+)/mcp`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
			break
		}
	}
	go func() {
		for lines.Scan() {
		}
	}()
	if url == "" {
		t.Fatal("serve did not say where it serves")
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, nil)
	must(t, err)
	res, err := session.CallTool(
		t.Context(),
		&mcp.CallToolParams{
			Name:      "proxmox_container_exec_command",
			Arguments: map[string]any{"vmid": 101, "command": "hostname"},
		},
	)
	if err != nil || res.IsError ||
		!strings.Contains(res.Content[0].(*mcp.TextContent).Text, "web01") {
		t.Errorf("%v %+v", err, res)
	}
	health, err := http.Get(url + "/health")
	must(t, err)
	body, err := io.ReadAll(health.Body)
	must(t, err)
	health.Body.Close()
	for _, want := range []string{`"status":"healthy"`, `"service":"caponier"`,
		`"ssh_connected":true`, `"policy_revision":"`, `"lock_checksum":"`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("/health = %s, want %s", body, want)
		}
	}
	req, err := http.NewRequest("POST", url+"/mcp", strings.NewReader(`{}`))
	must(t, err)
	req.Header.Set("Origin", "http://evil.example")
	evil, err := http.DefaultClient.Do(req)
	must(t, err)
	evil.Body.Close()
	if evil.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign origin gets %d", evil.StatusCode)
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Error("still there 15 s after SIGTERM, with an open session")
		_ = cmd.Process.Kill()
	}
}

// The host receives SIGTERM while a call runs on the node and streams of both protocol versions are
// open. It cancels the call, journals the outcome, answers the client, and exits within 10 seconds.
func TestSIGTERMWhileACallRuns(t *testing.T) {
	s := newSite(t)
	s.append(t, "\n[identity]\nhttp = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n")
	cmd := s.command("serve", "--http", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	url := ""
	for lines := bufio.NewScanner(stderr); url == "" && lines.Scan(); {
		if m := regexp.MustCompile(`url=(http://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	answers := make(chan string, 2)
	for i, version := range []string{"2025-11-25", "2026-07-28"} {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"},
			&mcp.ClientOptions{ToolListChangedHandler: func(context.Context,
				*mcp.ToolListChangedRequest) {
			}}).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
		must(t, err)
		defer session.Close()
		go func() {
			res, err := session.CallTool(
				context.WithoutCancel(t.Context()),
				&mcp.CallToolParams{
					Name: "proxmox_container_exec_command",
					Arguments: map[string]any{
						"vmid":    101,
						"command": "sleep 60 # " + version,
						"timeout": 100,
					},
				},
			)
			if err != nil {
				answers <- err.Error()
				return
			}
			answers <- res.Content[0].(*mcp.TextContent).Text
		}()
		s.sleeping(t, i+1)
	}
	began := time.Now()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("gone after %s: %v", time.Since(began), err)
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("still there after 20 s")
	}
	for range 2 {
		if got := <-answers; !strings.Contains(got, "unknown") &&
			!strings.Contains(got, "the host is stopping") &&
			!strings.Contains(got, "cancelled") {
			t.Errorf("a client was answered %s", got)
		}
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "lab/journal/*.jsonl"))
	must(t, err)
	data, err := os.ReadFile(files[len(files)-1])
	must(t, err)
	for kind, n := range map[string]int{"call": 2, "operation": 2} {
		if got := len(regexp.MustCompile(`"type":"outcome"[^\n]*"kind":"`+kind+
			`"[^\n]*"outcome":"unknown"`).FindAll(data, -1)); got != n {
			t.Errorf("%d outcomes of a %s are journaled as unknown, want %d", got, kind, n)
		}
	}
	if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v %s", err, out)
	}
}
