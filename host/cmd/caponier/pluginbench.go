package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

const maxBench = 1_000_000 // calls

// benchResult is what plugin bench prints.
type benchResult struct {
	Calls    int   `json:"calls"`
	Failed   int   `json:"failed"` // with an error of the tool
	P50      int64 `json:"p50_us"` // microseconds of a whole call
	P99      int64 `json:"p99_us"`
	TicksP50 int64 `json:"ticks_p50"` // of computation, about an instruction each
	TicksMax int64 `json:"ticks_max"`
}

func pluginBench(g *global) *cobra.Command {
	var t trial
	n := 100
	cmd := &cobra.Command{
		Use:   "bench FILE.wasm TOOL [JSON]",
		Short: "Measure calls of one tool of a module: time and computation",
		Args:  cobra.RangeArgs(2, 3),
		Long: "Calls the tool as plugin run does, one call after the other, and prints the " +
			"median and\nthe 99th percentile of the whole call, and the ticks that it computed " +
			"(about one for\neach instruction). Compiling the module, and the first call, are " +
			"not counted.",
		Example: "  caponier plugin bench -n 1000 build/hello.wasm hello_kernel --answers a.yaml",
		RunE:    g.does(func(v *verb) error { return t.bench(v, n) }),
	}
	t.flags(cmd)
	cmd.Flags().IntVarP(&n, "calls", "n", n, "how many `CALLS` to measure")
	return cmd
}

func (t *trial) bench(v *verb, n int) error {
	if n < 1 || n > maxBench {
		return usage(fmt.Errorf("-n %d: want 1 to %d calls", n, maxBench))
	}
	door, req, end, err := t.open(v)
	if err != nil {
		return err
	}
	defer end()
	r := benchResult{Calls: n}
	var took, ticks []int64
	for i := range n + 1 {
		began := time.Now()
		a := door.Call(v.ctx, req)
		d := time.Since(began)
		asked := door.Asked()
		if a.Err != nil {
			return fmt.Errorf("call %d: %w", i, a.Err)
		}
		if i == 0 {
			fmt.Fprint(v.say, missing(asked))
			continue
		}
		if a.Outcome != terms.Succeeded {
			r.Failed++
		}
		took, ticks = append(took, d.Microseconds()), append(ticks, a.Output.Notes.CPUTicks)
	}
	slices.Sort(took)
	slices.Sort(ticks)
	r.P50, r.P99 = percentile(took, 50), percentile(took, 99)
	r.TicksP50, r.TicksMax = percentile(ticks, 50), ticks[len(ticks)-1]
	return v.print(r, func(w io.Writer) {
		us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		fmt.Fprintf(w, "calls  %d, of which %d ended with an error of the tool\n"+
			"call   p50 %s, p99 %s\nticks  p50 %d, at most %d\n", r.Calls, r.Failed, us(r.P50),
			us(r.P99), r.TicksP50, r.TicksMax)
	})
}

// percentile returns the least of the sorted values that p percent of them do not exceed.
func percentile(sorted []int64, p int) int64 {
	return sorted[(len(sorted)*p+99)/100-1]
}
