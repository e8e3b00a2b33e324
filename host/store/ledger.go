package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/terms"
)

// MaxKeys is how many things are counted at once at most.
const MaxKeys = 64

// Keys are what a call is counted as: of its principal, its tool and each of its targets.
func Keys(c *terms.Call) []string {
	keys := []string{fmt.Sprintf("calls %q", c.Principal.ID),
		fmt.Sprintf("tool %q %q", c.Principal.ID, c.Tool.Kind+":"+c.Tool.Name)}
	for _, t := range targetKeys(c.Targets) {
		// quoted, so that no name can pass for two
		keys = append(keys, fmt.Sprintf("calls %q %q", c.Principal.ID, t))
	}
	return keys
}

// Counts are what a call is decided on, from the rates of its Keys and what its principal spent.
func Counts(rates []egress.Rate, micros int64, now time.Time) terms.Counts {
	counts := terms.Counts{USDMicrosToday: micros}
	wait := func(r egress.Rate) int64 {
		return int64(max(r.Free.Sub(now), 0)+time.Second-1) / int64(time.Second)
	}
	counts.Calls60s, counts.CallsRetryS = rates[0].Count, wait(rates[0])
	counts.ToolCalls60s, counts.ToolRetryS = rates[1].Count, wait(rates[1])
	for _, r := range rates[2:] {
		if r.Count > counts.TargetCalls60s {
			counts.TargetCalls60s, counts.TargetRetryS = r.Count, wait(r)
		} else if r.Count == counts.TargetCalls60s {
			counts.TargetRetryS = max(counts.TargetRetryS, wait(r))
		}
	}
	return counts
}

// Take counts a call in, for its principal, its tool and each of its targets, and returns the
// counts of the last 60 seconds including it: TargetCalls60s is that of its most called target.
// giveBack undoes it.
func (s *Store) Take(ctx context.Context, c *terms.Call) (terms.Counts, func(), error) {
	got, giveBack, err := s.count(ctx, Keys(c), c.Principal.ID)
	if err != nil {
		return terms.Counts{}, nil, fmt.Errorf("counting a call: %w", err)
	}
	return Counts(got.rates, got.micros, s.opt.Now()), giveBack, nil
}

// Count implements egress.Ledger: it counts one more of each key, all or none. When giveBack
// cannot undo that, the keys stay counted.
func (s *Store) Count(ctx context.Context, keys ...string) ([]egress.Rate, func(), error) {
	if len(keys) == 0 {
		return nil, func() {}, nil
	}
	got, giveBack, err := s.count(ctx, keys, "")
	return got.rates, giveBack, err
}

func (s *Store) count(ctx context.Context, keys []string, principal string) (
	counted, func(), error) {
	if len(keys) > MaxKeys {
		return counted{}, nil, fmt.Errorf("%d things to count at once, over the limit of %d",
			len(keys), MaxKeys)
	}
	if err := s.same(); err != nil {
		return counted{}, nil, err
	}
	now := s.opt.Now().Unix()
	got, err := s.counter.count(ctx, keys, now, principal, s.day())
	if err != nil {
		return counted{}, nil, fmt.Errorf("using the store %s: %w", s.path, err)
	}
	return got, sync.OnceFunc(func() { s.giveBack(keys, now) }), nil
}

func (s *Store) giveBack(keys []string, second int64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Busy)
	defer cancel()
	// if it fails, the call stays counted, which is the safe side
	if s.same() == nil {
		_ = s.counter.giveBack(ctx, keys, second)
	}
}

// targetKeys are the targets that are counted. Paths are too many and too easily varied to be worth
// counting.
func targetKeys(t terms.Targets) (keys []string) {
	for _, k := range []struct {
		kind  string
		names []string
	}{{"node", t.Nodes}, {"vmid", t.VMIDs}, {"service", t.Services}, {"host", t.Hosts}} {
		for _, name := range k.names {
			keys = append(keys, k.kind+":"+name)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
