// Package store keeps what all processes of one host must agree on: rates, budgets, approvals,
// sessions of the approval page, blobs, stages, snapshots, leases.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/host/undo"
)

// Options of a store.
type Options struct {
	// Dir is shared by all processes that share their limits; it is made with mode 0700.
	Dir string `koanf:"dir" path:"true"`
	// URL and Password are of a database that several hosts share, "" for none. This package only
	// carries them.
	URL      string `koanf:"url"`
	Password string `koanf:"password" secret:"true"`

	Busy time.Duration    `koanf:"-"` // how long to wait for another process's write, 0 for 5s
	Now  func() time.Time `koanf:"-"` // nil for time.Now
	// Boot is how long the machine runs, whatever its clock was set to. Nil with a nil Now is the
	// kernel's; nil with another Now is always 0.
	Boot func() time.Duration `koanf:"-"`
}

// Validate returns an error that names the key that is wrong.
func (o Options) Validate() error {
	if o.Busy < 0 || o.Busy > time.Minute {
		return fmt.Errorf("store.busy: %s is not between 0 and 1m", o.Busy)
	}
	u, err := url.Parse(o.URL)
	switch {
	case o.Password != "" && o.URL == "":
		return errors.New("store.password: store.url is not set")
	case err != nil || o.URL != "" && u.Scheme != "postgres" && u.Scheme != "postgresql":
		return errors.New("store.url: this is no URL of a database, such as " +
			"postgres://caponier@db.example.org/caponier?sslmode=verify-full")
	case u.User != nil || u.RawQuery != "":
		if _, has := u.User.Password(); has || u.Query().Has("password") {
			return errors.New("store.url: it has a password; write store.password = " +
				"\"${file:PATH}\" or \"${VARIABLE}\"")
		}
	}
	return nil
}

// Store is safe for concurrent use, also by several processes with the same directory. What it
// cannot do is an error, never a guess.
type Store struct {
	opt   Options
	path  string
	file  os.FileInfo // of the database when it was opened
	quick *sql.DB     // commits survive a kill
	sure  *sql.DB     // commits survive a power cut: money, approvals, stages, snapshots

	counter *counter // of its own connection, for every call

	mu      sync.Mutex // guards the following
	process string     // the name of lock,
	lock    *os.File
}

var (
	_ terms.Ledger   = (*Store)(nil)
	_ approval.Store = (*Store)(nil)
	_ blob.Index     = (*Store)(nil)
	_ egress.Ledger  = (*Store)(nil)
	_ undo.Book      = (*Store)(nil)
	_ lease.Book     = (*Store)(nil)
)

// Open opens the store in its directory, or makes it. It refuses files that another user can
// change.
func Open(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Dir, o.Busy = cmp.Or(o.Dir, "state"), cmp.Or(o.Busy, 5*time.Second)
	switch {
	case o.Now == nil && o.Boot == nil:
		o.Now, o.Boot = time.Now, sinceBoot
	case o.Now == nil:
		o.Now = time.Now
	case o.Boot == nil:
		o.Boot = func() time.Duration { return 0 }
	}
	s := &Store{opt: o, path: filepath.Join(o.Dir, "store.db")}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store %s: %w", s.path, err), s.Close())
	}
	return s, nil
}

func (s *Store) open() error {
	if err := os.MkdirAll(s.opt.Dir, 0o700); err != nil {
		return err
	}
	if err := trusted.Dir(s.opt.Dir); err != nil {
		return err
	}
	for _, path := range []string{s.path, s.path + "-wal", s.path + "-shm"} {
		if err := trusted.File(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
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
	// while another process makes the database, SQLite does not wait for it in each case
	for err = s.migrate(ctx); isBusy(err) && ctx.Err() == nil; err = s.migrate(ctx) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	name, err := s.source(s.opt.Busy, "normal", "wal_autocheckpoint(0)")
	if err != nil {
		return err
	}
	s.counter, err = newCounter(s.quick, name, s.opt.Busy)
	return err
}

func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (s *Store) connect(synchronous string) (*sql.DB, error) {
	name, err := s.source(s.opt.Busy, synchronous)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	// more writers would only wait for each other in SQLite, without regard to their contexts
	db.SetMaxOpenConns(1)
	return db, nil
}

// source names the database and how a connection uses it.
func (s *Store) source(busy time.Duration, synchronous string, more ...string) (string, error) {
	abs, err := filepath.Abs(s.path)
	q := url.Values{"_txlock": {"immediate"}, "_pragma": append(more,
		fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()), "journal_mode(wal)",
		"synchronous("+synchronous+")", "foreign_keys(1)", "trusted_schema(0)")}
	file := url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}
	return file.String(), err
}

