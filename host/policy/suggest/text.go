package suggest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role is a role that is suggested.
type Role struct {
	Name     string     `json:"name"`
	From     string     `json:"from"`  // the role that it is a part of
	Where    string     `json:"where"` // file:line of that
	Tools    []Evidence `json:"tools"`
	Imports  []Evidence `json:"imports"`
	Ceiling  Evidence   `json:"ceiling"`
	Nodes    []Evidence `json:"nodes"`
	Commands []Evidence `json:"commands"`
	// Narrow are guests, services, hosts and paths, where it lists any; Hours are JSON, or "".
	Narrow map[string][]Evidence `json:"narrow"`
	Hours  string                `json:"hours"`
}

// Suggestion is what a principal needs, as the journal shows it.
type Suggestion struct {
	Principal string                `json:"principal"`
	Auth      []Evidence            `json:"auth"`
	Holds     []string              `json:"holds"`   // names of roles
	Roles     []Role                `json:"roles"`   // that are new, or replace one of their name
	Targets   map[string][]Evidence `json:"targets"` // what its calls acted on
	Journal   Counts                `json:"journal"`
	Replace   []Place               `json:"replace"` // what has to go from the site's data
	Proof     Proof                 `json:"proof"`
	YAML      string                `json:"yaml"`
}

// Place is a path in the site's data, with its file:line.
type Place struct {
	Path  string `json:"path"`
	Where string `json:"where"`
}

// Proof is what was found with the suggestion in the site's place.
type Proof struct {
	Decided int `json:"decided"` // decisions that were made again
	Allowed int `json:"allowed"` // of these, those that the site allows; all still are
	Asked   int `json:"asked"`   // calls that there could be, of tools, nodes and guests
	Had     int `json:"had"`     // of these, those that the principal may make now
	Left    int `json:"left"`    // and with the suggestion
	Removed int `json:"removed"` // calls that are refused, or get less far; none gets further
}

// text is the suggestion as a part of data.yaml. Each name is quoted and in ASCII, so that none can
// end its line, in a comment or out of it.
func (s *Suggestion) text() string {
	var b strings.Builder
	s.heading(&b)
	fmt.Fprintf(&b, "principals:\n  %s:\n    auth:", quoted(s.Principal))
	items(&b, s.Auth)
	b.WriteString("    roles:\n")
	for _, r := range s.Holds {
		fmt.Fprintf(&b, "      - %s\n", quoted(r))
	}
	if len(s.Roles) > 0 {
		b.WriteString("roles:\n")
	}
	for _, r := range s.Roles {
		fmt.Fprintf(&b, "  # a part of %s (%s)\n  %s:\n", quoted(r.From), plain(r.Where),
			quoted(r.Name))
		for _, list := range []struct {
			key string
			of  []Evidence
		}{{"tools", r.Tools}, {"imports", r.Imports}, {"nodes", r.Nodes},
			{"commands", r.Commands}} {
			fmt.Fprintf(&b, "    %s:", list.key)
			items(&b, list.of)
		}
		r.narrowed(&b)
		fmt.Fprintf(&b, "    ceiling: %s  # %s\n", quoted(r.Ceiling.Value), r.Ceiling)
	}
	return b.String()
}

// narrowed writes the keys that narrow a role.
func (r *Role) narrowed(b *strings.Builder) {
	for _, key := range slices.Sorted(maps.Keys(r.Narrow)) {
		fmt.Fprintf(b, "    %s:", key)
		items(b, r.Narrow[key])
	}
	if r.Hours != "" {
		fmt.Fprintf(b, "    hours: %s  # as they were\n", r.Hours)
	}
}

// held reports whether each of the roles lists things of a kind.
func (s *Suggestion) held(kind string) bool {
	return len(s.Roles) > 0 && !slices.ContainsFunc(s.Roles, func(r Role) bool {
		_, listed := r.Narrow[kind]
		return !listed
	})
}

func (s *Suggestion) heading(b *strings.Builder) {
	c := s.Journal
	fmt.Fprintf(b, "# What %s was allowed from %s to %s: %d calls, %d decisions.\n",
		quoted(s.Principal), day(c.First), day(c.Last), c.Calls, c.Allowed)
	fmt.Fprintf(b, "# Proof: of %d decisions made again, the %d that the site allows are allowed, "+
		"and no other.\n", s.Proof.Decided, s.Proof.Allowed)
	fmt.Fprintf(b, "# Of %d calls that there could be it may make %d now, and %d with this: %d "+
		"powers removed.\n", s.Proof.Asked, s.Proof.Had, s.Proof.Left, s.Proof.Removed)
	for _, of := range []struct {
		n    int
		text string
	}{{c.Refused, "were refused, and need nothing"},
		{c.Planned, "were only planned, and need nothing"},
		{c.Masked, "hold redacted values: they were decided again without these"},
		{c.Gone, "the site does not allow any more, and they are left out, such as " +
			quoted(c.GoneAt)},
		{c.Older, "are of an older form, and are left out: the principal may need more"}} {
		if of.n > 0 {
			fmt.Fprintf(b, "# %d decisions %s.\n", of.n, of.text)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Targets)) {
		if s.held(kind) {
			continue
		}
		for i, e := range s.Targets[kind] {
			if i == 0 {
				fmt.Fprintf(b, "# It acted on these %s, to which its roles are not held:\n",
					strings.ReplaceAll(kind, "_", " "))
			}
			fmt.Fprintf(b, "#   %s: %s\n", quoted(e.Value), e)
		}
	}
	b.WriteString("# Put it beside data.yaml, as a .yaml file of its own, and take out what it " +
		"replaces:\n")
	for _, p := range s.Replace {
		fmt.Fprintf(b, "#   %s, at %s\n", quoted(p.Path), plain(p.Where))
	}
}

func items(b *strings.Builder, all []Evidence) {
	if len(all) == 0 {
		b.WriteString(" []\n")
		return
	}
	b.WriteString("\n")
	for _, e := range all {
		fmt.Fprintf(b, "      - %s  # %s\n", quoted(e.Value), e)
	}
}

// String says how often a power was used, in words that fit a comment.
func (e Evidence) String() string {
	if e.Uses == 0 {
		return "declared by these tools, and not used"
	}
	times := "once,"
	if e.Uses > 1 {
		times = fmt.Sprintf("%d times, last", e.Uses)
	}
	text := fmt.Sprintf("used %s %s in call %s", times, e.Last.UTC().Format(time.RFC3339),
		plain(e.Call))
	if e.Approved > 0 {
		text += fmt.Sprintf("; %d approved by a person, and still to be", e.Approved)
	}
	if e.Argument > 0 {
		text += fmt.Sprintf("; %d confirmed by the caller's own argument", e.Argument)
	}
	return text
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// quoted is a text in double quotes which YAML and Go read alike.
func quoted(text string) string {
	return strconv.QuoteToASCII(strings.ToValidUTF8(text, "\uFFFD"))
}

// plain is quoted without the quotes.
func plain(text string) string {
	q := quoted(text)
	return q[1 : len(q)-1]
}

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
