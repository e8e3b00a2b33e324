package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
)

const requestColumns = "id, key, principal, tool, state, created, expires, ttl, revision, " +
	"detail, decided, by, channel, note"

func scanRequest(from row) (r approval.Request, err error) {
	var created, expires, ttl, decided int64
	var detail string
	err = from.Scan(&r.ID, &r.Key, &r.Principal, &r.Tool, &r.State, &created, &expires, &ttl,
		&r.Revision, &detail, &decided, &r.By, &r.Channel, &r.Note)
	if errors.Is(err, sql.ErrNoRows) {
		return approval.Request{}, approval.ErrNone
	}
	r.Created, r.Expires = time.UnixMilli(created), time.UnixMilli(expires)
	r.TTL, r.Detail = time.Duration(ttl)*time.Millisecond, json.RawMessage(detail)
	if decided > 0 {
		r.Decided = time.UnixMilli(decided)
	}
	return r, err
}

// request runs a statement that returns one request, or approval.ErrNone. Its arguments ?1 and ?2
// are those of live.
func (s *Store) request(
	ctx context.Context, tx *sql.Tx, query string, args ...any,
) (approval.Request, error) {
	return scanRequest(tx.QueryRowContext(ctx, query,
		append([]any{s.ms(), s.origin()}, args...)...))
}

// Join implements approval.Store.
func (s *Store) Join(ctx context.Context, r approval.Request, limit int) (approval.Request, error) {
	if r.ID == "" || r.Key == "" || r.Principal == "" || r.TTL < time.Millisecond ||
		!json.Valid(r.Detail) {
		return approval.Request{}, errors.New("asking for an approval: it needs an id, a key, a " +
			"principal, a time to live and a detail in JSON")
	}
	err := s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM approvals WHERE NOT ("+live+")",
			s.ms(), s.origin())
		if err != nil {
			return err
		}
		found, err := s.request(ctx, tx, "SELECT "+requestColumns+" FROM approvals WHERE "+live+
			" AND key = ?3 AND state IN ('waiting', 'approved', 'denied')", r.Key)
		if err == nil {
			r = found
			return nil
		}
		if !errors.Is(err, approval.ErrNone) {
			return err
		}
		var waiting int
		err = tx.QueryRowContext(ctx, "SELECT count(*) FROM approvals WHERE principal = ? AND "+
			"state = 'waiting'", r.Principal).Scan(&waiting)
		if err != nil {
			return err
		}
		if waiting >= limit {
			return fmt.Errorf("%w: %s has %d", approval.ErrFull, r.Principal, waiting)
		}
		r, err = s.request(ctx, tx, "INSERT INTO approvals (id, key, principal, tool, state, "+
			"created, expires, ttl, revision, detail, origin) VALUES "+
			"(?3, ?4, ?5, ?6, 'waiting', ?1, ?1 + ?7, ?7, ?8, ?9, ?2) RETURNING "+requestColumns,
			r.ID, r.Key, r.Principal, r.Tool, r.TTL.Milliseconds(), r.Revision, string(r.Detail))
		return err
	})
	if err != nil {
		return approval.Request{}, fmt.Errorf("asking for an approval: %w", err)
	}
	return r, nil
}

// Decide implements approval.Store.
func (s *Store) Decide(
	ctx context.Context, id string, v approval.Verdict,
) (r approval.Request, err error) {
	state := approval.Denied
	if v.Approve {
		state = approval.Approved
	}
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		r, err = s.request(ctx, tx, "SELECT "+requestColumns+" FROM approvals WHERE "+live+
			" AND id = ?3", id)
		switch {
		case err != nil:
			return err
		case v.By == "" || v.By == r.Principal:
			return errors.New("the requester may not give it")
		case !r.Takes(v):
			return fmt.Errorf("%w: it is %s already (by %s)", approval.ErrAnswered, r.State, r.By)
		}
		r, err = s.request(ctx, tx, "UPDATE approvals SET state = ?4, expires = ?1 + ttl, "+
			"decided = ?1, origin = ?2, by = ?5, channel = ?6, note = ?7 WHERE id = ?3 RETURNING "+
			requestColumns, id, state, v.By, v.Channel, v.Note)
		return err
	})
	if err != nil {
		return approval.Request{}, fmt.Errorf("deciding approval %s: %w", id, err)
	}
	return r, nil
}

// Consume implements approval.Store.
func (s *Store) Consume(ctx context.Context, key string) (r approval.Request, err error) {
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		r, err = s.request(ctx, tx, "UPDATE approvals SET state = 'used' WHERE "+live+
			" AND key = ?3 AND state = 'approved' RETURNING "+requestColumns, key)
		return err
	})
	if err != nil {
		return approval.Request{}, fmt.Errorf("using an approval: %w", err)
	}
	return r, nil
}

// Requests implements approval.Store. It returns at most 1000.
func (s *Store) Requests(
	ctx context.Context, id, state string,
) (list []approval.Request, err error) {
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		list, err = all(ctx, tx, scanRequest, "SELECT "+requestColumns+" FROM approvals WHERE "+
			live+" AND (?3 = '' OR id = ?3) AND (?4 = '' OR state = ?4) "+
			"ORDER BY created DESC, id LIMIT 1000", s.ms(), s.origin(), id, state)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	return list, nil
}

// Burn implements approval.Store. A nonce is kept for 30 days after it expired, so that a clock
// that is set back does not make it good again.
func (s *Store) Burn(ctx context.Context, nonce string, until time.Time) error {
	err := s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		old := s.opt.Now().AddDate(0, 0, -30).UnixMilli()
		if _, err := tx.ExecContext(ctx, "DELETE FROM burned WHERE expires <= ?", old); err != nil {
			return err
		}
		err := one(tx.ExecContext(ctx, "INSERT INTO burned (nonce, expires) VALUES (?, ?) "+
			"ON CONFLICT DO NOTHING", nonce, until.UnixMilli()))
		if errors.Is(err, errNone) {
			return approval.ErrBurned
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("using a nonce: %w", err)
	}
	return nil
}

// Begin implements approval.Store.
func (s *Store) Begin(ctx context.Context, session approval.Session) error {
	ttl := session.Expires.Sub(s.opt.Now()).Milliseconds()
	err := s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE NOT ("+live+")",
			s.ms(), s.origin())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO sessions (id, name, expires, ttl, origin) "+
			"VALUES (?, ?, ?, ?, ?)", session.ID, session.Name, session.Expires.UnixMilli(), ttl,
			s.origin())
		return err
	})
	if err != nil {
		return fmt.Errorf("beginning a session: %w", err)
	}
	return nil
}

// Sessions implements approval.Store.
func (s *Store) Sessions(ctx context.Context, id string) (list []approval.Session, err error) {
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		list, err = all(ctx, tx, func(r row) (v approval.Session, err error) {
			var expires, ttl int64
			err = r.Scan(&v.ID, &v.Name, &expires, &ttl)
			v.Created, v.Expires = time.UnixMilli(expires-ttl), time.UnixMilli(expires)
			return v, err
		}, "SELECT id, name, expires, ttl FROM sessions WHERE "+live+
			" AND (?3 = '' OR id = ?3) ORDER BY expires DESC, id", s.ms(), s.origin(), id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	return list, nil
}

// EndSessions implements approval.Store.
func (s *Store) EndSessions(ctx context.Context, id, name string) (n int64, err error) {
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE (?1 = '' OR id = ?1) AND "+
			"(?2 = '' OR name = ?2)", id, name)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ending sessions: %w", err)
	}
	return n, nil
}
