package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/caponier-mcp/caponier/host/undo"
)

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
		return all(t, func(r row) (v undo.Step, err error) {
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
