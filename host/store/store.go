// Package store keeps what all processes of one state directory must agree on: rates, budgets,
// approvals, blobs and what was used once.
package store

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite"
)

// Options of a store.
type Options struct {
	// shared by all processes that share their limits, default state; made with mode 0700
	Dir  string           `koanf:"dir" path:"true"`
	Busy time.Duration    `koanf:"-"` // how long to wait for another process's write, default 5s
	Now  func() time.Time `koanf:"-"` // nil for time.Now
}

// Validate fills in defaults.
func (o *Options) Validate() error {
	if o.Dir == "" {
		o.Dir = "state"
	}
	if o.Busy == 0 {
		o.Busy = 5 * time.Second
	}
	if o.Busy < 0 || o.Busy > time.Minute {
		return fmt.Errorf("store.busy is %s, want up to 1m", o.Busy)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Store is safe for concurrent use, also by several processes with the same directory. Whatever it
// cannot do is an error, never a guess.
type Store struct {
	opt   Options
	path  string
	file  os.FileInfo // of the database when it was opened
	quick *sql.DB     // commits survive a kill
	sure  *sql.DB     // commits survive a power cut: money, approvals, what is used once

	forget, untake, spent *sql.Stmt // of quick, for every call

	forgot atomic.Int64 // the second in which old rates were deleted last

	mu     sync.Mutex // guards counts
	counts map[int][2]*sql.Stmt
}

//go:embed schema.sql
var schema string

// schemaVersion goes up with every change of schema.sql.
const schemaVersion = 2

// Open opens the store in its directory, or makes it.
func Open(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Store{opt: o, path: filepath.Join(o.Dir, "store.db"), counts: map[int][2]*sql.Stmt{}}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store %s: %w", s.path, err), s.Close())
	}
	return s, nil
}

func (s *Store) open() error {
	if err := os.MkdirAll(s.opt.Dir, 0o700); err != nil {
		return err
	}
	// SQLite would make it readable for all
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.file, err = f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if s.quick, err = s.connect("normal"); err != nil {
		return err
	}
	if s.sure, err = s.connect("full"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.opt.Busy)
	defer cancel()
	if err := s.migrate(ctx); err != nil {
		return err
	}
	for sql, stmt := range map[string]**sql.Stmt{
		"DELETE FROM rates WHERE second < ?":                                &s.forget,
		"UPDATE rates SET n = n - 1 WHERE key = ? AND second = ? AND n > 0": &s.untake,
		spentToday: &s.spent,
	} {
		if *stmt, err = s.quick.PrepareContext(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) connect(synchronous string) (*sql.DB, error) {
	abs, err := filepath.Abs(s.path)
	if err != nil {
		return nil, err
	}
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf(
			"busy_timeout(%d)",
			s.opt.Busy.Milliseconds(),
		), "journal_mode(wal)", "synchronous(" + synchronous + ")", "foreign_keys(1)", "trusted_schema(0)"}}
	db, err := sql.Open(
		"sqlite",
		(&url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}).String(),
	)
	if err != nil {
		return nil, err
	}
	// writers would only wait for each other in SQLite, without regard to their contexts
	db.SetMaxOpenConns(1)
	return db, nil
}

func (s *Store) migrate(ctx context.Context) error {
	return s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		switch {
		case have == schemaVersion:
			return nil
		case have != 0:
			return fmt.Errorf(
				"it has the schema version %d, this program reads %d; move it away to begin a new one",
				have,
				schemaVersion,
			)
		}
		_, err := tx.ExecContext(
			ctx,
			schema+fmt.Sprintf("\nPRAGMA user_version = %d;", schemaVersion),
		)
		return err
	})
}

// Close closes the store. It may be called again.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.quick, s.sure} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// tx runs one write transaction. It refuses when the database file is no longer the one that was
// opened: SQLite would go on writing to a deleted file while a process that starts now begins a new
// one, and both would spend the same budget.
func (s *Store) tx(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	now, err := os.Stat(s.path)
	if err != nil {
		return fmt.Errorf("the store is gone: %w", err)
	}
	if !os.SameFile(now, s.file) {
		return fmt.Errorf(
			"the store %s was replaced while it was in use; restart this process",
			s.path,
		)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("using the store %s: %w", s.path, err)
	}
	if err := do(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("using the store %s: %w", s.path, err)
	}
	return nil
}

// ignoreDone drops the error of rolling back what SQLite, or the end of a context, has rolled back
// already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) ||
		err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}

// Usage is what the store counts at the moment.
type Usage struct {
	Calls60s  int64            // of all principals
	Waiting   int64            // requests that wait for a person
	USDMicros map[string]int64 // spent or reserved today, by principal
}

// Usage also shows whether the store can be used at all.
func (s *Store) Usage(ctx context.Context) (u Usage, err error) {
	u.USDMicros = map[string]int64{}
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		now := s.opt.Now()
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM rates WHERE key GLOB 'calls \"*\"' AND key NOT GLOB 'calls \"*\" \"*\"' AND second >= ?", now.Unix()-window).Scan(&u.Calls60s); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM approvals WHERE state = 'waiting' AND expires > ?", now.UnixMilli()).Scan(&u.Waiting); err != nil {
			return err
		}
		rows, err := tx.QueryContext(
			ctx,
			"SELECT principal, sum(micros) FROM costs WHERE day = ? GROUP BY principal ORDER BY 2 DESC LIMIT 100",
			s.day(),
		)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var who string
			var micros int64
			if err := rows.Scan(&who, &micros); err != nil {
				return err
			}
			u.USDMicros[who] = micros
		}
		return rows.Err()
	})
	if err != nil {
		return Usage{}, fmt.Errorf("reading what the store counts: %w", err)
	}
	return u, nil
}

func (s *Store) ms() int64 { return s.opt.Now().UnixMilli() }
