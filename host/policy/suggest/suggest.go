package suggest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/can"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/load/strict"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Options say what is suggested.
type Options struct {
	Site      string // the folder of the site
	Principal string
	Inventory load.Inventory
	// Records are those of the journal. They are read twice.
	Records iter.Seq[terms.Record]
	Time    time.Time // of the calls by which powers are counted
}

// errProof is matched by errors that say that a suggestion did not prove to be right. Nothing is
// suggested then.
var errProof = errors.New("the suggestion is not right")

// Of suggests the smallest roles of a principal that allow what the journal shows to be allowed,
// and proves that they do: with the text of the suggestion in the site's place, everything that the
// site allows of the journal is allowed in the same tier, and nothing else; no call that there
// could be gets further than before; and the site passes its checks and tests.
func Of(ctx context.Context, o Options) (*Suggestion, error) {
	site, err := load.FromFolder(ctx, o.Site, o.Inventory)
	if err != nil {
		return nil, err
	}
	live, err := newAsker(ctx, site)
	if err != nil {
		return nil, err
	}
	s, err := o.gather(ctx, live)
	if err != nil {
		return nil, err
	}
	if err := o.prove(ctx, live, s); err != nil {
		return nil, err
	}
	return s, nil
}

// gather makes the suggestion, without its proof.
func (o Options) gather(ctx context.Context, live *asker) (*Suggestion, error) {
	entry, listed := at(live.Data(), "site", "principals", o.Principal).(map[string]any)
	if !listed {
		return nil, fmt.Errorf("the site lists no principal %s, so there is no entry to narrow "+
			"(a role that a claim gives is everybody's whose token has it)", quoted(o.Principal))
	}
	j := &journal{sets: map[string]*usage{}, auths: powers{}, named: map[string]bool{},
		on: map[string]powers{"guests": {}, "services": {}, "hosts": {}, "paths": {},
			"guest_paths": {}}}
	if err := each(ctx, o.of(), func(ctx context.Context, rec terms.Record) error {
		return j.look(ctx, live, rec)
	}); err != nil {
		return nil, err
	}
	if j.counts.Allowed == 0 {
		return nil, fmt.Errorf("the journal shows nothing that the site allows %s: %d decisions "+
			"refused, %d only planned, %d not allowed any more, %d of an older form",
			quoted(o.Principal), j.counts.Refused, j.counts.Planned, j.counts.Gone, j.counts.Older)
	}
	return o.suggestion(live.Candidate, j, entry)
}

// of yields the decisions about the principal.
func (o Options) of() iter.Seq[terms.Record] {
	return func(yield func(terms.Record) bool) {
		for rec := range o.Records {
			if rec.Principal == o.Principal && decided(rec) && !yield(rec) {
				return
			}
		}
	}
}

// look adds what a record shows: use, if it was allowed and done, and if the site allows it still.
func (j *journal) look(ctx context.Context, live *asker, rec terms.Record) error {
	q, err := read(rec)
	switch {
	case rec.Type == "refused":
		j.skip(func(c *Counts) { c.Refused++ })
		return nil
	case err != nil:
		j.skip(func(c *Counts) { c.Older++ })
		return nil
	case q.Head.Planning:
		j.skip(func(c *Counts) { c.Planned++ })
		return nil
	}
	d, in := live.decide(ctx, q)
	if !d.Allow {
		j.skip(func(c *Counts) { c.Gone, c.GoneAt = c.Gone+1, rec.ID })
		return ctx.Err()
	}
	u, err := live.use(ctx, in)
	if err == nil {
		j.note(q, u)
	}
	return err
}

