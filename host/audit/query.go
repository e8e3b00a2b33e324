package audit

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Query says which calls are wanted: those that fit all of its fields. A zero field fits all.
type Query struct {
	Who     string    // id of the principal
	Tool    string    // or the beginning of its name, with * at the end
	Guest   string    // number or name of a target
	Node    string    // of a target, or where an operation ran
	Outcome string    // of the call; none for a call without one
	Rule    string    // id of a check or rule that refused the call, or an operation of it
	Since   time.Time // when the call came
	Until   time.Time
	Limit   int // only the newest ones, if there are more
}

// Outcomes are what Query.Outcome can be.
var Outcomes = []string{string(terms.Succeeded), string(terms.Failed), string(terms.Unknown),
	string(terms.Refusal), string(terms.Waits), string(terms.Planned), noOutcome}

const noOutcome = "none"

// Found is what the journal says of one call, in short.
type Found struct {
	Host       string        `json:"host,omitempty"` // whose journal has it, of several
	Call       string        `json:"call_id"`
	Time       time.Time     `json:"time"` // when it came
	Principal  string        `json:"principal"`
	Source     string        `json:"source"`
	Tool       string        `json:"tool"`
	Tier       string        `json:"tier"`
	Guests     []Guest       `json:"guests"`
	Nodes      []string      `json:"nodes"`
	Operations int           `json:"operations"`
	Outcome    string        `json:"outcome"` // none: it runs, or its process was killed
	Code       string        `json:"code,omitempty"`
	DurationUS int64         `json:"duration_us"`
	Rules      []string      `json:"rules"`   // that refused the call, or an operation of it
	Refused    []RefusedHere `json:"refused"` // the first ten
}

// Guest is a target of a call. Name is "" where the record has none.
type Guest struct {
	VMID string `json:"vmid"`
	Name string `json:"name,omitempty"`
}

func (g Guest) String() string { return strings.TrimSpace(g.VMID + " " + g.Name) }

// RefusedHere is a decision that refused, for `caponier policy explain`.
type RefusedHere struct {
	Decision string         `json:"decision_id"`
	Op       string         `json:"op,omitempty"`
	Reasons  []terms.Reason `json:"deny"`
}

const (
	// maxOpen bounds the calls that are held at once because their end was not read yet.
	maxOpen = 10_000
	// longest is more than any call lasts, and than a clock is set back: files that end so long
	// before a query begins, or begin so long after it ends, are not read.
	longest    = 24 * time.Hour
	mostTold   = 10
	anythingOf = "*"
)

// callsIn yields the calls of a journal that a query wants, in the order in which they ended; those
// without an outcome come last. A line that is no entry is yielded as an error, and reading goes
// on. Memory is bounded by the limit, and by the calls that run at the same time.
func callsIn(dir string, q Query) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		var newest []Found
		stopped := false
		emit := func(f Found) bool {
			if !q.Wants(f) {
				return true
			}
			if q.Limit <= 0 {
				stopped = !yield(f, nil)
				return !stopped
			}
			if newest = append(newest, f); len(newest) >= 2*q.Limit {
				newest = slices.Clone(newest[len(newest)-q.Limit:])
			}
			return true
		}
		open := Unended{}
		r := newReader(dir)
		r.skip = q.outside(dir)
		r.pass(func(e Entry, err error) bool {
			if err != nil {
				stopped = !yield(Found{}, err)
				return !stopped
			}
			if !e.OfCall() {
				return true
			}
			f, ended := open.Add(*e.Record)
			if !ended && len(open) > maxOpen {
				f, ended = oldest(open), true
				delete(open, f.Call)
			}
			if ended {
				return emit(*f)
			}
			return true
		})
		for _, id := range slices.Sorted(maps.Keys(open)) { // ids sort by time
			if stopped || !emit(*open[id]) {
				return
			}
		}
		for _, f := range newest[max(0, len(newest)-q.Limit):] {
			if stopped || !yield(f, nil) {
				return
			}
		}
	}
}

func oldest(open Unended) (first *Found) {
	for _, f := range open {
		if first == nil || f.Time.Before(first.Time) {
			first = f
		}
	}
	return first
}

// outside reports which files cannot hold calls of the time that is asked for.
func (q Query) outside(dir string) func(name string) bool {
	return func(name string) bool {
		if !q.Until.IsZero() && begins(name).After(q.Until.Add(longest)) {
			return true
		}
		if q.Since.IsZero() || begins(name).After(q.Since.Add(-longest)) {
			return false
		}
		last, err := lastEntry(filepath.Join(dir, name))
		return err == nil && last.Hash != "" && last.when().Before(q.Since.Add(-longest))
	}
}

