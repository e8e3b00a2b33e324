package suggest

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes what was of no use for people.
func (u *Unused) Print(w io.Writer) {
	since := "in the journal"
	if !u.Since.IsZero() {
		since = "since " + u.Since.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(w, "%d decisions %s\n", u.Decisions, since)
	if u.Older > 0 {
		fmt.Fprintf(w, "%d of an older form were not understood: what only they used is listed\n",
			u.Older)
	}
	fmt.Fprintf(w, "\nGranted and not used (%d):\n", len(u.Grants))
	for _, g := range u.Grants {
		fmt.Fprintf(w, "  %-24s %s%s\n", plain(g.Where), plain(g.Path), g.before())
	}
	var idle []string
	fmt.Fprintf(w, "\nRefusals by the checks of core:\n")
	for _, c := range u.Checks {
		if c.Times == 0 {
			idle = append(idle, c.ID+strings.TrimPrefix(c.before(), ","))
			continue
		}
		fmt.Fprintf(w, "  %-14s %6d, %d of them alone, last %s in call %s\n", c.ID, c.Times,
			c.Alone, c.Last.UTC().Format(time.RFC3339), plain(c.Call))
	}
	fmt.Fprintf(w, "  none by: %s\n", cmp.Or(strings.Join(idle, "; "), "-"))
	if len(u.Rules) > 0 {
		fmt.Fprintf(w, "\nRules of the site, as tests and traffic saw them:\n")
	}
	for _, r := range u.Rules {
		fmt.Fprintf(w, "  %-24s %s: %s\n", plain(r.Where), plain(cmp.Or(r.ID, r.Rule)), r.says())
	}
}

// before says when something was used last that was not since.
func (s Seen) before() string {
	if s.Last == nil {
		return ""
	}
	return ", last " + s.Last.UTC().Format(time.RFC3339)
}

func (r Rule) says() string {
	text := "held in a test"
	if !r.Held {
		text = "never held in a test"
	}
	switch {
	case r.Refused == nil:
		return text + "; has no id, so the journal does not say"
	case r.Refused.Times == 0:
		return text + "; refused nothing" + r.Refused.before()
	}
	return fmt.Sprintf("%s; refused %d%s", text, r.Refused.Times, r.Refused.before())
}
