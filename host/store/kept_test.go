package store_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

// kept are two hosts, or two processes of one, with their tokens and freezes.
type kept struct {
	tokens [2]*identity.Tokens
	frozen [2]freeze.List
	looks  func() // what another did is to be seen from here on
}

// Tokens and freezes behave the same in files of one host and in a database of several.
func TestTokensAndFreezesAreTheSameInFilesAndInADatabase(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens.json")
	files := kept{looks: func() {}}
	server := pgtest.Start(t)
	at := server.URL(server.Database())
	database := kept{looks: func() { time.Sleep(time.Second) }}
	for i := range 2 {
		files.tokens[i], files.frozen[i] = &identity.Tokens{Path: path}, freeze.In(dir)
		s := shared(t, postgres.Options{URL: at})
		database.tokens[i] = &identity.Tokens{Kept: s}
		database.frozen[i] = freeze.In(t.TempDir()).With(s)
	}
	for name, k := range map[string]kept{"files": files, "database": database} {
		t.Run(name, func(t *testing.T) { k.conform(t) })
	}
}

func (k kept) conform(t *testing.T) {
	list := func(i int) []identity.Token {
		t.Helper()
		all, err := k.tokens[i].List()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if len(list(0)) != 0 || len(k.frozen[0].Mode(bg)) != 0 {
		t.Fatal("it does not begin empty")
	}
	secret, one, err := k.tokens[0].New("agent", []string{"viewer"}, "127.0.0.0/8", time.Hour)
	_, _, err2 := k.tokens[1].New("other", nil, "", time.Hour)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	k.looks()
	all := list(1)
	if len(all) != 2 || strings.Contains(one.SHA256, secret) {
		t.Fatalf("two were made: %+v", all)
	}
	if err := k.tokens[1].Revoke(one.Prefix); err != nil {
		t.Fatal(err)
	}
	if err := k.tokens[1].Revoke("cap_nothere1"); err == nil ||
		!strings.Contains(err.Error(), "no token starts with") {
		t.Errorf("one that is not there: %v", err)
	}
	k.looks()
	for _, tok := range list(0) {
		if revoked := !tok.Revoked.IsZero(); revoked != (tok.Prefix == one.Prefix) {
			t.Errorf("%s revoked: %v", tok.Prefix, revoked)
		}
		if tok.Prefix == one.Prefix && (tok.Principal != "agent" || tok.CIDR != "127.0.0.0/8" ||
			len(tok.Roles) != 1 || !tok.Expires.Equal(one.Expires)) {
			t.Errorf("made %+v, kept %+v", one, tok)
		}
	}
	for _, z := range []freeze.Freeze{{Kind: "all", Reason: "why"}, {Kind: "node", Name: "pve1"},
		{Kind: "principal", Name: "a/../'b\"\n"}, {Kind: "plugin", Name: "sha256:ab"}} {
		err := errors.Join(k.frozen[0].Add(z), k.frozen[0].Add(z))
		k.looks()
		got := k.frozen[1].Mode(bg)
		if err != nil || len(got) != 1 ||
			got[0] != (terms.Freeze{Kind: z.Kind, Name: z.Name, Reason: z.Reason}) {
			t.Errorf("%v: %+v, %v", z, got, err)
		}
		was, err := k.frozen[1].Remove(z.Kind, z.Name)
		again, err2 := k.frozen[1].Remove(z.Kind, z.Name)
		if !was || again || errors.Join(err, err2) != nil {
			t.Errorf("%v: removed: %v, then %v, %v, %v", z, was, again, err, err2)
		}
		k.looks()
		if got := k.frozen[0].Mode(bg); len(got) != 0 {
			t.Errorf("%v is still there: %v", z, got)
		}
	}
}

// What is written in [store] url: no password, a database, and TLS but on this machine.
func TestURLsOfDatabases(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"postgres://a@db/x":                    "",
		"postgresql://a@db1:1,db2:2/x":         "",
		"mysql://db/x":                         "no URL of a database",
		"/var/run":                             "no URL of a database",
		"postgres://a@db/x\n":                  "no URL of a database",
		"postgres://a:secret@db/x":             "it has a password",
		"postgres://a@db/x?password=secret":    "it has a password",
		"postgres://a@db/x?%70assword=secret":  "it has a password",
		"host=db password=secret dbname=x":     "no URL of a database",
		"postgres://a@db/x?a=%zz&password=foo": "it has a password",
	} {
		err := store.Options{URL: text}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
			err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := (store.Options{Password: "x"}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "store.url is not set") {
		t.Errorf("a password alone: %v", err)
	}
	for text, local := range map[string]bool{
		"postgres://a@127.0.0.1:1/x": true, "postgres://a@localhost/x": true,
		"postgres://a@/x?host=%2Frun%2Fpostgresql": true, "postgres://a@[::1]/x": true,
		"postgres://a@db/x": false, "postgres://a@127.0.0.1,db/x": false,
		"postgres://a@localhost.evil/x": false,
	} {
		if s := shared(t, postgres.Options{URL: text}); s.Local() != local {
			t.Errorf("%s is of this machine: %v", text, s.Local())
		}
	}
}

// A server that cannot prove who it is gets nothing, unless the URL says so.
func TestAServerBeyondThisMachineHasToProveWhoItIs(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database()
	at, err := url.Parse(server.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	at.RawQuery = ""
	here := at.String()
	for text, want := range map[string]string{
		here: "", here + "?sslmode=verify-full": "refused TLS",
		// a second host that is elsewhere makes both prove it
		strings.Replace(here, server.Port, server.Port+",db.example.invalid:5432",
			1): "refused TLS",
	} {
		_, err := shared(t, postgres.Options{URL: text}).Freezes(bg)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Hosts see each other, and one whose clock is far off takes no token, until it is set.
func TestHostsAndTheirClocks(t *testing.T) {
	server := pgtest.Start(t)
	at := server.URL(server.Database())
	var off atomic.Int64
	s := shared(t, postgres.Options{URL: at, Host: "b", Wall: func() time.Time {
		return time.Now().Add(time.Duration(off.Load()))
	}})
	other := shared(t, postgres.Options{URL: at, Host: "a"})
	err := errors.Join(other.KeepToken(bg, token("cap_00000001")),
		other.Beat(bg, postgres.Host{Version: "1", Revision: "r", Lock: "l"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off     time.Duration
		refuses bool
	}{{0, false}, {20 * time.Second, false}, {90 * time.Second, true}, {-90 * time.Second, true},
		{-20 * time.Second, false}} {
		off.Store(int64(c.off))
		for name, q := range map[string]terms.Question{"call": aCall, "operation": anOperation} {
			ctx := s.Look(bg, q)
			if q.Kind == terms.KindCall {
				if _, _, err := s.Take(ctx, call("agent")); err != nil {
					t.Error(err)
				}
			}
			all, err := s.KeptTokens(ctx, "cap_00000001")
			if refuses := err != nil; refuses != c.refuses || !refuses && len(all) != 1 ||
				refuses && !strings.Contains(err.Error(), "the clock of this host is") {
				t.Errorf("%s off, %s: %v, %v", c.off, name, all, err)
			}
		}
		if err := s.Beat(bg, postgres.Host{Version: "2"}); err != nil {
			t.Error(err)
		}
		all, err := other.Hosts(bg)
		if err != nil || len(all) != 2 || all[0].Version != "1" || all[1].Name != "b" {
			t.Fatalf("hosts %+v, %v", all, err)
		}
		skew := time.Duration(all[1].SkewMS) * time.Millisecond
		if d := skew - c.off; d < -15*time.Second || d > 15*time.Second {
			t.Errorf("%s off, it is told as %s", c.off, skew)
		}
	}
}
