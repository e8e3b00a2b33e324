package store_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

// What a call asked is kept for its time, taken once, and one caller's limit is its own.
func TestRoundsAreTakenOnceOnOneOfAllHosts(t *testing.T) {
	server := pgtest.Start(t)
	url, c := server.URL(server.Database()), &clock{t: time.Now()}
	o := postgres.Options{URL: url, Now: c.now, Timeout: 20 * time.Second}
	a, b := shared(t, o), shared(t, o)
	keep := func(name, who string) bool {
		c.add(time.Millisecond)
		kept, err := a.KeepRound(bg, name, who, []byte("sealed "+name), 3, 5, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	has := func(name string) bool {
		got, err := b.TakeRound(bg, name)
		if err != nil || got != nil && string(got) != "sealed "+name {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		return got != nil
	}
	for i := range 4 {
		if !keep(fmt.Sprint("anna ", i), "anna") {
			t.Errorf("anna's %d is not kept", i)
		}
	}
	if has("anna 0") || !has("anna 1") || has("anna 1") || has("") {
		t.Error("the oldest over the limit stays, or a round is not taken exactly once")
	}
	keep("bert 0", "bert")
	keep("bert 1", "bert")
	if !keep("anna 4", "anna") || keep("carl 0", "carl") || !keep("bert 2", "bert") ||
		has("bert 0") || !has("bert 1") {
		t.Error("where all have too many, only who has one may keep another in its place")
	}
	c.add(time.Minute)
	if has("anna 4") || !keep("carl 0", "carl") {
		t.Error("a round stays after its time")
	}
	var took atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			got, err := []*postgres.Store{a, b}[i%2].TakeRound(bg, "carl 0")
			if err != nil {
				t.Error(err)
			}
			if got != nil {
				took.Add(1)
			}
		})
	}
	if wg.Wait(); took.Load() != 1 {
		t.Errorf("taken %d times", took.Load())
	}
}

// A database of the first version is brought up to date with what it has.
func TestTablesOfVersion1AreBroughtUpToDate(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	first, err := os.ReadFile("postgres/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	server.SQL(database, "CREATE SCHEMA caponier; CREATE TABLE caponier.schema (version bigint "+
		"NOT NULL); INSERT INTO caponier.schema VALUES (1);"+string(first)+
		"INSERT INTO caponier.freezes VALUES ('all', '', '{\"scope\":\"all\"}')")
	s := shared(t, postgres.Options{URL: server.URL(database), Timeout: 20 * time.Second})
	if all, err := s.Freezes(bg); err != nil || len(all) != 1 || all[0].Kind != "all" {
		t.Errorf("freezes of before: %+v, %v", all, err)
	}
	kept, err := s.KeepRound(bg, "n", "anna", []byte("x"), 1, 1, time.Minute)
	if err != nil || !kept {
		t.Errorf("a new table: %v, %v", kept, err)
	}
}
