package replay

import (
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Explanation is a recorded decision, made again with the policy that made it.
type Explanation struct {
	DecisionID string         `json:"decision_id"`
	CallID     string         `json:"call_id"`
	Guests     []string       `json:"guests"` // number, and name where the record has it
	Revision   string         `json:"revision"`
	Allowed    bool           `json:"allowed"`
	Tier       string         `json:"tier"`
	Failed     []string       `json:"failed"`
	Denied     []terms.Reason `json:"deny"`
	// whether deciding again gave the same; it may not where the journal holds redacted values
	Same   bool          `json:"same"`
	Host   bool          `json:"host"`           // refused by the host, not by policy
	Note   string        `json:"note,omitempty"` // why it could not be decided again
	Checks []FailedCheck `json:"checks"`
}

// FailedCheck is one check that did not hold.
type FailedCheck struct {
	ID     string `json:"id"`
	Says   string `json:"says"`
	Remedy string `json:"remedy"` // what would satisfy it
	// file:line of the site's rules that refused, with their first line
	Rules   []string       `json:"rules"`
	Entries []Entry        `json:"entries"` // what the site's data says where the check looks
	Stuck   []string       `json:"stuck"`   // file:line: the expressions that were not true
	Data    map[string]any `json:"data"`    // of the entries, by path
}

// Entry is a place in the site's data. Value is nil where nothing stands there; then Where is the
// line above which it would.
type Entry struct {
	Where string `json:"where"` // file:line
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// says returns what a decision says about a check. What the site's own rules say has their ids.
func says(id string, d terms.Decision) string {
	var all []string
	for _, r := range d.Denied {
		switch {
		case r.ID == id:
			return r.Msg
		case id == "site" && !slices.Contains(d.Failed, r.ID):
			all = append(all, r.ID+": "+r.Msg)
		}
	}
	return strings.Join(all, "; ")
}
