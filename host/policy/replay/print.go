package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Print writes the decision for people.
func Print(w io.Writer, d gate.Decision) {
	fmt.Fprintf(w, "%s at tier %s by revision %s\n", verdict(d.Allow), d.Tier, d.Revision)
	for _, r := range d.Denied {
		fmt.Fprintf(w, "  %s: %s\n", r.ID, r.Msg)
	}
}

func verdict(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}

// Print writes the explanation of a record for people.
func (x Explanation) Print(w io.Writer, r gate.Record) {
	fmt.Fprintf(w, "%s %s of %s for %s: %s at tier %s by revision %s\n", r.Kind,
		strings.TrimSpace(r.Op+" "+r.Phase), r.Tool, r.Principal, verdict(x.Allowed), x.Tier,
		x.Revision)
	if !x.Same {
		fmt.Fprintln(w, "decided again, the result differs from the journal: values that are "+
			"redacted there are missing")
	}
	for _, c := range x.Checks {
		fmt.Fprintf(w, "\n%s did not hold: %s\n  remedy: %s\n", c.ID, c.Says, c.Remedy)
		for _, s := range c.Stuck {
			fmt.Fprintf(w, "  stuck at %s\n", s)
		}
		for path, value := range c.Data {
			if data, err := json.Marshal(value); err == nil {
				fmt.Fprintf(w, "  %s = %s\n", path, data)
			}
		}
	}
}

// Print writes the differences for people.
func (d Diff) Print(w io.Writer, took time.Duration) {
	for _, part := range []struct {
		what    string
		changes []Change
	}{{"NEWLY ALLOWED", d.NewlyAllowed}, {"newly refused", d.NewlyRefused},
		{"refused for other reasons", d.OtherReasons}} {
		slices.SortFunc(part.changes,
			func(a, b Change) int { return strings.Compare(a.DecisionID, b.DecisionID) })
		for _, c := range part.changes {
			fmt.Fprintf(w, "%s: %s %s for %s on %s: was [%s], would be [%s] (%s)\n", part.what,
				c.Kind, strings.TrimSpace(c.Tool+" "+c.Op), c.Principal, cmp.Or(c.On, "nothing"),
				strings.Join(c.Before, " "), strings.Join(c.After, " "), c.DecisionID)
		}
	}
	if d.Decided == 0 {
		fmt.Fprintln(w, "NOTHING WAS DECIDED AGAIN: the journal holds no policy decision of this "+
			"time, so this result says nothing about the candidate")
	}
	fmt.Fprintf(w, "%d decisions, %d the same, %d newly allowed, %d newly refused, %d skipped, "+
		"%d in an older form, in %s; candidate %s\n", d.Decided, d.Same, len(d.NewlyAllowed),
		len(d.NewlyRefused), d.Skipped, d.Older, took, d.Candidate)
}
