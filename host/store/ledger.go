package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

const (
	window  = 60 // seconds
	maxKeys = 64
)

var _ gate.Ledger = (*Store)(nil)

// Rate is how often something happened in the last 60 seconds, this time included, and the rest of the second before them. A limit of Count-1 has room
// again at Free.
type Rate struct {
	Count int64
	Free  time.Time
}

// Take counts a call in, for its principal, its tool and each of its targets, and returns the counts of the last 60 seconds including it: TargetCalls60s
// is that of its most called target. giveBack undoes it.
func (s *Store) Take(ctx context.Context, c *gate.Call) (gate.Counts, func(), error) {
	keys := []string{fmt.Sprintf("calls %q", c.Principal.ID), fmt.Sprintf("tool %q %q", c.Principal.ID, c.Tool.Kind+":"+c.Tool.Name)}
	for _, t := range targetKeys(c.Targets) {
		keys = append(keys, fmt.Sprintf("calls %q %q", c.Principal.ID, t)) // quoted, so that no name can pass for two
	}
	var counts gate.Counts
	rates, giveBack, err := s.count(ctx, keys, func(tx *sql.Tx) (err error) {
		counts.USDMicrosToday, err = spent(ctx, tx, c.Principal.ID, s.day())
		return err
	})
	if err != nil {
		return gate.Counts{}, nil, fmt.Errorf("counting a call: %w", err)
	}
	now := s.opt.Now()
	wait := func(r Rate) int64 { return int64(max(r.Free.Sub(now), 0)+time.Second-1) / int64(time.Second) }
	counts.Calls60s, counts.CallsRetryS, counts.ToolCalls60s, counts.ToolRetryS = rates[0].Count, wait(rates[0]), rates[1].Count, wait(rates[1])
	for _, r := range rates[2:] {
		if r.Count > counts.TargetCalls60s {
			counts.TargetCalls60s, counts.TargetRetryS = r.Count, wait(r)
		} else if r.Count == counts.TargetCalls60s {
			counts.TargetRetryS = max(counts.TargetRetryS, wait(r))
		}
	}
	return counts, giveBack, nil
}

// Count counts one more of each key, all or none, and returns their rates in the same order. giveBack undoes it; when it cannot, the keys stay counted.
func (s *Store) Count(ctx context.Context, keys ...string) (rates []Rate, giveBack func(), err error) {
	return s.count(ctx, keys, func(*sql.Tx) error { return nil })
}

func (s *Store) count(ctx context.Context, keys []string, also func(*sql.Tx) error) ([]Rate, func(), error) {
	if len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("%d things to count at once, over the limit of %d", len(keys), maxKeys)
	}
	now := s.opt.Now().Unix()
	var rates []Rate
	err := s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		if _, err := tx.StmtContext(ctx, s.forget).ExecContext(ctx, now-window); err != nil {
			return err
		}
		for _, key := range keys {
			var n, oldest int64
			if _, err := tx.StmtContext(ctx, s.take).ExecContext(ctx, key, now); err != nil {
				return err
			}
			if err := tx.StmtContext(ctx, s.rate).QueryRowContext(ctx, key).Scan(&n, &oldest); err != nil {
				return err
			}
			rates = append(rates, Rate{n, time.Unix(oldest+window+1, 0)})
		}
		return also(tx)
	})
	if err != nil {
		return nil, nil, err
	}
	return rates, sync.OnceFunc(func() { s.giveBack(keys, now) }), nil
}

func (s *Store) giveBack(keys []string, second int64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Busy)
	defer cancel()
	_ = s.tx(ctx, s.quick, func(tx *sql.Tx) error { // that it fails leaves the call counted, which is the safe side
		for _, key := range keys {
			if _, err := tx.StmtContext(ctx, s.untake).ExecContext(ctx, key, second); err != nil {
				return err
			}
		}
		return nil
	})
}

// targetKeys are the targets that are counted. Paths are too many and too easily varied to be worth counting.
func targetKeys(t gate.Targets) (keys []string) {
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
