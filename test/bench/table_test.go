package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// figure is one cell of a table: the middle, the least and the greatest of what was measured.
type figure struct {
	Table, Row, Column string
	Median, Min, Max   float64
}

// tables collects figures in the order in which they are named first.
type tables struct {
	all   []*figure
	taken map[*figure][]float64
}

func (ts *tables) add(table, row, column string, value float64) {
	at := slices.IndexFunc(ts.all, func(f *figure) bool {
		return f.Table == table && f.Row == row && f.Column == column
	})
	if at < 0 {
		at = len(ts.all)
		ts.all = append(ts.all, &figure{Table: table, Row: row, Column: column})
	}
	f := ts.all[at]
	taken := append(ts.taken[f], value)
	slices.Sort(taken)
	ts.taken[f] = taken
	f.Median, f.Min, f.Max = taken[len(taken)/2], taken[0], taken[len(taken)-1]
}

// BenchmarkTable measures everything that docs/benchmarks.md says of whole calls, subject after
// subject in turn, and writes it to the file that BENCH_JSON names. BENCH_ROUNDS is how often.
func BenchmarkTable(b *testing.B) {
	rounds := 3
	if os.Getenv("BENCH_ROUNDS") != "" {
		must(b, json.Unmarshal([]byte(os.Getenv("BENCH_ROUNDS")), &rounds))
	}
	p, ts := newPlace(b), &tables{taken: map[*figure][]float64{}}
	p.start(b, "caponier", "stdio").call(b, "green") // fills the caches of modules
	for range rounds {
		p.starts(b, ts)
	}
	subjects := []*subject{p.raw(b), p.start(b, "bare", "stdio"), p.start(b, "bare", "http 2025"),
		p.start(b, "caponier", "stdio"), p.start(b, "caponier", "http 2025"),
		p.start(b, "caponier", "http 2026")}
	for range 3 {
		for _, s := range subjects {
			s.block(b, "green", 20)
			s.block(b, "yellow", 20)
		}
	}
	for range rounds {
		for _, s := range subjects {
			s.costs(b, ts)
			const callers = "Yellow calls a second, from so many callers at once"
			ts.add(callers, s.name, "4", s.callers(b, 4))
			if s.metrics != "" { // others would ask for more sessions than sshd gives a connection
				ts.add(callers, s.name, "16", s.callers(b, 16))
			}
			p50, p99 := s.tail(b)
			ts.add("Slow calls: p99 of green calls over their p50", s.name, "one caller", p99/p50)
		}
	}
	for _, load := range []string{"quiet", "disk", "processor"} {
		stop := p.load(b, load)
		for range 2 * rounds {
			for _, tier := range []string{"green", "new", "yellow"} {
				base := 0.0
				for _, s := range subjects {
					took := s.block(b, tier, 20)
					base = cmp.Or(base, took)
					ts.add("Time of a call over that of a raw exec, p50", s.name,
						strings.Replace(load+", "+tier, "quiet", "quiet machine", 1), took/base)
				}
			}
		}
		stop()
	}
	ts.write(b)
	b.ReportMetric(0, "ns/op") // the table is the result
}

func (ts *tables) write(b *testing.B) {
	kernel, _ := exec.Command("uname", "-sr").Output()
	load, _ := os.ReadFile("/proc/loadavg")
	out, err := json.MarshalIndent(map[string]any{
		"machine": strings.TrimSpace(string(kernel)), "go": runtime.Version(),
		"processors": runtime.NumCPU(), "load": strings.Fields(string(load))[0],
		"date": time.Now().UTC().Format(time.DateOnly), "figures": ts.all}, "", " ")
	must(b, err)
	must(b, os.WriteFile(cmp.Or(os.Getenv("BENCH_JSON"), os.DevNull), append(out, '\n'), 0o644))
}

// starts measures a start of each server.
func (p *place) starts(b *testing.B, ts *tables) {
	for _, way := range []string{"stdio", "http 2025"} {
		for _, kind := range []string{"bare", "caponier"} {
			s := p.start(b, kind, way)
			const table = "From the start of the process, in ms; memory in MiB"
			add := func(column string, value float64) { ts.add(table, s.name, column, value) }
			add("`initialize`", s.started)
			add("and `tools/list`", timed(func() {
				_, err := s.session.ListTools(context.Background(), nil)
				must(b, err)
			}))
			add("processor time so far", s.cpu(b))
			add("resident", s.mib(b, "VmRSS"))
			add("and the first call", timed(func() { s.call(b, "green") }))
			if kind != "bare" { // of a second plugin; what it needs on the node is not there
				_, _ = s.session.CallTool(context.Background(),
					&mcp.CallToolParams{Name: "list_guests", Arguments: map[string]any{}})
			}
			time.Sleep(time.Second)
			add("resident a second after a call of each of two plugins", s.mib(b, "VmRSS"))
			add("most resident until then", s.mib(b, "VmHWM"))
			_ = s.session.Close() // the bare server exits with 1
		}
	}
}

// costs measures what a green call costs beside time.
func (s *subject) costs(b *testing.B, ts *tables) {
	const n = 40
	allocs, switches, cpu := s.allocations(b), s.switches(b), s.cpu(b)
	calls := func(tier string) func() {
		return func() {
			for range n {
				s.call(b, tier)
			}
		}
	}
	calls("green")()
	add := func(column string, value float64) {
		ts.add("What a green call costs the server", s.name, column, value/n)
	}
	add("processor time, ms", s.cpu(b)-cpu)
	add("context switches", s.switches(b)-switches)
	add("allocations", s.allocations(b)-allocs)
	counts := s.syscalls(b, calls("green"))
	add("system calls", counts[""])
	add("of them not the scheduler's", own(counts))
	counts = s.syscalls(b, calls("yellow"))
	add("syncs of a yellow call", counts["fdatasync"]+counts["fsync"])
}

// block makes n calls, or as many as fit into a second, and returns their p50.
func (s *subject) block(b *testing.B, tier string, n int) float64 {
	var took []float64
	for end := time.Now().Add(time.Second); len(took) < n &&
		(len(took) < 5 || time.Now().Before(end)); {
		took = append(took, timed(func() { s.call(b, tier) }))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// tail returns the p50 and the p99 of green calls.
func (s *subject) tail(b *testing.B) (p50, p99 float64) {
	took := make([]float64, 300)
	for i := range took {
		took[i] = timed(func() { s.call(b, "green") })
	}
	slices.Sort(took)
	return took[150], took[297]
}

// callers returns how many yellow calls a second so many make at once.
func (s *subject) callers(b *testing.B, n int) float64 {
	var wg sync.WaitGroup
	counts := make([]int, n)
	for i := range counts {
		wg.Go(func() {
			for end := time.Now().Add(time.Second); time.Now().Before(end); counts[i]++ {
				s.call(b, "yellow")
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, k := range counts {
		sum += k
	}
	return float64(sum)
}

func timed(do func()) float64 {
	began := time.Now()
	do()
	return ms(time.Since(began))
}
