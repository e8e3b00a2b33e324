// Package postgres keeps in a PostgreSQL database what several hosts must agree on: rates, budgets,
// approvals, blobs' metadata, records for undo, freezes, tokens.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/undo"
)

// Options of a Store.
type Options struct {
	URL      string           // of the database; several hosts are tried in turn
	Password string           // "" for what the URL or PGPASSWORD says
	Timeout  time.Duration    // of each statement with its connection, 0 for 3s
	Host     string           // names this host among all, "" for the name of the machine
	Now      func() time.Time // nil for the clock of the database
	Wall     func() time.Time // the clock of this machine, nil for time.Now
}

// Store is safe for concurrent use. It connects when it is first used. What it cannot do within
// its timeout is an error that says so; when the database is back, so is the store.
type Store struct {
	opt  Options
	at   string // names the database in errors
	pool *pgxpool.Pool
	stop context.CancelFunc
	done chan struct{}

	mu       sync.Mutex // guards the following
	migrated bool
	down     error                // why it could not be reached,
	until    time.Time            // and till when it is not tried again
	wait     time.Duration        // the next time
	seen     *view                // nil before it is read
	seenAt   time.Time            // when it was the latest
	skewed   error                // the clock of this machine is far off
	used     map[string]time.Time // tokens, by this host
}

// view is what decisions read of what all hosts share. It is not changed.
type view struct {
	stamp   string // another after each change
	freezes []freeze.Freeze
	tokens  map[string]identity.Token
	broken  error // a token that cannot be read
}

var (
	_ terms.Ledger   = (*Store)(nil)
	_ approval.Store = (*Store)(nil)
	_ blob.Index     = (*Store)(nil)
	_ egress.Ledger  = (*Store)(nil)
	_ undo.Book      = (*Store)(nil)
	_ lease.Book     = (*Store)(nil)
	_ freeze.Shared  = (*Store)(nil)
	_ identity.Kept  = (*Store)(nil)
)

// Backoff of a database that cannot be reached. Until then calls fail at once, with the reason.
const firstWait, maxWait = 50 * time.Millisecond, time.Second

// Open makes a store. It does not connect.
func Open(o Options) (*Store, error) {
	c, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = 3 * time.Second
	}
	cc := c.ConnConfig
	if o.Password != "" {
		cc.Password = o.Password
	}
	// no statement has a name, so that transactions may be pooled; functions keep the plans
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.ConnectTimeout = o.Timeout
	if cc.ValidateConnect == nil { // after a failover the old primary is not written to
		cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	c.PingTimeout = o.Timeout
	if o.Host == "" {
		if o.Host, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("store: this machine has no name: %w", err)
		}
	}
	s := &Store{opt: o, at: place(cc), done: make(chan struct{}), wait: firstWait,
		used: map[string]time.Time{}}
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), c); err != nil {
		return nil, fmt.Errorf("store.url: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.tidy(ctx)
	return s, nil
}

// conns is how many connections a host keeps open at most, unless the URL has pool_max_conns.
const conns = 8

// parse reads a URL. Without an sslmode the server proves who it is, unless it is on this machine.
func parse(text string) (*pgxpool.Config, error) {
	u, err := url.Parse(text)
	var c *pgxpool.Config
	if err == nil {
		c, err = pgxpool.ParseConfig(text)
	}
	if err == nil && !u.Query().Has("sslmode") && os.Getenv("PGSSLMODE") == "" && !local(c) {
		q := u.Query()
		q.Set("sslmode", "verify-full")
		u.RawQuery = q.Encode()
		c, err = pgxpool.ParseConfig(u.String())
	}
	if err != nil { // which may quote the URL
		return nil, errors.New("store.url: this is no URL of a database, such as " +
			"postgres://caponier@db.example.org/caponier?sslmode=verify-full")
	}
	if !u.Query().Has("pool_max_conns") {
		c.MaxConns = conns
	}
	return c, nil
}

// local reports that all hosts of a database are this machine.
func local(c *pgxpool.Config) bool {
	is := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return strings.HasPrefix(host, "/") || host == "localhost" || err == nil && ip.IsLoopback()
	}
	for _, f := range c.ConnConfig.Fallbacks {
		if !is(f.Host) {
			return false
		}
	}
	return is(c.ConnConfig.Host)
}

// Local reports that the database is on this machine.
func (s *Store) Local() bool { return local(s.pool.Config()) }

// place names a database without its password.
func place(c *pgx.ConnConfig) string {
	hosts := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, f := range c.Fallbacks {
		at := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		if hosts[len(hosts)-1] != at { // once with and once without TLS
			hosts = append(hosts, at)
		}
	}
	return strings.Join(hosts, ",") + "/" + c.Database
}

// Close closes the store. It may be called again.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	s.pool.Close()
	return nil
}

// AwayError is the error of a database that cannot be reached, or did not answer in time.
type AwayError struct {
	At    string
	Cause error
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("the store at %s cannot be reached, and nothing is allowed until it is "+
		"back (see that PostgreSQL runs there, and [store] url): %s", e.At,
		strings.Join(strings.Fields(e.Cause.Error()), " "))
}

func (e *AwayError) Unwrap() error { return e.Cause }

