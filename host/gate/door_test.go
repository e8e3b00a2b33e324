package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestEverythingButAWholeYesRefusesTheCall(t *testing.T) {
	for name, tt := range map[string]struct {
		decide func(terms.Question) (terms.Decision, error)
		broken error
		why    string
	}{
		"the zero decision": {decide: func(terms.Question) (terms.Decision, error) {
			return terms.Decision{}, nil
		}, why: "policy.undefined"},
		"an error": {decide: func(terms.Question) (terms.Decision, error) {
			return terms.Decision{Allow: true, Tier: terms.Green}, errors.New("x")
		}, why: "policy.error"},
		"a panic": {decide: func(terms.Question) (terms.Decision, error) { panic("x") },
			why: "policy.panic"},
		"allow without a tier":       {decide: allow(terms.NoTier), why: "policy.contradiction"},
		"allow at tier black":        {decide: allow(terms.Black), why: "policy.contradiction"},
		"allow at a tier unheard of": {decide: allow(9), why: "policy.contradiction"},
		"allow with a failed check": {decide: func(terms.Question) (terms.Decision, error) {
			return terms.Decision{Allow: true, Tier: terms.Green, Failed: []string{"protected"}},
				nil
		}, why: "protected"},
		"allow with a reason against": {decide: func(terms.Question) (terms.Decision, error) {
			return terms.Decision{Allow: true, Tier: terms.Green,
				Denied: []terms.Reason{{ID: "site.night"}}}, nil
		}, why: "policy.contradiction"},
		"a journal that cannot be written": {decide: allow(terms.Green),
			broken: errors.New("disk full"),
			why:    "journal.unavailable"},
		"a no": {decide: func(terms.Question) (terms.Decision, error) {
			return terms.Decision{Failed: []string{"tier"}}, nil
		}, why: "tier"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{decide: tt.decide, broken: tt.broken}
			a := w.call(`{}`)
			var refused *terms.Refused
			if !errors.As(a.Err, &refused) || !slices.Contains(refused.Failed, tt.why) {
				t.Fatalf("answer %+v, want a refusal by %s", a, tt.why)
			}
			if a.Outcome != terms.Refusal || slices.Contains(w.events, "run") {
				t.Errorf("outcome %s, events %v: something ran", a.Outcome, w.events)
			}
			if want := map[bool]int{true: 1}[tt.why == "policy.error"]; w.taken != want {
				t.Errorf("the refused call counts %d times, want %d", w.taken, want)
			}
		})
	}
}

// Each operation of the ABI: decided, intent journaled, then executed, in this order; refused at
// either phase, it reaches nothing.
func TestEveryOperationGoesThroughTheDoor(t *testing.T) {
	request := map[string]string{
		"http_request": `{"method":"GET","url":"http://h/"}`,
		"blob_write":   `{"name":"n","mime":"m"}`,
		"blob_read":    `{"blob":"b"}`,
		"ask":          `{"key":"k","message":"m","schema":{}}`,
		"undo_steps":   `{"call":"c"}`,
		"snapshots":    `{}`,
	}
	for _, name := range abi.Operations() {
		req := request[name]
		if req == "" {
			req = `{"node":"pve1"}`
		}
		op, err := abi.ParseOp(name, []byte(req))
		if err != nil {
			t.Fatal(err)
		}
		for _, refusedAt := range []string{"", "lookup", "effect"} {
			t.Run(name+" refused at "+refusedAt, func(t *testing.T) {
				w := &world{decide: func(q terms.Question) (terms.Decision, error) {
					return terms.Decision{
						Allow: q.Kind == terms.KindCall || q.Phase.String() != refusedAt,
						Tier:  terms.Yellow,
					}, nil
				}}
				w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
					_, err := r.Operate(ctx, op)
					var refused *terms.Refused
					if wantRefused := slices.Contains(w.events, "decide "+name+"/"+
						refusedAt); errors.As(
						err,
						&refused,
					) != wantRefused {
						t.Errorf("Operate: %v", err)
					}
					return terms.Output{JSON: json.RawMessage(`{}`)}, nil // swallows the refusal
				}
				a := w.call(`{}`)
				executed := slices.Index(w.events, "execute "+name)
				intent := slices.Index(w.events, "intent operation"+name+" intent")
				refused := slices.Contains(w.events, "intent operation"+name+" refused")
				switch {
				case refused && (executed >= 0 || len(a.Refused) != 1):
					t.Errorf("refused, yet executed or forgotten: %v, %v", w.events, a.Refused)
				case refused && refusedAt == "lookup" && slices.Contains(w.events, "lookup"):
					t.Errorf("looked up although that was refused: %v", w.events)
				case !refused && !(intent >= 0 && intent < executed):
					t.Errorf("executed before its intent: %v", w.events)
				}
			})
		}
	}
}

