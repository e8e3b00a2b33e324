package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/terms"
)

// counted is what a count found.
type counted struct {
	rates       []egress.Rate // of each key
	now, micros int64
	stamp       string // of what decisions read
}

// Take implements terms.Ledger as the embedded store does, in one round trip.
func (s *Store) Take(ctx context.Context, c *terms.Call) (terms.Counts, func(), error) {
	keys, began, before := store.Keys(c), time.Now(), s.wall()
	// each key of a principal names it, so that one lock holds for all of them
	got, giveBack, err := s.count(ctx, keys[:1], keys, c.Principal.ID)
	if err != nil {
		return terms.Counts{}, nil, err
	}
	s.setSkew(s.clocks(before, got.now))
	s.noteStamp(ctx, got.stamp, began)
	return store.Counts(got.rates, got.micros, time.UnixMilli(got.now)), giveBack, nil
}

// Count implements egress.Ledger.
func (s *Store) Count(ctx context.Context, keys ...string) ([]egress.Rate, func(), error) {
	if len(keys) == 0 {
		return nil, func() {}, nil
	}
	got, giveBack, err := s.count(ctx, slices.Sorted(slices.Values(keys)), keys, "")
	return got.rates, giveBack, err
}

func (s *Store) count(ctx context.Context, locks, keys []string, principal string) (
	got counted, giveBack func(), err error) {
	if len(keys) > store.MaxKeys {
		return got, nil, fmt.Errorf("%d things to count at once, over the limit of %d", len(keys),
			store.MaxKeys)
	}
	got.rates = make([]egress.Rate, len(keys))
	err = s.run(ctx, statement{what: "counting a call", lazy: true,
		sql:  "SELECT * FROM caponier.take($1::text[], $2::text[], $3::text, $4::bigint)",
		args: []any{locks, keys, principal, s.now()}}, func(r pgx.Rows) error {
		var key string
		var n, oldest int64
		var stamp *string // null where there is none
		err := r.Scan(&got.now, &key, &n, &oldest, &got.micros, &stamp)
		if stamp != nil {
			got.stamp = *stamp
		}
		for i := range keys {
			if keys[i] == key {
				got.rates[i] = egress.Rate{Count: n, Free: time.Unix(oldest+61, 0)}
			}
		}
		return err
	})
	if err != nil {
		return counted{}, nil, err
	}
	for _, r := range got.rates {
		if r.Count < 1 {
			return counted{}, nil, errors.New("what was counted just now is not there")
		}
	}
	return got, sync.OnceFunc(func() {
		// if it fails, the call stays counted, which is the safe side
		_ = s.run(context.Background(), statement{what: "giving a count back", lazy: true,
			sql: "UPDATE caponier.rates SET n = n - 1 WHERE second = $1 AND n > 0 " +
				"AND key = ANY ($2::text[])", args: []any{got.now / 1000, keys}}, nil)
	}), nil
}

const maxMicros = 1 << 50

// Reserve implements egress.Ledger: what it reserves is on the disk of the database.
func (s *Store) Reserve(ctx context.Context, principal string, micros, limit int64) (
	settle func(ctx context.Context, spent int64) error, err error) {
	if micros < 0 || micros > maxMicros {
		return nil, fmt.Errorf("reserving %d micro-dollars: want 0 to %d", micros, int64(maxMicros))
	}
	var now, spent int64
	var id *int64
	err = s.run(ctx, statement{what: fmt.Sprintf("reserving %d micro-dollars", micros),
		sql:  "SELECT * FROM caponier.reserve($1::text, $2::bigint, $3::bigint, $4::bigint)",
		args: []any{principal, micros, limit, s.now()}},
		func(r pgx.Rows) error { return r.Scan(&now, &spent, &id) })
	switch {
	case err != nil:
		return nil, err
	case id == nil:
		day := time.UnixMilli(now).UTC().Truncate(24 * time.Hour)
		return nil, &store.OverBudget{Principal: principal, Asked: micros, Spent: spent,
			Limit: limit, Free: day.AddDate(0, 0, 1)}
	}
	return func(ctx context.Context, spent int64) error { return s.settle(ctx, *id, spent) }, nil
}

func (s *Store) settle(ctx context.Context, id, spent int64) error {
	if spent < 0 || spent > maxMicros {
		return fmt.Errorf("settling %d micro-dollars: want 0 to %d", spent, int64(maxMicros))
	}
	n, err := s.exec(ctx, "settling a reservation", "UPDATE caponier.costs SET micros = $1, "+
		"settled = true WHERE id = $2 AND NOT settled RETURNING id", spent, id)
	if err == nil && n != 1 {
		err = store.ErrNone
	}
	return err
}

// Usage reads what the store counts.
func (s *Store) Usage(ctx context.Context) (store.Usage, error) {
	u := store.Usage{USDMicros: map[string]int64{}}
	err := s.run(ctx, statement{what: "reading what the store counts", sql: `
		SELECT '', count(*) FROM caponier.approvals, caponier.clock($1::bigint) AS now
		WHERE state = 'waiting' AND caponier.live(expires, ttl, now)
		UNION ALL (SELECT principal, sum(micros)::bigint FROM caponier.costs
		WHERE day = caponier.day(caponier.clock($1::bigint)) GROUP BY principal
		ORDER BY 2 DESC LIMIT 100)`, args: []any{s.now()}}, func(r pgx.Rows) error {
		var who string
		var n int64
		err := r.Scan(&who, &n)
		if who == "" {
			u.Waiting = n
		} else {
			u.USDMicros[who] = n
		}
		return err
	})
	if err != nil {
		return store.Usage{}, err
	}
	return u, nil
}
