package plan

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// journal is a call that was planned, approved and run: its second step was another one.
func journal() []terms.Record {
	op := func(planning bool, argv ...string) json.RawMessage {
		b, _ := json.Marshal(map[string]any{"op": "ssh_exec", "planning": planning,
			"target": map[string]any{"node": "pve1"}, "command": map[string]any{
				"calls": []any{map[string]any{"argv": argv, "static": true}}}})
		return b
	}
	steps, _ := json.Marshal(map[string]any{"complete": true, "steps": []json.RawMessage{
		[]byte(strings.Replace(string(op(true, "pct", "stop", "101")), "{",
			`{"tier":"red","allowed":true,`, 1)),
		[]byte(strings.Replace(string(op(true, "pct", "start", "101")), "{",
			`{"tier":"red","allowed":true,`, 1)),
		[]byte(strings.Replace(string(op(true, "pct", "stop", "102")), "{",
			`{"tier":"red","allowed":true,`, 1)),
	}})
	at := time.Unix(1_700_000_000, 0)
	tick := func(r terms.Record) terms.Record {
		at = at.Add(time.Second)
		r.Time, r.Principal, r.Tool = at, "ann", "restart"
		return r
	}
	red := func(r terms.Record) terms.Record {
		r.Kind, r.Op, r.Phase, r.Tier = "operation", "ssh_exec", "effect", "red"
		return tick(r)
	}
	const sum = "sha256:aa"
	all := []terms.Record{
		tick(terms.Record{Type: "refused", ID: "d1", CallID: "call", Kind: "call",
			Outcome: terms.Waits}),
		tick(terms.Record{Type: "intent", ID: "d2", CallID: "dry", Kind: "call"}),
		tick(terms.Record{Type: "intent", ID: "d5", CallID: "dry", Kind: "plan", Plan: sum,
			Input: steps}),
		tick(terms.Record{Type: "intent", ID: "v1", CallID: "call", Kind: "approval", Op: "approve",
			Plan: sum, Verdict: &terms.Verdict{Request: "r1", Approve: true, By: "bob",
				Channel: "cli"}}),
		tick(terms.Record{Type: "intent", ID: "d6", CallID: "call", Kind: "call", Plan: sum}),
		red(terms.Record{Type: "refused", ID: "d7", CallID: "call", Plan: sum, Outcome: terms.Waits,
			Failed: []string{"touched"}, Input: op(false, "pct", "stop", "101")}),
		red(terms.Record{Type: "intent", ID: "d8", CallID: "call", Plan: sum,
			Input: op(false, "pct", "stop", "101")}),
		red(terms.Record{Type: "outcome", ID: "d8", CallID: "call", Plan: sum,
			Outcome: terms.Succeeded}),
		red(terms.Record{Type: "refused", ID: "d9", CallID: "call", Plan: sum,
			Denied: []terms.Reason{{ID: "planned", Msg: "the next step is another"}},
			Input:  op(false, "pct", "destroy", "101")}),
		red(terms.Record{Type: "intent", ID: "e1", CallID: "call", Plan: sum,
			Input: op(false, "pct", "start", "101")}),
		tick(terms.Record{Type: "intent", ID: "d6x", CallID: "other", Kind: "call", Plan: sum}),
	}
	return all
}

func TestShowPrintsThePlanBesideTheOperations(t *testing.T) {
	s, found, err := Show("call", slices.Values(journal()))
	if err != nil || !found {
		t.Fatal(found, err)
	}
	var b strings.Builder
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	want := `call of restart by ann at 2023-11-14 22:13:21: no outcome: it runs, or the host was ` +
		`ended
plan sha256:aa, complete, made by dry
approved by bob on cli (r1)
  1  allowed  succeeded    pct stop 101 on pve1
  2  allowed  begun        pct start 101 on pve1
  3  allowed  not reached  pct stop 102 on pve1
  -  no step  refused      pct destroy 101 on pve1
                            (planned) the next step is another
                            caponier policy explain d9
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestShowDoesNotFindAnUnknownCall(t *testing.T) {
	if s, found, err := Show("none", slices.Values(journal())); found || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestShowReportsAMissingPlan(t *testing.T) {
	without := slices.DeleteFunc(journal(), func(r terms.Record) bool { return r.Kind == "plan" })
	s, found, err := Show("call", slices.Values(without))
	var b strings.Builder
	_ = s.Text(&b)
	if err != nil || !found || !strings.Contains(b.String(), "which the journal no longer has") ||
		len(s.Rows) != 3 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// A journal has many plans, each with all that was decided about: those of others are not kept.
func TestShowKeepsNoPlanOfOtherCalls(t *testing.T) {
	const plans, size = 100, 1 << 20
	var most uint64
	records := func(yield func(terms.Record) bool) {
		for i := range plans {
			if !yield(terms.Record{Type: "intent", ID: fmt.Sprint("o", i), Kind: "plan",
				Plan: fmt.Sprint("sha256:", i), Input: make([]byte, size)}) {
				return
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		slices.Values(journal())(yield)
	}
	s, found, err := Show("call", records)
	if err != nil || !found || !s.Complete || s.DryRun != "dry" {
		t.Errorf("%v, %v, %+v", found, err, s)
	}
	if most > plans*size/2 {
		t.Errorf("%d MiB are kept", most>>20)
	}
}