// A redirect is an operation of its own: looked up, decided and journaled again, and refused like
// any other.
func TestWhatAnOperationLeadsToGoesThroughTheDoor(t *testing.T) {
	follow := func(op abi.Op) abi.Op {
		h := op.(abi.HTTPRequest)
		h.Hop, h.URL = h.Hop+1, "https://b/"
		return h
	}
	for name, tt := range map[string]struct {
		last int // hop that leads nowhere
		deny int // hop whose lookup is refused, 0 for none
		next func(abi.Op) abi.Op
		code string
		ran  int
	}{
		"two redirects":         {last: 2, ran: 3},
		"a refused redirect":    {last: 5, deny: 2, ran: 2},
		"ten redirects":         {last: 10, ran: 11},
		"redirects without end": {last: 99, code: "too_many", ran: 11},
		"one operation that leads to another's": {next: func(abi.Op) abi.Op {
			return abi.SSHExec{}
		}, code: "too_many", ran: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{next: tt.next, decide: func(q terms.Question) (terms.Decision, error) {
				if h, ok := q.Op.(abi.HTTPRequest); ok && tt.deny > 0 && h.Hop == tt.deny &&
					q.Phase == terms.PhaseLookup {
					return terms.Decision{Failed: []string{"egress"}}, nil
				}
				return allow(terms.Green)(q)
			}}
			if w.next == nil {
				w.next = func(op abi.Op) abi.Op {
					if op.(abi.HTTPRequest).Hop == tt.last {
						return nil
					}
					return follow(op)
				}
			}
			var err error
			w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
				_, err = r.Operate(ctx, abi.HTTPRequest{URL: "https://a/"})
				return terms.Output{}, nil
			}
			a := w.call("{}")
			ran, decided := 0, 0
			for _, e := range w.events {
				ran += strings.Count(e, "execute http_request")
				decided += strings.Count(e, "decide http_request/lookup")
			}
			refused, op := (*terms.Refused)(nil), (*terms.OpError)(nil)
			switch {
			case tt.deny > 0:
				if !errors.As(err, &refused) || refused.Phase != "lookup" || len(a.Refused) != 1 ||
					!strings.Contains(refused.Error(), "led here") {
					t.Errorf(
						"error %v, remembered %v; want the refusal of the hop, which says what "+
							"was done before it",
						err,
						a.Refused,
					)
				}
				decided--
			case tt.code != "":
				if !errors.As(err, &op) || op.Code != tt.code {
					t.Errorf("error %v, want %s", err, tt.code)
				}
			case err != nil:
				t.Error(err)
			}
			if ran != tt.ran || decided != tt.ran {
				t.Errorf("%d executed and %d looked up and allowed, want %d", ran, decided, tt.ran)
			}
		})
	}
}

// The intent of an operation above green is synced before it runs, and with it the intent of its
// call. Nothing else waits for the disk.
func TestOnlyOperationsAboveGreenWaitForTheDisk(t *testing.T) {
	for _, tier := range []terms.Tier{terms.Green, terms.Yellow, terms.Red} {
		w := &world{decide: allow(tier)}
		w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
			_, err := r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
				Argv: []string{"true"}})
			return terms.Output{}, err
		}
		w.call(`{}`)
		if want := []bool{false, tier != terms.Green}; !slices.Equal(w.durable, want) {
			t.Errorf("%s: durable %v, want %v", tier, w.durable, want)
		}
	}
}

func TestNothingIsAskedAfterAnEffect(t *testing.T) {
	for _, tier := range []terms.Tier{terms.Green, terms.Yellow} {
		w := &world{decide: func(q terms.Question) (terms.Decision, error) {
			if _, asks := q.Op.(abi.Ask); asks {
				return allow(terms.Green)(q)
			}
			return allow(tier)(q)
		}}
		w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
			if _, err := r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
				Argv: []string{"x"}}); err != nil {
				t.Error(err)
			}
			_, err := r.Operate(ctx, abi.Ask{Key: "k"})
			if refused := err != nil && strings.Contains(err.Error(),
				"ask before that"); refused != (tier != terms.Green) {
				t.Errorf("asked after something %s: %v", tier, err)
			}
			return terms.Output{}, nil
		}
		w.call(`{}`)
	}
}

