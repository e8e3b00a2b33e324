// Package replay decides recorded and hypothetical questions: with another policy, or again to say
// why. It is not part of a decision.
package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Eval decides an input document that somebody wrote, as docs/policy.md describes it, with every
// member. The effective roles are those of the policy, whatever the document says.
func Eval(ctx context.Context, dir string, text []byte) (terms.Decision, error) {
	doc, err := input.Parse(text)
	if err != nil {
		return terms.Decision{}, err
	}
	c, err := load.Untested(ctx, dir)
	if err != nil {
		return terms.Decision{}, err
	}
	v, err := c.Rules.Input(ctx, doc)
	if err != nil {
		return terms.Decision{}, err
	}
	d, err := c.Rules.Answer(ctx, v)
	d.Input = value.JSON(doc, nil, nil)
	return d, err
}

// Diff is what a candidate policy would have decided otherwise.
type Diff struct {
	Candidate string `json:"candidate"` // its revision
	Decided   int    `json:"decided"`   // records that were decided again
	// refused by the host before policy was asked, or with redacted values
	Skipped int `json:"skipped"`
	// in another form than today's input, so that today's rules cannot be held against them
	Older        int      `json:"older"`
	Same         int      `json:"same"`
	NewlyAllowed []Change `json:"newly_allowed"`
	NewlyRefused []Change `json:"newly_refused"`
	OtherReasons []Change `json:"other_reasons"` // refused by both, for different checks
	// the same changes by call, in the order of their ids
	Calls []CallDiff `json:"calls"`
}

// CallDiff are the changes of one call: its own and those of its operations.
type CallDiff struct {
	CallID    string   `json:"call_id"`
	Principal string   `json:"principal"`
	Tool      string   `json:"tool"`
	Changes   []Change `json:"changes"`
}

// The kinds of changes.
const (
	NewlyAllowed = "NEWLY ALLOWED"
	NewlyRefused = "newly refused"
	OtherReasons = "refused for other reasons"
	Same         = "the same" // is none
)

// ErrSkipped is matched by the error for a record that nothing can be decided from: one that the
// host refused before policy was asked, or with redacted values.
var ErrSkipped = errors.New("policy was not asked, or the record lacks values")

// Change is one decision that the candidate would make otherwise.
type Change struct {
	DecisionID string   `json:"decision_id"`
	CallID     string   `json:"call_id"`
	Change     string   `json:"change"`
	Says       string   `json:"says"` // the change in a sentence
	Kind       string   `json:"kind"`
	Op         string   `json:"op,omitempty"`
	Principal  string   `json:"principal"`
	Tool       string   `json:"tool"`
	On         string   `json:"on,omitempty"` // guests, nodes, paths, hosts, or the command
	Before     []string `json:"before"`       // checks that did not hold, none when it was allowed
	After      []string `json:"after"`
	Allow      bool     `json:"allow"` // by the candidate, which puts it in this tier
	Tier       string   `json:"tier"`
}

