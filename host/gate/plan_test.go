package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// paper is a plan of the argv lists of its steps.
type paper struct {
	steps []string
	next  int
	ends  string
}

func (p *paper) Plan(c *terms.Call, steps []terms.Step, _ terms.Answer) terms.Plan {
	made := &paper{ends: p.ends}
	for _, s := range steps {
		made.steps = append(made.steps, text(s.Question.Op))
	}
	return made
}
func (p *paper) Digest() string {
	return fmt.Sprint("sha256:",
		strings.Join(p.steps, ";"))
}
func (p *paper) Complete() (bool, string) { return p.ends == "", p.ends }
func (p *paper) Text() string             { return p.Digest() }
func (p *paper) Take()                    { p.next++ }
func (p *paper) Next(q terms.Question) terms.PlanFacts {
	f := terms.PlanFacts{Digest: p.Digest(), Complete: p.ends == "", Left: p.next < len(p.steps)}
	if f.Left {
		f.Want = p.steps[p.next]
		f.Next = f.Want == text(q.Op)
	}
	return f
}

func text(op abi.Op) string {
	if e, ok := op.(abi.SSHExec); ok {
		return strings.Join(e.Argv, " ")
	}
	return op.Import()
}

// planned is a world whose calls are red. Operations that begin with "read" are green, and all
// others are red and must be the next step of their call's plan.
func planned() *world {
	w := &world{}
	w.decide = func(q terms.Question) (terms.Decision, error) {
		red := terms.Decision{Allow: true, Tier: terms.Red, Revision: "r1"}
		switch {
		case q.Kind == terms.KindCall && !q.Call.Planning &&
			q.Call.Confirmation.State != "approved":
			return terms.Decision{
				Tier:          terms.Red,
				Failed:        []string{"confirmation"},
				NeedsApproval: true,
			}, nil
		case q.Kind == terms.KindOperation && strings.HasPrefix(text(q.Op), "read"):
			return terms.Decision{Allow: true, Tier: terms.Green}, nil
		case q.Kind == terms.KindOperation && !q.Call.Planning &&
			(q.Facts.Plan == nil || !q.Facts.Plan.Next):
			return terms.Decision{Tier: terms.Red, Failed: []string{"planned"}}, nil
		}
		return red, nil
	}
	w.confirm = func(*terms.Call) (terms.Confirmation, error) {
		return terms.Confirmation{State: "approved", By: "bob", Channel: "cli"}, nil
	}
	return w
}

// runs is a plugin that runs these commands, one after the other, even if one fails.
func runs(
	commands func(planning bool) []string,
) func(context.Context, *Running) (terms.Output, error) {
	return func(ctx context.Context, r *Running) (terms.Output, error) {
		for _, c := range commands(r.Call.Planning) {
			_, _ = r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
				Argv: strings.Fields(c)})
		}
		return terms.Output{JSON: json.RawMessage(`{}`)}, nil
	}
}

func (w *world) executed() (all []string) {
	for _, e := range w.events {
		if e, is := strings.CutPrefix(e, "execute "); is {
			all = append(all, e)
		}
	}
	return all
}

func (w *world) planCall(plan bool) terms.Answer {
	d := w.door()
	d.o.Planner = &paper{}
	t := tool()
	t.Plans = true
	return d.Call(context.Background(), terms.Request{Source: "cli",
		Principal: terms.Principal{ID: "p"},
		Tool:      t, Arguments: []byte(`{}`), Plan: plan})
}

func TestAPlannedCallExecutesOnlyWhatIsGreen(t *testing.T) {
	w := planned()
	w.guest = runs(func(bool) []string { return []string{"read 1", "stop 1", "start 1"} })
	a := w.planCall(true)
	if a.Err != nil || a.Outcome != terms.Planned || a.Plan == nil ||
		a.Plan.Digest() != "sha256:stop 1;start 1" {
		t.Fatalf("%+v", a)
	}
	if got := w.executed(); len(got) != 1 {
		t.Errorf("executed %v, want the read alone", got)
	}
	for i, r := range w.intents {
		if r.Kind == "operation" && w.durable[i] {
			t.Error("a planned operation waits for the disk")
		}
	}
}

