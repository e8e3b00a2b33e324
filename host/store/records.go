package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/undo"
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
	return get(ctx, s, s.quick, "finding blob "+id, func(t tx) (blob.Entry, error) {
		return ScanBlob(t.row("SELECT "+BlobColumns+" FROM blobs WHERE id = ? AND principal = ? "+
			"AND expires > ?", id, principal, s.ms()))
	})
}

// BlobColumns are what [ScanBlob] reads.
const BlobColumns = "id, principal, name, mime, bytes, sha256, created, expires"

// ScanBlob reads a row of BlobColumns; without one it returns blob.ErrNone.
func ScanBlob(from Row) (b blob.Entry, err error) {
	var created, expires int64
	err = from.Scan(&b.ID, &b.Principal, &b.Name, &b.MIME, &b.Bytes, &b.SHA256, &created, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		err = blob.ErrNone
	}
	b.Created, b.Expires = time.UnixMilli(created), time.UnixMilli(expires)
	return b, err
}

// ExpireBlobs implements blob.Index.
func (s *Store) ExpireBlobs(ctx context.Context) ([]string, error) {
	return get(ctx, s, s.quick, "expiring blobs", func(t tx) ([]string, error) {
		return all(t, func(r Row) (id string, err error) {
			err = r.Scan(&id)
			return id, err
		}, "DELETE FROM blobs WHERE expires <= ? RETURNING id", s.ms())
	})
}

// PutStep implements undo.Book.
func (s *Store) PutStep(ctx context.Context, v undo.Step) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.do(ctx, s.sure, "recording a step of call "+v.Call, func(t tx) error {
		return t.exec("INSERT INTO steps (call, n, expires, step) VALUES (?, ?, ?, ?4) "+
			"ON CONFLICT DO UPDATE SET step = ?4", v.Call, v.N, v.Expires.UnixMilli(), string(text))
	})
}

// Steps implements undo.Book.
func (s *Store) Steps(ctx context.Context, call string) ([]undo.Step, error) {
	return get(ctx, s, s.quick, "listing the steps of a call", func(t tx) ([]undo.Step, error) {
		return all(t, func(r Row) (v undo.Step, err error) {
			var text string
			if err = r.Scan(&text); err == nil {
				err = json.Unmarshal([]byte(text), &v)
			}
			return v, err
		}, "SELECT step FROM steps WHERE call = ? ORDER BY n", call)
	})
}

// RemoveSteps implements undo.Book.
func (s *Store) RemoveSteps(ctx context.Context, now time.Time) error {
	return s.do(ctx, s.sure, "forgetting old steps", func(t tx) error {
		return t.exec("DELETE FROM steps WHERE expires <= ?", now.UnixMilli())
	})
}

// PutSnapshot implements undo.Book.
func (s *Store) PutSnapshot(ctx context.Context, v undo.Snapshot) error {
	return s.do(ctx, s.sure, "recording snapshot "+v.Name, func(t tx) error {
		return t.exec("INSERT INTO snapshots (cluster, vmid, name, node, call, principal, tool, "+
			"made, expires, keep, taken, running, host, program) VALUES (?, ?, ?, ?, ?, ?, ?, "+
			"?, ?, ?, ?11, ?12, ?13, ?14) ON CONFLICT DO UPDATE SET taken = ?11, running = ?12, "+
			"host = ?13, program = ?14", v.Cluster, v.VMID, v.Name,
			v.Node, v.Call, v.Principal, v.Tool, v.Made.UnixMilli(), v.Expires.UnixMilli(), v.Keep,
			v.Taken, v.Running, v.On, v.Program)
	})
}

// Snapshots implements undo.Book.
func (s *Store) Snapshots(ctx context.Context) ([]undo.Snapshot, error) {
	return get(ctx, s, s.quick, "listing snapshots", func(t tx) ([]undo.Snapshot, error) {
		return all(t, func(r Row) (v undo.Snapshot, err error) {
			var made, expires int64
			err = r.Scan(&v.Cluster, &v.VMID, &v.Name, &v.Node, &v.Call, &v.Principal, &v.Tool,
				&made, &expires, &v.Keep, &v.Taken, &v.Running, &v.On, &v.Program)
			v.Made, v.Expires = time.UnixMilli(made), time.UnixMilli(expires)
			return v, err
		}, "SELECT cluster, vmid, name, node, call, principal, tool, made, expires, keep, taken, "+
			"running, host, program FROM snapshots ORDER BY made, name")
	})
}

// RemoveSnapshot implements undo.Book.
func (s *Store) RemoveSnapshot(ctx context.Context, v undo.Snapshot) error {
	return s.do(ctx, s.sure, "forgetting snapshot "+v.Name, func(t tx) error {
		return t.exec("DELETE FROM snapshots WHERE cluster = ? AND vmid = ? AND name = ?",
			v.Cluster, v.VMID, v.Name)
	})
}

// TakeLease implements lease.Book. One that ends after more than its time was taken before the
// clock was set back.
func (s *Store) TakeLease(ctx context.Context, name, by string, ttl time.Duration) (fence int64,
	holder string, err error) {
	err = s.do(ctx, s.sure, "taking the lease of "+name, func(t tx) error {
		now := s.ms()
		err := t.row("INSERT INTO leases (name, holder, fence, expires) VALUES (?1, ?2, 1, "+
			"?3 + ?4) ON CONFLICT DO UPDATE SET holder = ?2, fence = fence + 1, expires = ?3 + ?4 "+
			"WHERE expires <= ?3 OR expires > ?3 + ?4 + 2000 RETURNING fence", name, by, now,
			ttl.Milliseconds()).Scan(&fence)
		if errors.Is(err, sql.ErrNoRows) {
			err = t.row("SELECT holder FROM leases WHERE name = ?", name).Scan(&holder)
		}
		return err
	})
	return fence, holder, err
}

// RenewLease implements lease.Book.
func (s *Store) RenewLease(ctx context.Context, name string, fence int64, ttl time.Duration) error {
	return s.do(ctx, s.sure, "renewing the lease of "+name, func(t tx) error {
		err := t.one("UPDATE leases SET expires = ?3 + ?4 WHERE name = ?1 AND fence = ?2 AND "+
			"expires > ?3", name, fence, s.ms(), ttl.Milliseconds())
		if errors.Is(err, ErrNone) {
			err = lease.ErrLost
		}
		return err
	})
}

// EndLease implements lease.Book. The row stays, with its fencing number.
func (s *Store) EndLease(ctx context.Context, name string, fence int64) error {
	return s.do(ctx, s.quick, "ending the lease of "+name, func(t tx) error {
		return t.exec("UPDATE leases SET expires = 0 WHERE name = ? AND fence = ?", name, fence)
	})
}
