package sandbox

import (
	"cmp"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs"
)

// hostiles are modules that try to take more than their share, and how their calls end.
var hostiles = map[string]struct {
	ends  string
	build func() module
}{
	"trap": {"plugin_trap", func() module { return module{call: op(0x00)} }},
	"loop": {"budget", func() module { return module{call: spinCall} }},
	"chain": {
		"budget",
		func() module { return module{more: exponential(3), call: op(callf(3), c32(0))} },
	},
	"filling":  {"budget", spinners["filling"]},
	"sleeping": {"budget", sleeper},
	"recursion": {
		"plugin_trap",
		func() module { return module{more: [][]byte{body(callf(3))}, call: op(callf(3), c32(0))} },
	},
	// grows page by page, touches each, and traps at the end
	"memory": {"plugin_memory", func() module {
		grow := op(0x03, 0x40, c32(1), 0x40, 0, c32(0), 0x4a, 0x04, 0x40, 0x3f, 0, c32(1), 0x6b,
			c32(16), 0x74, c32(1), c32(65536), 0xfc, 11, 0, 0x0c, 1, 0x0b, 0x0b, 0x00)
		return module{memory: []byte{1, 0, 1}, call: grow}
	}},
	"table": {
		"plugin_trap",
		func() module {
			return module{
				table: op(1, 0x70, 0, u32(nil, meter.MaxTable)), call: op(c32(7), 0x11, 0, 0),
			}
		},
	},
	"data": {"plugin_trap", func() module { // a thousand segments of the whole first page
		data := u32(nil, 1000)
		for range 1000 {
			data = append(data, dataAt(0, strings.Repeat("x", 4096))[1:]...)
		}
		return module{data: data, call: op(0x00)}
	}},
	"log": {"plugin_trap", func() module {
		return module{
			imports: []imported{{module: abiModule, name: "log"}},
			globals: []byte{1, typeI32, 1, 0x41, 0, 0x0b},
			call: op(0x03, 0x40, c32(0), c32(8), c32(4096), callf(0), 0x23, 0, c32(1), 0x6a, 0x24,
				0, 0x23, 0, c32(10_000), 0x48, 0x0d, 0, 0x0b, 0x00),
		}
	}},
	"result": {"plugin_protocol", func() module { // writes 1 GiB of output, whatever it is told
		return module{imports: []imported{output}, globals: []byte{1, typeI32, 1, 0x41, 0, 0x0b},
			call: op(0x03, 0x40, c32(0), c32(65536), callf(0), 0x1a, 0x23, 0, c32(1), 0x6a, 0x24, 0,
				0x23, 0, c32(16384), 0x48, 0x0d, 0, 0x0b, 0x00)}
	}},
}

// untold skips a test on a system without /proc, and fails it in CI.
func untold(t testing.TB) {
	t.Helper()
	needs.Skip(t, "there is no /proc here")
}

func descriptors(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		untold(t)
	}
	return len(entries)
}

