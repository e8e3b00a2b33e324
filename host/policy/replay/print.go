package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

var show = plaintext.Show

// Print writes the decision for people.
func Print(w io.Writer, d terms.Decision) {
	fmt.Fprintf(w, "%s at tier %s by revision %s\n", verdict(d.Allow), d.Tier, d.Revision)
	for _, r := range d.Denied {
		fmt.Fprintf(w, "  %s: %s\n", show(r.ID), show(r.Msg))
	}
}

func verdict(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}

// Print writes the explanation of a record for people.
func (x Explanation) Print(w io.Writer, r terms.Record) {
	about := ""
	if len(x.Guests) > 0 {
		about = " on guest " + strings.Join(x.Guests, ", ")
	}
	by := "by revision " + x.Revision
	if x.Host {
		by = "by the host itself, before or beside policy"
	}
	fmt.Fprintf(w, "%s %s of %s for %s%s: %s at tier %s %s\n", r.Kind,
		show(strings.TrimSpace(r.Op+" "+r.Phase)), show(r.Tool), show(r.Principal), show(about),
		verdict(x.Allowed), cmp.Or(x.Tier, "none"), by)
	if x.Note != "" {
		fmt.Fprintf(w, "%s; what follows is what was journaled\n", show(x.Note))
	} else if !x.Same {
		fmt.Fprintln(w, "decided again, the result differs from the journal: values that are "+
			"redacted there are missing")
	}
	for _, c := range x.Checks {
		c.print(w)
	}
}

// mostStuck is how many expressions of core are told to people, where no entry or rule tells more.
const mostStuck = 3

func (c FailedCheck) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s did not hold: %s\n", show(c.ID),
		show(cmp.Or(c.Says, "the record has no message")))
	for _, rule := range c.Rules {
		fmt.Fprintf(w, "  rule: %s\n", show(rule))
	}
	for _, e := range c.Entries {
		value, err := json.Marshal(e.Value)
		if err == nil && e.Value != nil {
			fmt.Fprintf(w, "  entry: %s: %s = %s\n", show(e.Where), show(e.Path),
				show(plaintext.Short(string(value), 400)))
		} else {
			fmt.Fprintf(w, "  no entry: %s has no %s\n", show(e.Where), show(e.Path))
		}
	}
	if len(c.Rules)+len(c.Entries) == 0 || !slices.ContainsFunc(c.Entries,
		func(e Entry) bool { return e.Value != nil }) {
		for _, s := range c.Stuck[:min(len(c.Stuck), mostStuck)] {
			fmt.Fprintf(w, "  stuck at %s\n", show(s))
		}
	}
	if c.Remedy != "" {
		fmt.Fprintf(w, "  remedy: %s\n", show(c.Remedy))
	}
}

// Print writes the differences for people, each call with its operations.
func (d Diff) Print(w io.Writer, took time.Duration) {
	for _, what := range []string{NewlyAllowed, NewlyRefused, OtherReasons} {
		for _, c := range d.Calls {
			c.print(w, what)
		}
	}
	if d.Decided == 0 {
		fmt.Fprintln(w, "NOTHING WAS DECIDED AGAIN: the journal holds no policy decision of this "+
			"time, so this result says nothing about the candidate")
	}
	fmt.Fprintf(w, "%d decisions, %d the same, %d newly allowed, %d newly refused, in %d calls; "+
		"%d skipped, %d in an older form, in %s; candidate %s\n", d.Decided, d.Same,
		len(d.NewlyAllowed), len(d.NewlyRefused), len(d.Calls), d.Skipped, d.Older, took,
		d.Candidate)
}

// print writes what changes in one way. The operations of a call that would not run any more are
// only counted.
func (c CallDiff) print(w io.Writer, what string) {
	var ops []Change
	own := false
	for _, x := range c.Changes {
		switch {
		case x.Change != what:
		case x.Kind == "call":
			own = true
			fmt.Fprintf(w, "%s: call %s of %s on %s (%s)\n    %s\n", x.Change, show(x.Tool),
				show(x.Principal), show(cmp.Or(x.On, "nothing")), x.DecisionID, show(x.Says))
		default:
			ops = append(ops, x)
		}
	}
	if own && what == NewlyRefused && len(ops) > 0 {
		fmt.Fprintf(w, "    and with it %d of its operations\n", len(ops))
		return
	}
	if len(ops) > 0 && !own {
		fmt.Fprintf(w, "%s: in call %s of %s (%s)\n", what, show(c.Tool), show(c.Principal),
			c.CallID)
	}
	for _, x := range ops {
		fmt.Fprintf(w, "    %s %s on %s (%s)\n        %s\n", x.Kind, show(x.Op),
			show(cmp.Or(x.On, "nothing")), x.DecisionID, show(x.Says))
	}
}
