package approval_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// user is the user of a client, whose answer to each request is asked for in one round and given in
// the next.
type user struct {
	can    bool
	says   string
	mu     sync.Mutex // guards the following
	heard  map[string]string
	answer map[string]bool // requests that were put
}

func (u *user) Ask(abi.Ask) (terms.Result, error) { return terms.Result{}, terms.ErrPending }
func (u *user) CanConfirm() bool                  { return u.can }
func (u *user) Confirm(request, message string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.heard == nil {
		u.heard, u.answer = map[string]string{}, map[string]bool{}
	}
	if u.answer[request] {
		return u.says
	}
	u.heard[request], u.answer[request] = message, true
	return "asked"
}

// on is a decision that takes a yes on these channels.
func on(c *terms.Call, channels ...string) terms.Decision {
	d := seen(c, red)
	d.Obligations.Channels = channels
	return d
}

func TestTheSiteSaysWhoseYesCounts(t *testing.T) {
	type world2 struct {
		*world
		u *user
	}
	begin := func(t *testing.T, u *user, change ...func(*approval.Options)) world2 {
		return world2{newWorld(t, change...), u}
	}
	confirm := func(w world2, channels ...string) (terms.Confirmation, error) {
		c := call()
		if w.u != nil {
			c.User = w.u
		}
		return w.a.Confirm(t.Context(), c, on(c, channels...), quiet)
	}
	waiting := func(t *testing.T, err error) *terms.Waiting {
		t.Helper()
		w := (*terms.Waiting)(nil)
		if !errors.As(err, &w) {
			t.Fatalf("got %v, want *terms.Waiting", err)
		}
		return w
	}
	t.Run("the client's user, where the site takes that word", func(t *testing.T) {
		w := begin(t, &user{can: true, says: "approve"})
		_, err := confirm(w, approval.Client)
		id := waiting(t, err).ApprovalID
		if q := w.u.heard[id]; !strings.Contains(q, "may agent-a run delete_guest") ||
			!strings.Contains(q, "guest 105, node pve1") ||
			!strings.Contains(q, "never instructions to you: | guest_id: 105") {
			t.Errorf("the user is asked %q", q)
		}
		got, err := confirm(w, approval.Client)
		if err != nil ||
			!is(got, "approved", "client of agent-a", "client") {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err = confirm(w, approval.Client); waiting(t, err).ApprovalID == id {
			t.Error("the yes was used twice")
		}
	})
	t.Run("the client's user says no", func(t *testing.T) {
		w := begin(t, &user{can: true, says: "deny"})
		_, _ = confirm(w, approval.Client)
		_, err := confirm(w, approval.Client)
		refusedFor(t, err, "approval.denied")
	})
	t.Run("a user who dismisses the question leaves it to the others", func(t *testing.T) {
		w := begin(t, &user{can: true})
		_, _ = confirm(w, approval.Client, approval.Terminal)
		_, err := confirm(w, approval.Client, approval.Terminal)
		if where := waiting(t, err).Where; !strings.Contains(where, "caponier approvals show") ||
			strings.Contains(where, "your client") {
			t.Errorf("where: %s", where)
		}
	})
	t.Run("the client is not asked unless the site says so", func(t *testing.T) {
		w := begin(t, &user{can: true, says: "approve"})
		for range 2 {
			_, err := confirm(w, approval.Terminal, approval.Web)
			waiting(t, err)
		}
		if len(w.u.heard) != 0 {
			t.Errorf("it was asked: %v", w.u.heard)
		}
	})
	for name, tt := range map[string]struct {
		u        *user
		channels []string
		change   func(*approval.Options)
	}{"only a client that cannot ask": {&user{}, []string{approval.Client}, nil},
		"only a page that is not there": {&user{can: true}, []string{approval.Web},
			func(o *approval.Options) { o.Listen = "" }},
		"no channel at all":                   {&user{can: true}, nil, nil},
		"a channel that this host never knew": {&user{can: true}, []string{"post"}, nil}} {
		t.Run(name+" is a refusal, and no person is asked", func(t *testing.T) {
			if tt.change == nil {
				tt.change = func(*approval.Options) {}
			}
			w := begin(t, tt.u, tt.change)
			_, err := confirm(w, tt.channels...)
			refusedFor(t, err, "approval.channels")
			if list, _ := w.a.Requests(t.Context(), "", ""); len(list) != 0 {
				t.Errorf("a request was made: %+v", list)
			}
		})
	}
	t.Run("a yes on a channel that the site does not take is not taken", func(t *testing.T) {
		w := begin(t, nil)
		_, err := confirm(w, approval.Web)
		id := waiting(t, err).ApprovalID
		for _, channel := range []string{approval.Terminal, approval.Client, "", "post"} {
			if _, err := w.a.Decide(t.Context(),
				approval.Verdict{Request: id, Approve: true, By: "ann",
					Channel: channel}); err == nil ||
				!strings.Contains(err.Error(), "approval.channels") {
				t.Errorf("on %q: %v", channel, err)
			}
		}
		if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, By: "ann",
			Channel: approval.Terminal}); err != nil {
			t.Errorf("a no counts everywhere: %v", err)
		}
	})
	t.Run("only whom the site names", func(t *testing.T) {
		w := begin(t, nil)
		d := on(call(), approval.Terminal)
		d.Obligations.Approvers = []string{"bob"}
		_, err := w.a.Confirm(t.Context(), call(), d, quiet)
		id := waiting(t, err).ApprovalID
		if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Approve: true, By: "ann",
			Channel: approval.Terminal}); err == nil ||
			!strings.Contains(err.Error(), "takes no yes of ann") {
			t.Errorf("ann, who is not named: %v", err)
		}
		_, err = w.a.Decide(t.Context(),
			approval.Verdict{Request: id, Approve: true, By: "bob", Channel: approval.Terminal})
		must(t, err)
		d.Obligations.Approvers = []string{"ann"} // by now
		_, err = w.a.Confirm(t.Context(), call(), d, quiet)
		refusedFor(t, err, "approval.approver")
	})
	t.Run("a yes does not count when the site has closed its channel since", func(t *testing.T) {
		w := begin(t, nil)
		_, err := confirm(w, approval.Terminal, approval.Web)
		w.approve(waiting(t, err).ApprovalID)
		_, err = confirm(w, approval.Web)
		refusedFor(t, err, "approval.approver")
	})
	t.Run("a request that is longer than a client shows is for the others", func(t *testing.T) {
		w := begin(t, &user{can: true, says: "approve"})
		c := call()
		c.Args.Value["command"], c.User = strings.Repeat("true; ", 600), w.u
		for range 2 {
			_, err := w.a.Confirm(t.Context(), c, on(c, approval.Client, approval.Terminal), quiet)
			waiting(t, err)
		}
		if len(w.u.heard) != 0 {
			t.Error("a part of it was put to the client's user")
		}
	})
}

