package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/watch"
)

// Options say where the site's policy is.
type Options struct {
	// Site is the folder with the site's data.yaml and, if it has rules, their Rego and tests.
	Site string `koanf:"site" path:"true"`
	// Shadow is the folder of a candidate that decides beside the site (package shadow); "" for
	// none. A [Site] does not read it.
	Shadow string `koanf:"shadow" path:"true"`
	// Deadline is how long one decision may take before it is a refusal; 0 is 1s.
	Deadline time.Duration `koanf:"-"`
	// OnRevision is called with each revision before it decides anything, and with everything that
	// is needed to decide and explain with it again. When it fails, the revision is not taken. Nil
	// keeps nothing.
	OnRevision func(revision string, bundle []byte) error `koanf:"-"`
	// Tested reports whether the site's tests passed with exactly this revision before: [New] then
	// does not run them. Passed is told each revision with which they did. Nil for no memory.
	Tested func(revision string) bool `koanf:"-"`
	Passed func(revision string)      `koanf:"-"`
	// Inventory is what the names in the policy are held against.
	Inventory Inventory `koanf:"-"`
}

// Validate names what is missing.
func (o Options) Validate() error {
	switch {
	case o.Site == "":
		return errors.New("site: name the folder with the site's data.yaml, such as policies/site")
	case o.Deadline < 0 || o.Deadline > 10*time.Second:
		return fmt.Errorf("deadline: %s is not between 0 and 10s", o.Deadline)
	}
	return nil
}

// reloadDeadline is how long reading, checking and testing a site may take.
const reloadDeadline = 2 * time.Minute

// holdFor is how long a decision waits for a policy that is being loaded.
const holdFor = 10 * time.Second

// Site decides with the newest good policy of a folder. Its methods may be called concurrently.
type Site struct {
	options Options
	engine  policy.Engine
	current atomic.Pointer[Candidate]
	reload  sync.Mutex // one reload at a time

	mu   sync.Mutex    // guards held
	held chan struct{} // closed when decisions go on; nil when they do
}

var _ terms.Decider = (*Site)(nil)

// New loads the site. Its error says which file and line must change.
func New(ctx context.Context, o Options) (*Site, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Site{options: o, engine: policy.Engine{Deadline: o.Deadline}}
	return s, s.Reload(ctx)
}

// Decide answers one question with the policy in force. When a change of the site was seen, it
// waits for up to 10 seconds until the new policy is in force or refused: what the change takes
// away ends at once, though checking and testing it takes a second or more.
func (s *Site) Decide(ctx context.Context, q terms.Question) (terms.Decision, error) {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		late := time.NewTimer(holdFor)
		defer late.Stop()
		select {
		case <-held:
		case <-late.C:
		case <-ctx.Done():
			return terms.Decision{}, context.Cause(ctx)
		}
	}
	return s.engine.Decide(ctx, q)
}

func (s *Site) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(chan struct{})
	}
}

func (s *Site) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		close(s.held)
		s.held = nil
	}
}

// Reload reads the site again: build, check, test, then change over at once. When anything is wrong
// the error says what, and the policy in force stays. A reload that takes longer than two minutes
// fails, even if the file system hangs.
func (s *Site) Reload(ctx context.Context) error {
	s.reload.Lock()
	defer s.reload.Unlock()
	defer s.release()
	inv := s.options.Inventory
	next, err := watch.Within(ctx, reloadDeadline, "loading the policy of "+s.options.Site,
		func(ctx context.Context) (*Candidate, error) { return s.candidate(ctx, inv) })
	if err != nil {
		return err
	}
	revision, bundle := next.Rules.Revision, next.Bundle
	next.Bundle = nil
	if now := s.current.Load(); now != nil && now.Rules.Revision == revision {
		s.current.Store(next) // its warnings can differ
		return nil
	}
	if s.options.OnRevision != nil {
		if err := s.options.OnRevision(revision, bundle); err != nil {
			return fmt.Errorf("keeping policy revision %s: %w", revision, err)
		}
	}
	s.current.Store(next)
	s.engine.Use(next.Rules)
	return nil
}

