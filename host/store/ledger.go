package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/gate"
)

const (
	window  = 60 // seconds
	maxKeys = 64
)

// Take counts a call in, for its principal, its tool and each of its targets, and returns the
// counts of the last 60 seconds including it: TargetCalls60s is that of its most called target.
// giveBack undoes it.
func (s *Store) Take(ctx context.Context, c *gate.Call) (gate.Counts, func(), error) {
	keys := []string{fmt.Sprintf("calls %q", c.Principal.ID),
		fmt.Sprintf("tool %q %q", c.Principal.ID, c.Tool.Kind+":"+c.Tool.Name)}
	for _, t := range targetKeys(c.Targets) {
		// quoted, so that no name can pass for two
		keys = append(keys, fmt.Sprintf("calls %q %q", c.Principal.ID, t))
	}
	var counts gate.Counts
	rates, giveBack, err := s.count(ctx, keys, func(tx *sql.Tx) error {
		return tx.StmtContext(ctx, s.spent).QueryRowContext(ctx, c.Principal.ID, s.day()).
			Scan(&counts.USDMicrosToday)
	})
	if err != nil {
		return gate.Counts{}, nil, fmt.Errorf("counting a call: %w", err)
	}
	now := s.opt.Now()
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
	return counts, giveBack, nil
}

// Count implements egress.Ledger: it counts one more of each key, all or none. When giveBack
// cannot undo that, the keys stay counted.
func (s *Store) Count(ctx context.Context, keys ...string) ([]egress.Rate, func(), error) {
	return s.count(ctx, keys, func(*sql.Tx) error { return nil })
}

func (s *Store) count(
	ctx context.Context, keys []string, also func(*sql.Tx) error,
) ([]egress.Rate, func(), error) {
	if len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("%d things to count at once, over the limit of %d",
			len(keys), maxKeys)
	}
	if len(keys) == 0 {
		return nil, func() {}, nil
	}
	take, rate, err := s.counting(ctx, len(keys))
	if err != nil {
		return nil, nil, err
	}
	now := s.opt.Now().Unix()
	var taken, asked []any
	for _, key := range keys {
		taken, asked = append(taken, key, now), append(asked, key)
	}
	rates := make([]egress.Rate, len(keys))
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		if s.forgot.Swap(now) != now { // too old, or counted before the clock was set back
			_, err := tx.StmtContext(ctx, s.forget).ExecContext(ctx, now-window, now+1)
			if err != nil {
				return err
			}
		}
		if _, err := tx.StmtContext(ctx, take).ExecContext(ctx, taken...); err != nil {
			return err
		}
		rows, err := tx.StmtContext(ctx, rate).QueryContext(ctx,
			append(asked, now-window, now+1)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key string
			var n, oldest int64
			if err := rows.Scan(&key, &n, &oldest); err != nil {
				return err
			}
			for i := range keys {
				if keys[i] == key {
					rates[i] = egress.Rate{Count: n, Free: time.Unix(oldest+window+1, 0)}
				}
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		if slices.ContainsFunc(rates, func(r egress.Rate) bool { return r.Count < 1 }) {
			return errors.New("what was counted just now is not there")
		}
		return also(tx)
	})
	if err != nil {
		return nil, nil, err
	}
	return rates, sync.OnceFunc(func() { s.giveBack(keys, now) }), nil
}

// counting returns the statements that count n keys and read their rates: one of each for every n.
func (s *Store) counting(ctx context.Context, n int) (take, rate *sql.Stmt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, known := s.counts[n]; known {
		return have[0], have[1], nil
	}
	take, err = s.quick.PrepareContext(ctx, "INSERT INTO rates (key, second, n) VALUES "+
		strings.Repeat("(?, ?, 1), ", n-1)+"(?, ?, 1) ON CONFLICT DO UPDATE SET n = n + 1")
	if err != nil {
		return nil, nil, err
	}
	rate, err = s.quick.PrepareContext(ctx, "SELECT key, sum(n), min(second) FROM rates WHERE "+
		"key IN ("+strings.Repeat("?, ",
		n-1)+"?) AND second BETWEEN ? AND ? AND n > 0 GROUP BY key")
	if err != nil {
		return nil, nil, errors.Join(err, take.Close())
	}
	s.counts[n] = [2]*sql.Stmt{take, rate}
	return take, rate, nil
}

func (s *Store) giveBack(keys []string, second int64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Busy)
	defer cancel()
	// if it fails, the call stays counted, which is the safe side
	_ = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		for _, key := range keys {
			if _, err := tx.StmtContext(ctx, s.untake).ExecContext(ctx, key, second); err != nil {
				return err
			}
		}
		return nil
	})
}

// targetKeys are the targets that are counted. Paths are too many and too easily varied to be worth
// counting.
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
