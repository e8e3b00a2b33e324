package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMain is also the bare server: the same SDK, a tool that does nothing, and nothing else.
func TestMain(m *testing.M) {
	way := os.Getenv("BENCH_BARE")
	if way == "" {
		os.Exit(m.Run())
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	s.AddTool(
		&mcp.Tool{Name: "bench_nothing", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{
				Content: []mcp.Content{&mcp.TextContent{Text: `{"exit":0}`}},
			}, nil
		},
	)
	var err error
	if way == "stdio" {
		err = s.Run(context.Background(), &mcp.StdioTransport{})
	} else {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
			fmt.Fprintf(os.Stderr, "url=http://%s/mcp\n", l.Addr())
			server := func(*http.Request) *mcp.Server { return s }
			o := &mcp.StreamableHTTPOptions{Stateless: way == "http 2026"}
			err = http.Serve(l, mcp.NewStreamableHTTPHandler(server, o))
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// server is a process that is measured.
type server struct {
	name string
	cmd  func(way string) *exec.Cmd
}

// servers are the real host, whose every call is decided twice, journaled on disk and run in a
// fresh guest, and the bare one.
func servers(b *testing.B) []server {
	s := startSite(b)
	config, err := os.ReadFile(s.config)
	check(b, err)
	config = append(config, "\n[front]\nmax_calls = 256\nmax_sessions = 200\n[identity]\n"+
		"http = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n"...)
	check(b, os.WriteFile(s.config, config, 0o600))
	self, err := os.Executable()
	check(b, err)
	return []server{
		{"bare SDK", func(way string) *exec.Cmd {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "BENCH_BARE="+way)
			return cmd
		}},
		{"caponier", func(way string) *exec.Cmd {
			if way == "stdio" {
				return s.serve()
			}
			return s.serve("--http", "127.0.0.1:0")
		}},
	}
}

// load is a server at work with a number of sessions.
type load struct {
	pids     []int
	sessions []*mcp.ClientSession
	started  time.Duration // from the process to the first session's answer
	one      int64         // resident with one session, in KiB
}

// open starts the server, one process for each session on stdio, and connects. Streams says whether
// idle sessions hold one open, as clients do.
func open(b *testing.B, s server, way string, sessions int, streams bool) *load {
	b.Helper()
	l := &load{}
	url := ""
	if way != "stdio" {
		began := time.Now()
		cmd := s.cmd(way)
		stderr, err := cmd.StderrPipe()
		check(b, err)
		check(b, cmd.Start())
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for lines := bufio.NewScanner(stderr); url == "" && lines.Scan(); {
			if m := regexp.MustCompile(
				`url=(http://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
				url = m[1]
			}
		}
		go func() { _, _ = io.Copy(io.Discard, stderr) }()
		l.pids, l.started = append(l.pids, cmd.Process.Pid), time.Since(began)
	}
	version := map[string]string{
		"stdio": "2025-11-25", "http 2025": "2025-11-25", "http 2026": "2026-07-28",
	}[way]
	for i := range sessions {
		began := time.Now()
		var t mcp.Transport = &mcp.StreamableClientTransport{
			Endpoint: url, DisableStandaloneSSE: !streams,
			HTTPClient: &http.Client{Transport: &http.Transport{}},
		}
		var cmd *exec.Cmd
		if way == "stdio" {
			cmd = s.cmd(way)
			cmd.Stderr = os.Stderr
			t = &mcp.CommandTransport{Command: cmd}
		}
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
			Connect(context.Background(), t, &mcp.ClientSessionOptions{ProtocolVersion: version})
		check(b, err)
		b.Cleanup(func() { cs.Close() })
		if l.sessions = append(l.sessions, cs); cmd != nil {
			l.pids = append(l.pids, cmd.Process.Pid)
		}
		if i == 0 {
			l.started += time.Since(began)
			l.one = l.resident(b)
		}
	}
	return l
}

// resident is the memory of all processes together, in KiB.
func (l *load) resident(b *testing.B) (kib int64) {
	b.Helper()
	for _, pid := range l.pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		check(b, err)
		var n int64
		_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
		_, err = fmt.Sscan(string(rest), &n)
		check(b, err)
		kib += n
	}
	return kib
}

// cpu is the processor time that all processes together have used.
func (l *load) cpu(b *testing.B) (all time.Duration) {
	b.Helper()
	for _, pid := range l.pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		check(b, err)
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, ticks := range f[11:13] { // user and system, in hundredths of a second
			n, err := strconv.Atoi(ticks)
			check(b, err)
			all += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return all
}

// BenchmarkMCP times tools/call of a tool that does nothing: p50, p99, calls a second of all
// sessions together, processor time, memory. Run it with -benchtime of seconds. GOGC and GOMEMLIMIT
// are passed on.
func BenchmarkMCP(b *testing.B) {
	all := servers(b)
	for _, way := range []string{"stdio", "http 2025", "http 2026"} {
		for _, sessions := range []int{1, 16, 100} {
			for _, s := range all {
				b.Run(
					fmt.Sprintf("%s/%d/%s", strings.ReplaceAll(way, " ", "_"), sessions,
						strings.ReplaceAll(s.name, " ", "_")),
					func(b *testing.B) {
						l := open(b, s, way, sessions, false)
						one := func(cs *mcp.ClientSession) {
							if r, err := cs.CallTool(context.Background(),
								&mcp.CallToolParams{
									Name: "bench_nothing", Arguments: map[string]any{},
								}); err != nil ||
								r.IsError {
								b.Errorf("%v %+v", err, r)
							}
						}
						for _, cs := range l.sessions {
							one(cs)
						}
						took := make([]time.Duration, b.N)
						var next atomic.Int64
						var wg sync.WaitGroup
						b.ResetTimer()
						began, used := time.Now(), l.cpu(b)
						for _, cs := range l.sessions {
							wg.Go(func() {
								for i := next.Add(
									1) - 1; i < int64(b.N) && !b.Failed(); i = next.Add(1) - 1 {
									took[i] = timed(func() { one(cs) })
								}
							})
						}
						wg.Wait()
						all := time.Since(began)
						b.StopTimer()
						b.ReportMetric(at(took, 50), "p50-µs")
						b.ReportMetric(at(took, 99), "p99-µs")
						b.ReportMetric(float64(b.N)/all.Seconds(), "calls/s")
						b.ReportMetric(float64((l.cpu(b)-used).Microseconds())/float64(b.N),
							"cpu-µs/call")
						b.ReportMetric(float64(l.resident(b))/1024/float64(len(l.pids)),
							"MiB/process")
						b.ReportMetric(0, "ns/op")
					},
				)
			}
		}
	}
}

// BenchmarkIdle times the start of a server up to its first answer, its memory then, and what a
// hundred idle sessions with an open stream add to it.
func BenchmarkIdle(b *testing.B) {
	for _, s := range servers(b) {
		for _, way := range []string{"stdio", "http 2025"} {
			b.Run(strings.ReplaceAll(way+"/"+s.name, " ", "_"), func(b *testing.B) {
				var started []time.Duration
				for range b.N {
					l := open(b, s, way, 1, false)
					started = append(started, l.started)
					b.ReportMetric(float64(l.one)/1024, "MiB")
				}
				b.ReportMetric(at(started, 50)/1000, "start-p50-ms")
				if way != "stdio" {
					l := open(b, s, way, 100, true)
					time.Sleep(500 * time.Millisecond)
					b.ReportMetric(float64(l.resident(b)-l.one)/99, "KiB/session")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
