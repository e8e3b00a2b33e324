package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/undo"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

func token(prefix string) identity.Token {
	return identity.Token{Prefix: prefix, SHA256: strings.Repeat("ab", 32), Principal: "agent",
		Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
}

var (
	aCall       = terms.Question{Kind: terms.KindCall}
	anOperation = terms.Question{Kind: terms.KindOperation}
)

// reads returns what a decision on the question is made on: its freezes, and the token's state.
func reads(t *testing.T, s *postgres.Store, q terms.Question, prefix string) string {
	t.Helper()
	ctx := s.Look(bg, q)
	if q.Kind == terms.KindCall {
		if _, _, err := s.Take(ctx, call("agent", "105")); err != nil {
			t.Fatal(err)
		}
	}
	frozen, err := s.Freezes(ctx)
	tokens, err2 := s.KeptTokens(ctx, prefix)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, z := range frozen {
		said += z.Kind + " " + z.Name + ";"
	}
	for _, k := range tokens {
		said += fmt.Sprint(k.Prefix, " ", k.Revoked.IsZero())
	}
	return said
}

// What a decision is made on takes one round trip, and what decides nothing hardly any.
func TestADecisionIsOneRoundTrip(t *testing.T) {
	server := pgtest.Start(t)
	p := pgtest.NewProxy(t, server.Port)
	url := strings.Replace(server.URL(server.Database()), server.Port, p.Port, 1)
	// a connection would be closed and opened again after some time
	s := shared(t, postgres.Options{URL: url + "&pool_max_conns=1", Timeout: 20 * time.Second})
	if err := s.KeepToken(bg, token("cap_00000001")); err != nil {
		t.Fatal(err)
	}
	reads(t, s, aCall, "cap_00000001")
	const n = 50
	for name, q := range map[string]terms.Question{"call": aCall, "operation": anOperation} {
		before := p.Trips()
		for range n {
			if got := reads(t, s, q, "cap_00000001"); got != "cap_00000001 true" {
				t.Errorf("%s reads %q", name, got)
			}
		}
		// a decision that waited for long reads again, and the store is tidied now and then
		if took := p.Trips() - before; took < n || took > n+10 {
			t.Errorf("%d times a %s took %d round trips", n, name, took)
		}
	}
	before, began := p.Trips(), time.Now()
	for range 1000 {
		if _, err := s.Freezes(bg); err != nil {
			t.Fatal(err)
		}
	}
	most := 10 + int(time.Since(began)/(100*time.Millisecond))
	if took := p.Trips() - before; took > most {
		t.Errorf("1000 looks without a decision took %d round trips, want at most %d", took, most)
	}
}

// The first decision after a change on another host is made on it, whatever was read just before.
func TestTheNextDecisionReadsEachChange(t *testing.T) {
	server := pgtest.Start(t)
	url := server.URL(server.Database())
	a, b := shared(t, postgres.Options{URL: url}), shared(t, postgres.Options{URL: url})
	node := freeze.Freeze{Kind: "node", Name: "pve1", By: "ops"}
	k := token("cap_00000001")
	revoked := k
	revoked.Revoked = time.Now()
	thaw := func() error { _, err := a.RemoveFreeze(bg, "node", "pve1"); return err }
	keep := func(k identity.Token) func() error {
		return func() error { return a.KeepToken(bg, k) }
	}
	for range 20 {
		for i, step := range []struct {
			change func() error
			want   string
		}{
			{keep(k), "cap_00000001 true"},
			{func() error { return a.AddFreeze(bg, node) }, "node pve1;cap_00000001 true"},
			{keep(revoked), "node pve1;cap_00000001 false"},
			{thaw, "cap_00000001 false"},
			{func() error { return a.AddFreeze(bg, freeze.Freeze{Kind: "all"}) },
				"all ;cap_00000001 false"},
			{func() error { _, err := a.RemoveFreeze(bg, "all", ""); return err },
				"cap_00000001 false"},
		} {
			q := []terms.Question{aCall, anOperation}[i%2]
			reads(t, b, q, k.Prefix)
			if err := step.change(); err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]*postgres.Store{"there": b, "here": a} {
				if got := reads(t, s, q, k.Prefix); got != step.want {
					t.Fatalf("step %d, %s: read %q, want %q", i, name, got, step.want)
				}
			}
		}
	}
	// what decides nothing has it within a second
	if err := a.AddFreeze(bg, node); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if all, err := b.Freezes(bg); err != nil || len(all) == 1 {
			t.Logf("without a decision after %s, %v", time.Since(began), err)
			break
		} else if time.Since(began) > 10*time.Second { // half a second where nothing else runs
			t.Fatal("not even within 10 seconds")
		}
	}
	// a use of a token is no change
	began, n := time.Now(), 0
	for ; n < 50; n++ {
		if err := b.UseToken(bg, k.Prefix, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d uses in %s", n, time.Since(began))
	if all, err := b.KeptTokens(bg, k.Prefix); err != nil || len(all) != 1 ||
		time.Since(all[0].LastUsed) > 2*time.Minute {
		t.Errorf("used: %+v, %v", all, err)
	}
}

// Where notifications arrive, what decides nothing has a change before it would ask again. Behind a
// pooler it asks.
func TestANotificationComesBeforeTheNextLook(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	a := shared(t, postgres.Options{URL: server.URL(database)})
	b := shared(t, postgres.Options{URL: server.URL(database)})
	behind := shared(t, postgres.Options{URL: server.Bouncer()(database)})
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	wg.Go(func() { b.Listen(ctx) })
	wg.Go(func() { behind.Listen(ctx) }) // which returns at once
	defer wg.Wait()
	defer cancel()
	fastest, slowest := time.Hour, time.Duration(0)
	for i := range 10 {
		z := freeze.Freeze{Kind: "node", Name: fmt.Sprint("pve", i)}
		for _, s := range []*postgres.Store{b, behind} {
			if _, err := s.Freezes(bg); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.AddFreeze(bg, z); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, s := range []*postgres.Store{b, behind} {
			for {
				if all, err := s.Freezes(bg); err != nil {
					t.Fatal(err)
				} else if len(all) == i+1 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if s == b {
				fastest = min(fastest, time.Since(began))
			} else {
				slowest = max(slowest, time.Since(began))
			}
		}
	}
	t.Logf("told after %s at best, behind a pooler after %s at worst", fastest, slowest)
	if fastest > 300*time.Millisecond {
		t.Error("nothing was told")
	}
}

// A row that somebody broke is a refusal, never an absence.
func TestBrokenRowsRefuse(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	s := shared(t, postgres.Options{URL: server.URL(database)})
	good := token("cap_00000001")
	if err := s.KeepToken(bg, good); err != nil {
		t.Fatal(err)
	}
	server.SQL(database, "INSERT INTO caponier.freezes VALUES ('node', 'pve1', '{')")
	server.SQL(database, `INSERT INTO caponier.freezes VALUES ('node', 'pve2', '{"kind":"tool"}')`)
	all, err := s.Freezes(s.Look(bg, anOperation))
	if err != nil || len(all) != 2 || all[0].Kind != "?" || all[1].Kind != "?" {
		t.Errorf("freezes: %+v, %v", all, err)
	}
	for _, value := range []string{"", "{}", "[]", strings.Replace(`{"prefix":"cap_00000001"}`, "1",
		"2", 1)} {
		server.SQL(database, "INSERT INTO caponier.tokens VALUES ('cap_00000009', '"+value+"')")
		if all, err := s.KeptTokens(s.Look(bg, anOperation), good.Prefix); err == nil ||
			!strings.Contains(err.Error(), `token "cap_00000009" in caponier.tokens`) {
			t.Errorf("%s: %v, %v", value, all, err)
		}
		server.SQL(database, "DELETE FROM caponier.tokens WHERE prefix = 'cap_00000009'")
	}
	if all, err := s.KeptTokens(s.Look(bg, anOperation), good.Prefix); err != nil || len(all) != 1 {
		t.Errorf("mended: %v, %v", all, err)
	}
}

// Many hosts may start at once on an empty database, and one more when it has its tables.
func TestHostsMigrateOneAtATime(t *testing.T) {
	server := pgtest.Start(t)
	for round := range 3 {
		database := server.Database()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				s := shared(t, postgres.Options{URL: server.URL(database),
					Timeout: 20 * time.Second})
				if err := s.Ready(bg); err != nil {
					t.Error(err)
				}
				if _, err := s.Reserve(bg, "x", 1, 100); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(server.Rows(database, "SELECT version FROM caponier.schema")); n != 3 {
			t.Errorf("round %d: %d versions", round, n)
		}
	}
}

// A program that is older than the tables changes and reads nothing, and says what to do: when it
// starts, and when another host changes them while it runs.
func TestANewerSchemaIsRefused(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	runs := shared(t, postgres.Options{URL: server.URL(database)})
	reads(t, runs, aCall, "")
	server.SQL(database, "INSERT INTO caponier.schema VALUES (1000000); UPDATE caponier.changes "+
		"SET stamp = 'as a migration does'")
	s := shared(t, postgres.Options{URL: server.URL(database)})
	for _, ask := range []func() error{
		func() error { _, _, err := s.Take(bg, call("x")); return err },
		func() error { _, err := s.Consume(bg, "k"); return err },
		func() error { _, err := runs.Freezes(runs.Look(bg, anOperation)); return err },
		func() error { _, err := runs.Freezes(runs.Look(bg, aCall)); return err },
	} {
		err := ask()
		if err == nil || !strings.Contains(err.Error(), "it has the schema version 1000000, this "+
			"program reads 3: upgrade this host") || errors.As(err, new(*postgres.AwayError)) {
			t.Errorf("got %v", err)
		}
	}
	server.SQL(database, "DELETE FROM caponier.schema WHERE version = 1000000")
	if _, _, err := s.Take(bg, call("x")); err != nil {
		t.Errorf("it was taken back: %v", err)
	}
}

// Who holds the database holds no secret: whatever the host stores, no row of it has one.
func TestNoRowHasASecret(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	s := shared(t, postgres.Options{URL: server.URL(database)})
	kept, later := &identity.Tokens{Kept: s}, time.Now().Add(time.Hour)
	secret, made, err := kept.New("agent", nil, "", time.Hour)
	_, err2 := s.Join(bg, approval.Request{ID: "1", Key: "k", Principal: "agent", TTL: time.Hour,
		Detail: []byte("{}")}, 9)
	_, _, err3 := s.Take(bg, call("agent", "105"))
	_, err4 := s.Reserve(bg, "agent", 1, 9)
	_, _, err6 := s.TakeLease(bg, "guest 101 of pve", "call 1", time.Hour)
	_, err5 := s.KeepRound(bg, "digest", "agent", []byte("sealed"), 9, 9, time.Hour)
	err = errors.Join(err, err2, err3, err4, err5, err6, kept.Revoke(made.Prefix),
		s.AddFreeze(bg, freeze.Freeze{Kind: "all", By: "ops"}),
		s.Begin(bg, approval.Session{ID: "digest", Name: "ann", Expires: later}),
		s.AddBlob(bg, blob.Entry{ID: "b", Principal: "agent", Expires: later}, 9),
		s.Beat(bg, postgres.Host{Version: "1"}),
		s.PutSnapshot(bg, undo.Snapshot{Name: "s"}), s.PutStep(bg, undo.Step{Call: "c"}))
	if err != nil {
		t.Fatal(err)
	}
	tables := server.Rows(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'caponier'")
	if len(tables) < 13 {
		t.Errorf("tables %v", tables)
	}
	for _, table := range tables {
		rows := server.Rows(database, "SELECT r::text FROM caponier."+table+" AS r")
		if len(rows) == 0 {
			t.Errorf("%s is empty, so that nothing is shown of it", table)
		}
		for _, row := range rows {
			for _, found := range []string{secret, secret[len(made.Prefix):], "PRIVATE KEY"} {
				if strings.Contains(row, found) {
					t.Errorf("%s has a secret: %s", table, row)
				}
			}
		}
	}
}
