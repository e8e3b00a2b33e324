// Package index finds calls in a large journal. It holds where their records are, and never what
// they say: each hit is read from the journal itself. It can be made again at any time.
package index

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/caponier-mcp/caponier/host/audit"
	_ "modernc.org/sqlite"
)

//go:embed schema.sql
var schema string

const version = 1

// Index finds calls of one journal. It is safe for concurrent use, also by several processes.
type Index struct {
	journal string
	path    string
	db      *sql.DB

	mu   sync.Mutex // guards left
	left left
}

// left is what a step knew when it was done, so that the next one need not read the calls again
// that go on. It holds as long as no other process has gone further.
type left struct {
	at     map[string]int64
	open   audit.Unended
	rows   map[string]*row
	facets map[string]int64
}

// row is a call that has not ended, as far as it is known.
type row struct {
	id      int64
	found   *audit.Found
	records int
	tagged  []string // facets that the index has of it already
}

// Open opens the index of a journal in a private folder. One that is missing, of another version
// or broken is made anew, empty: Update fills it.
func Open(ctx context.Context, folder, journal string) (*Index, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("opening the index of the journal: %w", err)
	}
	x := &Index{journal: journal, path: filepath.Join(folder, "journal.db")}
	err := x.open(ctx)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(Remove(folder), x.open(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("opening the index of the journal, %s: %w", x.path, err)
	}
	return x, nil
}

// Remove removes an index. Open makes a new one.
func Remove(folder string) (err error) {
	for _, end := range []string{"", "-wal", "-shm"} {
		gone := os.Remove(filepath.Join(folder, "journal.db"+end))
		if !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (x *Index) open(ctx context.Context) error {
	abs, err := filepath.Abs(x.path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(abs, os.O_CREATE|os.O_RDWR, 0o600) // before SQLite does, with its mode
	if err != nil {
		return err
	}
	f.Close()
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)",
		"journal_mode(wal)", "synchronous(off)", "trusted_schema(0)", "cache_size(-32000)"}}
	file := url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(4)
	if err := migrate(ctx, db); err != nil {
		return errors.Join(err, db.Close())
	}
	x.db = db
	return nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var have int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	switch have {
	case version:
		return nil
	case 0:
		_, err = tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version = %d", version))
		return errors.Join(err, tx.Commit())
	}
	return fmt.Errorf("it has the version %d, this program writes %d", have, version)
}

// Close closes the index.
func (x *Index) Close() error { return x.db.Close() }
