// Package store keeps what all processes of one host must agree on: rates, budgets, approvals,
// sessions of the approval page, blobs, stages, used nonces.
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

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/trusted"
)

// Options of a store.
type Options struct {
	// Dir is shared by all processes that share their limits; it is made with mode 0700.
	Dir  string           `koanf:"dir" path:"true"`
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
	return nil
}

// Store is safe for concurrent use, also by several processes with the same directory. What it
// cannot do is an error, never a guess.
type Store struct {
	opt   Options
	path  string
	file  os.FileInfo // of the database when it was opened
	quick *sql.DB     // commits survive a kill
	sure  *sql.DB     // commits survive a power cut: money, approvals, nonces, stages

	forget, untake, spent *sql.Stmt // of quick, for every call

	forgot atomic.Int64 // the second in which old rates were deleted last

	mu      sync.Mutex // guards the following
	counts  map[int][2]*sql.Stmt
	process string // the name of lock,
	lock    *os.File
}

var (
	_ gate.Ledger    = (*Store)(nil)
	_ approval.Store = (*Store)(nil)
	_ blob.Index     = (*Store)(nil)
	_ egress.Ledger  = (*Store)(nil)
)

//go:embed schema.sql
var schema string

//go:embed added.sql
var added string

// schemaVersion goes up with every change of the tables.
const schemaVersion = 3

// Open opens the store in its directory, or makes it. It refuses files that another user can
// change.
func Open(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Dir == "" {
		o.Dir = "state"
	}
	if o.Busy == 0 {
		o.Busy = 5 * time.Second
	}
	switch {
	case o.Now == nil && o.Boot == nil:
		o.Now, o.Boot = time.Now, sinceBoot
	case o.Now == nil:
		o.Now = time.Now
	case o.Boot == nil:
		o.Boot = func() time.Duration { return 0 }
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
	if err := s.migrate(ctx); err != nil {
		return err
	}
	for sql, stmt := range map[string]**sql.Stmt{
		"DELETE FROM rates WHERE second < ? OR second > ?":                  &s.forget,
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
		fmt.Sprintf("busy_timeout(%d)", s.opt.Busy.Milliseconds()), "journal_mode(wal)",
		"synchronous(" + synchronous + ")", "foreign_keys(1)", "trusted_schema(0)"}}
	file := url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, err
	}
	// more writers would only wait for each other in SQLite, without regard to their contexts
	db.SetMaxOpenConns(1)
	return db, nil
}

func (s *Store) migrate(ctx context.Context) error {
	return s.tx(ctx, s.sure, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		change := ""
		switch have {
		case schemaVersion:
			return nil
		case 0:
			change = schema + added
		case 2:
			change = "DROP TABLE tokens; DELETE FROM approvals WHERE state = 'cancelled';" +
				"ALTER TABLE approvals ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;" + added
		default:
			return fmt.Errorf("it has the schema version %d, this program reads %d; move it away "+
				"to begin a new one", have, schemaVersion)
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("%s\nPRAGMA user_version = %d;", change,
			schemaVersion))
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		errs = append(errs, os.Remove(s.lock.Name()), s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Ready returns an error if the store cannot be written to now.
func (s *Store) Ready(ctx context.Context) error {
	return s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO trial (id, at) VALUES (1, ?1) "+
			"ON CONFLICT DO UPDATE SET at = ?1", s.ms())
		return err
	})
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
		return fmt.Errorf("the store %s was replaced while it was in use; restart this process",
			s.path)
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

// ignoreDone drops the error of rolling back a transaction that SQLite, or the end of a context,
// has rolled back already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) ||
		err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}

// row is a *sql.Row or *sql.Rows.
type row interface{ Scan(...any) error }

// all returns what scan makes of each row of a query.
func all[T any](
	ctx context.Context, tx *sql.Tx, scan func(row) (T, error), query string, args ...any,
) (list []T, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, errors.Join(rows.Err(), rows.Close())
}

// one turns a change of anything but one row into an error.
func one(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = errNone
	}
	return err
}

var errNone = errors.New("there is nothing of that kind, or it was done already")

// Usage is what the store counts now.
type Usage struct {
	Calls60s  int64            // of all principals
	Waiting   int64            // requests that wait for a person
	USDMicros map[string]int64 // spent or reserved today, of the 100 principals who spent most
}

// Usage reads what the store counts.
func (s *Store) Usage(ctx context.Context) (u Usage, err error) {
	u.USDMicros = map[string]int64{}
	err = s.tx(ctx, s.quick, func(tx *sql.Tx) error {
		now := s.opt.Now()
		err := tx.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM rates WHERE "+
			`key GLOB 'calls "*"' AND key NOT GLOB 'calls "*" "*"' AND second BETWEEN ? AND ?`,
			now.Unix()-window, now.Unix()+1).Scan(&u.Calls60s)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, "SELECT count(*) FROM approvals WHERE "+live+
			" AND state = 'waiting'", s.ms(), s.origin()).Scan(&u.Waiting)
		if err != nil {
			return err
		}
		_, err = all(ctx, tx, func(r row) (_ struct{}, err error) {
			var who string
			var micros int64
			err = r.Scan(&who, &micros)
			u.USDMicros[who] = micros
			return struct{}{}, err
		}, "SELECT principal, sum(micros) FROM costs WHERE day = ? GROUP BY principal "+
			"ORDER BY 2 DESC LIMIT 100", s.day())
		return err
	})
	if err != nil {
		return Usage{}, fmt.Errorf("reading what the store counts: %w", err)
	}
	return u, nil
}

func (s *Store) ms() int64 { return s.opt.Now().UnixMilli() }

// origin is when the machine started, by the clock of now, in Unix milliseconds. It gets smaller
// when the clock is set back, and hardly changes otherwise while the machine runs.
func (s *Store) origin() int64 { return s.opt.Now().Add(-s.opt.Boot()).UnixMilli() }

// live holds for rows that have begun and have not expired, and since when the clock was not set
// back. Its arguments are ms() and origin(). Clocks that are steered may lose a thousandth.
const live = "expires > ?1 AND expires - ttl <= ?1 + 2000 AND origin <= ?2 + 2000 + ttl / 1000"