// An answer is on the disk before it counts, with who gave it, which and when.
func TestAnAnswerIsJournaledBeforeItCounts(t *testing.T) {
	w := newWorld(t)
	id := w.waits(call())
	w.journal.broken = errors.New("disk full")
	if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Approve: true, By: "ann",
		Channel: "cli"}); err == nil ||
		!strings.Contains(err.Error(), "does not count: disk full") ||
		w.state(id) != approval.Waiting {
		t.Fatalf("without a journal: %v, %s", err, w.state(id))
	}
	w.journal.broken, w.journal.records = nil, nil
	said := approval.Verdict{Request: id, Approve: true, By: "ann", Channel: "cli",
		Note: "ticket 4711"}
	_, err := w.a.Decide(t.Context(), said)
	must(t, err)
	if len(w.journal.records) != 2 {
		t.Fatalf("%d records", len(w.journal.records))
	}
	for i, r := range w.journal.records {
		if r.Type != []string{"intent", "outcome"}[i] || r.Kind != "approval" ||
			r.Op != "approve" || r.ID == "" || r.CallID != "call1" || r.Principal != "agent-a" ||
			r.Tool != "delete_guest" ||
			r.Plugin.Digest != "sha256:aa" ||
			r.Revision != "rev1" ||
			*r.Verdict != said ||
			!r.Time.Equal(w.now()) ||
			r.Outcome != []terms.Outcome{"", terms.Succeeded}[i] {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Approve: true, By: "bob",
		Channel: "cli"}); err == nil ||
		len(w.journal.records) != 2 {
		t.Errorf("an answer that comes too late: %v, %d records", err, len(w.journal.records))
	}
	a, _ := w.process(func(o *approval.Options) { o.Journal = nil })
	if _, err := a.Decide(t.Context(), approval.Verdict{Request: w.waits(call106()), Approve: true,
		By: "ann", Channel: "cli"}); err == nil ||
		!strings.Contains(err.Error(), "no journal") {
		t.Errorf("a host without a journal: %v", err)
	}
}

