package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"

	"github.com/caponier-mcp/caponier/host/audit"
)

const batch = 20_000 // entries of one transaction

// Behind is how far the index is behind the journal, in bytes.
func (x *Index) Behind(ctx context.Context) (bytes int64, err error) {
	_, at, err := positions(ctx, x.db)
	if err != nil {
		return 0, err
	}
	return audit.Ahead(x.journal, at)
}

// Update reads what the journal has more than the index. It calls told after each step, unless that
// is nil.
func (x *Index) Update(ctx context.Context, told func(entries int)) error {
	for all := 0; ; {
		n, err := x.step(ctx)
		if err != nil {
			return fmt.Errorf("indexing the journal: %w", err)
		}
		if all += n; told != nil {
			told(all)
		}
		if n < batch {
			return nil
		}
	}
}

// positions returns the ids of files, and how far each was read.
func positions(ctx context.Context, db asks) (ids map[string]int64, at map[string]int64,
	err error) {
	ids, at = map[string]int64{}, map[string]int64{}
	var id, n int64
	var name string
	err = each(ctx, db, []any{&id, &name, &n}, func() { ids[name], at[name] = id, n },
		"SELECT id, name, at FROM file")
	return ids, at, err
}

// maxLeft bounds calls and facets that are kept.
const maxLeft = 10_000

// step indexes one batch, and counts its entries.
func (x *Index) step(ctx context.Context) (n int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.left
	x.left = left{} // unless the step is done
	w, n, err := x.take(ctx, before)
	if err == nil && n == 0 {
		x.left = before
	} else if err == nil && len(w.rows)+len(w.facets) < maxLeft {
		x.left = left{w.at, w.open, w.rows, w.facets}
	}
	return n, err
}

func (x *Index) take(ctx context.Context, last left) (w *writer, n int, err error) {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback()
	w = &writer{ctx: ctx, x: x, tx: tx, open: audit.Unended{}, rows: map[string]*row{},
		facets: map[string]int64{}, touched: map[*row]bool{}}
	if w.files, w.at, err = positions(ctx, tx); err != nil {
		return nil, 0, err
	}
	if last.at != nil && maps.Equal(last.at, w.at) {
		w.open, w.rows, w.facets = last.open, last.rows, last.facets
	}
	before := maps.Clone(w.at)
	if err = w.prepare(); err != nil {
		return nil, 0, err
	}
	audit.RecordsFrom(x.journal, before, func(e audit.Entry, bad error) bool {
		if e.Size == 0 {
			return true // of a file that cannot be read: verify says why
		}
		n++
		if err = w.position(e); err == nil && bad == nil && e.OfCall() {
			err = w.add(e)
		}
		return err == nil && n < batch && ctx.Err() == nil
	})
	if err = errors.Join(err, ctx.Err()); err != nil || n == 0 {
		return nil, 0, err
	}
	for r := range w.touched {
		err = errors.Join(err, w.flush(r, never))
	}
	for name, id := range w.files {
		_, wrong := tx.ExecContext(ctx, "UPDATE file SET at = ? WHERE id = ?", w.at[name], id)
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return nil, 0, err
	}
	return w, n, tx.Commit()
}

type writer struct {
	ctx       context.Context
	x         *Index
	tx        *sql.Tx
	open      audit.Unended
	rows      map[string]*row // by the id of the call
	files, at map[string]int64
	facets    map[string]int64
	touched   map[*row]bool // calls of this batch that go on
	place     *sql.Stmt
	tag       *sql.Stmt
	count     *sql.Stmt
}

func (w *writer) prepare() (err error) {
	for text, to := range map[string]**sql.Stmt{
		"INSERT OR REPLACE INTO place (call, n, file, at, size) VALUES (?, ?, ?, ?, ?)": &w.place,
		"INSERT OR REPLACE INTO tag (facet, ended, call, came) VALUES (?, ?, ?, ?)":     &w.tag,
		"UPDATE facet SET calls = calls + 1 WHERE id = ?":                               &w.count,
	} {
		s, wrong := w.tx.PrepareContext(w.ctx, text)
		*to, err = s, errors.Join(err, wrong)
	}
	return err
}

