// Package bench measures whole calls of the real binary beside a raw exec and a bare server of the
// same SDK, against a real OpenSSH server, and holds what a call may cost.
package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/crypto/ssh"
)

// TestMain is also the bare server, and the loads.
func TestMain(m *testing.M) {
	switch role, rest, _ := strings.Cut(os.Getenv("BENCH_ROLE"), " "); role {
	case "":
		os.Exit(m.Run())
	case "bare":
		fmt.Fprintln(os.Stderr, bare(rest))
	case "disk": // syncs a file in the folder named, for ever
		f, err := os.Create(filepath.Join(rest, "busy"))
		for block := make([]byte, 256<<10); err == nil; {
			_, err = f.WriteAt(block, 0)
			err = errors.Join(err, f.Sync())
		}
	case "processor":
		for range runtime.NumCPU() {
			go func() {
				for sum := uint64(1); sum != 0; sum |= sum << 1 { // never ends
				}
			}()
		}
		select {}
	}
	os.Exit(1)
}

// green is a read and yellow a command above green, both of execute_ssh. A login shell runs both
// itself. new is a read that was not asked for before.
var commands = map[string]string{"green": "true", "yellow": "pwd"}

var asked atomic.Int64

func command(tier string) string {
	if tier == "new" {
		return fmt.Sprintf("echo %d", asked.Add(1))
	}
	return commands[tier]
}

// bare serves execute_ssh over a pooled connection, and mallocs, and decides nothing.
func bare(way string) error {
	client, err := dial(os.Getenv("BENCH_ADDR"), os.Getenv("BENCH_USER"), os.Getenv("BENCH_KEY"))
	if err != nil {
		return err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	tool := func(name string, do func(json.RawMessage) (string, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				text, err := do(r.Params.Arguments)
				return &mcp.CallToolResult{
					Content: []mcp.Content{&mcp.TextContent{Text: text}},
				}, err
			})
	}
	tool("execute_ssh", func(args json.RawMessage) (string, error) {
		var in struct{ Command string }
		if err := json.Unmarshal(args, &in); err != nil {
			return "", err
		}
		return raw(client, in.Command)
	})
	tool("mallocs", func(json.RawMessage) (string, error) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return strconv.FormatUint(m.Mallocs, 10), nil
	})
	if way == "stdio" {
		return s.Run(context.Background(), &mcp.StdioTransport{})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "url=http://%s/mcp\n", l.Addr())
	return http.Serve(l, mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s }, nil))
}

func dial(addr, user, key string) (*ssh.Client, error) {
	pem, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, err
	}
	return ssh.Dial("tcp", addr, &ssh.ClientConfig{User: user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey()})
}

func raw(c *ssh.Client, command string) (string, error) {
	s, err := c.NewSession()
	if err != nil {
		return "", err
	}
	defer s.Close()
	out, err := s.Output(command)
	return string(out), err
}

// place is an OpenSSH server, and a folder with a configuration of the real binary.
type place struct {
	root, dir string
	sshd      *sshtest.OpenSSH
}

func newPlace(t testing.TB) *place {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	p := &place{root, t.TempDir(), sshtest.StartOpenSSH(t)}
	must(
		t,
		os.CopyFS(filepath.Join(p.dir, "site"), os.DirFS(filepath.Join(root, "examples/lab/site"))),
	)
	data, err := os.ReadFile(filepath.Join(p.dir, "site/data.yaml"))
	must(t, err)
	for from, to := range map[string]string{
		`(\w+_calls|calls)_per_minute: \d+`: "${1}_per_minute: 100000000",
		`(?m)^binaries: .*`: "binaries: {pwd: {\"\": {group: read, tier: yellow, " +
			"operands: [], options: {}}}}",
	} {
		data = regexp.MustCompile(from).ReplaceAll(data, []byte(to))
	}
	must(t, os.WriteFile(filepath.Join(p.dir, "site/data.yaml"), data, 0o644))
	host, port := p.sshd.HostPort()
	must(t, os.WriteFile(filepath.Join(p.dir, "config.toml"), fmt.Appendf(nil, `accept_risks = true
[cli]
principal = "demo"
[identity]
http = "demo"
[[identity.principals]]
id = "demo"
[policy]
site = "site"
[plugin]
lock = %q
dir = %q
[[remote.nodes]]
name = "pve1"
cluster = "lab"
host = %q
port = %d
user = %q
identity_file = %q
host_key = %q
default = true
`, filepath.Join(root, "plugins.lock"), filepath.Join(root, "build/plugins"), host, port,
		p.sshd.User, p.sshd.ClientFile, p.sshd.Pin()), 0o600))
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load keeps the disk or the processor busy until the function that it returns is called.
func (p *place) load(t testing.TB, role string) (stop func()) {
	t.Helper()
	if role == "quiet" {
		return func() {}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BENCH_ROLE="+role+" "+p.dir)
	must(t, cmd.Start())
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
}

// subject is what is measured: a server, or this process, which executes raw.
type subject struct {
	name    string
	pid     int
	session *mcp.ClientSession // nil: raw
	client  *ssh.Client
	metrics string // where the host says what it allocated
	started float64
}

func (p *place) raw(t testing.TB) *subject {
	t.Helper()
	c, err := dial(p.sshd.Addr, p.sshd.User, p.sshd.ClientFile)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return &subject{name: "raw", pid: os.Getpid(), client: c}
}

// start starts a server, "bare" or "caponier", and connects to it. Words come before its command
// line.
func (p *place) start(t testing.TB, kind, way string, words ...string) *subject {
	t.Helper()
	s := &subject{name: kind + " " + way}
	args := []string{os.Args[0]}
	env := []string{"BENCH_ROLE=bare " + way, "BENCH_ADDR=" + p.sshd.Addr,
		"BENCH_USER=" + p.sshd.User, "BENCH_KEY=" + p.sshd.ClientFile}
	if kind != "bare" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		s.metrics = l.Addr().String()
		must(t, l.Close())
		bin := os.Getenv("BIN")
		if bin == "" {
			bin = filepath.Join(p.root, "build/caponier")
		}
		args = []string{bin, "--config",
			filepath.Join(p.dir, "config.toml"), "serve"}
		env = []string{"CAPONIER_FRONT_METRICS=" + s.metrics,
			"CAPONIER_SANDBOX_CACHE_DIR=" + filepath.Join(p.root, "build/cache")}
		if way != "stdio" {
			args = append(args, "--http", "127.0.0.1:0")
		}
	}
	args = append(words, args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), env...), p.dir
	began := time.Now()
	var transport mcp.Transport = &mcp.CommandTransport{Command: cmd}
	if way != "stdio" {
		transport = &mcp.StreamableClientTransport{Endpoint: serve(t, cmd)}
	}
	version := map[bool]string{true: "2026-07-28", false: "2025-11-25"}[way == "http 2026"]
	var err error
	s.session, err = mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
		Connect(context.Background(), transport,
			&mcp.ClientSessionOptions{ProtocolVersion: version})
	must(t, err)
	s.started, s.pid = ms(time.Since(began)), cmd.Process.Pid
	t.Cleanup(func() { s.session.Close() })
	if len(words) > 0 { // the server is a child of what starts it
		out, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.pid))
		must(t, err)
		_, err = fmt.Sscan(string(out), &s.pid)
		must(t, err)
	}
	return s
}

