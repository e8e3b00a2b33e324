package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAHostileViewerTakesNoJQFromAnOperator: with the shipped jq plugin, while a viewer's filters
// take all the memory and all the time they can get, every call of an operator is answered.
func TestAHostileViewerTakesNoJQFromAnOperator(t *testing.T) {
	h := newHost(t, Options{CacheDir: compileCache})
	tool := h.add(built(t, "plugins/jq.wasm", 1)["jq"])
	tool.Name, tool.Budget = "jq_query", time.Minute
	query := func(principal, filter string, budget time.Duration) (string, error) {
		mine := *tool
		mine.Budget = budget
		a := h.callOf(principal, &mine, object{"json": `{"a":[1,2]}`, "jq_filter": filter})
		return string(a.Output.JSON), a.Err
	}
	n := 40
	if testing.Short() {
		n = 10
	}
	operator := func() (took []time.Duration) {
		for k := range n {
			began := time.Now()
			got, err := query("operator", fmt.Sprintf(".a[0] + %d", k), time.Minute)
			if want := fmt.Sprint(k + 1); err != nil || !strings.Contains(got, want) {
				t.Fatalf("call %d of the operator: %.200s, %v; want %s", k, got, err, want)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took
	}
	h.ready(tool)
	alone := operator()
	for name, filter := range map[string]string{
		"memory": "\"x\" * 1000000000 | length", "time": "last(repeat(.))",
		"errors": "error(\"x\")", "recursion": "def f: f + 1; f",
	} {
		t.Run(name, func(t *testing.T) {
			budget := 300 * time.Millisecond
			if name == "memory" {
				budget = time.Minute // it ends before
			}
			var over atomic.Bool
			var ran atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for !over.Load() {
						_, err := query("viewer", filter, budget)
						if k := ran.Add(1); k == 1 {
							t.Logf("the viewer's first call: %v", err)
						}
					}
				})
			}
			soon(t, "hostile calls have run", func() bool { return ran.Load() > 4 })
			among := operator()
			over.Store(true)
			wg.Wait()
			t.Logf("p50 of the operator: %s alone, %s beside %d calls of the viewer",
				at(alone, 50), at(among, 50), ran.Load())
		})
	}
}
