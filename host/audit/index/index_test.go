package index_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs"
)

var day = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// scribe writes calls that run at the same time, as a gate does.
type scribe struct {
	t    testing.TB
	rand *rand.Rand
	now  time.Time
	n    int
	open []terms.Record
}

// write adds records to a journal.
func (s *scribe) write(dir string, records int, fill string) {
	j, err := audit.Open(audit.Options{Dir: dir, MaxFileBytes: 64 << 20,
		Now: func() time.Time { return s.now }})
	must(s.t, err)
	defer func() { must(s.t, j.Close()) }()
	for range records {
		s.now = s.now.Add(time.Duration(1+s.rand.IntN(90)) * time.Second)
		r := s.next(fill)
		r.Time = s.now
		must(s.t, j.Intent(s.t.Context(), r, false))
	}
}

func (s *scribe) next(fill string) terms.Record {
	r := s.rand
	s.n++
	no := func(to terms.Record) terms.Record {
		id := pick(r, "protected", "declared", "tier")
		to.Type, to.Failed, to.Denied = "refused", []string{id}, []terms.Reason{{ID: id + ".why"}}
		return to
	}
	if len(s.open) < 1+r.IntN(6) {
		vmid := fmt.Sprint(100 + r.IntN(30))
		c := terms.Record{Type: "intent", ID: fmt.Sprintf("d%08d", s.n),
			CallID: fmt.Sprintf("c%08d", s.n), Kind: "call", Source: "http", Tier: "yellow",
			Principal: pick(r, "ann", "bob", "agent-a"), Tool: pick(r, "stop_guest",
				"start_guest", "list"), Input: json.RawMessage(fmt.Sprintf(`{"targets":{"vmids":`+
				`[%q],"nodes":[%q]},"guests":{%q:{"name":%q}},"fill":%q}`, vmid,
				pick(r, "pve1", "pve2"), vmid, pick(r, "db", "web", ""), fill))}
		switch r.IntN(8) {
		case 0:
			return no(c)
		case 1:
			c = no(c)
			c.Outcome = terms.Waits
			return c
		}
		s.open = append(s.open, c)
		return c
	}
	at := r.IntN(len(s.open))
	c := s.open[at]
	c.Input = nil
	if r.IntN(3) == 0 {
		s.open = slices.Delete(s.open, at, at+1)
		c.Type, c.Outcome, c.DurationUS = "outcome", pick(r, terms.Succeeded, terms.Failed), 5
		return c
	}
	op := terms.Record{Type: "intent", ID: fmt.Sprintf("d%08d", s.n), CallID: c.CallID,
		Kind: "operation", Op: "ssh_exec", Principal: c.Principal, Tool: c.Tool,
		Node: pick(r, "pve1", "pve3")}
	if r.IntN(6) == 0 {
		return no(op)
	}
	return op
}

func (s *scribe) query() audit.Query {
	r := s.rand
	some := func(all ...string) string {
		if r.IntN(3) > 0 {
			return ""
		}
		return pick(r, all...)
	}
	q := audit.Query{Who: some("ann", "bob", "agent-a", "nobody", "an"), Tool: some("stop_guest",
		"st*", "*", "list", "s*t", "x*"), Guest: some("105", "db", "web", "999"),
		Node: some("pve1", "pve2", "pve3"), Outcome: some(audit.Outcomes...),
		Rule: some("protected", "declared.why", "tier", "none")}
	past := func() time.Time {
		return s.now.Add(-time.Duration(r.Int64N(int64(s.now.Sub(day)) + int64(time.Hour))))
	}
	if r.IntN(3) == 0 {
		q.Since = past()
	}
	if r.IntN(3) == 0 {
		q.Until = past()
	}
	return q
}

// asked returns what the journal says, without an index.
func asked(t testing.TB, dir string, q audit.Query) (all []audit.Found) {
	for f, err := range (audit.Union{{Dir: dir}}).Calls(q) {
		must(t, err)
		all = append(all, f)
	}
	return all
}

// found returns what the index finds, page by page, in the order of the journal.
func found(t testing.TB, x *index.Index, q audit.Query, n int) (all []audit.Found, lost int) {
	var after index.Mark
	for {
		p, err := x.Find(t.Context(), q, after, n)
		must(t, err)
		if len(p.Calls) > n {
			t.Fatalf("a page of %d has %d calls", n, len(p.Calls))
		}
		all, lost = append(all, p.Calls...), lost+p.Lost
		if after = p.Next; !p.More {
			slices.Reverse(all)
			return all, lost
		}
	}
}

func opened(t testing.TB, folder, dir string) *index.Index {
	x, err := index.Open(t.Context(), folder, dir)
	must(t, err)
	t.Cleanup(func() { x.Close() })
	must(t, x.Update(t.Context(), nil))
	return x
}

func sorted(all []audit.Found) []audit.Found {
	slices.SortStableFunc(all, func(a, b audit.Found) int {
		return strings.Compare(a.Outcome+a.Call, b.Outcome+b.Call)
	})
	return all
}

