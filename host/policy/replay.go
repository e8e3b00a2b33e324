package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Diff is what a candidate policy would have decided otherwise.
type Diff struct {
	Candidate string `json:"candidate"` // its revision
	Decided   int    `json:"decided"`   // records that were decided again
	// refused by the host before policy was asked, or with redacted values
	Skipped int `json:"skipped"`
	// in another form than today's input, so that a rule of today could not be held against them
	Older        int      `json:"older"`
	Same         int      `json:"same"`
	NewlyAllowed []Change `json:"newly_allowed"`
	NewlyRefused []Change `json:"newly_refused"`
	OtherReasons []Change `json:"other_reasons"` // refused by both, for different checks
}

// Change is one decision that the candidate would make otherwise.
type Change struct {
	DecisionID string `json:"decision_id"`
	Kind       string `json:"kind"`
	Op         string `json:"op,omitempty"`
	Principal  string `json:"principal"`
	Tool       string `json:"tool"`
	// what it named: guests, nodes, paths, hosts, or the command
	On     string   `json:"on,omitempty"`
	Before []string `json:"before"` // checks that did not hold, none when it was allowed
	After  []string `json:"after"`
}

// Replay decides every recorded question again with the policy of a folder. It uses all processors
// and holds only the differences in memory.
func Replay(ctx context.Context, records iter.Seq[gate.Record], dir string) (Diff, error) {
	r, err := load(ctx, dir)
	if err != nil {
		return Diff{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := Diff{
		Candidate:    r.id,
		NewlyAllowed: []Change{},
		NewlyRefused: []Change{},
		OtherReasons: []Change{},
	}
	work := make(chan gate.Record, 64)
	var mu sync.Mutex // guards d
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for rec := range work {
				entry, input, err := recorded(rec)
				var a answer
				if err == nil && !shapes[entry](input) {
					mu.Lock()
					d.Older++
					mu.Unlock()
					continue
				}
				if err == nil {
					a, err = r.answer(ctx, entry, input)
				}
				if err != nil {
					a = answer{
						Failed: []string{"policy.error"},
						Deny:   []gate.Reason{{ID: "policy.error", Msg: err.Error()}},
					}
				}
				mu.Lock()
				d.add(rec, a)
				mu.Unlock()
			}
		})
	}
	for rec := range records {
		if rec.Type == "outcome" || rec.Kind == "approval" {
			continue
		}
		if !replayable(rec) {
			mu.Lock()
			d.Skipped++
			mu.Unlock()
			continue
		}
		select {
		case work <- rec:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(work)
	wg.Wait()
	for _, list := range [][]Change{d.NewlyAllowed, d.NewlyRefused, d.OtherReasons} {
		slices.SortFunc(
			list,
			func(a, b Change) int { return strings.Compare(a.DecisionID, b.DecisionID) },
		)
	}
	return d, context.Cause(ctx)
}

// replayable says that policy decided the record and that the journal holds all that it decided on.
func replayable(rec gate.Record) bool {
	// no caller can write that unquoted
	return rec.Revision != "" && len(rec.Input) > 0 && !rec.Masked &&
		!bytes.Contains(rec.Input, []byte(`{"redacted":true}`)) &&
		!slices.ContainsFunc(rec.Failed, func(id string) bool { return strings.Contains(id, ".") })
}

func (d *Diff) add(rec gate.Record, a answer) {
	before := rec.Type != "refused"
	c := Change{rec.ID, rec.Kind, rec.Op, rec.Principal, rec.Tool, "", rec.Failed, a.Failed}
	d.Decided++
	same := a.Allow == before &&
		(before || slices.Equal(slices.Sorted(slices.Values(a.Failed)), slices.Sorted(slices.Values(rec.Failed))))
	if !same {
		c.On = on(rec.Input)
	}
	switch {
	case same:
		d.Same++
	case a.Allow && !before:
		d.NewlyAllowed = append(d.NewlyAllowed, c)
	case !a.Allow && before:
		d.NewlyRefused = append(d.NewlyRefused, c)
	default:
		d.OtherReasons = append(d.OtherReasons, c)
	}
}

// on says in a few words what a recorded question was about.
func on(input json.RawMessage) string {
	var q struct {
		Targets gate.Targets
		Target  struct{ Node string }
		Command struct{ Calls []struct{ Argv []string } }
		File    struct{ Path string }
		HTTP    struct{ Host string }
	}
	if err := json.Unmarshal(input, &q); err != nil {
		return ""
	}
	words := slices.Concat(
		q.Targets.VMIDs,
		q.Targets.Nodes,
		q.Targets.Services,
		q.Targets.Hosts,
		q.Targets.Paths,
		[]string{q.Target.Node, q.File.Path, q.HTTP.Host},
	)
	for _, c := range q.Command.Calls {
		words = append(words, strings.Join(c.Argv, " "))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}
