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
	return s.do(ctx, s.quick, "adding blob "+b.ID, func(t tx) error {
		var held int64
		err := t.row("SELECT coalesce(sum(bytes), 0) FROM blobs WHERE principal = ? AND "+
			"expires > ?", b.Principal, s.ms()).Scan(&held)
		if err != nil {
			return err
		}
		if b.Bytes < 0 || held > limit || b.Bytes > limit-held {
			return fmt.Errorf("%d bytes more would go over the limit of %d, of which %d are in "+
				"use; wait until one expires", b.Bytes, limit, held)
		}
		return t.exec("INSERT INTO blobs (id, principal, name, mime, bytes, sha256, created, "+
			"expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", b.ID, b.Principal, b.Name, b.MIME, b.Bytes,
			b.SHA256, s.ms(), b.Expires.UnixMilli())
	})
}

// Blob implements blob.Index.
func (s *Store) Blob(ctx context.Context, principal, id string) (blob.Entry, error) {
	return get(ctx, s, s.quick, "finding blob "+id, func(t tx) (b blob.Entry, err error) {
		var created, expires int64
		err = t.row("SELECT id, principal, name, mime, bytes, sha256, created, expires FROM "+
			"blobs WHERE id = ? AND principal = ? AND expires > ?", id, principal, s.ms()).
			Scan(&b.ID, &b.Principal, &b.Name, &b.MIME, &b.Bytes, &b.SHA256, &created, &expires)
		if errors.Is(err, sql.ErrNoRows) {
			return b, blob.ErrNone
		}
		b.Created, b.Expires = time.UnixMilli(created), time.UnixMilli(expires)
		return b, err
	})
}

// ExpireBlobs implements blob.Index.
func (s *Store) ExpireBlobs(ctx context.Context) ([]string, error) {
	return get(ctx, s, s.quick, "expiring blobs", func(t tx) ([]string, error) {
		return all(t, func(r row) (id string, err error) {
			err = r.Scan(&id)
			return id, err
		}, "DELETE FROM blobs WHERE expires <= ? RETURNING id", s.ms())
	})
}
