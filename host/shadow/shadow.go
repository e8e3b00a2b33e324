// Package shadow keeps what a candidate policy would decide beside the policy in force. It has no
// part in decisions.
package shadow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/watch"
)

const (
	maxWaiting = 256                    // decisions that wait for the candidate
	maxHeld    = 32 << 20               // bytes of their inputs
	maxTime    = 500 * time.Millisecond // of the candidate for one decision
	// rest is how much longer than for a decision the shadow rests after it, so that it uses at
	// most a fifth of one processor.
	rest    = 4
	between = 10 * time.Second // two notes of the counts
)

// Options of a shadow. Site and Dir must be set.
type Options struct {
	Site      string         // the folder of the candidate
	Dir       string         // where differences are kept, a file for each revision
	Inventory load.Inventory // what the candidate's names are held against
	// Answer is told each answer of the candidate. Nil for none.
	Answer func(audit.Shadow) error
}

// Shadow has a candidate decide. Its methods may be called concurrently.
type Shadow struct {
	o       Options
	rules   atomic.Pointer[policy.Rules]
	waiting chan terms.Record
	held    atomic.Int64 // bytes of what waits

	mu     sync.Mutex     // guards counts
	counts map[string]int // by result
}

// New returns a shadow that decides nothing until it runs.
func New(o Options) *Shadow {
	return &Shadow{o: o, waiting: make(chan terms.Record, maxWaiting), counts: map[string]int{
		replay.Same: 0, replay.NewlyAllowed: 0, replay.NewlyRefused: 0, replay.OtherReasons: 0,
		Skipped: 0, Dropped: 0}}
}

// Counts returns how many decisions had which result: one of this package or of package replay.
func (s *Shadow) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

func (s *Shadow) note(result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[result]++
}

// Journal returns a journal that does what next does, and offers what was decided to the shadow. It
// never waits for the shadow.
func (s *Shadow) Journal(next terms.Journal) terms.Journal { return journal{next, s} }

type journal struct {
	terms.Journal
	shadow *Shadow
}

// Intent implements terms.Journal.
func (j journal) Intent(ctx context.Context, r terms.Record, durable bool) error {
	err := j.Journal.Intent(ctx, r, durable)
	if err == nil && !j.shadow.offer(r) {
		j.shadow.note(Dropped)
	}
	return err
}

// offer reports whether there is room for a record.
func (s *Shadow) offer(r terms.Record) bool {
	n := int64(len(r.Input))
	if s.held.Add(n) <= maxHeld {
		select {
		case s.waiting <- r:
			return true
		default:
		}
	}
	s.held.Add(-n)
	return false
}

// Run follows the candidate's folder and decides, until ctx ends. A candidate that cannot be loaded
// is logged; what is decided meanwhile is dropped.
func (s *Shadow) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		watch.Files{What: "the candidate " + s.o.Site, Dirs: s.dirs}.Follow(ctx,
			func(missed error) { s.load(ctx, missed) })
	})
	work.Go(func() { s.decide(ctx) })
}

func (s *Shadow) dirs() (dirs []string, err error) {
	err = filepath.WalkDir(s.o.Site, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return err
	})
	return dirs, err
}

func (s *Shadow) load(ctx context.Context, missed error) {
	c, err := load.FromFolder(ctx, s.o.Site, s.o.Inventory)
	if err := errors.Join(missed, err); err != nil {
		slog.Error("the candidate policy cannot be loaded, and decides nothing", "error", err)
		s.rules.Store(nil)
		return
	}
	if before := s.rules.Swap(c.Rules); before == nil || before.Revision != c.Rules.Revision {
		slog.Info("a candidate policy decides beside the one in force", "candidate",
			c.Rules.Revision)
	}
}

// decide has what waits decided, one after the other.
func (s *Shadow) decide(ctx context.Context) {
	tick := time.NewTicker(between)
	defer tick.Stop()
	var kept *book
	defer func() { kept.close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			kept.flush()
		case rec := <-s.waiting:
			began := time.Now()
			kept = s.one(ctx, rec, kept)
			s.held.Add(-int64(len(rec.Input)))
			select {
			case <-ctx.Done():
			case <-time.After(rest * time.Since(began)):
			}
		}
	}
}

// one has one record decided and kept in the book of the candidate, which it returns.
func (s *Shadow) one(ctx context.Context, rec terms.Record, kept *book) *book {
	rules := s.rules.Load()
	if rules == nil {
		s.note(Dropped)
		return kept
	}
	if kept == nil || kept.revision != rules.Revision {
		kept.close()
		kept = open(s.o.Dir, rules.Revision)
	}
	change, err := s.compare(ctx, rules, rec)
	if errors.Is(err, replay.ErrSkipped) || errors.Is(err, input.ErrForm) {
		change = replay.Change{Change: Skipped}
	} else if err != nil {
		change.Change, change.Says = Dropped, err.Error()
	} else if s.o.Answer != nil {
		a := audit.Shadow{ID: rec.ID, CallID: rec.CallID, Revision: rules.Revision,
			Allow: change.Allow, Tier: change.Tier, Failed: append([]string{}, change.After...)}
		if change.Change != replay.Same {
			a.Change = change.Change
		}
		if err := s.o.Answer(a); err != nil {
			slog.Error("an answer of a candidate policy is not in the journal", "error", err)
		}
	}
	s.note(change.Change)
	kept.add(change, rec)
	return kept
}

func (s *Shadow) compare(ctx context.Context, rules *policy.Rules, rec terms.Record) (
	c replay.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the candidate panicked: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	return replay.Compare(ctx, rules, rec)
}