// suggestion makes roles of what the journal shows.
func (o Options) suggestion(site *load.Candidate, j *journal, entry map[string]any) (
	*Suggestion, error) {
	data, _ := site.Data()["site"].(map[string]any)
	everybody := texts(data["everybody"])
	s := &Suggestion{Principal: o.Principal, Auth: j.auths.list(), Journal: j.counts,
		Roles: []Role{}, Targets: map[string][]Evidence{}}
	for kind, of := range j.on {
		s.Targets[kind] = of.list()
	}
	place := func(path string) Place {
		where, _, _ := strings.Cut(site.Place(path), ": ")
		return Place{path, where}
	}
	s.Replace = []Place{place("principals/" + o.Principal)}
	names, of := j.byRole(everybody)
	for _, name := range names {
		if slices.Contains(everybody, name) {
			continue // is held in any case
		}
		was, u := place("roles/"+name), of[name]
		r := Role{Name: name, From: name, Where: was.Where,
			Tools: u.powers[tools].list(), Imports: o.imports(u, at(data, "roles", name)),
			Nodes: u.powers[nodes].list(), Commands: u.powers[commands].list(),
			Ceiling: u.powers[tiers].highest()}
		r.narrow(u, at(data, "roles", name))
		if by := o.sharedBy(data, name); by == "" {
			s.Replace = append(s.Replace, was)
		} else if err := o.renames(j, name, by); err != nil {
			return nil, err
		} else if r.Name += "-" + o.Principal; at(data, "roles", r.Name) != nil {
			return nil, fmt.Errorf("%s: there is a role %s already: rename it, or take it out, "+
				"and ask again", place("roles/"+r.Name).Where, quoted(r.Name))
		}
		s.Roles, s.Holds = append(s.Roles, r), append(s.Holds, r.Name)
	}
	if s.Holds == nil { // who holds no role of its own does not hold everybody's either
		for _, name := range texts(entry["roles"]) {
			if slices.Contains(names, name) {
				s.Holds = append(s.Holds, name)
			}
		}
		if s.Holds == nil {
			s.Holds = names[:1]
		}
	}
	return s, nil
}

// imports adds what the tools declare today, as far as the role has it: without it they could not
// be called at all.
func (o Options) imports(u *usage, role any) []Evidence {
	has := texts(at(map[string]any{"role": role}, "role", "imports"))
	for _, t := range o.Inventory.Tools {
		if name := t.Kind + ":" + t.Name; u.powers[tools][t.Name] == nil &&
			u.powers[tools][name] == nil {
			continue
		}
		for _, i := range t.Imports {
			if slices.Contains(has, i) && u.powers[imports][i] == nil {
				u.powers[imports][i] = &Evidence{Value: i}
			}
		}
	}
	return u.powers[imports].list()
}

// sharedBy says who else can hold a role, "" for nobody.
func (o Options) sharedBy(data map[string]any, role string) string {
	principals, _ := data["principals"].(map[string]any)
	for _, id := range slices.Sorted(maps.Keys(principals)) {
		if id != o.Principal && slices.Contains(texts(at(principals, id, "roles")), role) {
			return quoted(id)
		}
	}
	if slices.Contains(texts(data["claimable_roles"]), role) {
		return "whoever claims it"
	}
	return ""
}

// renames refuses to give a part of a role that others hold another name, where something knows the
// role by its name: credentials would not find it, and rules that refuse would not see it.
func (o Options) renames(j *journal, role, by string) error {
	how := ""
	if j.named[role] {
		how = "credentials of this principal name it"
	}
	files, err := load.Files(o.Site)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, "site/") && strings.HasSuffix(name, ".rego") &&
			!strings.HasSuffix(name, "_test.rego") && readsRoles(string(files[name])) {
			how = name + " reads the roles of principals"
		}
	}
	if how == "" {
		return nil
	}
	return fmt.Errorf("the role %s cannot be narrowed for %s: %s holds it too, and it cannot get "+
		"another name, because %s. Give the principal a role of its own first", quoted(role),
		quoted(o.Principal), by, how)
}

// prove puts the text of the suggestion in the site's place, and asks it everything again.
func (o Options) prove(ctx context.Context, live *asker, s *Suggestion) error {
	first := s.text()
	next, err := o.with(ctx, s, first)
	if err != nil {
		return fmt.Errorf("%w: put into the site, it is refused: %w", errProof, err)
	}
	if err := o.replay(ctx, live, next, s); err != nil {
		return err
	}
	if err := o.count(ctx, live.Candidate, next.Candidate, s); err != nil {
		return err
	}
	s.YAML = s.text() // with the figures in its comments
	a, _, err := strict.Map("suggestion", []byte(first))
	if err != nil {
		return fmt.Errorf("%w: %w", errProof, err)
	}
	b, _, err := strict.Map("suggestion", []byte(s.YAML))
	if err != nil || !reflect.DeepEqual(a, b) {
		return fmt.Errorf("%w: its comments change what it says: %v", errProof, err)
	}
	return nil
}

