package approval_test

import (
	"encoding/json"
	"errors"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/terms"
)

// both wants two persons, each with a ticket and a reason.
func both() terms.Decision {
	d := red
	d.Obligations.Needs = terms.Needs{Approvers: 2, Ticket: "OPS-[0-9]+", Reason: true}
	return d
}

func (w *world) waitsFor(d terms.Decision) string {
	w.t.Helper()
	_, err := w.a.Confirm(w.t.Context(), call(), seen(call(), d), quiet)
	waiting := (*terms.Waiting)(nil)
	if !errors.As(err, &waiting) {
		w.t.Fatalf("%v; want *terms.Waiting", err)
	}
	return waiting.ApprovalID
}

func TestTwoPersonsApproveOnThePage(t *testing.T) {
	w := newWorld(t)
	id := w.waitsFor(both())
	ann, bob := w.signedIn("ann"), w.signedIn("bob")
	say := func(b *browser, ticket, note string) page {
		t.Helper()
		p := b.send("GET", "/approvals/"+id, nil)
		for _, see := range []string{"each with a ticket that matches OPS-[0-9]+", "Ticket",
			"Reason"} {
			if !strings.Contains(html.UnescapeString(p.body), see) {
				t.Fatalf("the page does not show %q: %s", see, p.body)
			}
		}
		form := url.Values{"form": {formOf(t, p.body, id)}, "verdict": {"approve"},
			"ticket": {ticket}, "note": {note}}
		p = b.send("POST", "/approvals/"+id, form)
		p.body = html.UnescapeString(p.body)
		return p
	}
	for _, lacks := range [][3]string{{"", "it hangs", "a ticket that matches OPS-[0-9]+"},
		{"OPS-x", "it hangs", "a ticket that matches"}, {"xOPS-7", "it hangs", "a ticket"},
		{"OPS-7", " ", "a reason"}} {
		p := say(ann, lacks[0], lacks[1])
		if p.status != http.StatusUnprocessableEntity || !strings.Contains(p.body, lacks[2]) ||
			!strings.Contains(p.body, `value="`+lacks[0]+`"`) || w.state(id) != approval.Waiting {
			t.Errorf("%q: %d %s", lacks, p.status, p.body)
		}
	}
	if p := say(ann, "OPS-7", "it hangs"); p.status != http.StatusSeeOther {
		t.Fatalf("%d %s", p.status, p.body)
	}
	if p := say(ann, "OPS-8", "again"); p.status != http.StatusUnprocessableEntity ||
		!strings.Contains(p.body, "another person, since ann said yes already") {
		t.Errorf("the same person again: %d %s", p.status, p.body)
	}
	if again := w.waitsFor(both()); again != id || w.state(id) != approval.Waiting {
		t.Errorf("after one yes: %s, %s", again, w.state(id))
	}
	if p := bob.send("GET", "/approvals/"+id, nil); !strings.Contains(p.body,
		"ann (web), ticket OPS-7: it hangs") || !strings.Contains(p.body, "1 of 2 persons") {
		t.Errorf("the page does not show the first yes: %s", p.body)
	}
	if p := say(bob, "OPS-7", "I looked"); p.status != http.StatusSeeOther {
		t.Fatalf("%d %s", p.status, p.body)
	}
	got, err := w.a.Confirm(t.Context(), call(), seen(call(), both()), quiet)
	want := []terms.Yes{{By: "ann", Channel: "web", Ticket: "OPS-7", Note: "it hangs"},
		{By: "bob", Channel: "web", Ticket: "OPS-7", Note: "I looked"}}
	if err != nil || got.State != "approved" || len(got.Answers) != 2 ||
		got.Answers[0] != want[0] || got.Answers[1] != want[1] {
		t.Errorf("%+v, %v", got, err)
	}
	tickets := 0
	for _, r := range w.journal.records {
		if r.Type == "intent" && r.Verdict != nil && r.Verdict.Ticket == "OPS-7" {
			tickets++
		}
	}
	if tickets != 2 {
		t.Errorf("%d answers with their tickets in the journal", tickets)
	}
	if w.waitsFor(both()) == id {
		t.Error("the yes was used twice")
	}
}