func TestOutcomeBelievesTheHost(t *testing.T) {
	lost := &terms.OpError{Code: "lost", Outcome: terms.Unknown}
	for name, tt := range map[string]struct {
		tier     terms.Tier
		exec     error
		guestErr error
		code     int
		want     terms.Outcome
	}{
		"all well":     {terms.Yellow, nil, nil, 0, terms.Succeeded},
		"a tool error": {terms.Yellow, nil, nil, 1, terms.Failed},
		"a failed operation that was hidden": {terms.Yellow, &terms.OpError{Code: "x",
			Outcome: terms.Failed}, nil, 0,
			terms.Succeeded},
		"a lost write that was hidden": {terms.Yellow, lost, nil, 0, terms.Unknown},
		"a lost read":                  {terms.Green, lost, nil, 0, terms.Succeeded},
		"a trap": {terms.Yellow, nil, &terms.PluginError{Code: "plugin_trap"},
			0, terms.Failed},
		"a lost write, then a trap": {terms.Red, lost, &terms.PluginError{Code: "plugin_trap"},
			0, terms.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{decide: allow(tt.tier), execErr: tt.exec}
			w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
				r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: []string{"x"}})
				return terms.Output{Code: tt.code}, tt.guestErr
			}
			if a := w.call(`{}`); a.Outcome != tt.want ||
				w.outcomes[len(w.outcomes)-1].Outcome != tt.want {
				t.Errorf(
					"outcome %s, journaled %s; want %s",
					a.Outcome,
					w.outcomes[len(w.outcomes)-1].Outcome,
					tt.want,
				)
			}
		})
	}
}

func TestBudgetStopsTheCallAndSaysWhetherSomethingHappened(t *testing.T) {
	for _, tier := range []terms.Tier{terms.Green, terms.Yellow} {
		w := &world{decide: func(q terms.Question) (terms.Decision, error) {
			return terms.Decision{
				Allow:       true,
				Tier:        tier,
				Obligations: terms.Obligations{Timeout: 20 * time.Millisecond},
			}, nil
		}}
		w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
			r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: []string{"x"}})
			<-ctx.Done()
			return terms.Output{}, context.Cause(ctx)
		}
		a := w.call(`{}`)
		var budget *terms.BudgetError
		if !errors.As(a.Err, &budget) || budget.MayHaveExecuted != (tier != terms.Green) ||
			budget.Limit != 20*time.Millisecond ||
			budget.CallID != a.CallID {
			t.Errorf("%s: answer %+v, budget %+v", tier, a, budget)
		}
		if !slices.Contains(w.events, "end") {
			t.Error("the call's things were not freed")
		}
	}
}

func TestAnEndedCallCanDoNothing(t *testing.T) {
	w := &world{decide: allow(terms.Green)}
	var kept *Running
	w.guest = func(_ context.Context, r *Running) (terms.Output,
		error) {
		kept = r
		return terms.Output{}, nil
	}
	w.call(`{}`)
	before := len(w.events)
	_, err := kept.Operate(context.Background(), abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}})
	if bad, ok := err.(*abi.RequestError); !ok || bad.Field != "call" || len(w.events) != before {
		t.Errorf("Operate after the end: %v, events %v", err, w.events[before:])
	}
}

func TestACallAsksForABoundedNumberOfOperations(t *testing.T) {
	w := &world{decide: func(q terms.Question) (terms.Decision, error) {
		return terms.Decision{
			Allow:  q.Kind == terms.KindCall,
			Tier:   terms.Green,
			Failed: map[bool][]string{true: {"bound"}}[q.Kind != terms.KindCall],
		}, nil
	}}
	var last error
	w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
		for range maxOps + 1 {
			_, last = r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
				Argv: []string{"x"}})
		}
		return terms.Output{}, nil
	}
	a := w.call(`{}`)
	if bad, ok := last.(*abi.RequestError); !ok || bad.Field != "call" {
		t.Errorf("the operation over the limit: %v", last)
	}
	if len(a.Refused) != keptRefused || w.outcomes[len(w.outcomes)-1].Refused != maxOps {
		t.Errorf(
			"%d refusals listed, %d journaled",
			len(a.Refused),
			w.outcomes[len(w.outcomes)-1].Refused,
		)
	}
}