// OfCall reports whether an entry is a record of a call.
func (e Entry) OfCall() bool { return e.Record != nil && e.Record.Kind != "approval" }

// Unended are the calls whose end was not read yet, by their ids.
type Unended map[string]*Found

// Add notes what a record says of its call. A call that is over is not open any longer.
func (o Unended) Add(r terms.Record) (f *Found, ended bool) {
	if f = o[r.CallID]; f == nil {
		f = &Found{Call: r.CallID, Time: r.Time, Outcome: noOutcome, Guests: []Guest{},
			Nodes: []string{}, Rules: []string{}, Refused: []RefusedHere{}, Principal: r.Principal,
			Tool: r.Tool}
		o[r.CallID] = f
	}
	if ended = f.add(r); ended {
		delete(o, r.CallID)
	}
	return f, ended
}

// add reports whether the call is over.
func (f *Found) add(r terms.Record) bool {
	f.node(r.Node)
	if r.Type == "refused" && r.Outcome != terms.Waits {
		f.refused(r)
	}
	switch {
	case r.Kind == "operation" && r.Type != "outcome":
		f.Operations++
	case r.Kind == "call" && r.Type == "outcome":
		f.Outcome, f.Code, f.DurationUS = string(r.Outcome), r.Code, r.DurationUS
		return true
	case r.Kind == "call":
		f.Principal, f.Source, f.Tool, f.Tier = r.Principal, r.Source, r.Tool, r.Tier
		f.targets(r.Input)
		if r.Type == "refused" {
			f.Outcome = string(terms.Refusal)
			if r.Outcome == terms.Waits {
				f.Outcome = string(terms.Waits)
			}
			return true
		}
	}
	return false
}

func (f *Found) node(name string) {
	if name != "" && !slices.Contains(f.Nodes, name) {
		f.Nodes = append(f.Nodes, name)
	}
}

// refused notes why a decision said no. Ids of rules of the site stand among the reasons.
func (f *Found) refused(r terms.Record) {
	ids := slices.Clone(r.Failed)
	for _, d := range r.Denied {
		ids = append(ids, d.ID)
	}
	for _, id := range ids {
		if !slices.Contains(f.Rules, id) {
			f.Rules = append(f.Rules, id)
		}
	}
	if len(f.Refused) < mostTold {
		f.Refused = append(f.Refused, RefusedHere{r.ID, r.Op, append([]terms.Reason{},
			r.Denied...)})
	}
}

// targets notes what a call was about, from the question that was decided.
func (f *Found) targets(input json.RawMessage) {
	var in struct {
		Targets struct{ Nodes, VMIDs []string }
		Guests  map[string]struct{ Name string }
	}
	if json.Unmarshal(input, &in) != nil {
		return // a masked one, or one of the host itself
	}
	f.Guests = []Guest{}
	for _, vmid := range in.Targets.VMIDs {
		f.Guests = append(f.Guests, Guest{vmid, in.Guests[vmid].Name})
	}
	for _, n := range in.Targets.Nodes {
		f.node(n)
	}
}

// Wants reports whether a call is wanted.
func (q Query) Wants(f Found) bool {
	tool, many := strings.CutSuffix(q.Tool, anythingOf)
	fits := func(want, have string) bool { return want == "" || want == have }
	guest := func(g Guest) bool { return g.VMID == q.Guest || g.Name == q.Guest }
	return fits(q.Who, f.Principal) && fits(q.Outcome, f.Outcome) &&
		(fits(tool, f.Tool) || many && strings.HasPrefix(f.Tool, tool)) &&
		(q.Guest == "" || slices.ContainsFunc(f.Guests, guest)) &&
		(q.Node == "" || slices.Contains(f.Nodes, q.Node)) &&
		(q.Rule == "" || slices.Contains(f.Rules, q.Rule)) &&
		!f.Time.Before(q.Since) && (q.Until.IsZero() || f.Time.Before(q.Until))
}

// Moment reads a time, or how long ago it was. "" is the zero time.
func Moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	days, isDays := strings.CutSuffix(text, "d")
	if isDays {
		if d, err := time.ParseDuration(days + "h"); err == nil && d >= 0 {
			return now.Add(-24 * d), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 30m, 24h, 7d, 2026-11-23 or "+
		"2026-11-23T10:00:00Z", text)
}
