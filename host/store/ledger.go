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
	window     = time.Minute
	maxTargets = 64
)

var _ gate.Ledger = (*Store)(nil)

// Take counts a call in, for its principal and for each of its targets, and returns the counts of the last 60 seconds including it: TargetCalls60s is
// that of its most called target. giveBack may be called once and undoes it.
func (s *Store) Take(ctx context.Context, c *gate.Call) (counts gate.Counts, giveBack func(), err error) {
	keys := targetKeys(c.Targets)
	if len(keys) > maxTargets {
		return counts, nil, fmt.Errorf("the call names %d targets, over the limit of %d", len(keys), maxTargets)
	}
	now := s.ms()
	var ids []int64
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM takes WHERE at <= ?", now-window.Milliseconds()); err != nil {
			return err
		}
		for _, key := range append([]string{""}, keys...) {
			var id, n int64
			if err := tx.QueryRowContext(ctx, "INSERT INTO takes (principal, target, at) VALUES (?, ?, ?) RETURNING id", c.Principal.ID, key, now).Scan(&id); err != nil {
				return err
			}
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM takes WHERE principal = ? AND target = ?", c.Principal.ID, key).Scan(&n); err != nil {
				return err
			}
			ids = append(ids, id)
			if key == "" {
				counts.Calls60s = n
			} else {
				counts.TargetCalls60s = max(counts.TargetCalls60s, n)
			}
		}
		counts.USDMicrosToday, err = spent(ctx, tx, c.Principal.ID, s.day())
		return err
	})
	if err != nil {
		return gate.Counts{}, nil, fmt.Errorf("counting a call: %w", err)
	}
	return counts, sync.OnceFunc(func() { s.giveBack(ids) }), nil
}

// giveBack that fails leaves the call counted, which is the safe side.
func (s *Store) giveBack(ids []int64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Busy)
	defer cancel()
	_ = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, "DELETE FROM takes WHERE id = ?", id); err != nil {
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

func (s *Store) day() string { return s.opt.Now().UTC().Format(time.DateOnly) }

func spent(ctx context.Context, tx *sql.Tx, principal, day string) (micros int64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT coalesce(sum(micros), 0) FROM costs WHERE principal = ? AND day = ?", principal, day).Scan(&micros)
	return micros, err
}