func TestConfirmation(t *testing.T) {
	red := func(q terms.Question) (terms.Decision, error) {
		if q.Call.Confirmation.State == "approved" {
			return terms.Decision{Allow: true, Tier: terms.Red}, nil
		}
		return terms.Decision{
			Tier:          terms.Red,
			Failed:        []string{"confirmation"},
			NeedsApproval: true,
		}, nil
	}
	t.Run("a yes is followed by a second decision", func(t *testing.T) {
		w := &world{
			decide: red,
			confirm: func(*terms.Call) (terms.Confirmation, error) {
				return terms.Confirmation{State: "approved", By: "ann"}, nil
			},
		}
		if a := w.call(`{}`); a.Outcome != terms.Succeeded ||
			!slices.Equal(
				w.events[:6],
				[]string{
					"decide call",
					"intent call refused",
					"confirm",
					"decide call",
					"intent call intent",
					"run",
				},
			) {
			t.Errorf("%+v %v", a, w.events)
		}
	})
	t.Run("a state that the policy does not accept is refused again", func(t *testing.T) {
		w := &world{
			decide: red,
			confirm: func(*terms.Call) (terms.Confirmation, error) {
				return terms.Confirmation{State: "expired"}, nil
			},
		}
		if a := w.call(`{}`); a.Outcome != terms.Refusal || slices.Contains(w.events, "run") {
			t.Errorf("%+v %v", a, w.events)
		}
	})
	t.Run("nobody has decided yet", func(t *testing.T) {
		w := &world{
			decide: red,
			confirm: func(*terms.Call) (terms.Confirmation, error) {
				return terms.Confirmation{}, &terms.Waiting{ApprovalID: "a1"}
			},
		}
		if a := w.call(`{}`); a.Outcome != terms.Waits || slices.Contains(w.events, "run") {
			t.Errorf("%+v %v", a, w.events)
		}
	})
	t.Run("a person's no is journaled", func(t *testing.T) {
		w := &world{decide: red, confirm: func(*terms.Call) (terms.Confirmation, error) {
			return terms.Confirmation{}, &terms.Refused{
				Kind:   "call",
				Failed: []string{"approval.denied"},
			}
		}}
		a := w.call(`{}`)
		no := (*terms.Refused)(nil)
		if !errors.As(a.Err, &no) || no.DecisionID == "" || a.Outcome != terms.Refusal ||
			!slices.Equal(
				w.events,
				[]string{"decide call", "intent call refused", "confirm", "intent call refused"},
			) {
			t.Errorf("%+v %v", a, w.events)
		}
	})
	t.Run("who is asked gets the decision", func(t *testing.T) {
		w := &world{decide: func(terms.Question) (terms.Decision, error) {
			return terms.Decision{
				Tier:          terms.Red,
				Failed:        []string{"confirmation"},
				NeedsApproval: true,
				Revision:      "r7",
				Input:         json.RawMessage(`{"masked":1}`),
			}, nil
		}, confirm: func(*terms.Call) (terms.Confirmation, error) {
			return terms.Confirmation{},
				errors.New("x")
		}}
		if w.call(`{}`); w.asked.Revision != "r7" || string(w.asked.Input) != `{"masked":1}` ||
			w.asked.Tier != terms.Red {
			t.Errorf("%+v", w.asked)
		}
	})
	t.Run("nobody can be asked", func(t *testing.T) {
		w := &world{decide: red}
		if a := w.call(`{"confirmed":true}`); a.Outcome != terms.Refusal {
			t.Errorf("%+v %v", a, w.events)
		}
	})
}

// A freeze is read at each decision: it bites between two operations of one call, and reaches
// policy as a frozen mode.
func TestAFreezeBitesAtTheNextDecision(t *testing.T) {
	frozen := false
	decide := func(q terms.Question) (terms.Decision, error) {
		if len(q.Mode.Freezes) > 0 {
			return terms.Decision{Failed: []string{"freeze"}}, nil
		}
		return terms.Decision{Allow: true, Tier: terms.Green}, nil
	}
	w := &world{decide: decide, guest: func(ctx context.Context, r *Running) (terms.Output, error) {
		_, first := r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
			Argv: []string{"true"}})
		frozen = true
		_, second := r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
			Argv: []string{"true"}})
		no := (*terms.Refused)(nil)
		if first != nil || !errors.As(second, &no) || no.Failed[0] != "freeze" {
			t.Errorf("before the freeze: %v, after: %v", first, second)
		}
		return terms.Output{}, nil
	}}
	d := w.door()
	d.o.Mode = func(context.Context) (m terms.Mode) {
		if frozen {
			m.Freezes = []terms.Freeze{{Kind: "node", Name: "pve1"}}
		}
		return m
	}
	if a := d.Call(context.Background(), terms.Request{Principal: terms.Principal{ID: "p"},
		Tool: tool()}); len(
		a.Refused,
	) != 1 {
		t.Errorf("%+v %v", a, w.events)
	}
}

