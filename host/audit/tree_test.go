package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

func TestTree(t *testing.T) {
	j := open(t, Options{})
	when := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	exit := 0
	write := func(r terms.Record) {
		t.Helper()
		r.Time, r.CallID, r.Principal, r.Tool = when, cmp.Or(r.CallID, "c1"), "agent-a", "exec"
		var err error
		if r.Type == "outcome" {
			err = j.Outcome(bg, r)
		} else {
			err = j.Intent(bg, r, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(
		terms.Record{
			Type:   "intent",
			Kind:   "call",
			ID:     "1",
			Tier:   "yellow",
			Source: "stdio",
			Input: json.RawMessage(
				`{"targets":{"nodes":["pve1"],"vmids":["101"]},` +
					`"commands":[{"calls":[{"argv":["echo","\u001b[2J"]}]}]}`,
			),
		},
	)
	write(
		terms.Record{Type: "intent", Kind: "call", ID: "9", CallID: "c2", Tier: "green",
			Source: "http"},
	)
	write(
		terms.Record{
			Type:  "intent",
			Kind:  "operation",
			ID:    "2",
			Op:    "ssh_exec",
			Phase: "effect",
			Node:  "pve1",
			Tier:  "yellow",
			Input: json.RawMessage(
				`{"command":{"calls":[{"argv":["pct","exec","101","--","sh","-c","echo it's"]}]}}`,
			),
		},
	)
	write(
		terms.Record{Type: "outcome", Kind: "operation", ID: "2", Outcome: terms.Succeeded,
			Exit: &exit, Bytes: 7, DurationUS: 1500},
	)
	write(
		terms.Record{
			Type:   "refused",
			Kind:   "operation",
			ID:     "3",
			Op:     "sftp_read",
			Phase:  "lookup",
			Node:   "pve1",
			Failed: []string{"binding", "path"},
			Denied: []terms.Reason{{ID: "path", Msg: "not a path of this call"}},
			Input: json.RawMessage(
				`{"file":{"action":"read","path":"/etc/shadow","local":false}}`,
			),
		},
	)
	write(
		terms.Record{Type: "outcome", Kind: "call", ID: "1", Outcome: terms.Succeeded, Refused: 1,
			DurationUS: 12_345_678},
	)
	write(
		terms.Record{Type: "refused", Kind: "call", ID: "5", CallID: "c3",
			Failed: []string{"protected"},
			Denied: []terms.Reason{{ID: "protected", Msg: "103 is protected:\nbackup"}}},
	)
	j.Close()
	var b strings.Builder
	if err := printTree(&b, recordsOf(t, j.opt.Dir)); err != nil {
		t.Fatal(err)
	}
	want := `2026-11-21 14:00:00.000  agent-a  exec  yellow  via stdio  call c1
│    nodes pve1 · vmids 101 · $ echo ‹U+001B›[2J
├─ ssh_exec  on pve1  yellow: $ pct exec 101 -- sh -c 'echo it'\''s'
│    ✓ succeeded  exit 0  7 bytes  1.5ms
├─ sftp_read (looking)  on pve1: read /etc/shadow
│    ✗ REFUSED  checks that did not hold: binding, path
│        path: not a path of this call
└─ ✓ succeeded  12.35s  (1 operations refused)

2026-11-21 14:00:00.000  agent-a  exec  call c3
└─ ✗ REFUSED  checks that did not hold: protected
       protected: 103 is protected:‹U+000A›backup

2026-11-21 14:00:00.000  agent-a  exec  green  via http  call c2
└─ ? no outcome: it still runs, or its process ended before it could say

`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The tree of a record cannot steer a terminal or pretend to be more lines than it is.
func FuzzTree(f *testing.F) {
	f.Add(
		"call",
		"refused",
		"ssh_exec",
		"a\x1b]0;x\ab",
		"\u202e",
		`{"command":{"calls":[{"argv":["a b","\r\n"]}]},"file":{"path":"\u0007"}}`,
	)
	f.Fuzz(func(t *testing.T, kind, typ, op, msg, who, input string) {
		r := terms.Record{
			Kind:      kind,
			Type:      typ,
			Op:        op,
			Tool:      msg,
			Principal: who,
			CallID:    msg,
			Node:      who,
			Tier:      op,
			Source:    who,
			Code:      msg,
			SHA256:    who,
			Outcome:   terms.Outcome(msg),
			Failed:    []string{msg},
			Denied:    []terms.Reason{{ID: who, Msg: msg}},
			Input:     json.RawMessage(input),
		}
		end := r
		end.Type = "outcome"
		var b strings.Builder
		other := Shadow{ID: who, CallID: who, Revision: msg, Tier: op, Failed: []string{who, msg},
			Change: op}
		if err := printTree(&b, slices.Values([]told{{Record: &r}, {Record: &end},
			{Shadow: &other}})); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "\n") > 13 {
			t.Errorf("too many lines:\n%s", b.String())
		}
		for _, c := range b.String() {
			if c != '\n' && !strconv.IsPrint(c) {
				t.Fatalf("%U in\n%q", c, b.String())
			}
		}
	})
}

func TestTreeShowsApprovals(t *testing.T) {
	j := open(t, Options{})
	at := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	red := `{"targets":{"vmids":["105"]},"confirmation":{"state":"%s","by":"%s"}}`
	yes := &terms.Verdict{Request: "s20f", Approve: true, By: "ann", Channel: "web"}
	for i, r := range []terms.Record{
		{Type: "refused", Kind: "call", ID: "1", CallID: "c1", Outcome: terms.Waits,
			Failed: []string{"confirmation"}, Denied: []terms.Reason{{ID: "confirmation",
				Msg: "needs a person"}}, Input: json.RawMessage(fmt.Sprintf(red, "none", ""))},
		{Type: "intent", Kind: "approval", ID: "2", CallID: "c1", Op: "approve", Verdict: yes},
		{Type: "outcome", Kind: "approval", ID: "2", CallID: "c1", Op: "approve", Verdict: yes,
			Outcome: terms.Succeeded},
		{Type: "intent", Kind: "call", ID: "3", CallID: "c2",
			Input: json.RawMessage(fmt.Sprintf(red, "approved", "ann"))},
		{Type: "outcome", Kind: "call", ID: "3", CallID: "c2", Outcome: terms.Succeeded},
		{Type: "intent", Kind: "approval", ID: "4", CallID: "c3", Op: "deny",
			Verdict: &terms.Verdict{Request: "x\x1b", By: "bob", Channel: "cli",
				Note: "not\ntoday"}},
		{Type: "outcome", Kind: "approval", ID: "4", CallID: "c3", Op: "deny",
			Verdict: &terms.Verdict{Request: "x\x1b", By: "bob", Channel: "cli",
				Note: "not\ntoday"}, Outcome: terms.Failed},
		{Type: "intent", Kind: "approval", ID: "5", CallID: "c4", Op: "approve"},
	} {
		r.Time, r.Principal, r.Tool = at.Add(
			time.Duration(i)*time.Second), "agent-a", "delete_guest"
		write := j.Outcome
		if r.Type != "outcome" {
			write = func(ctx context.Context, r terms.Record) error {
				return j.Intent(ctx, r,
					false)
			}
		}
		if err := write(bg, r); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	var b strings.Builder
	if err := printTree(&b, recordsOf(t, j.opt.Dir)); err != nil {
		t.Fatal(err)
	}
	want := `2026-11-21 14:00:00.000  agent-a  delete_guest  call c1
│    vmids 105
└─ … WAITS for a person: nothing has run

2026-11-21 14:00:02.000  ann  approves delete_guest of agent-a  via web  request s20f  call c1
└─ ✓ the answer counts, once

2026-11-21 14:00:03.000  agent-a  delete_guest  call c2
│    vmids 105 · approved by ann
└─ ✓ succeeded  0s

2026-11-21 14:00:06.000  bob  denies delete_guest of agent-a  via cli  request x‹U+001B›  call c3
│    note: not‹U+000A›today
└─ ! the answer was not taken: it came too late, or cannot be kept

2026-11-21 14:00:07.000  ?  denies delete_guest of agent-a  call c4
└─ ? no outcome: its process ended before it could say whether the answer counts

`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// recordsOf yields the records of a journal that can be read.
func recordsOf(t *testing.T, dir string) iter.Seq[told] {
	return func(yield func(told) bool) {
		for e, err := range Records(dir) {
			if err != nil {
				t.Error(err)
			}
			if e.Record != nil && !yield(told{Record: e.Record}) {
				return
			}
		}
	}
}
