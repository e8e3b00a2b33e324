// Package bench measures the whole way of a call against the raw operation, both in the same run.
package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/crypto/ssh"
)

// place is a lab with a configuration for the real binary, under which bench's tools are green and
// not counted out.
type place struct{ root, bin, config, addr string }

func startSite(b *testing.B) place {
	b.Helper()
	root, err := filepath.Abs("../..")
	check(b, err)
	dir := b.TempDir()
	plugins := filepath.Join(dir, "plugins")
	check(b, os.MkdirAll(plugins, 0o755))
	wasm, err := os.ReadFile(filepath.Join(root, "build/modules/bench.wasm"))
	check(b, err)
	check(b, os.WriteFile(filepath.Join(plugins, "bench.wasm"), wasm, 0o644))
	check(b,
		os.CopyFS(filepath.Join(dir, "site"), os.DirFS(filepath.Join(root, "examples/lab/site"))))
	site := filepath.Join(dir, "site", "data.yaml")
	data, err := os.ReadFile(site)
	check(b, err)
	data = bytes.Replace(data, []byte("\ntiers:\n"),
		[]byte("\ntiers:\n  \"tool:bench_true\": green\n  \"tool:bench_nothing\": green\n"), 1)
	data = regexp.MustCompile(`calls_per_minute: \d+`).
		ReplaceAll(data, []byte("calls_per_minute: 100000000"))
	check(b, os.WriteFile(site, data, 0o644))
	bin := filepath.Join(root, "build/caponier")
	out, err := exec.Command(bin, "plugin", "lock", "--lock", filepath.Join(dir, "plugins.lock"),
		"--dir", plugins).
		CombinedOutput()
	if err != nil {
		b.Fatalf("plugin lock: %v\n%s", err, out)
	}
	lab, err := pvelab.Start(
		b.Context(),
		pvelab.Options{
			State:   filepath.Join(dir, "lab"),
			Config:  filepath.Join(dir, "config.toml"),
			Plugins: plugins,
			Lock:    filepath.Join(dir, "plugins.lock"),
			Site:    filepath.Join(dir, "site"),
		},
	)
	check(b, err)
	b.Cleanup(func() { lab.Close() })

	return place{root, bin, filepath.Join(dir, "config.toml"), lab.Addr}
}

// serve is the real binary with that configuration.
func (s place) serve(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, append([]string{"--config", s.config, "serve"}, args...)...)
	cmd.Env = append(os.Environ(),
		"CAPONIER_SANDBOX_CACHE_DIR="+filepath.Join(s.root, "build/cache"))
	return cmd
}

// system is a place, a raw SSH connection to its node, and an MCP session with the real binary.
type system struct {
	raw     *ssh.Client
	session *mcp.ClientSession
}

func start(b *testing.B) *system {
	b.Helper()
	at := startSite(b)
	config, err := os.ReadFile(at.config)
	check(b, err)
	key := regexp.MustCompile(`identity_file = "([^"]+)"`).FindSubmatch(config)
	pem, err := os.ReadFile(string(key[1]))
	check(b, err)
	signer, err := ssh.ParsePrivateKey(pem)
	check(b, err)
	s := &system{}
	s.raw, err = ssh.Dial(
		"tcp",
		at.addr,
		&ssh.ClientConfig{
			User:            "root",
			Auth:            []ssh.AuthMethod{ssh.PublicKeys(signer)},
			HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		},
	)
	check(b, err)
	b.Cleanup(func() { s.raw.Close() })

	serve := at.serve()
	serve.Stderr = os.Stderr
	s.session, err = mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
		Connect(b.Context(), &mcp.CommandTransport{Command: serve}, nil)
	check(b, err)
	b.Cleanup(func() { s.session.Close() })
	return s
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (s *system) rawTrue(b *testing.B) {
	session, err := s.raw.NewSession()
	check(b, err)
	defer session.Close()
	if _, err := session.Output("'true'"); err != nil {
		b.Fatal(err)
	}
}

func (s *system) call(b *testing.B, tool string) {
	res, err := s.session.CallTool(context.Background(),
		&mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
	check(b, err)
	if res.IsError {
		b.Fatalf("%s: %v", tool, res.StructuredContent)
	}
}

// BenchmarkCall times, in turn, a raw exec, a call that does the same through MCP, policy, sandbox
// and journal, and a call that does nothing.
func BenchmarkCall(b *testing.B) {
	s := start(b)
	for range 50 { // both pools warm
		s.rawTrue(b)
		s.call(b, "bench_true")
		s.call(b, "bench_nothing")
	}
	var raw, call, nothing []time.Duration
	for b.Loop() {
		raw = append(raw, timed(func() { s.rawTrue(b) }))
		call = append(call, timed(func() { s.call(b, "bench_true") }))
		nothing = append(nothing, timed(func() { s.call(b, "bench_nothing") }))
	}
	for name, d := range map[string][]time.Duration{"raw": raw, "call": call, "nothing": nothing} {
		b.ReportMetric(at(d, 50), name+"-p50-µs")
		b.ReportMetric(at(d, 99), name+"-p99-µs")
	}
	b.ReportMetric(at(call, 50)-at(raw, 50), "overhead-p50-µs")
	b.ReportMetric(at(call, 50)/at(raw, 50), "ratio-p50")
	b.ReportMetric(0, "ns/op") // three things in turn: the sum says nothing
	fmt.Fprintln(os.Stderr)
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// at is the percentile in microseconds.
func at(d []time.Duration, percent int) float64 {
	slices.Sort(d)
	return float64(d[min(len(d)*percent/100, len(d)-1)].Nanoseconds()) / 1000
}