// serve starts a server of HTTP and returns where it listens.
func serve(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); said += lines.Text() + "\n" {
		if m := regexp.MustCompile(`url=(http://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, stderr)
			return m[1]
		}
	}
	t.Fatalf("it does not serve:\n%s", said)
	return ""
}

// call does one of commands.
func (s *subject) call(t testing.TB, tier string) {
	t.Helper()
	if s.session == nil {
		_, err := raw(s.client, command(tier))
		must(t, err)
		return
	}
	s.tool(t, "execute_ssh", map[string]any{"node": "pve1", "command": command(tier)})
}

func (s *subject) tool(t testing.TB, name string, args map[string]any) string {
	t.Helper()
	r, err := s.session.CallTool(context.Background(),
		&mcp.CallToolParams{Name: name, Arguments: args})
	must(t, err)
	if r.IsError {
		t.Fatalf("%s: %s", name, r.Content[0].(*mcp.TextContent).Text)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

// allocations is how many the process has made.
func (s *subject) allocations(t testing.TB) float64 {
	t.Helper()
	if s.session == nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.Mallocs)
	}
	if s.metrics != "" {
		return s.metric(t, "go_memstats_mallocs_total")
	}
	n, err := strconv.ParseFloat(s.tool(t, "mallocs", map[string]any{}), 64)
	must(t, err)
	return n
}

// metric is what the host says of itself under a name.
func (s *subject) metric(t testing.TB, name string) float64 {
	t.Helper()
	r, err := http.Get("http://" + s.metrics + "/metrics")
	must(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(t, err)
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(body)
	if m == nil {
		t.Fatalf("no %s in\n%s", name, body)
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	must(t, err)
	return n
}

// proc returns the number after each match of a word in files of the process.
func (s *subject) proc(t testing.TB, files, word string) (sum float64) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/%s", s.pid, files))
	must(t, err)
	for _, name := range names {
		text, _ := os.ReadFile(name) // a thread may have ended
		for _, m := range regexp.MustCompile(word+`:\s+(\d+)`).FindAllSubmatch(text, -1) {
			n, err := strconv.ParseFloat(string(m[1]), 64)
			must(t, err)
			sum += n
		}
	}
	return sum
}

func (s *subject) mib(t testing.TB, what string) float64 {
	return s.proc(t, "status", what) / 1024
}

func (s *subject) switches(t testing.TB) float64 {
	return s.proc(t, "task/*/status", "ctxt_switches")
}

// cpu is the processor time that the process has used, in milliseconds.
func (s *subject) cpu(t testing.TB) (sum float64) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.pid))
	must(t, err)
	for _, name := range names {
		text, _ := os.ReadFile(name)
		if f := strings.Fields(string(text)); len(f) > 0 {
			ns, err := strconv.ParseFloat(f[0], 64)
			must(t, err)
			sum += ns / 1e6
		}
	}
	return sum
}

// syscalls counts those that the process makes meanwhile, by name; the sum is under "".
func (s *subject) syscalls(t testing.TB, do func()) map[string]float64 {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		sshtest.Missing(t, "strace")
	}
	out := filepath.Join(t.TempDir(), "counts")
	cmd := exec.Command("strace", "-f", "-c", "-U", "calls,name", "-o", out, "-p",
		strconv.Itoa(s.pid))
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() || !strings.Contains(lines.Text(), "attached") {
		t.Fatalf("strace: %s", lines.Text())
	}
	go io.Copy(io.Discard, stderr)
	do()
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	text, err := os.ReadFile(out)
	must(t, err)
	counts := map[string]float64{}
	for _, line := range bytes.Split(text, []byte("\n")) {
		var n float64
		var name string
		if k, _ := fmt.Sscan(string(line), &n, &name); k == 2 && name != "total" {
			counts[name] += n
			counts[""] += n
		}
	}
	return counts
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
