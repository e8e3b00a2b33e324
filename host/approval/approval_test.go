package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/terms"
)

func TestAYesIsUsedOnceByTheSameCallAlone(t *testing.T) {
	for name, change := range map[string]func(*terms.Call){
		"other arguments":      func(c *terms.Call) { c.Args.Digest = "sha256:106" },
		"another tool":         func(c *terms.Call) { c.Tool.Name = "stop_guest" },
		"another kind":         func(c *terms.Call) { c.Tool.Kind = "prompt" },
		"another principal":    func(c *terms.Call) { c.Principal.ID = "agent-b" },
		"another plugin build": func(c *terms.Call) { c.Tool.Plugin.Digest = "sha256:bb" },
		"another guest":        func(c *terms.Call) { c.Targets.VMIDs = []string{"106"} },
		"another node":         func(c *terms.Call) { c.Targets.Nodes = []string{"pve2"} },
		"a moved target": func(c *terms.Call) {
			c.Targets.VMIDs, c.Targets.Services = nil,
				[]string{"105"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.waits(call())
			w.approve(id)
			other := call()
			change(other)
			if w.waits(other) == id {
				t.Error("it joined the request of another call")
			}
			got, err := w.a.Confirm(t.Context(), call(), seen(call(), red), quiet)
			if err != nil ||
				!is(got, "approved", "ann", "cli") {
				t.Fatalf("the call itself: %+v, %v", got, err)
			}
			if w.waits(call()) == id {
				t.Error("the yes was used twice")
			}
		})
	}
	t.Run(
		"what is not bound may change: a new policy, another connection, an attempt's own id",
		func(t *testing.T) {
			w := newWorld(t)
			w.approve(w.waits(call()))
			again := call()
			again.ID, again.Source, again.Args.Value = "call2", "stdio", map[string]any{
				"guest_id": int64(105), "confirmed": true}
			d := red
			d.Revision = "rev2"
			if got, err := w.a.Confirm(t.Context(), again, seen(again, d), quiet); err != nil ||
				got.State != "approved" {
				t.Errorf("%+v, %v", got, err)
			}
		},
	)
}

