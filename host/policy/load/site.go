package load

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/fsnotify/fsnotify"
)

// Options say where the site's policy is.
type Options struct {
	// Site is the folder with the site's data.yaml and, if it has rules, their Rego and tests.
	Site string `koanf:"site" path:"true"`
	// Deadline is how long one decision may take before it is a refusal; 0 is 1s.
	Deadline time.Duration `koanf:"-"`
	// OnRevision is called with each revision before it decides anything, and with everything that
	// is needed to decide and explain with it again. When it fails, the revision is not taken. Nil
	// keeps nothing.
	OnRevision func(revision string, bundle []byte) error `koanf:"-"`
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

// Site decides with the newest good policy of a folder. Its methods may be called concurrently.
type Site struct {
	options Options
	engine  policy.Engine
	current atomic.Pointer[Candidate]
	reload  sync.Mutex // one reload at a time
}

var _ gate.Decider = (*Site)(nil)

// New loads the site. Its error says which file and line must change.
func New(ctx context.Context, o Options) (*Site, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Site{options: o, engine: policy.Engine{Deadline: o.Deadline}}
	return s, s.Reload(ctx)
}

// Decide answers one question with the policy in force.
func (s *Site) Decide(ctx context.Context, q gate.Question) (gate.Decision, error) {
	return s.engine.Decide(ctx, q)
}

// Reload reads the site again: build, check, test, then change over at once. When anything is wrong
// the error says what, and the policy in force stays. A reload that takes longer than two minutes
// fails.
func (s *Site) Reload(ctx context.Context) error {
	s.reload.Lock()
	defer s.reload.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, reloadDeadline, fmt.Errorf(
		"loading the policy of %s took longer than %s", s.options.Site, reloadDeadline))
	defer cancel()
	next, err := s.candidate(ctx)
	if err != nil {
		return err
	}
	revision := next.Rules.Revision
	if now := s.current.Load(); now != nil && now.Rules.Revision == revision {
		return nil
	}
	if s.options.OnRevision != nil {
		if err := s.options.OnRevision(revision, next.Bundle); err != nil {
			return fmt.Errorf("keeping policy revision %s: %w", revision, err)
		}
	}
	s.current.Store(next)
	s.engine.Use(next.Rules)
	return nil
}

// candidate builds the folder's policy. It returns when ctx ends, even if the file system hangs.
func (s *Site) candidate(ctx context.Context) (*Candidate, error) {
	type result struct {
		c   *Candidate
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := FromFolder(ctx, s.options.Site, s.options.Inventory)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Revision is the digest of everything that the decisions in force depend on, or "" when there is
// no policy.
func (s *Site) Revision() string {
	if r := s.engine.Rules(); r != nil {
		return r.Revision
	}
	return ""
}

// Absent returns the warnings of the policy in force about names that are not there: of nodes, and
// of tools, resources and prompts. A site may name tools of plugins that are not in this lock, and
// such a name allows nothing. A misspelt node protects nothing.
func (s *Site) Absent() (nodes, tools []string) {
	c := s.current.Load()
	if c == nil {
		return nil, nil
	}
	for _, w := range c.Warnings {
		if strings.Contains(w, `: there is no node "`) {
			nodes = append(nodes, w)
		} else {
			tools = append(tools, w)
		}
	}
	return nodes, tools
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

// settle is how long a folder must be quiet before it is read, because editors write a file in
// several steps; restless is when a folder that is never quiet is read all the same.
const (
	settle   = 200 * time.Millisecond
	restless = 5 * time.Second
)

// Watch reloads when a file of the site changes, until ctx ends. It tells report how each reload
// went; nil is a good one.
func (s *Site) Watch(ctx context.Context, report func(error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.options.Site, err)
	}
	defer w.Close()
	add := func() error {
		return filepath.WalkDir(s.options.Site, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return w.Add(p)
		})
	}
	if err := add(); err != nil {
		return fmt.Errorf("watching %s: %w", s.options.Site, err)
	}
	var settled <-chan time.Time
	var first time.Time // of the changes that were not read
	changed := func() {
		if settled == nil {
			first = time.Now()
		}
		settled = time.After(max(0, min(settle, time.Until(first.Add(restless)))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return fmt.Errorf("watching %s: the watcher ended", s.options.Site)
			}
			// Kubernetes changes a mounted folder by renaming "..data".
			name := filepath.Base(ev.Name)
			if !strings.HasPrefix(name, ".") || strings.HasPrefix(name, "..") {
				changed()
			}
		case err := <-w.Errors: // events can be lost, so the folder is read again
			report(fmt.Errorf("watching %s: %w", s.options.Site, err))
			changed()
		case <-settled:
			settled = nil
			report(errors.Join(add(), s.Reload(ctx)))
		}
	}
}
