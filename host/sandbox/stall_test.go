package sandbox

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
)

// chase follows pointers through 32 MiB: every load misses the caches, which makes the slowest
// instruction.
func chase() module {
	const size = 32 << 20
	// a[i] = (i*stride) mod size, in steps of 4 KiB and a bit
	fill := op(c32(0), 0x21, 0, 0x03, 0x40, 0x20, 0, 0x20, 0, c32(4099*4), 0x6a, c32(size-4), 0x71,
		0x36, 2, 0, 0x20, 0, c32(4), 0x6a, 0x22, 0, c32(size-4), 0x49, 0x0d, 0, 0x0b)
	walk := op(c32(0), 0x21, 0, 0x03, 0x40, repeat(op(0x20, 0, 0x28, 2, 0, 0x21, 0), 200), 0x0c, 0,
		0x0b, 0x00)
	return module{
		memory: op(1, 1, u32(nil, size>>16), u32(nil, size>>16)),
		more:   [][]byte{append(append([]byte{1, 1, typeI32}, append(fill, walk...)...), 0x0b)},
		call:   op(callf(3), c32(0)),
	}
}

var spinners = map[string]func() module{
	"loop": func() module { return module{call: spinCall} },
	"chain": func() module {
		return module{more: exponential(3), call: op(callf(3), c32(0))}
	},
	"cache misses": chase,
	"filling": func() module {
		return module{
			memory: []byte{1, 1, 0x80, 8, 0x80, 8},
			call:   op(0x03, 0x40, c32(0), c32(1), c32(1<<26), 0xfc, 11, 0, 0x0c, 0, 0x0b, 0x00),
		}
	},
}