func TestSixteenCallsInTwoProcessesGetOneYes(t *testing.T) {
	w := newWorld(t)
	second, _ := w.process()
	for range 5 {
		w.approve(w.waits(call()))
		var yes, waiting atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				got, err := []*approval.Approvals{w.a, second}[i%2].Confirm(t.Context(), call(),
					seen(call(), red), quiet)
				if w := (*terms.Waiting)(nil); errors.As(err, &w) {
					waiting.Add(1)
				} else if err == nil && got.State == "approved" {
					yes.Add(1)
				} else {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		all.Wait()
		if yes.Load() != 1 || waiting.Load() != 15 {
			t.Fatalf("%d calls were confirmed and %d wait; want 1 and 15", yes.Load(),
				waiting.Load())
		}
	}
}

func TestExpiryIsExactToTheMillisecond(t *testing.T) {
	ttl := 15 * time.Minute.Milliseconds()
	t.Run("a yes one millisecond before", func(t *testing.T) {
		w := newWorld(t)
		w.approve(w.waits(call()))
		w.ahead.Store(ttl - 1)
		if got, err := w.a.Confirm(t.Context(), call(), seen(call(), red), quiet); err != nil ||
			got.State != "approved" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("a yes at its expiry", func(t *testing.T) {
		w := newWorld(t)
		id := w.waits(call())
		w.approve(id)
		w.ahead.Store(ttl)
		if w.waits(call()) == id {
			t.Error("the expired request is still there")
		}
	})
	t.Run("an answer at the question's expiry", func(t *testing.T) {
		w := newWorld(t)
		id := w.waits(call())
		w.ahead.Store(ttl)
		if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Channel: "cli",
			Approve: true, By: "ann"}); !errors.Is(
			err,
			approval.ErrNone,
		) {
			t.Errorf("Decide: %v", err)
		}
	})
	t.Run("a call that waits while its request expires is told so", func(t *testing.T) {
		w := newWorld(t, func(o *approval.Options) { o.Wait = 5 * time.Second })
		waits := func(string) { w.ahead.Store(ttl) } // it is told to wait: the request is there
		if got, err := w.a.Confirm(t.Context(), call(), seen(call(), red), waits); err != nil ||
			!is(got, "expired", "", "") {
			t.Errorf("%+v, %v; policy must refuse the state expired", got, err)
		}
	})
}

func TestACallGoesOnSoonAfterAnotherProcessDecides(t *testing.T) {
	// the default poll
	w := newWorld(t, func(o *approval.Options) { o.Wait, o.Poll = 20*time.Second, 0 })
	other, _ := w.process()
	decided := make(chan time.Time, 1)
	go func() {
		for {
			list, err := other.Requests(t.Context(), "", approval.Waiting)
			if err != nil || len(list) == 1 {
				if err == nil {
					_, err = other.Decide(
						t.Context(),
						approval.Verdict{Request: list[0].ID, Channel: "cli", Approve: true,
							By: "bob"},
					)
				}
				if err != nil {
					t.Error(err)
				}
				decided <- time.Now()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	got, err := w.a.Confirm(t.Context(), call(), seen(call(), red), quiet)
	took := time.Since(<-decided)
	t.Logf("woke %s after the decision", took)
	if err != nil || !is(got, "approved", "bob", "cli") ||
		took > 20*time.Second {
		t.Errorf("%+v, %v after %s", got, err, took)
	}
}

func TestACancelledCallRunsNothing(t *testing.T) {
	w := newWorld(t, func(o *approval.Options) { o.Wait = time.Minute })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		got, err := w.a.Confirm(ctx, call(), seen(call(), red), quiet)
		if got.State != "" {
			t.Errorf("a cancelled call got %+v", got)
		}
		ended <- err
	}()
	var list []approval.Request
	for len(list) == 0 {
		list, _ = w.a.Requests(t.Context(), "", "")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Confirm: %v", err)
	}
	w.approve(list[0].ID) // too late for that call; the same call made again may use it
	if list, _ = w.a.Requests(t.Context(), list[0].ID, ""); list[0].State != approval.Approved {
		t.Errorf("state %s: no call was there to use it", list[0].State)
	}
}

func TestWhoMayApprove(t *testing.T) {
	for name, tt := range map[string]struct{ by, why string }{
		"the requester":                      {"agent-a", "may not approve"},
		"the requester in other letter case": {"Agent-A", "asks for it and may not give it"},
		"a name that is not listed":          {"mallory", "add the name to approvers"},
		"no name":                            {"", "not a name"},
		"a name made to look like two":       {"ann\nbob", "not a name"},
	} {
		t.Run(name+" may not", func(t *testing.T) {
			w := newWorld(t)
			id := w.waits(call())
			if _, err := w.a.Decide(t.Context(),
				approval.Verdict{Request: id, Channel: "cli", Approve: true,
					By: tt.by}); err == nil ||
				!strings.Contains(err.Error(), tt.why) {
				t.Errorf("Decide: %v, want %q", err, tt.why)
			}
			if w.waits(call()) != id {
				t.Error("it no longer waits")
			}
		})
	}
	t.Run("a yes does not count when its giver is no longer listed", func(t *testing.T) {
		w := newWorld(t)
		w.approve(w.waits(call()))
		w.a, w.s = w.process(func(o *approval.Options) { o.Approvers = []string{"bob"} })
		_, err := w.a.Confirm(t.Context(), call(), seen(call(), red), quiet)
		refusedFor(t, err, "approval.approver")
	})
	t.Run("a yes is not given twice, and a no is final", func(t *testing.T) {
		w := newWorld(t)
		id := w.waits(call())
		w.approve(id)
		for _, yes := range []bool{true, false, true, false} {
			_, err := w.a.Decide(t.Context(),
				approval.Verdict{Request: id, Channel: "cli", By: "bob", Approve: yes})
			want := "approved already"
			switch w.state(id) {
			case approval.Denied:
				want = "denied already"
			}
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("another answer: %v", err)
			}
		}
		if s := w.state(id); s != approval.Denied {
			t.Errorf("the state is %s", s)
		}
	})
	t.Run("a yes that was not used can be taken back, in the journal first", func(t *testing.T) {
		w := newWorld(t)
		id := w.waits(call())
		w.approve(id)
		w.journal.broken = errors.New("full")
		no := approval.Verdict{Request: id, Channel: "cli", By: "bob", Note: "not now"}
		if _, err := w.a.Decide(t.Context(), no); err == nil || w.state(id) != approval.Approved {
			t.Errorf("without a journal: %v, %s", err, w.state(id))
		}
		w.journal.broken = nil
		_, err := w.a.Decide(t.Context(), no)
		must(t, err)
		if last := w.journal.records[len(w.journal.records)-1]; last.Op != "deny" ||
			last.Verdict.By != "bob" || last.Outcome != terms.Succeeded {
			t.Errorf("the journal has %+v", last)
		}
		_, err = w.a.Confirm(t.Context(), call(), seen(call(), red), quiet)
		refusedFor(t, err, "approval.denied")
	})
	t.Run("a guessed id answers nothing", func(t *testing.T) {
		w := newWorld(t)
		w.waits(call())
		for _, id := range []string{"", "%", "*", "' OR 1=1 --", "aaaaaaaaaaaaaaaa"} {
			if _, err := w.a.Decide(t.Context(),
				approval.Verdict{Request: id, Channel: "cli", Approve: true,
					By: "ann"}); !errors.Is(
				err,
				approval.ErrNone,
			) {
				t.Errorf("id %q: %v", id, err)
			}
		}
	})
}

func TestADenialIsReportedWithItsNoteAndStays(t *testing.T) {
	w := newWorld(t)
	id := w.waits(call())
	_, err := w.a.Decide(t.Context(),
		approval.Verdict{Request: id, Channel: "cli", By: "bob", Note: "not \x1b[31mtoday"})
	must(t, err)
	for range 2 {
		_, err = w.a.Confirm(t.Context(), call(), seen(call(), red), quiet)
		if msg := refusedFor(t, err, "approval.denied").Error(); !strings.Contains(msg,
			"bob said no") ||
			!strings.Contains(msg, "not ‹U+001B›[31mtoday") {
			t.Errorf("it says %q", msg)
		}
	}
}

func TestOnePrincipalCannotFloodPeople(t *testing.T) {
	w := newWorld(t)
	n := func(i int, who string) *terms.Call {
		c := call()
		c.Principal.ID, c.Args.Digest = who, "sha256:"+strings.Repeat("x", i+1)
		return c
	}
	for i := range 5 {
		w.waits(n(i, "agent-a"))
		w.waits(n(i, "agent-a")) // again: it joins
	}
	_, err := w.a.Confirm(t.Context(), n(6, "agent-a"), seen(n(6, "agent-a"), red), quiet)
	refusedFor(t, err, "approval.flood")
	w.waits(n(6, "agent-b"))
}

func TestWhatCannotBeAskedIsRefused(t *testing.T) {
	t.Run("the store is gone", func(t *testing.T) {
		w := newWorld(t)
		must(t, os.Remove(filepath.Join(w.dir, "store.db")))
		_, err := w.a.Confirm(t.Context(), call(), seen(call(), red), quiet)
		if msg := refusedFor(t, err, "approval.unavailable").Error(); strings.Contains(msg, w.dir) {
			t.Errorf("it tells the caller about the host's files: %s", msg)
		}
	})
	t.Run("more than a person would read", func(t *testing.T) {
		w := newWorld(t)
		c := call()
		c.Args.Value["command"] = strings.Repeat("true; ", 12_000)
		_, err := w.a.Confirm(t.Context(), c, seen(c, red), quiet)
		refusedFor(t, err, "approval.detail")
	})
	t.Run("a call without a digest to bind to", func(t *testing.T) {
		w := newWorld(t)
		c := call()
		c.Args.Digest = ""
		_, err := w.a.Confirm(t.Context(), c, seen(c, red), quiet)
		refusedFor(t, err, "approval.detail")
	})
}

func TestAPersonSeesAllThatMatters(t *testing.T) {
	w := newWorld(t)
	c := call()
	c.Args.Value = map[string]any{"guest_id": int64(105), "why": "safe\u202eevil",
		"nested": map[string]any{"a": []any{"b"}}}
	c.Commands = []terms.Command{
		{
			Arg:   "command",
			Guest: true,
			Lowered: terms.Lowered{Parsed: true,
				Calls: []terms.Simple{{Argv: []string{"echo", "a b", "it's"}}}},
		},
	}
	d := seen(c, red) // what policy shows; the call itself holds more
	d.Shown = json.RawMessage(
		strings.Replace(string(d.Shown), "{", `{"password":{"redacted":true},`, 1),
	)
	c.Args.Value["password"] = "hunter2"
	c.Commands = append(
		c.Commands,
		terms.Command{
			Arg: "other",
			Lowered: terms.Lowered{Parsed: true,
				Calls: []terms.Simple{{Argv: []string{"login", "-p", "hunter2"}}}},
		},
	)
	_, err := w.a.Confirm(t.Context(), c, seen(c, d), quiet)
	list, lerr := w.a.Requests(t.Context(), "", "")
	must(t, lerr)
	if len(list) != 1 {
		t.Fatalf("%d requests (%v)", len(list), err)
	}
	var b strings.Builder
	must(t, list[0].Print(&b))
	for _, want := range []string{"agent-a", "delete_guest", "guests 1.0.0", "pct destroy VMID",
		"may run    pct destroy\n", "may run    pct status\n", "105", "pve1 in cluster lab, " +
			"192.0.2.1", "Calls of tier red run only after a person approved them.", "red", "rev1",
		`password: {"redacted":true}`, "safe‹U+202E›evil", `nested: {"a":["b"]}`,
		"in the guest's shell", `$ echo 'a b' 'it'\''s'`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not show %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String()+string(list[0].Detail), "hunter2") {
		t.Error("a value that the site keeps out of the journal is shown")
	}
}

func TestOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		o   approval.Options
		why string
	}{
		"a page for the whole network": {approval.Options{Listen: "0.0.0.0:80",
			Approvers: []string{"ann"}}, "approval.listen"},
		"a page without approvers": {approval.Options{Listen: "127.0.0.1:1"},
			"approval.approvers"},
		"a page over plain HTTP": {approval.Options{URL: "http://approve.example.org"},
			"approval.url"},
		"a webhook over plain HTTP":     {approval.Options{Webhook: approval.Webhook{URL: "http://hook.example.org", Secret: strings.Repeat("x", 32)}}, "approval.webhook.url"},
		"a webhook that proves nothing": {approval.Options{Webhook: approval.Webhook{URL: "https://hook.example.org", Secret: "short"}}, "approval.webhook.secret"},
		"an approver that is no name": {approval.Options{Approvers: []string{"ann smith"}},
			"approval.approvers"},
		"waiting for ever": {approval.Options{Wait: time.Hour}, "approval.wait"},
		"a yes for ever": {approval.Options{Expires: 48 * time.Hour},
			"approval.expires"}} {
		if err := tt.o.Validate(); err == nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %v, want %s", name, err, tt.why)
		}
	}
	if err := (approval.Options{}).Validate(); err != nil {
		t.Errorf("the zero Options: %v", err)
	}
}
