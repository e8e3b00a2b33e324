package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/blob"
)

// AddBlob implements blob.Index.
func (s *Store) AddBlob(ctx context.Context, b blob.Entry, limit int64) error {
	err := s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		var held int64
		err := tx.QueryRowContext(ctx, "SELECT coalesce(sum(bytes), 0) FROM blobs WHERE "+
			"principal = ? AND expires > ?", b.Principal, s.ms()).Scan(&held)
		if err != nil {
			return err
		}
		if b.Bytes < 0 || held > limit || b.Bytes > limit-held {
			return fmt.Errorf("%d bytes more would go over the limit of %d, of which %d are in "+
				"use; wait until one expires", b.Bytes, limit, held)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO blobs (id, principal, name, mime, bytes, "+
			"sha256, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", b.ID, b.Principal, b.Name,
			b.MIME, b.Bytes, b.SHA256, s.ms(), b.Expires.UnixMilli())
		return err
	})
	if err != nil {
		return fmt.Errorf("adding blob %s: %w", b.ID, err)
	}
	return nil
}

// Blob implements blob.Index.
func (s *Store) Blob(ctx context.Context, principal, id string) (b blob.Entry, err error) {
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		var created, expires int64
		err := tx.QueryRowContext(ctx, "SELECT id, principal, name, mime, bytes, sha256, created, "+
			"expires FROM blobs WHERE id = ? AND principal = ? AND expires > ?", id, principal,
			s.ms()).Scan(&b.ID, &b.Principal, &b.Name, &b.MIME, &b.Bytes, &b.SHA256, &created,
			&expires)
		if errors.Is(err, sql.ErrNoRows) {
			return blob.ErrNone
		}
		b.Created, b.Expires = time.UnixMilli(created), time.UnixMilli(expires)
		return err
	})
	if err != nil {
		return blob.Entry{}, fmt.Errorf("finding blob %s: %w", id, err)
	}
	return b, nil
}

// ExpireBlobs implements blob.Index.
func (s *Store) ExpireBlobs(ctx context.Context) (ids []string, err error) {
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		ids, err = all(ctx, tx, func(r row) (id string, err error) {
			err = r.Scan(&id)
			return id, err
		}, "DELETE FROM blobs WHERE expires <= ? RETURNING id", s.ms())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("expiring blobs: %w", err)
	}
	return ids, nil
}