// among runs n good calls from four callers beside n hostile ones, spread evenly over their kinds,
// and returns the sorted durations of the good ones.
func among(
	t testing.TB,
	h *host,
	good *terms.Tool,
	bad map[string]*terms.Tool,
	n int,
) (took []time.Duration) {
	const callers = 4
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range bad {
			if !yield(name) {
				return
			}
		}
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var goods, bads atomic.Int64
	args := object{"text": strings.Repeat("x", 1024)}
	for range callers {
		wg.Go(func() {
			for goods.Add(1) <= int64(n) {
				began := time.Now()
				a := h.call(good, args)
				if d := time.Since(began); a.Err != nil || a.Output.Code != 0 {
					t.Errorf("a good call failed: %v %.100s", a.Err, a.Output.JSON)
				} else {
					mu.Lock()
					took = append(took, d)
					mu.Unlock()
				}
			}
		})
		if len(names) == 0 {
			continue
		}
		wg.Go(func() {
			for k := bads.Add(1); k <= int64(n); k = bads.Add(1) {
				name := names[int(k)%len(names)]
				// with a breaker most are not even run
				if a := h.call(bad[name], object{}); h.box.o.BreakAfter < 0 {
					want(t, a, hostiles[name].ends)
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}

func hostileHost(t testing.TB, breakAfter int) (*host, *terms.Tool, map[string]*terms.Tool) {
	h := newHost(t, Options{BreakAfter: breakAfter, CacheDir: compileCache})
	good, bad := h.add(goModule(t, "echo")), map[string]*terms.Tool{}
	for name, g := range hostiles {
		bad[name] = h.add(g.build().bytes())
		if hostiles[name].ends == "budget" {
			bad[name].Budget = 20 * time.Millisecond
		}
	}
	for _, p := range h.box.plugins {
		if _, err := p.await(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	return h, good, bad
}

// TestGoodCallsAmongHostileOnes checks that all good calls succeed, that the hostile ones end as
// expected, and that everything they took is given back.
func TestGoodCallsAmongHostileOnes(t *testing.T) {
	h, good, bad := hostileHost(t, -1)
	n := 1000
	switch {
	case slack > 0:
		n = 100 // the race detector makes instances' memory the host's
	case testing.Short():
		n = 300
	}
	among(t, h, good, bad, 50) // makes what is made once
	// settle waits until it holds or 20 s are over: instances are replaced in the background.
	settle := func(until func(goroutines, open, mib int) bool) (goroutines, open, mib int) {
		h.mu.Lock()
		h.records, h.executed = nil, nil
		h.mu.Unlock()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			debug.FreeOSMemory()
			goroutines, open, mib = runtime.NumGoroutine(), descriptors(t), resident(t)
			if until(goroutines, open, mib) || time.Now().After(end) {
				return goroutines, open, mib
			}
		}
	}
	same, before := 0, [2]int{}
	goroutines, open, mib := settle(func(goroutines, open, _ int) bool {
		if now := [2]int{goroutines, open}; now == before {
			same++
		} else {
			same, before = 0, now
		}
		return same == 10
	})
	alone := among(t, h, good, nil, n)
	began := time.Now()
	took := among(t, h, good, bad, n)
	t.Logf("%d good calls among as many hostile ones in %s: p50 %s, p99 %s; alone %s and %s",
		len(took), time.Since(began).Round(time.Millisecond), at(took, 50), at(took, 99),
		at(alone, 50), at(alone, 99))
	if len(took) != n {
		t.Errorf("%d of %d good calls succeeded", len(took), n)
	}
	isBack := func(g, o, m int) bool {
		return g <= goroutines && o <= open && m <= mib+16+slack
	}
	if goroutines2, open2, mib2 := settle(isBack); !isBack(goroutines2, open2, mib2) {
		t.Errorf("%d goroutines, %d descriptors and %d MiB; %d, %d and %d before", goroutines2,
			open2, mib2, goroutines, open, mib)
	}
}

func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// BenchmarkAmong reports how much longer good calls take beside hostile ones of each kind, and of
// all kinds, than alone.
func BenchmarkAmong(b *testing.B) {
	for _, breaker := range []int{-1, 0} {
		h, good, bad := hostileHost(b, breaker)
		kinds := map[string]map[string]*terms.Tool{"all": bad}
		for name, tool := range bad {
			kinds[name] = map[string]*terms.Tool{name: tool}
		}
		for name, tools := range kinds {
			benchmarkAmong(b, map[int]string{-1: "each runs/", 0: "breaker/"}[breaker]+name, h,
				good, tools)
		}
	}
}

func benchmarkAmong(
	b *testing.B,
	name string,
	h *host,
	good *terms.Tool,
	tools map[string]*terms.Tool,
) {
	b.Run(name, func(b *testing.B) {
		var alone, took []time.Duration
		for b.Loop() {
			alone, took = append(alone, among(b, h, good, nil, 250)...), append(took,
				among(b, h, good, tools, 250)...)
		}
		slices.SortFunc(alone, cmp.Compare)
		slices.SortFunc(took, cmp.Compare)
		b.ReportMetric(float64(at(took, 50))/float64(at(alone, 50)), "p50-ratio")
		b.ReportMetric(float64(at(took, 99))/float64(at(alone, 99)), "p99-ratio")
		b.ReportMetric(float64(at(alone, 99).Microseconds()), "alone-p99-µs")
		b.ReportMetric(float64(at(alone, 50).Microseconds()), "alone-p50-µs")
		b.ReportMetric(0, "ns/op")
	})
}