// replay holds the new policy against each record, those that are no use too.
func (o Options) replay(ctx context.Context, live, next *asker, s *Suggestion) error {
	var mu sync.Mutex // guards s.Proof
	return each(ctx, o.of(), func(ctx context.Context, rec terms.Record) error {
		q, err := read(rec)
		if err != nil || q.Head.Planning {
			return nil
		}
		now, _ := next.decide(ctx, q)
		if err := ctx.Err(); err != nil {
			return err
		}
		var was terms.Decision
		if now.Allow || rec.Type != "refused" { // else it stays refused, whatever the site says
			again, err := read(rec) // deciding notes the roles in the question
			if err != nil {
				return err
			}
			was, _ = live.decide(ctx, again)
		}
		used := was.Allow && rec.Type != "refused"
		switch {
		case used && !now.Allow:
			return fmt.Errorf("%w: it refuses what was allowed: %s %v", errProof, now.Failed,
				now.Denied)
		case !was.Allow && now.Allow:
			return fmt.Errorf("%w: it allows what the site refuses: %s", errProof, was.Failed)
		case used && was.Tier != now.Tier:
			return fmt.Errorf("%w: what is %s would be %s", errProof, was.Tier, now.Tier)
		}
		mu.Lock()
		defer mu.Unlock()
		s.Proof.Decided++
		if used {
			s.Proof.Allowed++
		}
		return nil
	})
}

// count asks both policies about every call that there could be.
func (o Options) count(ctx context.Context, site, next *load.Candidate, s *Suggestion) error {
	w := can.World{Tools: o.Inventory.Tools, Nodes: o.Inventory.Nodes, Time: o.Time}
	for _, who := range can.Everybody(site) {
		if who.ID == o.Principal {
			w.Who = append(w.Who, who)
		}
	}
	var err error
	if w.Guests, err = can.Named(site); err != nil {
		return err
	}
	for _, e := range s.Targets["guests"] {
		if _, known := w.Guests[e.Value]; !known {
			w.Guests[e.Value] = terms.Guest{Kind: "lxc", Status: "running", Tags: []string{}}
		}
	}
	was, err := can.Of(ctx, site.Rules, w)
	if err != nil {
		return err
	}
	now, err := can.Of(ctx, next.Rules, w)
	if err != nil {
		return err
	}
	changes, err := can.Diff(was, now)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Grants {
			return fmt.Errorf("%w: it lets %s on %s %s get further, from %s to %s", errProof,
				c.Now.Tool, c.Now.Node, c.Now.Guest, c.Was.Can, c.Now.Can)
		}
		if c.Takes {
			s.Proof.Removed++
		}
	}
	may := func(cells []can.Cell) (n int) {
		for _, c := range cells {
			if c.Can != can.No {
				n++
			}
		}
		return n
	}
	s.Proof.Asked, s.Proof.Had, s.Proof.Left = len(was), may(was), may(now)
	return nil
}

// with is the site with a text beside its data, and without what that replaces.
func (o Options) with(ctx context.Context, s *Suggestion, text string) (*asker, error) {
	files, err := load.Files(o.Site)
	if err != nil {
		return nil, err
	}
	gone := [][]string{{"principals", o.Principal}}
	for _, r := range s.Roles {
		gone = append(gone, []string{"roles", r.Name})
	}
	for name, data := range files {
		if !strings.HasPrefix(name, "site/") || path.Ext(name) == ".rego" {
			continue
		}
		if files[name], err = without(name, data, gone); err != nil {
			return nil, err
		}
	}
	name := "site/suggested.yaml"
	for files[name] != nil {
		name = strings.TrimSuffix(name, ".yaml") + "-.yaml"
	}
	files[name] = []byte(text)
	c, err := load.FromFiles(ctx, files, o.Inventory)
	if err != nil {
		return nil, err
	}
	return newAsker(ctx, c)
}
