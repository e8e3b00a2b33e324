package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/caponier-mcp/caponier/host/egress"
)

// The log is copied into the database whenever it has got checkpointEvery counts more, beside them.
// SQLite begins it anew only when all of it is copied. So when it has logPages in spite of that,
// counts wait for what is left.
const checkpointEvery, logPages = 1000, 4000

const window = 60 // seconds

// counter counts on a connection of its own. A count is one prepared statement, which SQLite runs
// as one transaction: it makes no sync, starts no goroutine, and does not touch database/sql.
// Checkpoints of what it writes run beside it, on another connection.
type counter struct {
	busy       time.Duration
	checkpoint func() (pages int64)

	turn   chan struct{} // holds one element while somebody uses the following
	conn   driver.Conn
	counts map[int]driver.Stmt // by the number of keys
	backs  map[int]driver.Stmt
	rows   []driver.Value
	forgot int64 // the second in which old rates were deleted last
	since  int   // counts since the last checkpoint
	beside sync.WaitGroup
}

// counted is what a count found: the rate of each of its keys, and what the principal has spent.
type counted struct {
	rates  []egress.Rate
	micros int64
}

var errClosed = errors.New("the store is closed")

// newCounter opens a connection under this name beside those of db, where checkpoints run.
func newCounter(db *sql.DB, name string, busy time.Duration) (*counter, error) {
	conn, err := db.Driver().Open(name)
	if err != nil {
		return nil, err
	}
	c := &counter{busy: busy, turn: make(chan struct{}, 1), conn: conn,
		counts: map[int]driver.Stmt{}, backs: map[int]driver.Stmt{},
		rows: make([]driver.Value, 4)}
	c.checkpoint = func() (pages int64) {
		var busy, copied int64
		// when it fails, the log grows until the next one
		_ = db.QueryRow("PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &copied)
		return pages
	}
	// counter waits itself, so that the wait ends with the context and costs nothing before
	err = c.exec("PRAGMA busy_timeout = 0")
	return c, err
}

// use runs do alone on the connection, and again while another process writes.
func (c *counter) use(ctx context.Context, do func() error) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.turn }()
	var began time.Time
	for wait := time.Millisecond; ; wait = min(2*wait, 25*time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.conn == nil {
			return errClosed
		}
		err := do()
		if e := (*sqlite.Error)(nil); !errors.As(err, &e) ||
			e.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		if began.IsZero() {
			began = time.Now()
		} else if time.Since(began) > c.busy {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// count counts one more of each key, all or none, in a second.
func (c *counter) count(
	ctx context.Context, keys []string, second int64, principal, day string,
) (got counted, err error) {
	args := named(second, second-window, second+1, principal, day)
	for _, key := range keys {
		args = append(args, driver.NamedValue{Ordinal: len(args) + 1, Value: key})
	}
	err = c.use(ctx, func() error {
		if err := c.forget(second); err != nil {
			return err
		}
		stmt, err := c.prepared(c.counts, len(keys), countSQL)
		if err != nil {
			return err
		}
		got = counted{rates: make([]egress.Rate, len(keys))}
		return c.each(stmt, args, func(row []driver.Value) error { return got.add(keys, row) })
	})
	if err != nil {
		return counted{}, err
	}
	for _, r := range got.rates {
		if r.Count < 1 {
			return counted{}, errors.New("what was counted just now is not there")
		}
	}
	return got, nil
}

func (g *counted) add(keys []string, row []driver.Value) error {
	key, ok1 := row[0].(string)
	n, ok2 := row[1].(int64)
	oldest, ok3 := row[2].(int64)
	micros, ok4 := row[3].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return fmt.Errorf("a count has the form %v", row)
	}
	g.micros = micros
	for i := range keys {
		if keys[i] == key && n > g.rates[i].Count {
			g.rates[i] = egress.Rate{Count: n, Free: time.Unix(oldest+window+1, 0)}
		}
	}
	return nil
}

// countSQL counts n keys and returns their rates. What it reads beside the row that it changes are
// rows that it does not change: whether SQLite reads those before or after makes no difference.
func countSQL(n int) string {
	const others = " FROM rates AS o WHERE o.key = rates.key AND o.second BETWEEN ?2 AND ?3 " +
		"AND o.second <> ?1 AND o.n > 0)"
	var b strings.Builder
	b.WriteString("INSERT INTO rates (key, second, n) VALUES ")
	for i := range n {
		fmt.Fprintf(&b, "(?%d, ?1, 1), ", 6+i)
	}
	return strings.TrimSuffix(b.String(), ", ") + " ON CONFLICT DO UPDATE SET n = n + 1 " +
		"RETURNING key, n + (SELECT coalesce(sum(o.n), 0)" + others + ", " +
		"min(?1, (SELECT coalesce(min(o.second), ?1)" + others + "), " +
		"(" + strings.NewReplacer("principal = ?", "principal = ?4", "day = ?", "day = ?5").
		Replace(spentToday) + ")"
}

// giveBack undoes a count.
func (c *counter) giveBack(ctx context.Context, keys []string, second int64) error {
	args := named(second)
	for _, key := range keys {
		args = append(args, driver.NamedValue{Ordinal: len(args) + 1, Value: key})
	}
	return c.use(ctx, func() error {
		stmt, err := c.prepared(c.backs, len(keys), func(n int) string {
			return "UPDATE rates SET n = n - 1 WHERE second = ?1 AND n > 0 AND key IN (" +
				strings.Repeat("?, ", n-1) + "?)"
		})
		if err != nil {
			return err
		}
		return c.each(stmt, args, func([]driver.Value) error { return nil })
	})
}

// forget deletes what is too old, or was counted before the clock was set back: once a second. It
// also starts a checkpoint when one is due.
func (c *counter) forget(second int64) error {
	if c.since++; c.since >= checkpointEvery {
		c.since = 0
		c.beside.Go(c.shorten)
	}
	if c.forgot == second {
		return nil
	}
	stmt, err := c.prepared(c.backs, 0, func(int) string {
		return "DELETE FROM rates WHERE second < ?1 OR second > ?2"
	})
	if err != nil {
		return err
	}
	err = c.each(stmt, named(second-window, second+1), func([]driver.Value) error { return nil })
	if err == nil {
		c.forgot = second
	}
	return err
}

// shorten copies the log into the database.
func (c *counter) shorten() {
	if c.checkpoint() < logPages {
		return
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.checkpoint()
}

// exec runs a statement that is needed once.
func (c *counter) exec(query string) error {
	stmt, err := c.conn.Prepare(query)
	if err != nil {
		return err
	}
	return errors.Join(c.each(stmt, nil, func([]driver.Value) error { return nil }), stmt.Close())
}

func (c *counter) prepared(
	of map[int]driver.Stmt, n int, query func(int) string,
) (driver.Stmt, error) {
	if stmt := of[n]; stmt != nil {
		return stmt, nil
	}
	stmt, err := c.conn.Prepare(query(n))
	if err == nil {
		of[n] = stmt
	}
	return stmt, err
}

// each runs a statement. Its transaction is committed when each returns nil.
func (c *counter) each(
	stmt driver.Stmt, args []driver.NamedValue, of func([]driver.Value) error,
) (err error) {
	// a context that can end costs the driver a goroutine; use looks at it
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for {
		switch err := rows.Next(c.rows[:len(rows.Columns())]); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := of(c.rows); err != nil {
			return err
		}
	}
}

// Close closes the connection, and waits for a checkpoint that runs.
func (c *counter) Close() error {
	c.turn <- struct{}{}
	conn := c.conn
	c.conn = nil
	<-c.turn
	if conn == nil {
		return nil
	}
	c.beside.Wait()
	var errs []error
	for _, of := range []map[int]driver.Stmt{c.counts, c.backs} {
		for _, stmt := range of {
			errs = append(errs, stmt.Close())
		}
	}
	return errors.Join(append(errs, conn.Close())...)
}

func named(values ...any) []driver.NamedValue {
	list := make([]driver.NamedValue, len(values), len(values)+8)
	for i, v := range values {
		list[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return list
}

const spentToday = "SELECT coalesce(sum(micros), 0) FROM costs WHERE principal = ? AND day = ?"
