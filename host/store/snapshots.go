package store

import (
	"context"
	"time"

	"github.com/caponier-mcp/caponier/host/undo"
)

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
		return all(t, func(r row) (v undo.Snapshot, err error) {
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
