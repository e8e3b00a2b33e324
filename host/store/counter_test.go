package store

import (
	"context"
	"database/sql/driver"
	"os"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// maxAllocs is a tenth over what was measured.
const maxAllocs = 78

// A count is one statement, one page of the log, and no sync.
func TestACountIsOneStatementAndOnePage(t *testing.T) {
	at := time.Now()
	s := open(t, Options{Dir: t.TempDir(), Now: func() time.Time { return at }})
	ran := 0
	s.counter.conn = counting{s.counter.conn, &ran}
	c := &terms.Call{Tool: aTool, Principal: terms.Principal{ID: "a"},
		Targets: terms.Targets{VMIDs: []string{"105"}, Nodes: []string{"pve1"}}}
	take := func() {
		if _, _, err := s.Take(bg, c); err != nil {
			t.Fatal(err)
		}
	}
	take() // prepares, and forgets what is old
	ran = 0
	before, calls := pages(t, s), 20
	for range calls {
		take()
	}
	if ran != calls {
		t.Errorf("%d counts ran %d statements", calls, ran)
	}
	if n := pages(t, s) - before; n > int64(calls) {
		t.Errorf("%d counts wrote %d pages", calls, n)
	}
	if n := testing.AllocsPerRun(100, take); n > maxAllocs {
		t.Errorf("a count makes %v allocations, over %d", n, maxAllocs)
	}
}

// The log is copied into the database beside the counts, and does not grow without end. The copy
// needs a processor, which a busy machine may not give it while the test counts, so there are
// tries.
func TestTheLogOfCountsIsCheckpointed(t *testing.T) {
	n := int64(0)
	for range 5 {
		s := open(t, Options{Dir: t.TempDir()})
		for range 3 * logPages {
			if _, _, err := s.Count(bg, "k"); err != nil {
				t.Fatal(err)
			}
		}
		if n = pages(t, s); n <= 3*logPages/2 {
			return
		}
	}
	t.Errorf("the log has %d pages", n)
}

// pages is how many pages the log has room for.
func pages(t *testing.T, s *Store) int64 {
	t.Helper()
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return (info.Size() - 32) / (24 + 4096)
}

// counting counts the statements that run.
type counting struct {
	driver.Conn
	ran *int
}

func (c counting) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return countingStmt{stmt, c.ran}, err
}

type countingStmt struct {
	driver.Stmt
	ran *int
}

func (s countingStmt) QueryContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Rows, error) {
	*s.ran++
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