// Replay decides every recorded question again with the policy of a folder. It uses all processors
// and holds only the differences in memory.
func Replay(ctx context.Context, records iter.Seq[terms.Record], dir string) (Diff, error) {
	c, err := load.Untested(ctx, dir)
	if err != nil {
		return Diff{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := Diff{Candidate: c.Rules.Revision, NewlyAllowed: []Change{}, NewlyRefused: []Change{},
		OtherReasons: []Change{}}
	work := make(chan terms.Record, 64)
	var mu sync.Mutex // guards d
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for rec := range work {
				change, err := Compare(ctx, c.Rules, rec)
				mu.Lock()
				if errors.Is(err, input.ErrForm) {
					d.Older++
				} else {
					d.add(change)
				}
				mu.Unlock()
			}
		})
	}
	for rec := range records {
		switch {
		case rec.Type == "outcome" || rec.Kind == "approval":
		case !replayable(rec):
			mu.Lock()
			d.Skipped++
			mu.Unlock()
		default:
			select {
			case work <- rec:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(work)
	wg.Wait()
	d.group()
	return d, context.Cause(ctx)
}

// again decides a record. An error of the policy is a refusal, as it would be in the host.
func again(ctx context.Context, r *policy.Rules, rec terms.Record) (d terms.Decision, err error) {
	doc, err := input.Parse(rec.Input)
	if err != nil {
		return d, err
	}
	v, err := r.Input(ctx, doc)
	if err == nil {
		d, err = r.Answer(ctx, v)
	}
	if err != nil {
		d = terms.Decision{Failed: []string{"policy.error"},
			Denied: []terms.Reason{{ID: "policy.error", Msg: err.Error()}}}
	}
	return d, nil
}

// replayable reports whether policy decided the record and the journal holds all that it was
// decided on.
func replayable(rec terms.Record) bool {
	return rec.Revision != "" && len(rec.Input) > 0 && !rec.Masked &&
		// a caller cannot write this unquoted
		!bytes.Contains(rec.Input, []byte(`{"redacted":true}`)) &&
		!slices.ContainsFunc(rec.Failed, func(id string) bool { return strings.Contains(id, ".") })
}

func (d *Diff) add(c Change) {
	d.Decided++
	switch c.Change {
	case Same:
		d.Same++
	case NewlyAllowed:
		d.NewlyAllowed = append(d.NewlyAllowed, c)
	case NewlyRefused:
		d.NewlyRefused = append(d.NewlyRefused, c)
	default:
		d.OtherReasons = append(d.OtherReasons, c)
	}
}

// Compare decides a record with other rules, and says what would change. Its errors match
// [ErrSkipped] or [input.ErrForm]; an error of the rules is a refusal, as it is in the host.
func Compare(ctx context.Context, r *policy.Rules, rec terms.Record) (Change, error) {
	if rec.Type == "outcome" || rec.Kind == "approval" || !replayable(rec) {
		return Change{}, ErrSkipped
	}
	a, err := again(ctx, r, rec)
	if err != nil {
		return Change{}, err
	}
	before := rec.Type != "refused"
	c := Change{DecisionID: rec.ID, CallID: rec.CallID, Change: Same, Kind: rec.Kind, Op: rec.Op,
		Principal: rec.Principal, Tool: rec.Tool, On: on(rec.Input), Before: rec.Failed,
		After: a.Failed, Allow: a.Allow, Tier: a.Tier.String()}
	was, would := because(rec.Denied, rec.Failed), because(a.Denied, a.Failed)
	if len(a.Guests) > 0 {
		would = "not known: the candidate asks what the cluster says of " +
			strings.Join(a.Guests, ", ") + ", and the record does not have it"
	}
	switch {
	case a.Allow == before && (before || sameSet(a.Failed, rec.Failed)):
	case a.Allow && !before:
		c.Change = NewlyAllowed
		c.Says = fmt.Sprintf("It would be allowed, at tier %s. It was refused: %s", a.Tier, was)
	case before && len(a.Guests) > 0:
		c.Change, c.Says = NewlyRefused, "It was allowed. What it would be is "+would
	case before:
		c.Change, c.Says = NewlyRefused, "It was allowed. It would be refused: "+would
	case len(a.Guests) > 0: // all else that it needs is there
		c.Change = NewlyAllowed
		c.Says = fmt.Sprintf("It was refused: %s. What it would be is %s", was, would)
	default:
		c.Change = OtherReasons
		c.Says = fmt.Sprintf("It was refused: %s. It would be refused: %s", was, would)
	}
	return c, nil
}

// because gives the reasons of a refusal, or the checks that failed where it has none.
func because(denied []terms.Reason, failed []string) string {
	var all []string
	for _, r := range denied {
		all = append(all, r.ID+": "+strings.TrimRight(r.Msg, "."))
	}
	if len(all) == 0 {
		all = failed
	}
	return strings.Join(all, "; ")
}

// group sorts the changes, and puts those of one call together.
func (d *Diff) group() {
	at := map[string]int{}
	d.Calls = []CallDiff{}
	var all []Change
	for _, l := range [][]Change{d.NewlyAllowed, d.NewlyRefused, d.OtherReasons} {
		slices.SortFunc(l, func(a, b Change) int {
			return strings.Compare(a.DecisionID, b.DecisionID)
		})
		all = append(all, l...)
	}
	slices.SortStableFunc(all, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.CallID, b.CallID),
			strings.Compare(a.DecisionID, b.DecisionID))
	})
	for _, c := range all {
		i, known := at[c.CallID]
		if !known {
			i = len(d.Calls)
			at[c.CallID] = i
			d.Calls = append(d.Calls, CallDiff{CallID: c.CallID, Principal: c.Principal,
				Tool: c.Tool})
		}
		d.Calls[i].Changes = append(d.Calls[i].Changes, c)
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// on returns in a few words what a recorded question was about.
func on(input json.RawMessage) string {
	var q struct {
		Targets terms.Targets
		Target  struct{ Node string }
		Command struct{ Calls []struct{ Argv []string } }
		File    struct{ Path string }
		HTTP    struct{ Host string }
	}
	if err := json.Unmarshal(input, &q); err != nil {
		return ""
	}
	t := q.Targets
	words := slices.Concat(t.VMIDs, t.Nodes, t.Services, t.Hosts, t.Paths,
		[]string{q.Target.Node, q.File.Path, q.HTTP.Host})
	for _, c := range q.Command.Calls {
		words = append(words, strings.Join(c.Argv, " "))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}
