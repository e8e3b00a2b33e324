package index_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs"
)

// TestALongCallIsNotReadAgainAndAgain follows a call that goes on, as a console does. What it finds
// at each step is what another index finds that begins there.
func TestALongCallIsNotReadAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	j, err := audit.Open(audit.Options{Dir: dir})
	must(t, err)
	defer j.Close()
	x, err := index.Open(t.Context(), t.TempDir(), dir)
	must(t, err)
	defer x.Close()
	n := 0
	add := func(r terms.Record) {
		n++
		r.Principal, r.Tool, r.Time = "ann", "tool", day.Add(time.Duration(n)*time.Second)
		r.ID = fmt.Sprint("d", n)
		must(t, j.Intent(t.Context(), r, false))
	}
	input := []byte(`{"a":"` + strings.Repeat("x", 4000) + `"}`)
	for range 4000 / needs.Share(4) {
		add(terms.Record{Type: "intent", CallID: "long", Kind: "operation", Input: input})
	}
	began := time.Now()
	must(t, x.Update(t.Context(), nil))
	whole, took := time.Since(began), time.Duration(0)
	for i := range 60 {
		short := fmt.Sprint("short", i/2)
		add(terms.Record{Type: "refused", CallID: "long", Kind: "operation", Node: "pve1",
			Failed: []string{fmt.Sprint("rule", i%3)}})
		add(terms.Record{Type: "intent", CallID: short, Kind: "call"})
		if i%2 == 1 {
			add(
				terms.Record{
					Type:    "outcome",
					CallID:  short,
					Kind:    "call",
					Outcome: terms.Succeeded,
				},
			)
		}
		began := time.Now()
		must(t, x.Update(t.Context(), nil))
		took += time.Since(began)
		if i != 7 && i != 58 && i != 59 {
			continue
		}
		y, err := index.Open(t.Context(), t.TempDir(), dir)
		must(t, err)
		must(t, y.Update(t.Context(), nil))
		for _, q := range []audit.Query{{}, {Rule: "rule1", Node: "pve1"}} {
			a, err := x.Find(t.Context(), q, index.Mark{}, 100)
			must(t, err)
			b, err := y.Find(t.Context(), q, index.Mark{}, 100)
			must(t, err)
			if len(a.Calls) == 0 || !reflect.DeepEqual(calls(a), calls(b)) {
				t.Fatalf("%d %+v: finds %v, a new index %v", i, q, calls(a), calls(b))
			}
		}
		must(t, y.Close())
	}
	if took > 10*whole { // reading it again each time takes 60 times as long
		t.Errorf("60 looks took %s, and the first, which read all, %s", took, whole)
	}
}

// calls are names and outcomes of what was found.
func calls(p index.Page) (all []string) {
	for _, f := range p.Calls {
		all = append(all, f.Call+" "+f.Outcome+" "+fmt.Sprint(f.Operations, f.Rules))
	}
	return all
}