func TestACallIsHeldToTheApprovedPlan(t *testing.T) {
	straight := func(commands ...string) func(bool) []string {
		return func(bool) []string { return commands }
	}
	when := func(planning, running []string) func(bool) []string {
		return func(p bool) []string {
			if p {
				return planning
			}
			return running
		}
	}
	for name, c := range map[string]struct {
		commands func(bool) []string
		executed int
		refused  int
	}{
		"what was planned runs": {straight("stop 1", "start 1"), 2, 0},
		"another option is refused": {when([]string{"stop 1"},
			[]string{"stop 1 --force"}), 0, 1},
		"another order is refused": {when([]string{"stop 1", "start 1"},
			[]string{"start 1"}), 0, 1},
		"a second time is refused": {when([]string{"stop 1"},
			[]string{"stop 1", "stop 1"}), 1, 1},
		"twice as planned runs twice": {straight("stop 1", "stop 1"), 2, 0},
		"hiding everything gets nothing": {when([]string{"read 1", "note 1"},
			[]string{"destroy 1"}), 0, 1},
		"what comes late is still what was read": {when([]string{"stop 1"},
			[]string{"read 1", "stop 1"}), 2, 0},
	} {
		w := planned()
		w.guest = runs(c.commands)
		a := w.planCall(false)
		if planReads := 0; len(w.executed())-planReads < c.executed || len(a.Refused) != c.refused {
			t.Errorf("%s: executed %v, refused %d: %v", name, w.executed(), len(a.Refused), a.Err)
		}
		if c.executed == 0 && slices.ContainsFunc(w.outcomes, func(r terms.Record) bool {
			return r.Kind == "operation" && r.Tier == "red" && r.Outcome == terms.Succeeded
		}) {
			t.Errorf("%s: something above green ran", name)
		}
	}
}

func TestADryRunWithoutEffectsIsTheCall(t *testing.T) {
	w := planned()
	w.guest = runs(func(bool) []string { return []string{"read 1"} })
	a := w.planCall(false)
	if a.Err != nil || a.Outcome != terms.Succeeded || slices.Contains(w.events, "confirm") {
		t.Errorf("%+v, %v", a, w.events)
	}
}

func TestNobodyIsAskedAboutAPlanThatPolicyRefuses(t *testing.T) {
	w := planned()
	inner := w.decide
	w.decide = func(q terms.Question) (terms.Decision, error) {
		if q.Kind == terms.KindPlan {
			if len(q.Steps) != 1 || q.Call.Plan == nil {
				t.Errorf("the plan is decided with %d steps", len(q.Steps))
			}
			return terms.Decision{Tier: terms.Red, Failed: []string{"site"}}, nil
		}
		return inner(q)
	}
	w.guest = runs(func(bool) []string { return []string{"stop 1"} })
	a := w.planCall(false)
	if !errors.Is(a.Err, terms.ErrRefused) || slices.Contains(w.events, "confirm") ||
		len(w.executed()) > 0 {
		t.Errorf("%v, %v", a.Err, w.events)
	}
}

func TestAnOldPluginsPlanEndsAtItsFirstEffect(t *testing.T) {
	w := planned()
	w.guest = runs(func(bool) []string { return []string{"stop 1", "read 1"} })
	d := w.door()
	d.o.Planner = &paper{}
	a := d.Call(context.Background(), terms.Request{Source: "cli",
		Principal: terms.Principal{ID: "p"},
		Tool:      tool(), Arguments: []byte(`{}`), Plan: true})
	if a.Plan == nil || a.Plan.Digest() != "sha256:stop 1" || len(w.executed()) != 1 {
		t.Errorf("%+v executed %v", a, w.executed())
	}
}

func TestWithoutAPlannerNothingIsPlanned(t *testing.T) {
	w := planned()
	a := w.door().Call(context.Background(), terms.Request{Tool: tool(), Plan: true})
	if a.Err == nil || a.Outcome != terms.Refusal || len(w.executed()) > 0 {
		t.Errorf("%+v", a)
	}
}

func TestUnitsAreLookedUpWhenNothingElseIsMissing(t *testing.T) {
	w := &world{}
	w.decide = func(q terms.Question) (terms.Decision, error) {
		ok := terms.Decision{Allow: true, Tier: terms.Yellow}
		if q.Kind == terms.KindOperation && q.Phase == terms.PhaseEffect && q.Units == nil {
			return terms.Decision{
				Tier:   terms.Yellow,
				Failed: []string{"unit"},
				Units:  []string{"nginx"},
			}, nil
		}
		return ok, nil
	}
	w.guest = runs(func(bool) []string { return []string{"restart nginx"} })
	a := w.call(`{}`)
	want := []string{"decide ssh_exec/effect", "decide ssh_exec/lookup", "lookup",
		"decide ssh_exec/effect", "execute ssh_exec"}
	var got []string
	for _, e := range w.events {
		if slices.Contains(want, e) {
			got = append(got, e)
		}
	}
	if a.Err != nil || !slices.Equal(got, want) || len(a.Refused) > 0 {
		t.Errorf("%v, %v, want %v", a.Err, got, want)
	}
	waits := slices.ContainsFunc(w.intents, func(r terms.Record) bool {
		return r.Type == "refused" && r.Outcome == terms.Waits &&
			slices.Equal(r.Failed, []string{"unit"})
	})
	if !waits {
		t.Error("the decision that lacked a fact is not journaled as one that waits")
	}
}

func TestAPlanIsNoLongerThanAPersonReads(t *testing.T) {
	w := planned()
	var steps []terms.Step
	inner := w.decide
	w.decide = func(q terms.Question) (terms.Decision, error) {
		if q.Kind == terms.KindPlan {
			steps = q.Steps
		}
		return inner(q)
	}
	w.guest = runs(func(bool) []string {
		return slices.Repeat([]string{"stop 1"}, 10*maxSteps)
	})
	w.planCall(true)
	if len(steps) != maxSteps+1 || steps[maxSteps].Decision.Allow ||
		!steps[maxSteps-1].Decision.Allow {
		t.Errorf("%d steps", len(steps))
	}
	if len(w.executed()) > 0 {
		t.Errorf("executed %v", w.executed())
	}
}

