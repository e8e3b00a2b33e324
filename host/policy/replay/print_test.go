package replay

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// What a rule, a guest or a caller wrote reaches a terminal without what does not show.
func TestPrintShowsHiddenCharacters(t *testing.T) {
	const bad = "a\x1b[2J\u202e\u009bb"
	change := func(kind, what string) Change {
		return Change{Kind: kind, Change: what, Tool: bad, Principal: bad, On: bad, Says: bad,
			Op: bad}
	}
	var b strings.Builder
	Print(&b, terms.Decision{Denied: []terms.Reason{{ID: bad, Msg: bad}}})
	Explanation{Guests: []string{bad}, Note: bad, Checks: []FailedCheck{
		{ID: bad, Says: bad, Remedy: bad, Rules: []string{bad}, Entries: []Entry{
			{Where: bad, Path: bad, Value: bad}, {Where: bad, Path: bad}}},
		{ID: bad, Stuck: []string{bad}},
	}}.Print(&b, terms.Record{Op: bad, Tool: bad, Principal: bad})
	Diff{Calls: []CallDiff{
		{Tool: bad, Principal: bad, Changes: []Change{change("operation", NewlyAllowed)}},
		{Tool: bad, Principal: bad, Changes: []Change{change("call", NewlyAllowed)}},
	}}.Print(&b, 0)
	if strings.ContainsAny(b.String(), "\x1b\u202e\u009b") || !strings.Contains(b.String(),
		"‹U+202E›") {
		t.Errorf("%q", b.String())
	}
}
