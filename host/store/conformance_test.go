package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/undo"
)

// engine is what every store has to offer; conformance holds all of them to the same behaviour.
type engine interface {
	terms.Ledger
	egress.Ledger
	approval.Store
	blob.Index
	undo.Book
	lease.Book
	Usage(ctx context.Context) (store.Usage, error)
	Close() error
}

// opener opens one more handle to the store of a test, as another process would have.
type opener func(t testing.TB, now func() time.Time) engine

// conformance is the suite. newStore returns the opener of a store that is empty.
func conformance(t *testing.T, newStore func(t testing.TB) opener) {
	for name, test := range map[string]func(*testing.T, engine, engine, *clock){
		"rates slide over 60 seconds": func(t *testing.T, a, b engine, c *clock) {
			take := func(e engine, call *terms.Call, want, wantTarget int64) func() {
				t.Helper()
				got, back, err := e.Take(bg, call)
				if err != nil {
					t.Fatal(err)
				}
				if got.Calls60s != want || got.TargetCalls60s != wantTarget {
					t.Errorf("counted %+v, want %d and %d", got, want, wantTarget)
				}
				return back
			}
			one := &terms.Call{Tool: aTool, Principal: terms.Principal{ID: "x"},
				Targets: terms.Targets{VMIDs: []string{"105"}}}
			two := &terms.Call{Tool: aTool, Principal: terms.Principal{ID: "x"},
				Targets: terms.Targets{VMIDs: []string{"105", "106"}}}
			take(a, one, 1, 1)
			c.add(30 * time.Second)
			take(b, two, 2, 2)
			take(a, &terms.Call{Tool: aTool, Principal: terms.Principal{ID: "x"}}, 3, 0)
			take(b, call("y", "105"), 1, 1)
			c.add(30*time.Second - time.Millisecond)
			back := take(a, one, 4, 3)
			back()
			back() // a second time does nothing
			take(b, one, 4, 3)
			// the second of the first call is over 60 seconds old
			c.add(time.Second + time.Millisecond)
			take(a, one, 4, 3)
			c.add(time.Hour)
			take(b, two, 1, 1)
			c.add(-time.Hour) // what was counted after now does not count
			take(a, two, 1, 1)
		},
		"a tool has a rate of its own, and a call says when to come back": func(t *testing.T, a,
			b engine, c *clock) {
			other := call("x", "106")
			other.Tool = &terms.Tool{Kind: "tool", Name: "start"}
			for i, step := range []struct {
				after time.Duration
				call  *terms.Call
				want  terms.Counts
			}{
				{0, call("x", "105"), terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1,
					CallsRetryS: 61, ToolRetryS: 61, TargetRetryS: 61}},
				{10 * time.Second, other, terms.Counts{Calls60s: 2, ToolCalls60s: 1,
					TargetCalls60s: 2, CallsRetryS: 51, ToolRetryS: 61, TargetRetryS: 51}},
				{20 * time.Second, call("x", "105"),
					terms.Counts{Calls60s: 3, ToolCalls60s: 2, TargetCalls60s: 3, CallsRetryS: 31,
						ToolRetryS: 31, TargetRetryS: 31}},
				{500 * time.Millisecond, call("y", "105"),
					terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1, CallsRetryS: 61,
						ToolRetryS: 61, TargetRetryS: 61}},
				{30500 * time.Millisecond, other,
					terms.Counts{Calls60s: 3, ToolCalls60s: 2, TargetCalls60s: 3, CallsRetryS: 10,
						ToolRetryS: 10, TargetRetryS: 10}},
			} {
				c.add(step.after)
				if got, _, err := []engine{a, b}[i%2].Take(bg, step.call); err != nil ||
					got != step.want {
					t.Errorf("step %d: %+v, %v, want %+v", i, got, err, step.want)
				}
			}
		},
		"a name cannot pass for another": func(t *testing.T, a, b engine, c *clock) {
			for _, call := range []*terms.Call{{Tool: aTool, Principal: terms.Principal{ID: "x"},
				Targets: terms.Targets{Hosts: []string{"105 y"}}}, {Tool: aTool,
				Principal: terms.Principal{ID: "y x"},
				Targets:   terms.Targets{Hosts: []string{"105"}}}, call("x", "105")} {
				if got, _, err := a.Take(bg, call); err != nil || got.Calls60s > 2 ||
					got.TargetCalls60s != 1 {
					t.Errorf("%v: %+v, %v", call.Principal, got, err)
				}
			}
		},
		"too many targets are refused": func(t *testing.T, a, b engine, c *clock) {
			many := call("x")
			for i := range store.MaxKeys {
				many.Targets.VMIDs = append(many.Targets.VMIDs, fmt.Sprint(100+i))
			}
			if _, _, err := a.Take(bg, many); err == nil ||
				!strings.Contains(err.Error(), "over the limit of 64") {
				t.Errorf("got %v", err)
			}
		},
		"a rate says when there is room": func(t *testing.T, a, b engine, c *clock) {
			start := c.now()
			for range 3 {
				if _, _, err := a.Count(bg, "host h"); err != nil {
					t.Fatal(err)
				}
				c.add(10 * time.Second)
			}
			rates, _, err := b.Count(bg, "host g", "host h")
			if err != nil || rates[0].Count != 1 || rates[1].Count != 4 ||
				!rates[1].Free.Equal(start.Add(61*time.Second)) {
				t.Errorf("got %v, %v", rates, err)
			}
		},
		"a day's budget is never exceeded": func(t *testing.T, a, b engine, c *clock) {
			settle, err := a.Reserve(bg, "x", 70, 100)
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Reserve(bg, "x", 31, 100)
			if over := (*store.OverBudget)(nil); !errors.As(err, &over) || over.Spent != 70 ||
				!over.Free.After(c.now()) {
				t.Errorf("31 of the last 30: %v", err)
			}
			if _, err := b.Reserve(bg, "y", 100, 100); err != nil {
				t.Errorf("another principal: %v", err)
			}
			if err := settle(bg, 20); err != nil {
				t.Fatal(err)
			}
			if err := settle(bg, 0); !errors.Is(err, store.ErrNone) {
				t.Errorf("settled twice: %v", err)
			}
			if _, err := b.Reserve(bg, "x", 80, 100); err != nil {
				t.Errorf("what was settled for less: %v", err)
			}
			if got, _, err := a.Take(bg, call("x")); err != nil || got.USDMicrosToday != 100 {
				t.Errorf("today %d, %v", got.USDMicrosToday, err)
			}
			if _, err := a.Reserve(bg, "x", 1, 100); err == nil {
				t.Error("one more was reserved")
			}
			c.add(24 * time.Hour)
			settle, err = a.Reserve(bg, "x", 100, 100)
			if err != nil {
				t.Fatalf("the next day: %v", err)
			}
			if err := settle(bg, 500); err != nil {
				t.Errorf("more was spent than reserved: %v", err)
			}
			for _, micros := range []int64{0, 1} {
				if _, err := b.Reserve(bg, "x", micros, 100); err == nil {
					t.Errorf("%d reserved on top of 500 of 100", micros)
				}
			}
			if _, err := a.Reserve(bg, "x", -1, 100); err == nil ||
				!strings.Contains(err.Error(), "want 0 to") {
				t.Errorf("a negative amount: %v", err)
			}
		},
		"an approval goes from question to one use": func(t *testing.T, a, b engine, c *clock) {
			ask := func(e engine, id, key string) approval.Request {
				t.Helper()
				got, err := e.Join(bg, approval.Request{ID: id, Key: key, Principal: "agent",
					Tool: "stop", TTL: time.Minute, Revision: "r1",
					Detail: json.RawMessage(`{"vmid":105}`)}, 3)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			first := ask(a, "1", "k")
			if first.State != approval.Waiting || !first.Expires.Equal(c.now().Add(time.Minute)) ||
				string(first.Detail) != `{"vmid":105}` || first.Revision != "r1" {
				t.Errorf("asked: %+v", first)
			}
			if again := ask(b, "2", "k"); again.ID != "1" {
				t.Errorf("the same question became %s", again.ID)
			}
			if _, err := a.Consume(bg, "k"); !errors.Is(err, approval.ErrNone) {
				t.Errorf("used before the answer: %v", err)
			}
			if _, err := b.Decide(bg, "1", approval.Verdict{Approve: true,
				By: "agent"}); err == nil || !strings.Contains(err.Error(), "may not give it") {
				t.Errorf("answered by the requester: %v", err)
			}
			if _, err := b.Decide(bg, "1", approval.Verdict{Approve: true}); err == nil ||
				!strings.Contains(err.Error(), "may not give it") {
				t.Errorf("answered without a name: %v", err)
			}
			if _, err := b.Decide(bg, "9", approval.Verdict{Approve: true,
				By: "ops"}); !errors.Is(err, approval.ErrNone) {
				t.Errorf("an id that does not exist: %v", err)
			}
			c.add(59 * time.Second)
			yes, err := b.Decide(bg, "1", approval.Verdict{Approve: true, By: "ops", Channel: "web",
				Note: "fine"})
			if err != nil || yes.State != approval.Approved || yes.By != "ops" ||
				yes.Channel != "web" || yes.Note != "fine" ||
				!yes.Expires.Equal(c.now().Add(time.Minute)) {
				t.Errorf("approved: %+v, %v", yes, err)
			}
			_, err = a.Decide(bg, "1", approval.Verdict{Approve: true, By: "boss"})
			if !errors.Is(err, approval.ErrAnswered) || !strings.Contains(err.Error(), "(by ops)") {
				t.Errorf("a second answer: %v", err)
			}
			if joined := ask(a, "3", "k"); joined.State != approval.Approved {
				t.Errorf("asking again found %+v", joined)
			}
			if _, err := a.Consume(bg, "other"); !errors.Is(err, approval.ErrNone) {
				t.Errorf("another key: %v", err)
			}
			if used, err := a.Consume(bg, "k"); err != nil || used.State != approval.Used ||
				used.By != "ops" {
				t.Errorf("used: %+v, %v", used, err)
			}
			if _, err := b.Consume(bg, "k"); !errors.Is(err, approval.ErrNone) {
				t.Errorf("used twice: %v", err)
			}
			if waits := ask(b, "4", "k"); waits.ID != "4" || waits.State != approval.Waiting {
				t.Errorf("the same call after that: %+v", waits)
			}
		},
		"an approval ends to the millisecond": func(t *testing.T, a, b engine, c *clock) {
			ask := func(id string) {
				t.Helper()
				if _, err := a.Join(bg, approval.Request{ID: id, Key: "k" + id, Principal: "agent",
					TTL: time.Second, Detail: json.RawMessage("{}")}, 9); err != nil {
					t.Fatal(err)
				}
			}
			ask("1")
			c.add(time.Second)
			if _, err := b.Decide(bg, "1", approval.Verdict{Approve: true,
				By: "ops"}); !errors.Is(err, approval.ErrNone) {
				t.Errorf("answered when it had expired: %v", err)
			}
			ask("2")
			c.add(time.Second - time.Millisecond)
			if _, err := b.Decide(bg, "2", approval.Verdict{Approve: true, By: "ops"}); err != nil {
				t.Errorf("answered in its last millisecond: %v", err)
			}
			c.add(time.Second)
			if _, err := a.Consume(bg, "k2"); !errors.Is(err, approval.ErrNone) {
				t.Errorf("used when it had expired: %v", err)
			}
		},
		"a yes that was not used can be taken back": func(t *testing.T, a, b engine, c *clock) {
			r := approval.Request{ID: "1", Key: "k", Principal: "agent", TTL: time.Minute,
				Detail: json.RawMessage("{}")}
			_, err := a.Join(bg, r, 9)
			_, err2 := a.Decide(bg, "1", approval.Verdict{Approve: true, By: "ops"})
			no, err3 := b.Decide(bg, "1", approval.Verdict{By: "boss"})
			if errors.Join(err, err2, err3) != nil || no.State != approval.Denied ||
				no.By != "boss" {
				t.Errorf("taken back: %+v, %v %v %v", no, err, err2, err3)
			}
			if _, err := a.Consume(bg, "k"); !errors.Is(err, approval.ErrNone) {
				t.Errorf("used after that: %v", err)
			}
			for _, yes := range []bool{true, false} {
				if _, err := a.Decide(bg, "1",
					approval.Verdict{Approve: yes,
						By: "ops"}); !errors.Is(err, approval.ErrAnswered) {
					t.Errorf("a no was answered again (%v): %v", yes, err)
				}
			}
			r.ID, r.Key = "2", "k2"
			_, err = a.Join(bg, r, 9)
			_, err2 = a.Decide(bg, "2", approval.Verdict{Approve: true, By: "ops"})
			_, err3 = a.Consume(bg, "k2")
			if errors.Join(err, err2, err3) != nil {
				t.Fatal(err, err2, err3)
			}
			if _, err := b.Decide(bg, "2", approval.Verdict{By: "boss"}); !errors.Is(err,
				approval.ErrAnswered) {
				t.Errorf("a yes that was used was taken back: %v", err)
			}
		},
		"a session lasts until it expires or is ended": func(t *testing.T, a, b engine, c *clock) {
			for i, name := range []string{"ann", "ann", "bob", "bob"} {
				s := approval.Session{ID: fmt.Sprint(i), Name: name,
					Expires: c.now().Add(time.Hour - time.Duration(i)*time.Second)}
				if err := a.Begin(bg, s); err != nil {
					t.Fatal(err)
				}
			}
			have := func(want string) {
				t.Helper()
				list, err := b.Sessions(bg, "")
				var got string
				for _, s := range list {
					got += s.ID + s.Name
				}
				if err != nil || got != want {
					t.Errorf("%v, %v, want %s", got, err, want)
				}
			}
			have("0ann1ann2bob3bob")
			if n, err := b.EndSessions(bg, "1", ""); n != 1 || err != nil {
				t.Errorf("ended %d, %v", n, err)
			}
			if n, err := b.EndSessions(bg, "0", "bob"); n != 0 || err != nil {
				t.Errorf("one of another name: ended %d, %v", n, err)
			}
			have("0ann2bob3bob")
			if n, err := b.EndSessions(bg, "", "bob"); n != 2 || err != nil {
				t.Errorf("ended %d, %v", n, err)
			}
			have("0ann")
			c.add(time.Hour)
			have("")
		},
		"a no lasts, and floods are bounded": func(t *testing.T, a, b engine, c *clock) {
			ask := func(id, principal string) (approval.Request, error) {
				return a.Join(bg, approval.Request{ID: id, Key: "k" + id, Principal: principal,
					TTL: time.Minute, Detail: json.RawMessage("{}")}, 2)
			}
			for _, id := range []string{"1", "2"} {
				if _, err := ask(id, "agent"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := ask("3", "agent"); !errors.Is(err, approval.ErrFull) {
				t.Errorf("a third question: %v", err)
			}
			if _, err := ask("4", "other"); err != nil {
				t.Errorf("another principal's: %v", err)
			}
			if _, err := b.Decide(bg, "1", approval.Verdict{By: "ops", Note: "no"}); err != nil {
				t.Fatal(err)
			}
			if got, err := ask("1", "agent"); err != nil || got.State != approval.Denied ||
				got.Note != "no" {
				t.Errorf("asking again after a no: %+v, %v", got, err)
			}
			if list, err := b.Requests(bg, "", approval.Waiting); err != nil || len(list) != 2 {
				t.Errorf("waiting: %v, %v", list, err)
			}
			if list, err := b.Requests(bg, "1", ""); err != nil || len(list) != 1 ||
				list[0].By != "ops" || list[0].Decided.IsZero() {
				t.Errorf("one: %v, %v", list, err)
			}
			c.add(time.Minute)
			if got, err := ask("5", "agent"); err != nil || got.State != approval.Waiting {
				t.Errorf("after all has expired: %+v, %v", got, err)
			}
			if _, err := a.Join(bg, approval.Request{ID: "6", Key: "k", Principal: "agent",
				TTL: time.Minute, Detail: json.RawMessage("{")}, 9); err == nil {
				t.Error("a detail that is not JSON was kept")
			}
		},
		"usage tells what is counted now": func(t *testing.T, a, b engine, c *clock) {
			for _, who := range []string{"x", `y" "z`, "x"} {
				if _, _, err := a.Take(bg, call(who, "105")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := a.Reserve(bg, "x", 70, 100); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Join(bg, approval.Request{ID: "1", Key: "k", Principal: "x",
				TTL: time.Minute, Detail: json.RawMessage("{}")}, 9); err != nil {
				t.Fatal(err)
			}
			want := store.Usage{Waiting: 1, USDMicros: map[string]int64{"x": 70}}
			if got, err := b.Usage(bg); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
			c.add(24 * time.Hour)
			if got, err := b.Usage(bg); err != nil ||
				!reflect.DeepEqual(got, store.Usage{USDMicros: map[string]int64{}}) {
				t.Errorf("a day later: %+v, %v", got, err)
			}
		},
		"a blob is its owner's until it expires": func(t *testing.T, a, b engine, c *clock) {
			entry := blob.Entry{ID: "1", Principal: "x", Name: "n", MIME: "text/plain", Bytes: 60,
				SHA256: "00", Expires: c.now().Add(time.Minute)}
			if err := a.AddBlob(bg, entry, 100); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Blob(bg, "x", "1"); err != nil || got.Bytes != 60 || got.Name != "n" ||
				!got.Expires.Equal(entry.Expires) {
				t.Errorf("got %+v, %v", got, err)
			}
			if _, err := b.Blob(bg, "y", "1"); !errors.Is(err, blob.ErrNone) {
				t.Errorf("another's blob: %v", err)
			}
			entry.ID, entry.Bytes = "2", 41
			if err := b.AddBlob(bg, entry, 100); err == nil ||
				!strings.Contains(err.Error(), "limit of 100, of which 60") {
				t.Errorf("more than the limit: %v", err)
			}
			c.add(time.Minute)
			if _, err := a.Blob(bg, "x", "1"); !errors.Is(err, blob.ErrNone) {
				t.Errorf("an expired blob: %v", err)
			}
			ids, err := a.ExpireBlobs(bg)
			if more, err2 := b.ExpireBlobs(bg); fmt.Sprint(ids, more) != "[1] []" ||
				errors.Join(err, err2) != nil {
				t.Errorf("expired %v and %v, %v %v", ids, more, err, err2)
			}
		},
		"a lease is one host's, for its time": leases,
		"an approval of several persons":      severalPersons,
		"no approval without its persons":     noneIsUsedWithoutItsPersons,
		"16 takers over two handles take exactly what there is": func(t *testing.T, a, b engine,
			c *clock) {
			if _, err := a.Join(bg, approval.Request{ID: "1", Key: "k", Principal: "agent",
				TTL: time.Minute, Detail: json.RawMessage("{}")}, 9); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Decide(bg, "1", approval.Verdict{Approve: true, By: "ops"}); err != nil {
				t.Fatal(err)
			}
			total := sum(16, func(i int) (r raced) { return race([]engine{a, b}[i%2]) })
			if want := (raced{Reserved: 60, Consumed: 1,
				Highest: 16 * raceCalls}); total != want {
				t.Errorf("took %+v, want %+v", total, want)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			open, c := newStore(t), &clock{t: time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)}
			test(t, open(t, c.now), open(t, c.now), c)
		})
	}
}
