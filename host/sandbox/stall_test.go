package sandbox

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// chase follows pointers through 32 MiB: every load misses the caches, which is the slowest that an instruction can be.
func chase() guest {
	const size = 32 << 20
	fill := op(c32(0), 0x21, 0, 0x03, 0x40, 0x20, 0, // a[i] = (i*stride) mod size, in steps of 4 KiB and a bit
		0x20, 0, c32(4099*4), 0x6a, c32(size-4), 0x71, 0x36, 2, 0, 0x20, 0, c32(4), 0x6a, 0x22, 0, c32(size-4), 0x49, 0x0d, 0, 0x0b)
	walk := op(c32(0), 0x21, 0, 0x03, 0x40, repeat(op(0x20, 0, 0x28, 2, 0, 0x21, 0), 200), 0x0c, 0, 0x0b, 0x00)
	return guest{memory: op(1, 1, u32(nil, size>>16), u32(nil, size>>16)), more: [][]byte{append(append([]byte{1, 1, typeI32}, append(fill, walk...)...), 0x0b)}, call: op(callf(3), c32(0))}
}

var spinners = map[string]func() guest{
	"loop":         func() guest { return guest{call: spinCall} },
	"chain":        func() guest { return guest{more: exponential(3), call: op(callf(3), c32(0))} },
	"cache misses": chase,
	"filling": func() guest {
		return guest{memory: []byte{1, 1, 0x80, 8, 0x80, 8}, call: op(0x03, 0x40, c32(0), c32(1), c32(1<<26), 0xfc, 11, 0, 0x0c, 0, 0x0b, 0x00)}
	},
}

// BenchmarkKill reports how long after its deadline a guest is stopped.
func BenchmarkKill(b *testing.B) {
	for name, g := range spinners {
		b.Run(name, func(b *testing.B) {
			h := newHost(b, Options{})
			tool := h.add(g().bytes())
			tool.Budget = 20 * time.Millisecond
			if name == "cache misses" {
				tool.Budget = 200 * time.Millisecond // it has to fill its memory first
			}
			<-h.box.plugin(tool.Plugin.Digest).ready
			var worst, sum time.Duration
			for b.Loop() {
				c := &gate.Call{ID: "x", Tool: tool}
				ctx, cancel := context.WithTimeout(context.Background(), tool.Budget)
				due, _ := ctx.Deadline()
				if _, err := h.box.Run(ctx, &gate.Running{Call: c}); err == nil {
					b.Fatal("it came to an end")
				}
				over := time.Since(due)
				cancel()
				worst, sum = max(worst, over), sum+over
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-over/op")
			b.ReportMetric(float64(worst.Microseconds()), "µs-worst")
		})
	}
}

// TestSpinningGuestsDoNotStallTheHost: a collection of the host's garbage must wait for every goroutine to stop, and so for each guest to look up.
func TestSpinningGuestsDoNotStallTheHost(t *testing.T) {
	for name, g := range spinners {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			tool := h.add(g().bytes())
			tool.Budget = 700 * time.Millisecond
			<-h.box.plugin(tool.Plugin.Digest).ready
			var wg sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() { want(t, h.call(tool, object{}), "budget") })
			}
			time.Sleep(300 * time.Millisecond)
			best := time.Hour
			for range 5 { // the best of some, since others use this machine
				began := time.Now()
				runtime.GC()
				best = min(best, time.Since(began))
			}
			wg.Wait()
			t.Logf("a collection took %s", best)
			if best > 300*time.Millisecond {
				t.Errorf("a collection took %s while guests were spinning", best)
			}
		})
	}
}

// resident is the process's memory in MiB.
func resident(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("this system does not tell")
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

func TestMemoryBombsCostWhatTheyAreAllowed(t *testing.T) {
	// Grows page by page and writes to every one until it is refused; then asks for an operation, during which the host is measured, and traps.
	grow := op(0x03, 0x40, c32(1), 0x40, 0, c32(0), 0x4a, 0x04, 0x40, 0x3f, 0, c32(1), 0x6b, c32(16), 0x74, c32(1), c32(65536), 0xfc, 11, 0, 0x0c, 1, 0x0b, 0x0b)
	g := guest{memory: []byte{1, 0, 1}, imports: []imported{{module: abiModule, name: "stage"}}, data: dataAt(8, `{"node":"pve1"}`), call: op(grow, c32(8), c32(15), callf(0), 0x1a, 0x00)}
	h := newHost(t, Options{MemoryMax: 64 << 20})
	tool := h.add(g.bytes())
	<-h.box.plugin(tool.Plugin.Digest).ready
	debug.FreeOSMemory()
	before, during := resident(t), 0
	h.execute = func(gate.Question) (gate.Result, error) { during = resident(t); return gate.Result{}, nil }
	want(t, h.call(tool, object{}), "plugin_memory")
	debug.FreeOSMemory()
	after := resident(t)
	t.Logf("MiB resident: %d before, %d during, %d after", before, during, after)
	if grown := during - before; grown < 50 || grown > 71+slack {
		t.Errorf("a bomb under a limit of 64 MiB made the process grow by %d MiB; 64 and a tenth are allowed", grown)
	}
	if after > before+8+slack {
		t.Errorf("%d MiB stayed", after-before)
	}
}

func TestRecursionBombsCostABoundedStack(t *testing.T) {
	h := newHost(t, Options{})
	tool := h.add(guest{more: [][]byte{body(callf(3))}, call: op(callf(3), c32(0))}.bytes())
	<-h.box.plugin(tool.Plugin.Digest).ready
	debug.FreeOSMemory()
	before := resident(t)
	want(t, h.call(tool, object{}), "plugin_trap")
	t.Logf("%d MiB", resident(t)-before)
	debug.FreeOSMemory()
	if after := resident(t); after > before+16 {
		t.Errorf("%d MiB stayed after it", after-before)
	}
}
