package store_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

// shared opens a store. A statement has much time, unless the test says how much: the machine may
// be slow.
func shared(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	s, err := postgres.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The suite runs on a connection of its own, and behind a pooler that gives each transaction
// another one.
func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	for name, url := range map[string]func(string) string{"direct": server.URL,
		"socket": server.Socket, "pgbouncer": server.Bouncer()} {
		t.Run(name, func(t *testing.T) {
			conformance(t, func(t testing.TB) opener {
				at := url(server.Database())
				return func(t testing.TB, now func() time.Time) engine {
					return shared(t, postgres.Options{URL: at, Now: now})
				}
			})
		})
	}
}

// use takes what it can get and says so, until it is killed: an R for each reservation, a C and
// the key for each approval, an N and the rate for each count.
func use(s *postgres.Store, out io.Writer) {
	for i := 0; ; i++ {
		if _, err := s.Reserve(bg, "agent", 1, killBudget); err == nil {
			fmt.Fprintln(out, "R")
		} else if !errors.As(err, new(*store.OverBudget)) {
			panic(err)
		}
		key := fmt.Sprint("k", rand.IntN(killApprovals))
		if _, err := s.Consume(bg, key); err == nil {
			fmt.Fprintln(out, "C", key)
		} else if !errors.Is(err, approval.ErrNone) {
			panic(err)
		}
		got, _, err := s.Take(bg, call("agent"))
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(out, "N", got.Calls60s)
	}
}

const killBudget, killApprovals = 300, 40