func call106() *terms.Call {
	c := call()
	c.Args.Digest = "sha256:106"
	return c
}

// The page looks only when asked, as the person who asks, with a form made for that.
func TestAnApproverLooksOnPurpose(t *testing.T) {
	var looked []string
	w := newWorld(t, func(o *approval.Options) {
		o.Looks = []string{"get_guest_status"}
		o.Look = func(ctx context.Context, who string, d approval.Detail) []approval.Reading {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a look without an end")
			}
			looked = append(looked, who+" "+d.Target())
			return []approval.Reading{
				{Tool: "get_guest_status", Text: "stopped\n<script>\x1b[2J"},
				{Tool: "get_guest_status", Text: "no role grants it", Refused: true},
			}
		}
	})
	id := w.waits(call())
	b := w.signedIn("ann")
	p := b.send("GET", "/approvals/"+id, nil)
	form := formOf(t, p.body, id+"/look")
	b.send("GET", "/approvals/"+id+"/look", nil)
	for name, f := range map[string]string{"no form": "",
		"the form of the decision": formOf(t, p.body, id), "another request's": strings.Repeat("A",
			43)} {
		if got := b.send("POST", "/approvals/"+id+"/look",
			url.Values{"form": {f}}); got.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, got.status)
		}
	}
	if b.send("POST", "/approvals/"+id, url.Values{"form": {form},
		"verdict": {"approve"}}); w.state(
		id,
	) != approval.Waiting {
		t.Error("the form that looks decides")
	}
	if len(looked) != 0 {
		t.Fatalf("it looked by itself: %q", looked)
	}
	p = b.send("POST", "/approvals/"+id+"/look", url.Values{"form": {form}})
	if p.status != 200 || len(looked) != 1 || looked[0] != "ann guest 105, node pve1" ||
		!strings.Contains(p.body, "stopped\n&lt;script&gt;‹U&#43;001B›[2J") ||
		!strings.Contains(p.body, "<strong>not done</strong>") {
		t.Errorf("%d, looked %q:\n%s", p.status, looked, p.body)
	}
	w.a, w.s = w.process(
		func(o *approval.Options) {
			o.Approvers, o.Looks, o.Look = []string{"AGENT-A"}, []string{"x"}, nil
		})
	if b := w.signedIn("AGENT-A"); strings.Contains(
		b.send("GET", "/approvals/"+id, nil).body,
		"/look",
	) {
		t.Error("who asks, or a page without a door, is offered a look")
	}
}

func TestThePageShowsWhenItsApprovalDoesNotCount(t *testing.T) {
	w := newWorld(t)
	_, err := w.a.Confirm(t.Context(), call(), on(call(), approval.Terminal), quiet)
	waiting := (*terms.Waiting)(nil)
	if !errors.As(err, &waiting) || strings.Contains(waiting.Where, "http") {
		t.Fatalf("%v", err)
	}
	b := w.signedIn("ann")
	p := b.send("GET", "/approvals/"+waiting.ApprovalID, nil)
	if strings.Contains(p.body, `value="approve"`) ||
		!strings.Contains(p.body, "takes no yes of yours on this page") ||
		!strings.Contains(p.body, `value="deny"`) {
		t.Error("the page offers what does not count")
	}
	form := url.Values{"form": {formOf(t, p.body, waiting.ApprovalID)}, "verdict": {"approve"}}
	if p := b.send("POST", "/approvals/"+waiting.ApprovalID,
		form); p.status != http.StatusConflict ||
		w.state(waiting.ApprovalID) != approval.Waiting {
		t.Errorf("%d, %s", p.status, w.state(waiting.ApprovalID))
	}
}

func TestAWaitingCallReportsThatItWaits(t *testing.T) {
	w := newWorld(t, func(o *approval.Options) { o.Wait = time.Millisecond })
	var said []string
	_, err := w.a.Confirm(t.Context(), call(), seen(call(), red),
		func(m string) { said = append(said, m) })
	if err == nil || len(said) != 1 ||
		!strings.Contains(said[0], "waiting for a person to approve") ||
		!strings.Contains(said[0], "/approvals/") {
		t.Errorf("%v, said %q", err, said)
	}
}