// The index grows with the journal, and finds what `audit query` finds without one.
func TestTheIndexFindsWhatTheJournalSays(t *testing.T) {
	for seed := range uint64(4 / needs.Share(4)) {
		s := &scribe{t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: day}
		dir, folder := t.TempDir(), t.TempDir()
		some := 0
		for range 4 {
			s.write(dir, 50+s.rand.IntN(200), "")
			x := opened(t, folder, dir)
			for range 60 {
				q := s.query()
				want := asked(t, dir, q)
				got, lost := found(t, x, q, 1+s.rand.IntN(40))
				ended := func(f audit.Found) bool { return f.Outcome == "none" }
				order := slices.DeleteFunc(slices.Clone(want), ended)
				if have := slices.DeleteFunc(slices.Clone(got), ended); lost > 0 ||
					len(have)+len(order) > 0 && !reflect.DeepEqual(have, order) ||
					!reflect.DeepEqual(sorted(got), sorted(want)) {
					t.Fatalf("seed %d, %+v:\n got %+v\nwant %+v\nlost %d", seed, q, got, want,
						lost)
				}
				some += len(want)
			}
		}
		if some == 0 {
			t.Fatal("no query found anything")
		}
	}
}

// A call of the index is all of its records.
func TestACallIsReadFromTheJournal(t *testing.T) {
	s := &scribe{t: t, rand: rand.New(rand.NewPCG(7, 1)), now: day}
	dir := t.TempDir()
	s.write(dir, 400, "")
	x := opened(t, t.TempDir(), dir)
	want := map[string][]terms.Record{}
	for e, err := range audit.Records(dir) {
		must(t, err)
		if e.OfCall() {
			want[e.Record.CallID] = append(want[e.Record.CallID], *e.Record)
		}
	}
	for id, records := range want {
		if _, got, ok, err := x.Call(t.Context(), id); err != nil || !ok ||
			!reflect.DeepEqual(got, records) {
			t.Fatalf("%s: %v %v\n%+v\n%+v", id, ok, err, got, records)
		}
	}
	if _, _, ok, err := x.Call(t.Context(), "c' OR 1=1"); ok || err != nil {
		t.Errorf("a call that there is not: %v, %v", ok, err)
	}
}

// Whatever stands in the index, what is shown is what the journal says of one of its calls.
func TestAForgedIndexShowsNothingThatTheJournalDoesNotSay(t *testing.T) {
	for seed := range uint64(15) {
		s := &scribe{t: t, rand: rand.New(rand.NewPCG(seed, 2)), now: day}
		dir, folder := t.TempDir(), t.TempDir()
		s.write(dir, 150, "")
		opened(t, folder, dir).Close()
		db, err := sql.Open("sqlite", filepath.Join(folder, "journal.db"))
		must(t, err)
		for range 40 {
			text := pick(s.rand, "UPDATE place SET at = at + %d WHERE call %% 5 = %d",
				"UPDATE OR IGNORE place SET call = %d, n = n + 1000 WHERE call = %d",
				"UPDATE OR IGNORE tag SET facet = %d WHERE call %% 4 = %d",
				"UPDATE place SET size = %d WHERE call = %d",
				"UPDATE call SET came = %d WHERE id = %d",
				"UPDATE OR IGNORE tag SET call = %d WHERE call = %d",
				"UPDATE OR IGNORE call SET name = (SELECT name FROM call WHERE id = %d) "+
					"WHERE id = %d")
			_, err := db.Exec(fmt.Sprintf(text, s.rand.IntN(50), s.rand.IntN(50)))
			must(t, err)
		}
		_, err = db.Exec("UPDATE file SET name = '../../../../etc/passwd' WHERE id = 2")
		must(t, err)
		must(t, db.Close())
		x, err := index.Open(t.Context(), folder, dir)
		must(t, err)
		said := map[string]terms.Record{}
		for e, err := range audit.Records(dir) {
			must(t, err)
			if e.OfCall() {
				said[e.Record.ID+e.Record.Type] = *e.Record
			}
		}
		for range 20 {
			q := s.query()
			got, _ := found(t, x, q, 30)
			for _, f := range got {
				_, rs, _, err := x.Call(t.Context(), f.Call)
				must(t, err)
				for _, r := range rs {
					if r.CallID != f.Call || !reflect.DeepEqual(r, said[r.ID+r.Type]) {
						t.Fatalf("seed %d: the journal does not say %+v", seed, r)
					}
				}
				if !q.Wants(f) {
					t.Fatalf("%+v does not fit %+v", f, q)
				}
			}
		}
		x.Close()
	}
}

func TestAStaleOrBrokenIndex(t *testing.T) {
	s := &scribe{t: t, rand: rand.New(rand.NewPCG(9, 1)), now: day}
	dir, folder := t.TempDir(), t.TempDir()
	s.write(dir, 100, "")
	x := opened(t, folder, dir)
	must(t, os.RemoveAll(dir)) // as retention does with old files
	must(t, os.Mkdir(dir, 0o700))
	if all, lost := found(t, x, audit.Query{}, 30); len(all) > 0 || lost == 0 {
		t.Errorf("of a journal that is gone: %d calls, %d lost", len(all), lost)
	}
	s.write(dir, 100, "")
	if n, err := x.Behind(t.Context()); err != nil || n == 0 {
		t.Errorf("behind %d, %v", n, err)
	}
	x.Close()
	must(t, os.WriteFile(filepath.Join(folder, "journal.db"), []byte("no database, "+
		strings.Repeat("x", 9000)), 0o600))
	x = opened(t, folder, dir)
	if got, want := len(asked(t, dir, audit.Query{})), len(must2(found(t, x, audit.Query{},
		10))); got != want {
		t.Errorf("a broken index was not made anew: %d, want %d", got, want)
	}
	if n, err := x.Behind(t.Context()); err != nil || n != 0 {
		t.Errorf("behind %d, %v", n, err)
	}
}

func must2(all []audit.Found, _ int) []audit.Found { return all }