func (w *writer) position(e audit.Entry) (err error) {
	if w.files[e.File] == 0 {
		err = w.tx.QueryRowContext(w.ctx, "INSERT INTO file (name, at) VALUES (?, 0) RETURNING id",
			e.File).Scan(new(int64))
		if err != nil {
			return err
		}
		if w.files, _, err = positions(w.ctx, w.tx); err != nil {
			return err
		}
	}
	w.at[e.File] = e.At + e.Size
	return nil
}

func (w *writer) add(e audit.Entry) (err error) {
	r := w.rows[e.Record.CallID]
	if r == nil {
		if r, err = w.known(e.Record.CallID); err != nil {
			return err
		}
		w.rows[e.Record.CallID] = r
	}
	found, ended := w.open.Add(*e.Record)
	if r.found = found; r.id == 0 {
		err = w.tx.QueryRowContext(w.ctx, "INSERT INTO call (name, ended, came, records) "+
			"VALUES (?, ?, ?, 0) RETURNING id", found.Call, int64(never),
			found.Time.UnixNano()).Scan(&r.id)
		if err != nil {
			return err
		}
	}
	_, err = w.place.ExecContext(w.ctx, r.id, r.records, w.files[e.File], e.At, e.Size)
	w.touched[r] = true
	if r.records++; ended && err == nil {
		delete(w.rows, found.Call)
		delete(w.touched, r)
		err = w.flush(r, e.Record.Time.UnixNano())
	}
	return err
}

// known finds a call that began before this batch and has not ended.
func (w *writer) known(name string) (*row, error) {
	r := &row{}
	err := w.tx.QueryRowContext(w.ctx, "SELECT id FROM call WHERE name = ? AND ended = ?", name,
		int64(never)).Scan(&r.id)
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil
	} else if err != nil {
		return nil, err
	}
	places, err := w.x.places(w.ctx, w.tx, r.id)
	if err != nil {
		return nil, err
	}
	r.records = len(places)
	for _, p := range places {
		e, err := audit.EntryAt(w.x.journal, p)
		if err != nil || !e.OfCall() || e.Record.CallID != name {
			continue // it is no hit then either
		}
		if f, ended := w.open.Add(*e.Record); !ended {
			r.found = f
		}
	}
	if r.found != nil {
		r.tagged = facets(*r.found)
	}
	return r, nil
}

// flush writes what can be asked of a call.
func (w *writer) flush(r *row, ended int64) error {
	for _, value := range r.tagged {
		_, err := w.tx.ExecContext(w.ctx, "DELETE FROM tag WHERE call = ? AND ended = ? AND "+
			"facet = (SELECT id FROM facet WHERE value = ?)", r.id, int64(never), value)
		if err != nil {
			return err
		}
	}
	came := r.found.Time.UnixNano()
	_, err := w.tx.ExecContext(w.ctx, "UPDATE call SET ended = ?, came = ?, records = ? WHERE "+
		"id = ?", ended, came, r.records, r.id)
	for _, value := range facets(*r.found) {
		if err != nil {
			return err
		}
		var id int64
		if id, err = w.facet(value); err != nil {
			return err
		}
		if _, err = w.tag.ExecContext(w.ctx, id, ended, r.id, came); err != nil {
			return err
		}
		_, err = w.count.ExecContext(w.ctx, id)
	}
	if ended == never {
		r.tagged = facets(*r.found)
	}
	return err
}

func (w *writer) facet(value string) (id int64, err error) {
	if id = w.facets[value]; id != 0 {
		return id, nil
	}
	err = w.tx.QueryRowContext(w.ctx, "INSERT INTO facet (value, calls) VALUES (?, 0) "+
		"ON CONFLICT (value) DO UPDATE SET calls = calls RETURNING id", value).Scan(&id)
	w.facets[value] = id
	return id, err
}
