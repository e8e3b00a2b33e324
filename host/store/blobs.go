package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Blob is an entry of the index; the bytes are somebody else's.
type Blob struct {
	ID, Principal    string
	Name, MIME       string
	Bytes            int64
	SHA256           string
	Created, Expires time.Time
}

// ErrNoBlob says that there is no such blob, that it has expired, or that it is another
// principal's.
var ErrNoBlob = errors.New("there is no such blob, or it has expired")

// AddBlob puts a blob into the index, which keeps at most limit bytes for each principal.
func (s *Store) AddBlob(ctx context.Context, b Blob, limit int64) error {
	err := s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		now := s.ms()
		var held int64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(sum(bytes), 0) FROM blobs WHERE principal = ? AND expires > ?", b.Principal, now).Scan(&held); err != nil {
			return err
		}
		if b.Bytes < 0 || held > limit || b.Bytes > limit-held {
			return fmt.Errorf(
				"%d bytes more would go over the limit of %d, of which %d are in use; wait until one expires",
				b.Bytes,
				limit,
				held,
			)
		}
		_, err := tx.ExecContext(
			ctx,
			"INSERT INTO blobs (id, principal, name, mime, bytes, sha256, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			b.ID,
			b.Principal,
			b.Name,
			b.MIME,
			b.Bytes,
			b.SHA256,
			now,
			b.Expires.UnixMilli(),
		)
		return err
	})
	if err != nil {
		return fmt.Errorf("adding blob %s: %w", b.ID, err)
	}
	return nil
}

// Blob returns a blob to its owner.
func (s *Store) Blob(ctx context.Context, principal, id string) (b Blob, err error) {
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		var created, expires int64
		err := tx.QueryRowContext(ctx, "SELECT id, principal, name, mime, bytes, sha256, created, expires FROM blobs WHERE id = ? AND principal = ? AND expires > ?", id, principal, s.ms()).
			Scan(&b.ID, &b.Principal, &b.Name, &b.MIME, &b.Bytes, &b.SHA256, &created, &expires)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNoBlob
		}
		b.Created, b.Expires = time.UnixMilli(created), time.UnixMilli(expires)
		return err
	})
	if err != nil {
		return Blob{}, fmt.Errorf("finding blob %s: %w", id, err)
	}
	return b, nil
}

// ExpireBlobs takes what has expired out of the index and returns the ids, whose bytes may then be
// removed. Only one caller gets each id.
func (s *Store) ExpireBlobs(ctx context.Context) (ids []string, err error) {
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(
			ctx,
			"DELETE FROM blobs WHERE expires <= ? RETURNING id",
			s.ms(),
		)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("expiring blobs: %w", err)
	}
	return ids, nil
}