func TestArgumentsAreRefusedBeforeAnythingElse(t *testing.T) {
	for name, tt := range map[string]struct{ args, why string }{
		"not JSON":      {`{`, "EOF"},
		"not an object": {`[]`, "must be a JSON object"},
		"duplicate":     {`{"vmid":1,"vmid":2}`, "repeats"},
		"unknown node": {`{"node":"evil.example"}`,
			`node "evil.example" is not in the inventory`},
		"over the limit":  {`{"a":"` + strings.Repeat("x", 2<<20) + `"}`, "over the limit"},
		"a float integer": {`{"vmid":103.0}`, "plain form"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{decide: allow(terms.Green)}
			a := w.call(tt.args)
			var invalid *terms.InvalidArguments
			if !errors.As(a.Err, &invalid) || !strings.Contains(a.Err.Error(), tt.why) {
				t.Fatalf("%+v; want invalid arguments with %q", a, tt.why)
			}
			if !slices.Equal(w.events, []string{"intent call refused"}) ||
				w.intents[0].Failed[0] != "arguments" {
				t.Errorf("events %v, want only a journaled refusal", w.events)
			}
		})
	}
}

func TestTheCallIsOneValue(t *testing.T) {
	w := &world{}
	var calls []*terms.Call
	w.decide = func(q terms.Question) (terms.Decision, error) {
		calls = append(calls, q.Call)
		return terms.Decision{Allow: true, Tier: terms.Green}, nil
	}
	w.call(` { "b" : 1, "a" : "x", "confirmed": true } `)
	w.call(`{"a":"x","b":1}`)
	if string(calls[0].Args.JSON) != `{"a":"x","b":1,"confirmed":true}` {
		t.Errorf("canonical arguments %s", calls[0].Args.JSON)
	}
	if calls[0].Args.Digest != calls[1].Args.Digest || calls[0].Confirmation.State != "argument" ||
		calls[1].Confirmation.State != "none" {
		t.Errorf(
			"the confirmation flag changes the digest, or is not seen: %+v %+v",
			calls[0].Args,
			calls[1].Args,
		)
	}
	if !slices.Equal(calls[1].Targets.Nodes, []string{"pve1"}) ||
		!slices.Equal(calls[1].Clusters, []string{"lab"}) {
		t.Errorf("no default node: %+v %v", calls[1].Targets, calls[1].Clusters)
	}
}

func TestNoArgumentsMayBeWrittenAsNull(t *testing.T) {
	w := &world{decide: allow(terms.Green)}
	if a := w.call(`null`); a.Outcome != terms.Succeeded {
		t.Errorf("%+v", a)
	}
}

func TestALostOutcomeIsSaid(t *testing.T) {
	w := &world{decide: allow(terms.Yellow), lost: errors.New("disk full")}
	if a := w.call(`{}`); !a.JournalFailed || a.Outcome != terms.Succeeded {
		t.Errorf("%+v", a)
	}
}

func TestAPanicIsAnOutcomeThatNobodyKnows(t *testing.T) {
	w := &world{decide: allow(terms.Yellow)}
	var kept *Running
	w.guest = func(_ context.Context, r *Running) (terms.Output, error) {
		kept = r
		panic("broken executor")
	}
	if a := w.call(`{}`); a.Outcome != terms.Unknown || a.Err == nil ||
		w.outcomes[0].Outcome != terms.Unknown ||
		w.outcomes[0].Code != "panic" {
		t.Errorf("%+v, journaled %+v", a, w.outcomes)
	}
	if _, err := kept.Operate(context.Background(),
		abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}}); err == nil ||
		slices.Contains(w.events, "execute ssh_exec") ||
		!slices.Contains(w.events, "end") {
		t.Errorf("the broken call's door stayed open: %v, %v", err, w.events)
	}
}

func TestIDsSortByTime(t *testing.T) {
	a, b := newID(time.UnixMilli(1_700_000_000_000)), newID(time.UnixMilli(1_700_000_000_001))
	if len(a) != 26 || a >= b || b == newID(time.UnixMilli(1_700_000_000_001)) {
		t.Errorf("%s %s", a, b)
	}
}
