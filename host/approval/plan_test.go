package approval_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// sheet is a plan that has this digest.
type sheet string

func (p sheet) Digest() string                      { return string(p) }
func (p sheet) Text() string                        { return "1. red pct destroy 105\n" }
func (p sheet) Complete() (bool, string)            { return true, "" }
func (p sheet) Next(terms.Question) terms.PlanFacts { return terms.PlanFacts{} }
func (p sheet) Take()                               {}

func (p sheet) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `{"digest":%q}`, p), nil }

func planned(digest string) *terms.Call {
	c := call()
	c.Plan = sheet(digest)
	return c
}

// A call that comes to another plan each time is refused, and leaves room for the other requests
// of its principal.
func TestACallThatIsNeverThePlanThatWasAskedAboutIsRefused(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.waits(planned(fmt.Sprint("sha256:", i)))
	}
	_, err := w.a.Confirm(t.Context(), planned("sha256:3"), seen(call(), red), quiet)
	no := refusedFor(t, err, "approval.unsteady")
	if msg := no.Denied[0].Msg; !strings.Contains(msg, "came to 3 other plans") ||
		!strings.Contains(msg, "depends on the time or on chance") {
		t.Error(msg)
	}
	w.waits(planned("sha256:2")) // a plan that was asked about is still asked about
	other := planned("sha256:4")
	other.Args.Digest = "sha256:106"
	w.waits(other)
	w.ahead.Add(time.Hour.Milliseconds())
	w.waits(planned("sha256:3"))
}

func TestUsedApprovalsMakeNoCallUnsteady(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		c := planned(fmt.Sprint("sha256:", i))
		w.approve(w.waits(c))
		if got, err := w.a.Confirm(t.Context(), c, seen(c, red), quiet); err != nil ||
			got.State != "approved" {
			t.Fatal(got, err)
		}
	}
}

func TestAYesNamesThePlanInTheJournal(t *testing.T) {
	w := newWorld(t)
	w.approve(w.waits(planned("sha256:7")))
	for _, r := range w.journal.records {
		if r.Kind == "approval" && r.Plan != "sha256:7" {
			t.Errorf("%+v", r)
		}
	}
	if len(w.journal.records) == 0 {
		t.Error("no record")
	}
}

// What was approved runs once, as it was planned, by whom it was planned for, before it expires.
func TestAnApprovedPlanCannotBeReplayed(t *testing.T) {
	for name, change := range map[string]func(*world, *terms.Call){
		"by another principal": func(_ *world, c *terms.Call) { c.Principal.ID = "agent-b" },
		"by another plugin": func(_ *world, c *terms.Call) {
			c.Tool.Plugin.Digest = "sha256:bb"
		},
		"with other arguments": func(_ *world, c *terms.Call) { c.Args.Digest = "sha256:106" },
		"on another guest": func(_ *world, c *terms.Call) {
			c.Targets.VMIDs = []string{"106"}
		},
		"with other local files": func(_ *world, c *terms.Call) {
			c.Files = map[string]string{"a": "sha256:cc"}
		},
		"with another plan": func(_ *world, c *terms.Call) { c.Plan = sheet("sha256:2") },
		"without its plan":  func(_ *world, c *terms.Call) { c.Plan = nil },
		"after it has expired": func(w *world, _ *terms.Call) {
			w.ahead.Add(time.Hour.Milliseconds())
		},
		"a second time, after a run": nil,
	} {
		w, c := newWorld(t), planned("sha256:1")
		id := w.waits(c)
		w.approve(id)
		again := planned("sha256:1")
		if change == nil {
			if got, err := w.a.Confirm(t.Context(), c, seen(c, red), quiet); err != nil ||
				got.State != "approved" {
				t.Fatal(got, err)
			}
		} else {
			change(w, again)
		}
		if other := w.waits(again); other == id {
			t.Errorf("%s: the same request is asked about", name)
		}
	}
}

// long is a plan that says more to programs, and to people.
type long struct {
	sheet
	json, text int // bytes
}

func (p long) Text() string { return strings.Repeat("x", p.text) }

func (p long) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(
		nil,
		`{"digest":%q,"steps":%q}`,
		p.Digest(),
		strings.Repeat("x", p.json),
	), nil
}

// The plan of an upload of 1,000 files has 700 KB of JSON, and a text that a person can read.
func TestALongPlanIsAskedAboutIfItsTextIsShort(t *testing.T) {
	for name, c := range map[string]struct {
		plan long
		want string // "" asks a person
	}{
		"much JSON":     {long{"sha256:1", 700_000, 40_000}, ""},
		"too much JSON": {long{"sha256:2", 1 << 20, 10}, "and a plan of 1048"},
		"too much to read": {long{"sha256:3", 10, 64 << 10},
			"too long for a person to judge: 66"},
		"too much with args": {long{"sha256:4", 10, 40_000}, "too long for a person to judge: 7"},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := newWorld(t), call()
			a.Plan = c.plan
			if name == "too much with args" {
				a.Args.Value["command"] = strings.Repeat("x", 30_000)
			}
			if c.want == "" {
				w.approve(w.waits(a))
				return
			}
			_, err := w.a.Confirm(t.Context(), a, seen(a, red), quiet)
			no := refusedFor(t, err, "approval.detail")
			if msg := no.Denied[0].Msg; !strings.Contains(msg, c.want) {
				t.Error(msg)
			}
		})
	}
}
