package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/terms"
)

// What decides nothing, such as a list of tools, may be as old as maxOld. A decision that waited
// longer than maxWaited for its turn reads again.
const maxOld, maxWaited = 500 * time.Millisecond, 100 * time.Millisecond

// look is what one decision has read.
type look struct {
	mu  sync.Mutex // guards the following
	v   *view
	err error // for good: a decision asks a database that is away once
	at  time.Time
}

type lookKey struct{}

// Look returns the context of one decision, which reads once what is frozen and which tokens hold:
// with the counts of a call, or else now.
func (s *Store) Look(ctx context.Context, q terms.Question) context.Context {
	ctx = context.WithValue(ctx, lookKey{}, &look{})
	if q.Kind != terms.KindCall {
		_, _ = s.view(ctx) // who needs it gets the error
	}
	return ctx
}

// view returns what holds now: under the context of a decision, since the decision began.
func (s *Store) view(ctx context.Context) (*view, error) {
	if l, deciding := ctx.Value(lookKey{}).(*look); deciding {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil && (l.v == nil || time.Since(l.at) > maxWaited) {
			l.v, l.err = s.latest(ctx)
			l.at = time.Now()
		}
		return l.v, l.err
	}
	s.mu.Lock()
	v, at := s.seen, s.seenAt
	s.mu.Unlock()
	if v != nil && time.Since(at) < maxOld {
		return v, nil
	}
	return s.latest(ctx)
}

// latest asks whether anything changed, and reads it if so.
func (s *Store) latest(ctx context.Context) (*view, error) {
	began, before, stamp, ms := time.Now(), s.wall(), "", int64(0)
	err := s.run(ctx, statement{what: "reading what is frozen and which tokens hold",
		sql: "SELECT stamp, caponier.clock(null) FROM caponier.changes"},
		func(r pgx.Rows) error { return r.Scan(&stamp, &ms) })
	if err != nil {
		return nil, err
	}
	if stamp != "" {
		s.setSkew(s.clocks(before, ms))
	}
	return s.as(ctx, stamp, began)
}

// noteStamp lets the decision of ctx use a stamp that came with something else.
func (s *Store) noteStamp(ctx context.Context, stamp string, began time.Time) {
	if l, deciding := ctx.Value(lookKey{}).(*look); deciding {
		v, err := s.as(ctx, stamp, began)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.v, l.err, l.at = v, err, time.Now()
	}
}

var errNoStamp = errors.New("the table caponier.changes has lost its row, so that no freeze and " +
	"no end of a token would be seen: restore the database, or INSERT INTO caponier.changes " +
	"VALUES (gen_random_uuid())")

// as returns the view with a stamp that was current since began. It reads what it has not.
func (s *Store) as(ctx context.Context, stamp string, began time.Time) (*view, error) {
	if stamp == "" {
		return nil, fmt.Errorf("using the store at %s: %w", s.at, errNoStamp)
	}
	s.mu.Lock()
	v := s.seen
	s.mu.Unlock()
	if v == nil || v.stamp != stamp {
		var err error
		if v, err = s.read(ctx, stamp); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.After(s.seenAt) {
		s.seen, s.seenAt = v, began
	}
	return v, nil
}

// read reads a view. It may be newer than its stamp, and is then read again.
func (s *Store) read(ctx context.Context, stamp string) (*view, error) {
	v := &view{stamp: stamp, tokens: map[string]identity.Token{}}
	err := s.run(ctx, statement{what: "reading what is frozen and which tokens hold",
		sql: "SELECT 0, kind, name, value, 0::bigint FROM caponier.freezes UNION ALL " +
			"SELECT 1, '', prefix, value, used FROM caponier.tokens UNION ALL " +
			"SELECT 2, '', '', '', max(version) FROM caponier.schema ORDER BY 1, 2, 3"},
		func(r pgx.Rows) error {
			var of int
			var kind, name, value string
			var used int64
			err := r.Scan(&of, &kind, &name, &value, &used)
			switch {
			case err != nil:
				return err
			case of == 0:
				v.freezes = append(v.freezes, freezeOf(kind, name, value))
				return nil
			case of == 2:
				return readable(int(used))
			}
			k, err := identity.ParseToken(value)
			if err == nil && k.Prefix != name {
				err = fmt.Errorf("its row has the prefix %q", name)
			}
			if err != nil && v.broken == nil {
				v.broken = fmt.Errorf("token %q in caponier.tokens: %w", name, err)
			}
			if used > 0 {
				k.LastUsed = time.UnixMilli(used).UTC().Truncate(time.Minute)
			}
			v.tokens[name] = k
			return nil
		})
	return v, err
}

// freezeOf reads a row. Policy takes the kind of one that cannot be read for everything.
func freezeOf(kind, name, value string) (z freeze.Freeze) {
	if json.Unmarshal([]byte(value), &z) != nil || z.Kind != kind || z.Name != name {
		return freeze.Freeze{Kind: "?", Name: name, Reason: "its row in caponier.freezes cannot " +
			"be read; delete it to thaw"}
	}
	return z
}

func (s *Store) setSkew(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skewed = err
}

// forget makes the next reader read again: this host changed something.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
}

// Freezes implements freeze.Shared.
func (s *Store) Freezes(ctx context.Context) ([]freeze.Freeze, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return v.freezes, nil
}

// KeptTokens implements identity.Kept.
func (s *Store) KeptTokens(ctx context.Context, prefix string) ([]identity.Token, error) {
	v, err := s.view(ctx)
	if err == nil {
		s.mu.Lock()
		err = cmp.Or(v.broken, s.skewed)
		s.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	prefixes := []string{prefix}
	if prefix == "" {
		prefixes = slices.Sorted(maps.Keys(v.tokens))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []identity.Token
	for _, p := range prefixes {
		k, is := v.tokens[p]
		if at := s.used[p]; at.After(k.LastUsed) {
			k.LastUsed = at
		}
		if is {
			all = append(all, k)
		}
	}
	return all, nil
}