// Policy wants the call planned first: its plan holds it, though nobody approves it.
func TestACallThatPolicyWantsPlannedIsHeldToItsPlan(t *testing.T) {
	first := func(commands func(bool) []string) (*world, terms.Answer) {
		w := planned()
		before := w.decide
		w.decide = func(q terms.Question) (terms.Decision, error) {
			if q.Kind == terms.KindCall {
				return terms.Decision{
						Allow:       true,
						Tier:        terms.Yellow,
						Obligations: terms.Obligations{Plan: true},
					},
					nil
			}
			return before(q)
		}
		w.guest = runs(commands)
		return w, w.planCall(false)
	}
	w, a := first(func(bool) []string { return []string{"read 1", "stop 1"} })
	if a.Err != nil || a.Outcome != terms.Succeeded || len(w.executed()) != 3 {
		t.Errorf("%+v, executed %v", a, w.executed())
	}
	w, a = first(func(planning bool) []string {
		return map[bool][]string{true: {"stop 1"}, false: {"stop 2"}}[planning]
	})
	if len(a.Refused) != 1 || len(w.executed()) != 0 {
		t.Errorf("another command than on the plan: %+v, executed %v", a, w.executed())
	}
	w = planned()
	w.decide = func(terms.Question) (terms.Decision, error) {
		return terms.Decision{
			Allow:       true,
			Tier:        terms.Yellow,
			Obligations: terms.Obligations{Plan: true},
		}, nil
	}
	if a := w.door().Call(t.Context(), terms.Request{Source: "cli",
		Principal: terms.Principal{ID: "p"},
		Tool:      tool(),
		Arguments: []byte(`{}`)}); a.Outcome != terms.Refusal || !errors.Is(a.Err,
		terms.ErrPlanFirst) ||
		slices.Contains(w.events, "run") {
		t.Errorf("a host that makes no plans: %+v %v", a, w.events)
	}
}

// A call without a plan pays nothing for plans: it allocates the same with a Planner and without.
func TestACallWithoutAPlanPaysNothingForPlans(t *testing.T) {
	one := func(planner terms.Planner) (allocs float64, p50 time.Duration) {
		w := &world{decide: allow(terms.Yellow)}
		w.guest = runs(func(bool) []string { return []string{"stop 1", "start 1"} })
		d := w.door()
		d.o.Planner = planner
		call := func() {
			w.events, w.intents = w.events[:0], w.intents[:0]
			w.outcomes, w.durable = w.outcomes[:0], w.durable[:0]
			if a := d.Call(t.Context(), terms.Request{Source: "cli",
				Principal: terms.Principal{ID: "p"},
				Tool:      tool(), Arguments: []byte(`{}`)}); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		return testing.AllocsPerRun(200, call), median(call)
	}
	without, slow := one(nil)
	with, fast := one(&paper{})
	if with > without+2 { // the race detector drops what pools keep, by chance
		t.Errorf("%.0f allocations with a planner, %.0f without", with, without)
	}
	t.Logf("%.0f allocations each; p50 with a planner / without: %.2f", with,
		float64(fast)/float64(slow))
}

// A plan costs what its call costs whose effects cost nothing, and a few microseconds for each
// step:
// here nothing else costs anything, not even decisions.
func TestAPlanCostsLittleMoreThanTheCallWithoutEffects(t *testing.T) {
	cost := func(plan bool) time.Duration {
		w := planned()
		w.decide = allow(terms.Yellow)
		w.guest = runs(func(bool) []string {
			return strings.Split(strings.Repeat("stop 1;", 20)+
				"start 1", ";")
		})
		d := w.door()
		d.o.Planner = &paper{}
		known := tool()
		known.Plans = true
		return median(func() {
			w.events, w.intents = w.events[:0], w.intents[:0]
			w.outcomes, w.durable = w.outcomes[:0], w.durable[:0]
			if a := d.Call(t.Context(), terms.Request{Source: "cli",
				Principal: terms.Principal{ID: "p"},
				Tool:      known, Arguments: []byte(`{}`), Plan: plan}); a.Err != nil {
				t.Fatal(a.Err)
			}
		})
	}
	call, plan := cost(false), cost(true)
	each := (plan - call) / 21
	t.Logf("p50 of a plan of 21 steps %s, of the call without effects %s: %.2f, %s more for each "+
		"step",
		plan, call, float64(plan)/float64(call), each)
	if os.Getenv("CAPONIER_MEASURE") == "1" && each > 10*time.Microsecond {
		t.Errorf("a step of a plan costs %s more than the operation", each)
	}
}

func median(do func()) time.Duration {
	var all []time.Duration
	for range 301 {
		began := time.Now()
		do()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
