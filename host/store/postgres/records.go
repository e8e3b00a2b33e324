package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/undo"
)

// AddBlob implements blob.Index.
func (s *Store) AddBlob(ctx context.Context, b blob.Entry, limit int64) error {
	if b.Bytes < 0 {
		return fmt.Errorf("adding blob %s: it has %d bytes", b.ID, b.Bytes)
	}
	held := int64(-1)
	err := s.run(ctx, statement{what: "adding blob " + b.ID,
		sql: "SELECT caponier.add_blob($1::text, $2::text, $3::text, $4::text, $5::text, " +
			"$6::bigint, $7::text, $8::bigint, $9::bigint, $10::bigint)",
		args: []any{b.ID, s.opt.Host, b.Principal, b.Name, b.MIME, b.Bytes, b.SHA256,
			b.Expires.UnixMilli(), limit, s.now()}},
		func(r pgx.Rows) error { return r.Scan(&held) })
	if err == nil && held >= 0 {
		err = fmt.Errorf("adding blob %s: %d bytes more would go over the limit of %d, of which "+
			"%d are in use; wait until one expires", b.ID, b.Bytes, limit, held)
	}
	return err
}

// Blob implements blob.Index.
func (s *Store) Blob(ctx context.Context, principal, id string) (blob.Entry, error) {
	all, err := rowsOf(ctx, s, statement{what: "finding blob " + id,
		sql: "SELECT " + store.BlobColumns + " FROM caponier.blobs WHERE id = $2 AND " +
			"principal = $3 AND expires > caponier.clock($1::bigint)",
		args: []any{s.now(), id, principal}}, store.ScanBlob)
	if err != nil || len(all) == 0 {
		return blob.Entry{}, cmp.Or(err, blob.ErrNone)
	}
	return all[0], nil
}

// ExpireBlobs implements blob.Index, for blobs whose bytes this machine keeps.
func (s *Store) ExpireBlobs(ctx context.Context) ([]string, error) {
	return rowsOf(ctx, s, statement{what: "expiring blobs", sql: "DELETE FROM caponier.blobs " +
		"WHERE host = $2 AND expires <= caponier.clock($1::bigint) RETURNING id",
		args: []any{s.now(), s.opt.Host}}, text)
}

func text(r store.Row) (v string, err error) {
	err = r.Scan(&v)
	return v, err
}

// parsed returns what a row with one value holds as JSON.
func parsed[T any](r store.Row) (v T, err error) {
	data, err := text(r)
	if err == nil {
		err = json.Unmarshal([]byte(data), &v)
	}
	return v, err
}

// put marshals a value and runs a statement with it as its first argument.
func (s *Store) put(ctx context.Context, what string, v any, sql string, args ...any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	_, err = s.exec(ctx, what, sql, append([]any{string(data)}, args...)...)
	return err
}

// snapshot is how a snapshot is kept.
type snapshot struct {
	undo.Snapshot
	Kept int `json:"kept"`
}

// PutSnapshot implements undo.Book.
func (s *Store) PutSnapshot(ctx context.Context, v undo.Snapshot) error {
	return s.put(ctx, "recording snapshot "+v.Name, snapshot{v, v.Keep}, "INSERT INTO "+
		"caponier.snapshots (value, cluster, vmid, name, made) VALUES ($1, $2, $3, $4, $5) "+
		"ON CONFLICT (cluster, vmid, name) DO UPDATE SET value = $1", v.Cluster, v.VMID, v.Name,
		v.Made.UnixMilli())
}

// Snapshots implements undo.Book.
func (s *Store) Snapshots(ctx context.Context) ([]undo.Snapshot, error) {
	return rowsOf(ctx, s, statement{what: "listing snapshots",
		sql: "SELECT value FROM caponier.snapshots ORDER BY made, name"},
		func(r store.Row) (undo.Snapshot, error) {
			v, err := parsed[snapshot](r)
			v.Keep = v.Kept
			return v.Snapshot, err
		})
}

// RemoveSnapshot implements undo.Book.
func (s *Store) RemoveSnapshot(ctx context.Context, v undo.Snapshot) error {
	_, err := s.exec(ctx, "forgetting snapshot "+v.Name, "DELETE FROM caponier.snapshots "+
		"WHERE cluster = $1 AND vmid = $2 AND name = $3", v.Cluster, v.VMID, v.Name)
	return err
}

// PutStep implements undo.Book.
func (s *Store) PutStep(ctx context.Context, v undo.Step) error {
	return s.put(ctx, "recording a step of call "+v.Call, v, "INSERT INTO caponier.steps "+
		"(step, call, n, expires) VALUES ($1, $2, $3, $4) ON CONFLICT (call, n) DO UPDATE "+
		"SET step = $1", v.Call, int64(v.N), v.Expires.UnixMilli())
}

// Steps implements undo.Book.
func (s *Store) Steps(ctx context.Context, call string) ([]undo.Step, error) {
	return rowsOf(ctx, s, statement{what: "listing the steps of a call",
		sql:  "SELECT step FROM caponier.steps WHERE call = $1 ORDER BY n",
		args: []any{call}}, parsed[undo.Step])
}

// RemoveSteps implements undo.Book.
func (s *Store) RemoveSteps(ctx context.Context, now time.Time) error {
	_, err := s.exec(ctx, "forgetting old steps", "DELETE FROM caponier.steps WHERE expires <= $1",
		now.UnixMilli())
	return err
}

// AddFreeze implements freeze.Shared.
func (s *Store) AddFreeze(ctx context.Context, z freeze.Freeze) error {
	defer s.forget()
	return s.put(ctx, "freezing", z, "INSERT INTO caponier.freezes (value, kind, name) VALUES "+
		"($1, $2, $3) ON CONFLICT (kind, name) DO UPDATE SET value = $1", z.Kind, z.Name)
}

// RemoveFreeze implements freeze.Shared.
func (s *Store) RemoveFreeze(ctx context.Context, kind, name string) (bool, error) {
	defer s.forget()
	n, err := s.exec(ctx, "thawing", "DELETE FROM caponier.freezes WHERE kind = $1 AND "+
		"name = $2 RETURNING kind", kind, name)
	return n > 0, err
}

// KeepToken implements identity.Kept.
func (s *Store) KeepToken(ctx context.Context, k identity.Token) error {
	defer s.forget()
	return s.put(ctx, "keeping a token", k, "INSERT INTO caponier.tokens (value, prefix) VALUES "+
		"($1, $2) ON CONFLICT (prefix) DO UPDATE SET value = $1", k.Prefix)
}

// UseToken implements identity.Kept.
func (s *Store) UseToken(ctx context.Context, prefix string, at time.Time) error {
	err := s.run(ctx, statement{what: "noting the use of a token", lazy: true,
		sql:  "UPDATE caponier.tokens SET used = $1 WHERE prefix = $2",
		args: []any{at.UnixMilli(), prefix}}, nil)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used[prefix] = at
	}
	return err
}