// kills returns functions that run an instance until it is stopped, and return how long after its
// deadline that was: in a call, by what it does there, and in _initialize and describe.
func kills(t testing.TB) map[string]func() time.Duration {
	all := map[string]func() time.Duration{}
	past := func(budget time.Duration, run func(context.Context) error) func() time.Duration {
		return func() time.Duration {
			ctx, cancel := context.WithTimeout(context.Background(), budget)
			defer cancel()
			due, _ := ctx.Deadline()
			if err := run(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
			return time.Since(due)
		}
	}
	h := newHost(t, Options{BreakAfter: -1})
	for name, g := range spinners {
		tool, budget := h.add(g().bytes()), 20*time.Millisecond
		h.ready(tool)
		if name == "cache misses" {
			budget = 200 * time.Millisecond // it has to fill its memory first
		}
		all[name] = past(budget, func(ctx context.Context) error {
			_, err := h.box.Run(ctx, &gate.Running{Call: &terms.Call{ID: "x", Tool: tool}})
			return err
		})
	}
	for name, g := range map[string]module{
		"in _initialize":        {init: forever[:len(forever)-1]},
		"in its start function": {start: true, more: [][]byte{body(forever)}},
		"in describe":           {describe: spinCall},
	} {
		m, rewritten, err := load(g.bytes(), nil, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := h.box.compile(context.Background(), rewritten, func() {})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = past(20*time.Millisecond, func(ctx context.Context) error {
			tmpl, _, err := newTemplate(ctx, h.box.rt, &source{m, compiled}, &h.box.env, 64<<20, 0)
			if err == nil {
				defer tmpl.image.Close()
				_, err = tmpl.describe(ctx, &h.box.env)
			}
			return err
		})
	}
	return all
}

// TestInstancesAreStoppedInTime checks that the best of some kills, since the machine may be busy,
// is within 5 ms of the deadline.
func TestInstancesAreStoppedInTime(t *testing.T) {
	for name, kill := range kills(t) {
		best := time.Hour
		for n := 0; n < 20 && best > 5*time.Millisecond; n++ {
			best = min(best, kill())
		}
		if best > 5*time.Millisecond {
			t.Errorf("%s: stopped %s after its deadline at best", name, best)
		}
	}
}

// BenchmarkKill reports how long after its deadline an instance is stopped.
func BenchmarkKill(b *testing.B) {
	for name, kill := range kills(b) {
		b.Run(name, func(b *testing.B) {
			var over []time.Duration
			for b.Loop() {
				over = append(over, kill())
			}
			slices.Sort(over)
			b.ReportMetric(float64(at(over, 50).Microseconds()), "p50-µs-over")
			b.ReportMetric(float64(at(over, 99).Microseconds()), "p99-µs-over")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestSpinningInstancesDoNotStallTheHost measures a garbage collection of the host, which waits
// until every goroutine stops, and so for a tick of each instance.
func TestSpinningInstancesDoNotStallTheHost(t *testing.T) {
	for name, g := range spinners {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			tool := h.add(g().bytes())
			tool.Budget = 700 * time.Millisecond
			h.ready(tool)
			var wg sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() { want(t, h.call(tool, object{}), "budget") })
			}
			time.Sleep(300 * time.Millisecond)
			best := time.Hour
			for range 5 { // the best of some, since the machine may be busy
				began := time.Now()
				runtime.GC()
				best = min(best, time.Since(began))
			}
			wg.Wait()
			t.Logf("a collection took %s", best)
			if best > 300*time.Millisecond {
				t.Errorf("a collection took %s while instances were spinning", best)
			}
		})
	}
}

// resident returns the resident memory of the process in MiB.
func resident(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		untold(t)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

func TestMemoryBombsCostAtMostTheirLimit(t *testing.T) {
	// Grows page by page and writes to every one until it is refused; then asks for an operation,
	// during which the host is measured, and traps.
	grow := op(0x03, 0x40, c32(1), 0x40, 0, c32(0), 0x4a, 0x04, 0x40, 0x3f, 0, c32(1), 0x6b,
		c32(16), 0x74, c32(1), c32(65536), 0xfc, 11, 0, 0x0c, 1, 0x0b, 0x0b)
	g := module{
		memory:  []byte{1, 0, 1},
		imports: []imported{{module: abiModule, name: "stage"}},
		data:    dataAt(8, `{"node":"pve1"}`),
		call:    op(grow, c32(8), c32(15), callf(0), 0x1a, 0x00),
	}
	h := newHost(t, Options{MemoryMax: 64 << 20})
	tool := h.add(g.bytes())
	h.ready(tool)
	debug.FreeOSMemory()
	before, during := resident(t), 0
	h.execute = func(terms.Question) (terms.Result, error) {
		during = resident(t)
		return terms.Result{}, nil
	}
	want(t, h.call(tool, object{}), "plugin_memory")
	debug.FreeOSMemory()
	after := resident(t)
	// it is given back in the background
	for until := time.Now().Add(
		5 * time.Second); after > before+8+slack && time.Now().Before(until); after = resident(t) {
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("MiB resident: %d before, %d during, %d after", before, during, after)
	if grown := during - before; grown < 50 || grown > 71+slack {
		t.Errorf("a bomb under a limit of 64 MiB made the process grow by %d MiB; 71 are allowed",
			grown)
	}
	if after > before+8+slack {
		t.Errorf("%d MiB stayed", after-before)
	}
}

func TestRecursionBombsCostABoundedStack(t *testing.T) {
	h := newHost(t, Options{})
	tool := h.add(module{more: [][]byte{body(callf(3))}, call: op(callf(3), c32(0))}.bytes())
	h.ready(tool)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		a := h.call(tool, object{})
		if want(t, a, "plugin_trap"); a.Err != nil &&
			!strings.Contains(a.Err.Error(), "stack overflow") {
			t.Errorf("the error is %v", a.Err)
		}
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / 10 >> 20
	t.Logf("%d MiB a bomb", each)
	if each > 30 {
		t.Errorf("a recursion without end made the host allocate %d MiB", each)
	}
}
