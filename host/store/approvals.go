package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// States of an approval. One that is waiting, approved or denied ends when it expires: then it is
// as if it had never been.
const (
	Waiting   = "waiting"
	Approved  = "approved"
	Denied    = "denied"
	Used      = "used"
	Cancelled = "cancelled"
)

// Approval is a question to a person about one call.
type Approval struct {
	ID, Key         string // Key is a digest of all that the approval is bound to
	Principal, Tool string
	State           string
	Created         time.Time
	Expires         time.Time     // of the question, then of the answer
	TTL             time.Duration // how long each of them lasts
	Revision        string        // of the policy that asked for it
	Detail          json.RawMessage
	Decided         time.Time // zero while waiting
	By, Channel     string
	Note            string
}

// Verdict is what a person says.
type Verdict = gate.Verdict

// ErrNoApproval says that there is no such approval, or none that is still good.
var ErrNoApproval = errors.New("there is no such approval, or it has expired")

// ErrOwnApproval says that who asks wanted to answer.
var ErrOwnApproval = errors.New("who asks for an approval may not give it")

// TooMany says that a principal already has as many questions waiting as it may.
type TooMany struct {
	Principal string
	Limit     int
}

func (e *TooMany) Error() string {
	return fmt.Sprintf(
		"%s already has %d requests that wait for a person; have one decided or wait until one expires",
		e.Principal,
		e.Limit,
	)
}

// Answered says that an approval is no longer waiting.
type Answered struct{ Approval }

func (e *Answered) Error() string {
	return fmt.Sprintf("approval %s is %s already (by %s)", e.ID, e.State, e.By)
}

const approvalColumns = "id, key, principal, tool, state, created, expires, ttl, revision, detail, decided, by, channel, note"

// Join returns the approval with a.Key that is waiting, approved or denied and has not expired, or
// else makes a as a new one that waits. More than limit waiting ones of a principal are refused
// with *TooMany.
func (s *Store) Join(ctx context.Context, a Approval, limit int) (Approval, error) {
	if a.ID == "" || a.Key == "" || a.Principal == "" || a.TTL < time.Millisecond ||
		!json.Valid(a.Detail) {
		return Approval{}, errors.New(
			"asking for an approval: it needs an id, a key, a principal, a time to live and a detail in JSON",
		)
	}
	err := s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		now := s.ms()
		if _, err := tx.ExecContext(ctx, "DELETE FROM approvals WHERE expires <= ?", now); err != nil {
			return err
		}
		found, err := scanApproval(
			tx.QueryRowContext(
				ctx,
				"SELECT "+approvalColumns+" FROM approvals WHERE key = ? AND state IN ('waiting', 'approved', 'denied')",
				a.Key,
			),
		)
		if err == nil {
			a = found
			return nil
		}
		if !errors.Is(err, ErrNoApproval) {
			return err
		}
		var waiting int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM approvals WHERE principal = ? AND state = 'waiting'", a.Principal).Scan(&waiting); err != nil {
			return err
		}
		if waiting >= limit {
			return &TooMany{a.Principal, limit}
		}
		a, err = scanApproval(
			tx.QueryRowContext(
				ctx,
				"INSERT INTO approvals (id, key, principal, tool, state, created, expires, ttl, revision, detail) VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?) RETURNING "+approvalColumns,
				a.ID,
				a.Key,
				a.Principal,
				a.Tool,
				now,
				now+a.TTL.Milliseconds(),
				a.TTL.Milliseconds(),
				a.Revision,
				string(a.Detail),
			),
		)
		return err
	})
	if err != nil {
		return Approval{}, fmt.Errorf("asking for an approval: %w", err)
	}
	return a, nil
}

// Decide answers a waiting approval, once. A yes can be used for another TTL. The error is
// ErrNoApproval, ErrOwnApproval or *Answered.
func (s *Store) Decide(ctx context.Context, id string, v Verdict) (a Approval, err error) {
	state := Denied
	if v.Approve {
		state = Approved
	}
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		now := s.ms()
		if a, err = scanApproval(tx.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approvals WHERE id = ? AND expires > ?", id, now)); err != nil {
			return err
		}
		switch {
		case a.State != Waiting:
			return &Answered{a}
		case v.By == "" || v.By == a.Principal:
			return ErrOwnApproval
		}
		a, err = scanApproval(
			tx.QueryRowContext(
				ctx,
				"UPDATE approvals SET state = ?, expires = ? + ttl, decided = ?, by = ?, channel = ?, note = ? WHERE id = ? AND state = 'waiting' RETURNING "+approvalColumns,
				state,
				now,
				now,
				v.By,
				v.Channel,
				v.Note,
				id,
			),
		)
		return err
	})
	if err != nil {
		return Approval{}, fmt.Errorf("deciding approval %s: %w", id, err)
	}
	return a, nil
}

// Consume uses up the approved approval with that key. Only one caller gets it, whatever their
// number; the others get ErrNoApproval.
func (s *Store) Consume(ctx context.Context, key string) (a Approval, err error) {
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		a, err = scanApproval(
			tx.QueryRowContext(
				ctx,
				"UPDATE approvals SET state = 'used' WHERE key = ? AND state = 'approved' AND expires > ? RETURNING "+approvalColumns,
				key,
				s.ms(),
			),
		)
		return err
	})
	if err != nil {
		return Approval{}, fmt.Errorf("using an approval: %w", err)
	}
	return a, nil
}

// Cancel ends a waiting approval without an answer.
func (s *Store) Cancel(ctx context.Context, id string) error {
	err := s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		err := one(
			tx.ExecContext(
				ctx,
				"UPDATE approvals SET state = 'cancelled' WHERE id = ? AND state = 'waiting' AND expires > ?",
				id,
				s.ms(),
			),
		)
		if errors.Is(err, errNone) {
			err = ErrNoApproval
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancelling approval %s: %w", id, err)
	}
	return nil
}

// Approvals lists what has not expired, newest first, at most 1000. An empty state is any, an empty
// id is all.
func (s *Store) Approvals(ctx context.Context, id, state string) (list []Approval, err error) {
	err = s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(
			ctx,
			"SELECT "+approvalColumns+" FROM approvals WHERE expires > ?1 AND (?2 = '' OR id = ?2) AND (?3 = '' OR state = ?3) ORDER BY created DESC, id LIMIT 1000",
			s.ms(),
			id,
			state,
		)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			a, err := scanApproval(rows)
			if err != nil {
				return err
			}
			list = append(list, a)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	return list, nil
}

func scanApproval(row interface{ Scan(...any) error }) (a Approval, err error) {
	var created, expires, ttl, decided int64
	var detail string
	err = row.Scan(
		&a.ID,
		&a.Key,
		&a.Principal,
		&a.Tool,
		&a.State,
		&created,
		&expires,
		&ttl,
		&a.Revision,
		&detail,
		&decided,
		&a.By,
		&a.Channel,
		&a.Note,
	)
	if errors.Is(err, sql.ErrNoRows) {
		return Approval{}, ErrNoApproval
	}
	a.Created, a.Expires, a.TTL, a.Detail = time.UnixMilli(
		created,
	), time.UnixMilli(
		expires,
	), time.Duration(
		ttl,
	)*time.Millisecond, json.RawMessage(
		detail,
	)
	if decided > 0 {
		a.Decided = time.UnixMilli(decided)
	}
	return a, err
}
