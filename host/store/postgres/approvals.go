package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/store"
)

// request runs a statement that returns one request, or else approval.ErrNone.
func (s *Store) request(ctx context.Context, what, sql string, args ...any) (
	approval.Request, error) {
	all, err := rowsOf(ctx, s, statement{what: what, sql: sql, args: args}, store.ScanRequest)
	switch {
	case err != nil:
		return approval.Request{}, err
	case len(all) == 0:
		return approval.Request{}, fmt.Errorf("%s: %w", what, approval.ErrNone)
	}
	return all[0], nil
}

const live = "caponier.live(expires, ttl, caponier.clock($1::bigint))"

// Join implements approval.Store.
func (s *Store) Join(ctx context.Context, r approval.Request, limit int) (approval.Request, error) {
	if err := r.Whole(); err != nil {
		return approval.Request{}, err
	}
	const what = "asking for an approval"
	got, err := s.request(ctx, what, "SELECT "+store.RequestColumns+" FROM caponier.ask($1::text, "+
		"$2::text, $3::text, $4::text, $5::bigint, $6::text, $7::text, $8::bigint, $9::bigint, "+
		"$10::bigint)", r.ID, r.Key, r.Principal, r.Tool, r.TTL.Milliseconds(), r.Revision,
		string(r.Detail), int64(limit), s.now(), int64(max(1, r.Need)))
	if errors.Is(err, approval.ErrNone) {
		err = fmt.Errorf("%s: %w: %s has %d", what, approval.ErrFull, r.Principal, limit)
	}
	return got, err
}

// Decide implements approval.Store. The state in which it found the request is a condition of the
// change: of two answers at once one is told that there was another. It fails after 16 attempts.
func (s *Store) Decide(ctx context.Context, id string, v approval.Verdict) (
	approval.Request, error) {
	what := "deciding approval " + id
	for range 16 {
		r, err := s.request(ctx, what, "SELECT "+store.RequestColumns+" FROM "+
			"caponier.approvals WHERE "+live+" AND id = $2", s.now(), id)
		if err != nil {
			return r, err
		}
		after, err := r.After(v)
		if err != nil {
			return r, fmt.Errorf("%s: %w", what, err)
		}
		before, err := json.Marshal(r.Answers)
		if err != nil {
			return r, err
		}
		answers, err := json.Marshal(after.Answers)
		if err != nil {
			return r, err
		}
		// one that waits for more waits no longer than before
		done, err := s.request(ctx, what, "UPDATE caponier.approvals SET state = $3, expires = "+
			"CASE WHEN $3 = 'waiting' THEN expires ELSE caponier.clock($1::bigint) + ttl END, "+
			"decided = CASE WHEN $3 = 'waiting' THEN 0 ELSE caponier.clock($1::bigint) END, "+
			"by = $4, channel = $5, note = $6, answers = $8 WHERE "+live+" AND id = $2 AND "+
			"state = $7 AND answers = $9 RETURNING "+store.RequestColumns, s.now(), id, after.State,
			after.By, after.Channel, after.Note, r.State, string(answers), string(before))
		if !errors.Is(err, approval.ErrNone) {
			return done, err
		}
	}
	return approval.Request{}, errors.New(what + ": others change it at the same time: try again")
}

// Consume implements approval.Store: the row is changed by one transaction only.
func (s *Store) Consume(ctx context.Context, key string) (approval.Request, error) {
	return s.request(ctx, "using an approval", "UPDATE caponier.approvals SET state = 'used' "+
		"WHERE "+live+" AND key = $2 AND state = 'approved' RETURNING "+store.RequestColumns,
		s.now(), key)
}

// Requests implements approval.Store. It returns at most 1000.
func (s *Store) Requests(ctx context.Context, id, state string) ([]approval.Request, error) {
	return rowsOf(ctx, s, statement{what: "listing approvals", sql: "SELECT " +
		store.RequestColumns + " FROM caponier.approvals WHERE " + live + " AND ($2 = '' OR " +
		"id = $2) AND ($3 = '' OR state = $3) ORDER BY created DESC, id LIMIT 1000",
		args: []any{s.now(), id, state}}, store.ScanRequest)
}

// Begin implements approval.Store.
func (s *Store) Begin(ctx context.Context, session approval.Session) error {
	now := time.Now
	if s.opt.Now != nil {
		now = s.opt.Now
	}
	_, err := s.exec(ctx, "beginning a session", "INSERT INTO caponier.sessions (id, name, "+
		"expires, ttl) VALUES ($2, $3, caponier.clock($1::bigint) + $4::bigint, $4::bigint)",
		s.now(), session.ID, session.Name, session.Expires.Sub(now()).Milliseconds())
	return err
}

// Sessions implements approval.Store.
func (s *Store) Sessions(ctx context.Context, id string) ([]approval.Session, error) {
	return rowsOf(ctx, s, statement{what: "listing sessions", sql: "SELECT id, name, expires, " +
		"ttl FROM caponier.sessions WHERE " + live + " AND ($2 = '' OR id = $2) " +
		"ORDER BY expires DESC, id", args: []any{s.now(), id}},
		store.ScanSession)
}

// EndSessions implements approval.Store.
func (s *Store) EndSessions(ctx context.Context, id, name string) (int64, error) {
	return s.exec(ctx, "ending sessions", "DELETE FROM caponier.sessions WHERE ($1 = '' OR "+
		"id = $1) AND ($2 = '' OR name = $2) RETURNING id", id, name)
}