func (s *Store) migrate(ctx context.Context) error {
	return s.try(ctx, s.sure, func(t tx) error {
		var have int
		if err := t.row("PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		change, from := "", have
		later := []string{3: snapshots, 4: steps, 5: leases, 6: answers, 7: missing}
		switch {
		case have == schemaVersion:
			return nil
		case have == 0:
			change, from = schema+added, 3
		case have == 2:
			change, from = "DROP TABLE tokens; DELETE FROM approvals WHERE state = 'cancelled';"+
				"ALTER TABLE approvals ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;"+added, 3
		case have < 3 || have > schemaVersion:
			return fmt.Errorf("it has the schema version %d, this program reads %d; move it away "+
				"to begin a new one", have, schemaVersion)
		}
		change += strings.Join(later[from:], "\n")
		return t.exec(fmt.Sprintf("%s\nPRAGMA user_version = %d;", change, schemaVersion))
	})
}

// Close closes the store. It may be called again.
func (s *Store) Close() error {
	var errs []error
	if s.counter != nil {
		errs = append(errs, s.counter.Close())
	}
	for _, db := range []*sql.DB{s.quick, s.sure} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		errs = append(errs, os.Remove(filepath.Join(s.opt.Dir, s.process)), s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Ready returns an error if the store cannot be written to now.
func (s *Store) Ready(ctx context.Context) error {
	return s.try(ctx, s.quick, func(t tx) error {
		return t.exec("INSERT INTO trial (id, at) VALUES (1, ?1) ON CONFLICT DO UPDATE SET "+
			"at = ?1", s.ms())
	})
}

// tx is a write transaction.
type tx struct {
	*sql.Tx
	ctx context.Context
}

// do runs a write transaction; what names it in errors.
func (s *Store) do(ctx context.Context, db *sql.DB, what string, do func(tx) error) error {
	_, err := get(ctx, s, db, what, func(t tx) (struct{}, error) { return struct{}{}, do(t) })
	return err
}

// get runs a write transaction that makes a value, the zero value when it fails.
func get[T any](ctx context.Context, s *Store, db *sql.DB, what string, do func(tx) (T, error)) (
	made T, err error) {
	err = s.try(ctx, db, func(t tx) (err error) {
		made, err = do(t)
		return err
	})
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return made, nil
}

// same returns an error when the database file is no longer the one that was opened: SQLite would
// go on writing to a deleted file while a process that starts now begins a new one, and both would
// spend the same budget.
func (s *Store) same() error {
	now, err := os.Stat(s.path)
	if err != nil {
		return fmt.Errorf("the store is gone: %w", err)
	}
	if !os.SameFile(now, s.file) {
		return fmt.Errorf("the store %s was replaced while it was in use; restart this process",
			s.path)
	}
	return nil
}

// try runs a write transaction, unless the store is gone.
func (s *Store) try(ctx context.Context, db *sql.DB, do func(tx) error) error {
	if err := s.same(); err != nil {
		return err
	}
	t, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("using the store %s: %w", s.path, err)
	}
	if err := do(tx{t, ctx}); err != nil {
		return errors.Join(err, ignoreDone(t.Rollback()))
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("using the store %s: %w", s.path, err)
	}
	return nil
}

// exec runs a statement without rows.
func (t tx) exec(query string, args ...any) error {
	_, err := t.ExecContext(t.ctx, query, args...)
	return err
}

// one runs a statement that must change one row, or else returns ErrNone.
func (t tx) one(query string, args ...any) error {
	res, err := t.ExecContext(t.ctx, query, args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = ErrNone
	}
	return err
}

// ErrNone is the error of a change of what is not there.
var ErrNone = errors.New("there is nothing of that kind, or it was done already")

// row returns the first row of a query.
func (t tx) row(query string, args ...any) *sql.Row {
	return t.QueryRowContext(t.ctx, query, args...)
}

// ignoreDone drops the error of rolling back a transaction that SQLite, or the end of a context,
// has rolled back already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) ||
		err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}

// Row is what a database returned: one row, or the present one of several.
type Row interface{ Scan(...any) error }

// all returns what a function makes of each row of a query.
func all[T any](t tx, of func(Row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.QueryContext(t.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return scan(rows, of)
}

func scan[T any](rows *sql.Rows, of func(Row) (T, error)) (list []T, err error) {
	defer rows.Close()
	for rows.Next() {
		v, err := of(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, errors.Join(rows.Err(), rows.Close())
}

func (s *Store) ms() int64 { return s.opt.Now().UnixMilli() }

// origin is when the machine started, by the clock of now, in Unix milliseconds. It gets smaller
// when the clock is set back, and hardly changes otherwise while the machine runs.
func (s *Store) origin() int64 { return s.opt.Now().Add(-s.opt.Boot()).UnixMilli() }

// live holds for rows that have begun and have not expired, and since when the clock was not set
// back. Its arguments are ms() and origin(). Clocks that are steered may lose a thousandth.
const live = "expires > ?1 AND expires - ttl <= ?1 + 2000 AND origin <= ?2 + 2000 + ttl / 1000"

// running is how long the machine runs in milliseconds, or the clock's time where it is not known.
func (s *Store) running() int64 {
	if boot := s.opt.Boot(); boot > 0 {
		return boot.Milliseconds()
	}
	return s.ms()
}

func (s *Store) day() string { return s.opt.Now().UTC().Format(time.DateOnly) }
