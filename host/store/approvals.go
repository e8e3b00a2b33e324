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

// RequestColumns are what [ScanRequest] reads.
const RequestColumns = "id, key, principal, tool, state, created, expires, ttl, revision, " +
	"detail, decided, by, channel, note, need, answers"

// ScanRequest reads a row of RequestColumns; without one it returns approval.ErrNone.
func ScanRequest(from Row) (r approval.Request, err error) {
	var created, expires, ttl, decided int64
	var detail, answers string
	err = from.Scan(&r.ID, &r.Key, &r.Principal, &r.Tool, &r.State, &created, &expires, &ttl,
		&r.Revision, &detail, &decided, &r.By, &r.Channel, &r.Note, &r.Need,
		&answers)
	if errors.Is(err, sql.ErrNoRows) {
		return approval.Request{}, approval.ErrNone
	}
	if err == nil {
		err = json.Unmarshal([]byte(answers), &r.Answers)
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
func (s *Store) request(t tx, query string, args ...any) (approval.Request, error) {
	return ScanRequest(t.row(query, append([]any{s.ms(), s.origin()}, args...)...))
}

// Join implements approval.Store.
func (s *Store) Join(ctx context.Context, r approval.Request, limit int) (approval.Request, error) {
	if err := r.Whole(); err != nil {
		return approval.Request{}, err
	}
	return get(ctx, s, s.sure, "asking for an approval", func(t tx) (approval.Request, error) {
		err := t.exec("DELETE FROM approvals WHERE NOT ("+live+")", s.ms(), s.origin())
		if err != nil {
			return r, err
		}
		found, err := s.request(t, "SELECT "+RequestColumns+" FROM approvals WHERE "+live+
			" AND key = ?3 AND state IN ('waiting', 'approved', 'denied')", r.Key)
		if !errors.Is(err, approval.ErrNone) {
			return found, err
		}
		var waiting int
		err = t.row("SELECT count(*) FROM approvals WHERE principal = ? AND state = 'waiting'",
			r.Principal).Scan(&waiting)
		if err != nil {
			return r, err
		}
		if waiting >= limit {
			return r, fmt.Errorf("%w: %s has %d", approval.ErrFull, r.Principal, waiting)
		}
		return s.request(t, "INSERT INTO approvals (id, key, principal, tool, state, "+
			"created, expires, ttl, revision, detail, origin, need) VALUES "+
			"(?3, ?4, ?5, ?6, 'waiting', ?1, ?1 + ?7, ?7, ?8, ?9, ?2, ?10) RETURNING "+
			RequestColumns, r.ID, r.Key, r.Principal, r.Tool, r.TTL.Milliseconds(), r.Revision,
			string(r.Detail), max(1, r.Need))
	})
}

// Decide implements approval.Store.
func (s *Store) Decide(
	ctx context.Context, id string, v approval.Verdict,
) (approval.Request, error) {
	return get(ctx, s, s.sure, "deciding approval "+id, func(t tx) (approval.Request, error) {
		r, err := s.request(t, "SELECT "+RequestColumns+" FROM approvals WHERE "+live+
			" AND id = ?3", id)
		if err != nil {
			return r, err
		}
		after, err := r.After(v)
		if err != nil {
			return r, err
		}
		answers, err := json.Marshal(after.Answers)
		if err != nil {
			return r, err
		}
		// one that waits for more waits no longer than before
		const or = " = CASE ?4 WHEN 'waiting' THEN "
		return s.request(t, "UPDATE approvals SET state = ?4, expires"+or+"expires ELSE ?1 + "+
			"ttl END, decided"+or+"0 ELSE ?1 END, origin"+or+"origin ELSE ?2 END, by = ?5, "+
			"channel = ?6, note = ?7, answers = ?8 WHERE id = ?3 RETURNING "+RequestColumns, id,
			after.State, after.By, after.Channel, after.Note, string(answers))
	})
}

// Consume implements approval.Store.
func (s *Store) Consume(ctx context.Context, key string) (approval.Request, error) {
	return get(ctx, s, s.sure, "using an approval", func(t tx) (approval.Request, error) {
		return s.request(t, "UPDATE approvals SET state = 'used' WHERE "+live+
			" AND key = ?3 AND state = 'approved' RETURNING "+RequestColumns, key)
	})
}

// Requests implements approval.Store. It returns at most 1000.
func (s *Store) Requests(ctx context.Context, id, state string) ([]approval.Request, error) {
	return get(ctx, s, s.sure, "listing approvals", func(t tx) ([]approval.Request, error) {
		return all(t, ScanRequest, "SELECT "+RequestColumns+" FROM approvals WHERE "+live+
			" AND (?3 = '' OR id = ?3) AND (?4 = '' OR state = ?4) "+
			"ORDER BY created DESC, id LIMIT 1000", s.ms(), s.origin(), id, state)
	})
}

// Begin implements approval.Store.
func (s *Store) Begin(ctx context.Context, session approval.Session) error {
	ttl := session.Expires.Sub(s.opt.Now()).Milliseconds()
	return s.do(ctx, s.sure, "beginning a session", func(t tx) error {
		err := t.exec("DELETE FROM sessions WHERE NOT ("+live+")", s.ms(), s.origin())
		if err != nil {
			return err
		}
		return t.exec("INSERT INTO sessions (id, name, expires, ttl, origin) VALUES (?, ?, ?, "+
			"?, ?)", session.ID, session.Name, session.Expires.UnixMilli(), ttl, s.origin())
	})
}

// Sessions implements approval.Store.
func (s *Store) Sessions(ctx context.Context, id string) ([]approval.Session, error) {
	return get(ctx, s, s.quick, "listing sessions", func(t tx) ([]approval.Session, error) {
		return all(t, ScanSession, "SELECT id, name, expires, ttl FROM sessions WHERE "+live+
			" AND (?3 = '' OR id = ?3) ORDER BY expires DESC, id", s.ms(), s.origin(), id)
	})
}

// ScanSession reads the id, the name, the end and the time to live of a session.
func ScanSession(from Row) (v approval.Session, err error) {
	var expires, ttl int64
	err = from.Scan(&v.ID, &v.Name, &expires, &ttl)
	v.Created, v.Expires = time.UnixMilli(expires-ttl), time.UnixMilli(expires)
	return v, err
}

// EndSessions implements approval.Store.
func (s *Store) EndSessions(ctx context.Context, id, name string) (int64, error) {
	return get(ctx, s, s.sure, "ending sessions", func(t tx) (int64, error) {
		res, err := t.ExecContext(ctx, "DELETE FROM sessions WHERE (?1 = '' OR id = ?1) AND "+
			"(?2 = '' OR name = ?2)", id, name)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	})
}