// Whatever is killed when: no more is reserved than the budget, no approval is used twice, no two
// calls get the same count, and what was said is kept. CAPONIER_KILLS is how many kills.
func TestKilledProcessesNeverTakeTooMuch(t *testing.T) {
	kills := 24
	if n, err := strconv.Atoi(os.Getenv("CAPONIER_KILLS")); err == nil {
		kills = n
	}
	server := pgtest.Start(t)
	url := server.URL(server.Database())
	s := shared(t, postgres.Options{URL: url})
	for i := range killApprovals {
		id := fmt.Sprint(i)
		_, err := s.Join(bg, approval.Request{ID: id, Key: "k" + id, Principal: "agent",
			TTL: time.Hour, Detail: json.RawMessage("{}")}, 100)
		_, err2 := s.Decide(bg, id, approval.Verdict{Approve: true, By: "ops"})
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex // guards the following
	reserved, used, seen := 0, map[string]int{}, map[int64]int{}
	seed := rand.Uint64()
	t.Log("seed", seed)
	var wg sync.WaitGroup
	for p := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(p)))
		wg.Go(func() {
			for range kills / 8 {
				after := time.Duration(50+r.IntN(250)) * time.Millisecond
				for _, line := range killed(t, url, after) {
					f := strings.Fields(line)
					mu.Lock()
					switch {
					case f[0] == "R":
						reserved++
					case f[0] == "C":
						used[f[1]]++
					case f[0] == "N":
						n, err := strconv.ParseInt(f[1], 10, 64)
						if err != nil {
							t.Error(err)
						}
						seen[n]++
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	got, _, err := s.Take(bg, call("agent"))
	// each kill can leave one reservation of which nobody heard
	if err != nil || got.USDMicrosToday > killBudget || int64(reserved) > got.USDMicrosToday ||
		got.USDMicrosToday > int64(reserved+kills) || reserved == 0 {
		t.Errorf("reserved %d, the store says %d of %d, %v", reserved, got.USDMicrosToday,
			killBudget, err)
	}
	for key, n := range used {
		if n != 1 {
			t.Errorf("%s was used %d times", key, n)
		}
	}
	for n, times := range seen {
		if times != 1 && kills <= 24 { // a longer run slides over 60 seconds
			t.Errorf("the count %d was given %d times", n, times)
		}
	}
	t.Logf("%d kills, %d reserved, %d used, %d counted", kills, reserved, len(used), len(seen))
}

// killed starts a process that uses the store, kills it, and returns the lines that it wrote.
func killed(t *testing.T, url string, after time.Duration) (lines []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CAPONIER_STORE_TEST_URL="+url)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	first := sync.OnceFunc(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
	for scan := bufio.NewScanner(out); scan.Scan(); first() {
		lines = append(lines, scan.Text())
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended by itself: %v", err)
	}
	return lines
}

// With the database away every question is refused at once, with the reason, and when it is back
// so are the answers.
func TestADatabaseThatIsAwayRefuses(t *testing.T) {
	server := pgtest.Start(t)
	p := pgtest.NewProxy(t, server.Port)
	database := server.Database()
	url := strings.Replace(server.URL(database), server.Port, p.Port, 1)
	const timeout = time.Second
	if err := shared(t, postgres.Options{URL: url}).Ready(bg); err != nil { // makes the tables
		t.Fatal(err)
	}
	s := shared(t, postgres.Options{URL: url, Timeout: timeout})
	works := func(within time.Duration) {
		t.Helper()
		end := time.Now().Add(within)
		for {
			_, _, err := s.Take(bg, call("x"))
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it is not back after %s: %v", within, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	away := func(why string, most time.Duration) {
		t.Helper()
		for name, ask := range map[string]func() error{
			"take":    func() error { _, _, err := s.Take(bg, call("x")); return err },
			"reserve": func() error { _, err := s.Reserve(bg, "x", 1, 9); return err },
			"consume": func() error { _, err := s.Consume(bg, "k"); return err },
			"freezes": func() error { _, err := s.Freezes(bg); return err },
			"tokens":  func() error { _, err := s.KeptTokens(bg, ""); return err },
			"ready":   func() error { return s.Ready(bg) },
		} {
			began := time.Now()
			err := ask()
			if took := time.Since(began); took > most {
				t.Errorf("%s took %s", name, took)
			}
			if e := (*postgres.AwayError)(nil); !errors.As(err, &e) || !strings.Contains(
				err.Error(), "the store at 127.0.0.1:"+p.Port+"/"+database+" cannot be reached") ||
				!strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %q", name, err, why)
			}
		}
	}
	works(30 * time.Second)
	p.Cut(true)
	away("", 10*timeout)
	p.Cut(false)
	works(30 * time.Second)
	p.Hang(true)
	away("no answer within 1s", 10*timeout)
	began := time.Now()
	for range 50 { // in the backoff nobody waits
		_, _, _ = s.Take(bg, call("x"))
	}
	if took := time.Since(began); took > 10*timeout {
		t.Errorf("50 calls waited %s", took)
	}
	p.Hang(false)
	works(30 * time.Second)
	server.Kill()
	away("", 10*timeout)
	server.Run()
	works(30 * time.Second)
	p.Delay(50 * time.Millisecond)
	began = time.Now()
	if _, _, err := s.Take(bg, call("x")); err != nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("a slow database: %v after %s", err, time.Since(began))
	}
}

// A statement ends in the server too.
func TestStatementsHaveADeadlineInTheServer(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	s := shared(t, postgres.Options{URL: server.URL(database), Timeout: 3 * time.Second})
	for _, each := range []*postgres.Store{
		shared(t, postgres.Options{URL: server.URL(database)}), s} { // the first makes the tables
		if err := each.Ready(bg); err != nil {
			t.Fatal(err)
		}
	}
	server.SQL(database, `CREATE OR REPLACE FUNCTION caponier.day(_now bigint) RETURNS text
		LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN ''; END $$`)
	if _, _, err := s.Take(bg, call("x")); err == nil {
		t.Error("it was counted")
	}
	server.SQL(database, `DO $$ BEGIN PERFORM pg_sleep(2); IF EXISTS (SELECT FROM
		pg_stat_activity WHERE query LIKE '%caponier.take%' AND state = 'active' AND
		pid <> pg_backend_pid()) THEN RAISE 'it still runs'; END IF; END $$`)
}

// After a failover the new primary is found without a restart, and a standby is never asked.
func TestTheNewPrimaryIsFound(t *testing.T) {
	one := pgtest.Start(t)
	database := one.Database()
	two := one.Standby()
	url := strings.Replace(one.URL(database), "127.0.0.1:"+one.Port, "127.0.0.1:"+two.Port+
		",127.0.0.1:"+one.Port, 1) // the standby first
	s := shared(t, postgres.Options{URL: url})
	if _, err := s.Reserve(bg, "x", 70, 100); err != nil {
		t.Fatal(err)
	}
	standby := shared(t, postgres.Options{URL: two.URL(database) + "&target_session_attrs=any"})
	written := one.Rows(database, "SELECT pg_current_wal_lsn()")[0]
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := standby.Freezes(bg); err == nil {
			t.Fatal("a standby answered")
		}
		// what the primary made arrives
		if two.Rows(database, "SELECT pg_last_wal_replay_lsn() >= '"+written+"'")[0] == "t" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the standby does not follow")
		}
	}
	one.Kill()
	if _, err := s.Consume(bg, "k"); err == nil || errors.Is(err, approval.ErrNone) {
		t.Errorf("without a primary: %v", err)
	}
	two.Promote()
	ctx, cancel := context.WithTimeout(bg, 60*time.Second)
	defer cancel()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := s.Reserve(ctx, "x", 31, 100)
		if over := (*store.OverBudget)(nil); errors.As(err, &over) && over.Spent == 70 {
			t.Logf("back after %s", time.Since(began).Round(time.Millisecond))
			return
		} else if ctx.Err() != nil {
			t.Fatalf("the new primary: %v", err)
		}
	}
}
