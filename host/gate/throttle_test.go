package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
)

// One principal cannot fill the journal with refusals, and nobody else has to wait for it.
func TestRefusalsOfOnePrincipalAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := &world{decide: func(q Question) (Decision, error) {
		if q.Call.Principal.ID == "good" {
			return allow(Green)(q)
		}
		return Decision{Tier: Green, Failed: []string{"grant"}}, nil
	}}
	d := w.door()
	d.o.Now = func() time.Time { return now }
	call := func(who string) Answer {
		return d.Call(
			context.Background(),
			Request{
				Source:    "cli",
				Principal: Principal{ID: who},
				Tool:      tool(),
				Arguments: []byte("{}"),
			},
		)
	}
	for range fair.MaxRefusals {
		call("bad")
	}
	before := len(w.intents)
	var refused *Refused
	for i := range 500 {
		now = now.Add(2 * time.Millisecond)
		if a := call("bad"); !errors.As(a.Err, &refused) || refused.Failed[0] != "refusals" ||
			!strings.Contains(refused.Denied[0].Msg, "it may call again in ") ||
			a.Outcome != Refusal ||
			a.CallID == "" {
			t.Fatalf("call %d: %+v", i, a)
		}
	}
	if n := len(w.intents) - before; n > 2 {
		t.Errorf("%d records of 500 refusals in a second", n)
	}
	if a := call("good"); a.Outcome != Succeeded {
		t.Errorf("another principal: %+v", a)
	}
	now = now.Add(time.Minute)
	if a := call("bad"); !errors.As(a.Err, &refused) || refused.Failed[0] != "grant" {
		t.Errorf("a minute later: %+v", a)
	}
}

func TestWhatSucceedsIsNotCountedAsARefusal(t *testing.T) {
	w := &world{decide: allow(Green)}
	d := w.door()
	for range fair.MaxRefusals + 10 {
		if a := d.Call(context.Background(), Request{Source: "cli", Principal: Principal{ID: "p"}, Tool: tool(), Arguments: []byte("{}")}); a.Outcome != Succeeded {
			t.Fatalf("%+v", a)
		}
	}
}
