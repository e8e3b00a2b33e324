package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrBurned says that a nonce was used before.
var ErrBurned = errors.New("it was used before")

// Burn uses a nonce, once over all processes. After until it is forgotten: by then whatever carries
// it must have expired.
func (s *Store) Burn(ctx context.Context, nonce string, until time.Time) error {
	err := s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM burned WHERE expires <= ?", s.ms()); err != nil {
			return err
		}
		err := one(
			tx.ExecContext(
				ctx,
				"INSERT INTO burned (nonce, expires) VALUES (?, ?) ON CONFLICT DO NOTHING",
				nonce,
				until.UnixMilli(),
			),
		)
		if errors.Is(err, errNone) {
			return ErrBurned
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("using a nonce: %w", err)
	}
	return nil
}

// TokenUse is how an access token was used. ID names it and is not the token.
type TokenUse struct {
	ID, Source string // Source is where it came from last
	Uses       int64
	Last       time.Time
}

// UseToken notes a use of a token.
func (s *Store) UseToken(ctx context.Context, id, source string) error {
	err := s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(
			ctx,
			"INSERT INTO tokens (id, source, uses, last) VALUES (?, ?, 1, ?) ON CONFLICT (id) DO UPDATE SET source = excluded.source, uses = uses + 1, last = max(last, excluded.last)",
			id,
			source,
			s.ms(),
		)
		return err
	})
	if err != nil {
		return fmt.Errorf("noting the use of token %s: %w", id, err)
	}
	return nil
}

// TokenUses lists all that was noted, by id.
func (s *Store) TokenUses(ctx context.Context) (list []TokenUse, err error) {
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT id, source, uses, last FROM tokens ORDER BY id")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var u TokenUse
			var last int64
			if err := rows.Scan(&u.ID, &u.Source, &u.Uses, &last); err != nil {
				return err
			}
			u.Last = time.UnixMilli(last)
			list = append(list, u)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("listing the uses of tokens: %w", err)
	}
	return list, nil
}