// Against is Reload with the names of another inventory.
func (s *Site) Against(ctx context.Context, inv Inventory) error {
	s.reload.Lock()
	s.options.Inventory = inv
	s.reload.Unlock()
	return s.Reload(ctx)
}

// candidate builds the folder's policy, unless it is the one in force.
func (s *Site) candidate(ctx context.Context, inv Inventory) (*Candidate, error) {
	all, err := siteFiles(s.options.Site)
	if err != nil {
		return nil, err
	}
	now, site := s.current.Load(), maps.Clone(all) // core is this program's
	maps.DeleteFunc(site, func(name string, _ []byte) bool { return !owned(name) })
	if now != nil && maps.EqualFunc(site, now.site, bytes.Equal) &&
		slices.Equal(inv.Tools, now.inventory.Tools) &&
		reflect.DeepEqual(inv.Nodes, now.inventory.Nodes) {
		return now, nil
	}
	tested := s.options.Tested
	if now != nil {
		tested = nil
	}
	c, err := named(ctx, s.options.Site, all, inv, tested)
	if err == nil && len(c.tests) > 0 && s.options.Passed != nil {
		s.options.Passed(c.Rules.Revision)
	}
	return c, err
}

// Rules returns the rules in force, or nil.
func (s *Site) Rules() *policy.Rules { return s.engine.Rules() }

// Revision is the digest of everything that the decisions in force depend on, or "" when there is
// no policy.
func (s *Site) Revision() string {
	if r := s.engine.Rules(); r != nil {
		return r.Revision
	}
	return ""
}

// Idle returns what the policy in force grants and can never work.
func (s *Site) Idle() []string {
	if c := s.current.Load(); c != nil {
		return c.Idle
	}
	return nil
}

// Absent returns the warnings of the policy in force about tools, resources and prompts that are
// not there. A site may name those of plugins that are not in this lock. Such a name allows
// nothing.
func (s *Site) Absent() []string {
	if c := s.current.Load(); c != nil {
		return c.Warnings
	}
	return nil
}

// Entries returns the commands that the policy in force describes, by the names under which tools
// declare them.
func (s *Site) Entries(ctx context.Context) ([]string, error) {
	c := s.current.Load()
	if c == nil {
		return nil, errors.New("no policy is loaded")
	}
	return c.entries(ctx)
}

func (c *Candidate) entries(ctx context.Context) (names []string, err error) {
	v, err := c.ask(ctx, "[[id | data.caponier.core.lint.entries[id]], "+
		"[id | data.caponier.core.lint.own[id]]]", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the command grammar: %w", err)
	}
	lists, _ := v.([]any)
	for _, l := range lists {
		ids, _ := l.([]any)
		for _, id := range ids {
			names = append(names, fmt.Sprint(id))
		}
	}
	return names, nil
}

// Checks returns the ids of the checks, sorted.
func (c *Candidate) Checks(ctx context.Context) (ids []string, err error) {
	v, err := c.ask(ctx, "sort({id | some k; some id in data.caponier.core.derived.required[k]})",
		nil)
	if err != nil {
		return nil, fmt.Errorf("listing the checks: %w", err)
	}
	all, _ := v.([]any)
	for _, id := range all {
		ids = append(ids, fmt.Sprint(id))
	}
	return ids, nil
}

// Follow calls changed at once, and after each change of a file of the site, until ctx ends. An
// error says why changes may have been missed. changed must call [Site.Reload], for which decisions
// wait since the change.
func (s *Site) Follow(ctx context.Context, changed func(missed error)) {
	watch.Files{What: "the policy of " + s.options.Site, Dirs: func() (dirs []string, err error) {
		err = filepath.WalkDir(s.options.Site, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return err
		})
		return dirs, err
	}, Touched: s.hold}.Follow(ctx, changed)
}
