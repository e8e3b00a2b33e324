package suggest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Unused says what of a site was of no use since a time. What was used before says when.
type Unused struct {
	Decisions int       `json:"decisions"` // since that time
	Older     int       `json:"older"`     // in another form than today's, so not understood
	Since     time.Time `json:"since"`     // zero: since the journal begins
	Grants    []Grant   `json:"grants"`    // not used
	Checks    []Check   `json:"checks"`    // all
	Rules     []Rule    `json:"rules"`     // all of the site
}

// Seen is what the journal shows of a grant, a check or a rule.
type Seen struct {
	Times int        `json:"times"` // since the time that was asked about
	Last  *time.Time `json:"last"`  // ever
	Call  string     `json:"call"`  // the last one
}

// Grant is an entry of the site's data. An entry is not listed below one that was not used.
type Grant struct {
	Path  string `json:"path"`
	Where string `json:"where"` // file:line
	Seen
}

// Check is a check of core, with its refusals.
type Check struct {
	ID    string `json:"id"`
	Alone int    `json:"alone"` // refusals by nothing else
	Seen
}

// Rule is a rule of the site, as its tests and as the journal saw it.
type Rule struct {
	load.RuleCoverage
	Refused *Seen `json:"refused"` // nil for a rule without an id of its own
}

// tally counts uses. Its methods may be called concurrently.
type tally struct {
	mu    sync.Mutex
	since time.Time
	seen  map[string]Seen
	alone map[string]int
	n     int
	older int
}

func (t *tally) note(rec terms.Record, keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		s := t.seen[k]
		if !rec.Time.Before(t.since) {
			s.Times++
		}
		if s.Last == nil || !rec.Time.Before(*s.Last) {
			s.Last, s.Call = &rec.Time, rec.CallID
		}
		t.seen[k] = s
	}
}

// Find says what of a site was of no use since a time, as the journal and the site's tests show it.
func Find(ctx context.Context, dir string, inv load.Inventory, records iter.Seq[terms.Record],
	since time.Time) (*Unused, error) {
	tests, err := load.Test(ctx, dir, inv)
	if err != nil {
		return nil, err
	}
	site, err := load.FromFolder(ctx, dir, inv)
	if err != nil {
		return nil, err
	}
	live, err := newAsker(ctx, site)
	if err != nil {
		return nil, err
	}
	t := &tally{since: since, seen: map[string]Seen{}, alone: map[string]int{}}
	if err := each(ctx, records, func(ctx context.Context, rec terms.Record) error {
		return t.look(ctx, live, rec)
	}); err != nil {
		return nil, err
	}
	u := &Unused{Decisions: t.n, Older: t.older, Since: since, Grants: t.grants(site),
		Checks: []Check{}, Rules: []Rule{}}
	checks, err := site.Checks(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range checks {
		u.Checks = append(u.Checks, Check{id, t.alone[id], t.seen["check "+id]})
	}
	for _, r := range tests.Rules {
		rule := Rule{RuleCoverage: r}
		if r.ID != "" {
			seen := t.seen["rule "+r.ID]
			rule.Refused = &seen
		}
		u.Rules = append(u.Rules, rule)
	}
	return u, nil
}

// look counts what refused a record, or what in the site's data it made use of.
func (t *tally) look(ctx context.Context, live *asker, rec terms.Record) error {
	if !decided(rec) && rec.Kind != "plan" {
		return nil
	}
	if !rec.Time.Before(t.since) {
		t.mu.Lock()
		t.n++
		t.mu.Unlock()
	}
	if rec.Type == "refused" {
		t.refused(rec)
		return nil
	}
	if rec.Kind == "plan" {
		return nil
	}
	q, err := read(rec)
	if err != nil {
		t.mu.Lock()
		t.older++
		t.mu.Unlock()
		return nil
	}
	if q.Head.Planning {
		return nil
	}
	in, err := live.Rules.Input(ctx, q.doc)
	if err != nil {
		return err
	}
	u, err := live.use(ctx, in)
	if err != nil || len(u.Roles) == 0 { // the site does not allow it any more
		return err
	}
	keys := make([]string, len(u.Entries))
	for i, e := range u.Entries {
		keys[i] = key(e)
	}
	t.note(rec, keys)
	return nil
}

func key(path []string) string { return "entry " + strings.Join(path, "\x00") }

func (t *tally) refused(rec terms.Record) {
	var keys []string
	for _, id := range rec.Failed {
		keys = append(keys, "check "+id)
	}
	if slices.Contains(rec.Failed, "site") {
		for _, d := range rec.Denied {
			if !slices.Contains(rec.Failed, d.ID) {
				keys = append(keys, "rule "+d.ID)
			}
		}
	}
	slices.Sort(keys)
	t.note(rec, slices.Compact(keys))
	if len(rec.Failed) == 1 && !rec.Time.Before(t.since) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.alone[rec.Failed[0]]++
	}
}

// granting are the paths of the site's data at which something is granted.
var granting = []string{"principals/*", "principals/*/auth/*", "principals/*/roles/*", "roles/*",
	"roles/*/tools/*", "roles/*/imports/*", "roles/*/ceiling/*", "roles/*/nodes/*",
	"roles/*/commands/*", "roles/*/guests/*", "roles/*/services/*", "roles/*/hosts/*",
	"roles/*/paths/*", "roles/*/hours/days/*", "everybody/*", "claimable_roles/*",
	"cluster_nodes/*", "tiers/*", "relaxed/vmids/*", "relaxed/tools/*", "files/read/*",
	"files/write/*", "egress/*", "binaries/*/*"}

// grants are the entries of the site's data that were of no use.
func (t *tally) grants(site *load.Candidate) []Grant {
	all, unused := []Grant{}, map[string]bool{}
	for _, pattern := range granting {
		for _, p := range below(at(site.Data(), "site"), strings.Split(pattern, "/")) {
			seen := t.seen[key(p)]
			if seen.Times > 0 || p[0] == "tiers" && at(site.Data(), "site", "tiers",
				p[1]) == "black" {
				continue
			}
			unused[key(p)] = true
			if len(p) > 2 && unused[key(p[:2])] {
				continue
			}
			path := strings.Join(p, "/")
			place := path
			if len(p) == 4 && p[2] == "ceiling" {
				place = strings.Join(p[:3], "/")
			}
			where, _, _ := strings.Cut(site.Place(place), ": ")
			all = append(all, Grant{path, where, seen})
		}
	}
	return all
}

// below returns the paths that fit a pattern, in the order of their names. An element of a list is
// known by its text, and a value by itself.
func below(v any, pattern []string) (all [][]string) {
	if len(pattern) == 0 {
		return [][]string{nil}
	}
	next := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if pattern[0] == "*" || pattern[0] == k {
				next[k] = x
			}
		}
	case []any:
		for _, name := range texts(v) {
			next[name] = nil
		}
	case string:
		next[v] = nil
	}
	for _, k := range slices.Sorted(maps.Keys(next)) {
		for _, p := range below(next[k], pattern[1:]) {
			all = append(all, append([]string{k}, p...))
		}
	}
	return all
}