// statement is a statement that is a transaction of its own, in one round trip.
type statement struct {
	what string // it does, for errors
	lazy bool   // may be lost when the database crashes in the next second
	sql  string
	args []any
}

// run runs a statement and scans its rows. It ends within the timeout.
func (s *Store) run(ctx context.Context, st statement, row func(pgx.Rows) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opt.Timeout,
		fmt.Errorf("no answer within %s", s.opt.Timeout))
	defer cancel()
	if err = s.ready(ctx); err == nil {
		err = s.noted(ctx, s.send(ctx, st, row))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", st.what, err)
	}
	return nil
}

func (s *Store) send(ctx context.Context, st statement, row func(pgx.Rows) error) (err error) {
	sync := "on"
	if st.lazy {
		sync = "off"
	}
	var b pgx.Batch
	// without BEGIN a batch is one transaction, and these hold until it ends
	b.Queue("SELECT pg_is_in_recovery(), set_config('statement_timeout', $1, true), "+
		"set_config('synchronous_commit', $2, true)",
		strconv.FormatInt(s.opt.Timeout.Milliseconds(), 10), sync)
	b.Queue(st.sql, st.args...)
	results := s.pool.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	var standby bool
	if err := results.QueryRow().Scan(&standby, nil, nil); err != nil {
		return err
	}
	if standby { // which may be behind: it is not even read
		return errStandby
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if row == nil {
			continue
		}
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

var errStandby = errors.New("the server is a standby")

// ready returns at once why the database could not be reached just now. It brings its tables up to
// date when it is reached first.
func (s *Store) ready(ctx context.Context) error {
	s.mu.Lock()
	down, until, migrated := s.down, s.until, s.migrated
	s.mu.Unlock()
	if down != nil && time.Now().Before(until) {
		return down
	}
	if migrated {
		return nil
	}
	if err := s.noted(ctx, migrate(ctx, s.pool, s.opt.Timeout)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.migrated = true
	return nil
}

// noted turns the error of a database that is away into an AwayError, and notes until when it is
// not tried again.
func (s *Store) noted(ctx context.Context, err error) error {
	answer := (*pgconn.PgError)(nil)
	answered := errors.As(err, new(newerError)) || errors.As(err, &answer) && !goes(answer.Code)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.down, s.wait = nil, firstWait
		return nil
	case answered:
		return fmt.Errorf("using the store at %s: %w", s.at, err)
	case errors.Is(context.Cause(ctx), context.Canceled):
		return fmt.Errorf("using the store at %s: %w", s.at, context.Cause(ctx))
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	if errors.As(err, &answer) || errors.Is(err, errStandby) {
		s.pool.Reset() // what is left are connections to a server that goes, or may not write
	}
	s.down = &AwayError{s.at, err}
	s.until, s.wait = time.Now().Add(s.wait), min(2*s.wait, maxWait)
	return s.down
}

// goes reports that a server with this error is not the one to use: it starts, stops, is full, or
// is no primary.
func goes(code string) bool {
	return slices.ContainsFunc([]string{"57P", "08", "53", "25006"}, func(class string) bool {
		return strings.HasPrefix(code, class)
	})
}

// Ready returns an error if the store cannot be written to now.
func (s *Store) Ready(ctx context.Context) error {
	return s.run(ctx, statement{what: "trying the store",
		sql: "DELETE FROM caponier.rates WHERE key = ''"}, nil)
}

// tidy deletes what is too old, until ctx ends. Each host does so; rows that another deletes are
// left to it.
func (s *Store) tidy(ctx context.Context) {
	defer close(s.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(30 * time.Second):
		}
		for _, old := range []string{
			"rates WHERE ctid IN (SELECT ctid FROM caponier.rates WHERE second < " +
				"caponier.clock(null) / 1000 - 120 FOR UPDATE SKIP LOCKED)",
			"costs WHERE day < caponier.day(caponier.clock(null) - 31 * 86400000::bigint)",
			"approvals WHERE expires < caponier.clock(null) - 86400000",
			"hosts WHERE seen < caponier.clock(null) - 86400000",
			"sessions WHERE expires < caponier.clock(null)",
			"rounds WHERE expires < caponier.clock(null)",
			"blobs WHERE expires < caponier.clock(null) - 86400000"} {
			_ = s.run(ctx, statement{what: "tidying", lazy: true, // the next time then
				sql: "DELETE FROM caponier." + old}, nil)
		}
	}
}

// now is the time that functions of the database take: null for the clock of the database.
func (s *Store) now() *int64 {
	if s.opt.Now == nil {
		return nil
	}
	ms := s.opt.Now().UnixMilli()
	return &ms
}

// rowsOf runs a statement and returns what of makes of each row.
func rowsOf[T any](ctx context.Context, s *Store, st statement, of func(store.Row) (T, error)) (
	list []T, err error) {
	err = s.run(ctx, st, func(r pgx.Rows) error {
		v, err := of(r)
		list = append(list, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// exec runs a statement and returns how many rows it returned.
func (s *Store) exec(ctx context.Context, what, sql string, args ...any) (n int64, err error) {
	err = s.run(ctx, statement{what: what, sql: sql, args: args}, func(pgx.Rows) error {
		n++
		return nil
	})
	return n, err
}