// Each yes is held against the configuration and the policy in force when it is used.
func TestEachOfTwoPersonsMustStillCount(t *testing.T) {
	for name, change := range map[string]func(*terms.Decision){
		"the site names one of them no longer": func(d *terms.Decision) {
			d.Obligations.Approvers = []string{"bob"}
		},
		"the site takes no yes there": func(d *terms.Decision) {
			d.Obligations.Channels = []string{approval.Terminal}
		},
	} {
		w := newWorld(t)
		d := both()
		id := w.waitsFor(d)
		for _, by := range []string{"ann", "bob"} {
			_, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Approve: true, By: by,
				Channel: approval.Web, Ticket: "OPS-1", Note: "x"})
			must(t, err)
		}
		change(&d)
		_, err := w.a.Confirm(t.Context(), call(), seen(call(), d), quiet)
		if refused := (*terms.Refused)(nil); !errors.As(err, &refused) ||
			!strings.Contains(err.Error(), "takes no yes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATicketHidesNothing(t *testing.T) {
	w := newWorld(t)
	d := both()
	d.Obligations.Needs.Ticket = "(?s).*"
	id := w.waitsFor(d)
	for _, ticket := range []string{"a b", "a\nb", "a\x00", "\u202eSPO", "ö",
		strings.Repeat("x", 101)} {
		_, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Approve: true, By: "ann",
			Channel: approval.Web, Ticket: ticket, Note: "x"})
		if err == nil || !strings.Contains(err.Error(), "a ticket is 1 to 100 characters") {
			t.Errorf("%q: %v", ticket, err)
		}
	}
}

// The client's user is a person without a name, and cannot be asked for a ticket.
func TestTheClientIsNotAskedForMoreThanAYes(t *testing.T) {
	w := newWorld(t)
	d := both()
	d.Obligations.Channels = []string{approval.Client}
	_, err := w.a.Confirm(t.Context(), call(), seen(call(), d), quiet)
	if refused := (*terms.Refused)(nil); !errors.As(err, &refused) ||
		refused.Failed[0] != "approval.channels" {
		t.Errorf("%v", err)
	}
}

// People are told once of the request, and once of each yes that is not enough.
func TestTheNextPersonIsToldOfAYes(t *testing.T) {
	told := make(chan map[string]any, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n map[string]any
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		told <- n
	}))
	defer hook.Close()
	w := newWorld(t, func(o *approval.Options) {
		o.Webhook = approval.Webhook{URL: hook.URL, Secret: strings.Repeat("s", 32)}
		o.URL = "https://approve.example.org"
	})
	three := both()
	three.Obligations.Needs.Approvers = 3
	three.Obligations.Approvers = []string{"*"}
	id := w.waitsFor(three)
	yes := approval.Verdict{Request: id, Approve: true, Ticket: "OPS-7", Note: "it hangs",
		Channel: approval.Web}
	for i, who := range []string{"ann", "ann", "bob"} {
		yes.By = who
		if _, err := w.a.Decide(t.Context(), yes); (err != nil) != (i == 1) {
			t.Fatalf("%s: %v", who, err)
		}
	}
	if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, By: "bob",
		Channel: approval.Web}); err != nil { // and of a no nobody
		t.Fatal(err)
	}
	w.a.Told(t.Context())
	close(told)
	seen := map[float64]int{}
	for n := range told {
		given, _ := n["given"].(float64)
		seen[given]++
		if n["need"] != 3.0 || n["id"] != id || n["event"] != "approval.waiting" ||
			n["link"] != "https://approve.example.org/approvals/"+id {
			t.Errorf("told %v", n)
		}
	}
	if !maps.Equal(seen, map[float64]int{0: 1, 1: 1, 2: 1}) {
		t.Errorf("told of %v, want once each of the request and of two answers", seen)
	}
}
