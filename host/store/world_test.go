package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/host/terms"
)

// TestMain lets the test binary be another process with the same store.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CAPONIER_STORE_TEST_TAKER"); dir != "" {
		s, err := store.Open(store.Options{Dir: dir, Busy: 30 * time.Second})
		if err != nil {
			panic(err)
		}
		json.NewEncoder(os.Stdout).Encode(race(s))
		s.Close()
		os.Exit(0)
	}
	if dir := os.Getenv("CAPONIER_STORE_TEST_SPENDER"); dir != "" {
		s, err := store.Open(store.Options{Dir: dir})
		if err != nil {
			panic(err)
		}
		for {
			if _, err := s.Reserve(bg, "agent", 1, 1<<40); err != nil {
				panic(err)
			}
			os.Stdout.WriteString(".")
		}
	}
	if url := os.Getenv("CAPONIER_STORE_TEST_URL"); url != "" {
		s, err := postgres.Open(postgres.Options{URL: url, Timeout: 20 * time.Second})
		if err != nil {
			panic(err)
		}
		use(s, os.Stdout)
	}
	os.Exit(m.Run())
}

func open(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// clock is a clock that tests set.
type clock struct {
	sync.Mutex
	t time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.t = c.t.Add(d)
}

var bg = context.Background()

var aTool = &terms.Tool{Kind: "tool", Name: "stop"}

func call(principal string, vmids ...string) *terms.Call {
	return &terms.Call{Tool: aTool, Principal: terms.Principal{ID: principal},
		Targets: terms.Targets{VMIDs: vmids, Nodes: []string{"pve1"}}}
}

func TestSQLite(t *testing.T) {
	conformance(t, func(t testing.TB) opener {
		dir := filepath.Join(t.TempDir(), "state")
		return func(t testing.TB, now func() time.Time) engine {
			return open(t, store.Options{Dir: dir, Now: now})
		}
	})
}

func TestProcessesShareOneStore(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := open(t, store.Options{Dir: dir})
	if _, err := s.Join(bg, approval.Request{ID: "1", Key: "k", Principal: "agent", TTL: time.Hour,
		Detail: json.RawMessage("{}")}, 9); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decide(bg, "1", approval.Verdict{Approve: true, By: "ops"}); err != nil {
		t.Fatal(err)
	}
	total := sum(16, func(int) (r raced) {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "CAPONIER_STORE_TEST_TAKER="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err = errors.Join(err, json.Unmarshal(out, &r)); err != nil {
			t.Error(err)
		}
		return r
	})
	if want := (raced{Reserved: 60, Consumed: 1,
		Highest: 16 * raceCalls}); total != want {
		t.Errorf("took %+v, want %+v", total, want)
	}
}

const raceCalls = 5

// raced is what one taker got.
type raced struct {
	Reserved, Consumed int
	Highest            int64 // count that it saw
}

// race takes whatever it can get of a budget of 60, an approval and a rate.
func race(e engine) (r raced) {
	for range raceCalls {
		got, _, err := e.Take(bg, call("agent"))
		if err != nil {
			panic(err)
		}
		r.Highest = max(r.Highest, got.Calls60s)
	}
	for range 8 {
		switch _, err := e.Reserve(bg, "agent", 1, 60); {
		case err == nil:
			r.Reserved++
		case !errors.As(err, new(*store.OverBudget)):
			panic(err)
		}
	}
	if _, err := e.Consume(bg, "k"); err == nil {
		r.Consumed++
	} else if !errors.Is(err, approval.ErrNone) {
		panic(err)
	}
	return r
}

func sum(n int, taker func(i int) raced) (total raced) {
	var wg sync.WaitGroup
	var mu sync.Mutex // guards total
	for i := range n {
		wg.Go(func() {
			r := taker(i)
			mu.Lock()
			defer mu.Unlock()
			total.Reserved, total.Consumed = total.Reserved+r.Reserved, total.Consumed+r.Consumed
			total.Highest = max(total.Highest, r.Highest)
		})
	}
	wg.Wait()
	return total
}
