package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// tape is what the fuzzer chose: programs, and how they deviate, are read from it.
type tape []byte

func (b *tape) next(n int) int {
	if len(*b) == 0 {
		return 0
	}
	v := int((*b)[0])
	*b = (*b)[1:]
	return v % n
}

// deed is one thing that a random plugin asks for.
type deed struct{ what, path, more int }

func (b *tape) deed() deed { return deed{b.next(16), b.next(8), b.next(4)} }

// op makes the request of a deed, for a plugin that was given these directories. Each request says
// in its first words, or in its path, whether the decider of this test holds it for green.
func (d deed) op(dirs []string) abi.Op {
	path := fmt.Sprint("/srv/", d.path)
	switch {
	case d.path < 4 && len(dirs) > 0:
		path = dirs[d.path%len(dirs)] + fmt.Sprint("/f", d.more)
	case d.path == 4:
		path = fmt.Sprintf("/planned/%d/f", d.more+1)
	}
	guest := fmt.Sprint(100 + d.more)
	switch d.what {
	case 0:
		return abi.SSHExec{OnNode: on, Argv: []string{"read", guest}}
	case 1, 2:
		return abi.SSHExec{OnNode: on, Argv: []string{"pct", "stop", guest, path},
			StdinB64: strings.Repeat("A", 4*d.more)}
	case 3:
		return abi.SSHExec{OnNode: on, Argv: []string{"never", guest}}
	case 4:
		return abi.SSHScript{OnNode: on, Script: "pct start " + guest, MaxBytes: int64(d.more)}
	case 5, 13, 14:
		return abi.Stage{OnNode: on}
	case 6:
		return abi.SFTPPut{OnNode: on, Local: fmt.Sprint("l", d.more), Path: path}
	case 7:
		return abi.SFTPWrite{OnNode: on, Path: path, Mode: fmt.Sprint("060", d.more),
			Overwrite: d.more == 1, Data: abi.Data{B64: strings.Repeat("A", 4*(d.path%3))}}
	case 8:
		return abi.SFTPRemove{OnNode: on, Path: path}
	case 9:
		return abi.SFTPRead{OnNode: on, Path: path}
	case 10:
		method := []string{"GET", "POST", "PUT", "DELETE"}[d.more]
		return abi.HTTPRequest{Method: method, URL: "https://hook.example/" + guest}
	case 11:
		return abi.BlobWrite{Name: guest, MIME: "text/plain"}
	}
	return abi.SFTPGet{OnNode: on, Path: path, Local: "g", SHA256: strings.Repeat("a", 8*d.more)}
}

func tierOf(op abi.Op) terms.Tier {
	switch op := op.(type) {
	case abi.SSHExec:
		if op.Argv[0] == "read" {
			return terms.Green
		}
	case abi.SFTPRead, abi.BlobWrite:
		return terms.Green
	case abi.HTTPRequest:
		if op.Method == "GET" {
			return terms.Green
		}
	}
	return terms.Red
}

// trial is a door with host/plan, a random plugin, and a node that changes. It notes what was
// planned and what ran in a form of its own, which shares nothing with that of host/plan.
type trial struct {
	t         testing.TB
	mu        sync.Mutex
	dry, wet  []deed
	careless  bool // the plugin goes on after an error
	crowd     bool // its operations are asked for by two goroutines
	dryEnds   int
	breaksAt  int // which intent of the execution cannot be written; 0: none
	yes       bool
	files     map[string]int64
	changes   int // files that change between dry run and execution
	dirs      map[string]int
	approved  string
	planned   []string
	plannedAt []string // path of each
	facts     []string
	decided   map[string]string // form by decision
	journaled map[string]bool   // whether it was durable
	intents   int
	executed  []string
	above     int
}

// form is the operation with the host's own names replaced, without what a plan does not bind.
func (w *trial) form(op abi.Op) string {
	switch o := op.(type) {
	case abi.SFTPGet:
		o.SHA256 = ""
		op = o
	}
	text := fmt.Sprintf("%T %+v", op, op)
	for dir, n := range w.dirs {
		text = strings.ReplaceAll(text, dir+"/", fmt.Sprintf("<stage %d>/", n))
	}
	return text
}

func pathOf(op abi.Op) string {
	b, _ := json.Marshal(op)
	var with struct{ Path string }
	_ = json.Unmarshal(b, &with)
	return with.Path
}

func (w *trial) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	no := func(id string) (terms.Decision, error) {
		return terms.Decision{Tier: terms.Red, Failed: []string{id},
			NeedsApproval: id == "confirmation"}, nil
	}
	yes := terms.Decision{Allow: true, Tier: terms.Red, Revision: "r"}
	switch q.Kind {
	case terms.KindCall:
		if !q.Call.Planning && q.Call.Confirmation.State != "approved" {
			return no("confirmation")
		}
	case terms.KindPlan:
		whole, _ := q.Call.Plan.Complete()
		if !whole ||
			slices.ContainsFunc(q.Steps, func(s terms.Step) bool { return !s.Decision.Allow }) {
			return no("planned")
		}
	case terms.KindOperation:
		yes.Tier = tierOf(q.Op)
		if e, is := q.Op.(abi.SSHExec); is && e.Argv[0] == "never" {
			return no("never")
		}
		if q.Phase == terms.PhaseLookup {
			return yes, nil
		}
		above := yes.Tier != terms.Green
		p := q.Facts.Plan
		if above && !q.Call.Planning && (p == nil || !p.Next) {
			return no("planned")
		}
		w.decided[q.ID] = w.form(q.Op)
		if above && q.Call.Planning {
			w.planned = append(w.planned, w.form(q.Op))
			w.plannedAt = append(w.plannedAt, w.pathForm(q.Op))
			w.facts = append(w.facts, w.factsForm(q))
		}
	}
	return yes, nil
}

func (w *trial) pathForm(op abi.Op) string {
	path := pathOf(op)
	for dir, n := range w.dirs {
		path = strings.ReplaceAll(path, dir+"/", fmt.Sprintf("<stage %d>/", n))
	}
	return path
}

func (w *trial) factsForm(q terms.Question) string {
	switch f := q.Facts.File; {
	case f == nil:
		return ""
	case strings.HasPrefix(w.pathForm(q.Op), "<stage "):
		return fmt.Sprint("local ", f.LocalBytes)
	default:
		return fmt.Sprintf("%+v", *f)
	}
}

func (w *trial) Intent(_ context.Context, r terms.Record, durable bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.approved != "" {
		if w.intents++; w.breaksAt > 0 && w.intents >= w.breaksAt {
			return errors.New("the disk is full")
		}
	}
	if r.Type == "intent" {
		w.journaled[r.ID] = durable
	}
	return nil
}
func (w *trial) Outcome(context.Context, terms.Record) error { return nil }
func (w *trial) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}

func (w *trial) Script(
	s string,
) terms.Command {
	return terms.Command{Text: s}
}
func (w *trial) Argv([]string) terms.Command                            { return terms.Command{} }
func (w *trial) End(context.Context, *terms.Call)                       {}
func (w *trial) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func (w *trial) Confirm(_ context.Context, c *terms.Call, _ terms.Decision, _ func(string)) (
	terms.Confirmation, error,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.yes {
		return terms.Confirmation{}, &terms.Refused{Failed: []string{"denied"}}
	}
	w.approved = c.Plan.Digest()
	for k := range w.changes { // what else happens on the node while a person thinks
		w.files[fmt.Sprint("/srv/", k)]++
	}
	return terms.Confirmation{State: "approved", By: "ann", Channel: "cli"}, nil
}

func (w *trial) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	deeds := w.wet
	if r.Call.Planning {
		deeds = w.dry
	}
	var dirs []string
	clear(w.dirs) // a name of the dry run is an ordinary path for the execution
	var mu sync.Mutex
	ask := func(d deed) error {
		mu.Lock()
		op := d.op(dirs)
		mu.Unlock()
		res, err := r.Operate(ctx, op)
		if dir, is := res.Value.(abi.StageResponse); is {
			mu.Lock()
			dirs = append(dirs, dir.Dir)
			n := len(dirs)
			mu.Unlock()
			w.mu.Lock()
			w.dirs[dir.Dir] = n
			w.mu.Unlock()
		}
		return err
	}
	if w.crowd && !r.Call.Planning {
		var wg sync.WaitGroup
		for half := range 2 {
			wg.Go(func() {
				for k := half; k < len(deeds); k += 2 {
					_ = ask(deeds[k])
				}
			})
		}
		wg.Wait()
	} else {
		for _, d := range deeds {
			if err := ask(d); err != nil && !w.careless {
				return terms.Output{Code: 1}, nil
			}
		}
	}
	if r.Call.Planning {
		switch w.dryEnds {
		case 1:
			return terms.Output{}, &terms.PluginError{Code: "plugin_trap"}
		case 2:
			return terms.Output{Code: 1}, nil
		}
	}
	return terms.Output{JSON: json.RawMessage(`{}`)}, nil
}

func (w *trial) Lookup(_ context.Context, q terms.Question) (terms.Facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := pathOf(q.Op)
	if path == "" {
		return terms.Facts{}, nil
	}
	size, exists := w.files[path]
	return terms.Facts{File: &terms.FileFacts{RealPath: path, Exists: exists, Bytes: size}}, nil
}

// Execute holds what happens against what was decided, journaled, planned and approved.
func (w *trial) Execute(
	_ context.Context,
	q terms.Question,
	d terms.Decision,
) (terms.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	form, above := w.form(q.Op), tierOf(q.Op) != terms.Green
	durable, written := w.journaled[q.ID]
	switch {
	case !d.Allow || w.decided[q.ID] != form:
		w.t.Errorf("executed %s, decided %s", form, w.decided[q.ID])
	case !written:
		w.t.Errorf("executed %s without an intent", form)
	case above && !durable:
		w.t.Errorf("executed %s with an intent that is not on the disk", form)
	}
	if above {
		w.execute(q, form)
	}
	switch op := q.Op.(type) {
	case abi.Stage:
		dir := fmt.Sprintf("/var/tmp/caponier-%d", rand.Uint64())
		return terms.Result{Value: abi.StageResponse{Dir: dir},
			Stage: &terms.StageDir{Node: node, Dir: dir}}, nil
	case abi.BlobWrite:
		return terms.Result{Value: abi.BlobWriteResponse{Blob: fmt.Sprint("b", rand.Uint64())}}, nil
	case abi.SFTPPut, abi.SFTPWrite:
		w.files[pathOf(op)] = 7
	case abi.SFTPRemove:
		delete(w.files, op.Path)
	case abi.HTTPRequest:
		if op.Method == "PUT" && op.Hop == 0 { // leads to another one above green
			op.Hop, op.URL = 1, op.URL+"/next"
			return terms.Result{Next: op}, nil
		}
	}
	return terms.Result{}, nil
}

func (w *trial) execute(q terms.Question, form string) {
	at := w.above
	w.above++
	w.executed = append(w.executed, form)
	switch {
	case q.Call.Planning:
		w.t.Errorf("the dry run executed %s", form)
	case w.approved == "" || q.Call.Plan == nil || q.Call.Plan.Digest() != w.approved:
		w.t.Errorf("executed %s, and nobody approved this plan", form)
	case at >= len(w.planned) || w.planned[at] != form:
		w.t.Errorf("executed %q, planned %q", w.executed, w.planned)
	case !slices.Contains(w.plannedAt[:at], w.plannedAt[at]) && w.facts[at] != w.factsForm(q):
		w.t.Errorf("%s: planned for %s, executed on %s", form, w.facts[at], w.factsForm(q))
	}
}

// digests holds what the digests of plans stood for, in all runs of one process.
var digests sync.Map

// try runs the plugin that a tape describes through the door, as a call that needs an approval.
func try(t testing.TB, b tape) *trial {
	w := &trial{t: t, files: map[string]int64{"/srv/5": 5}, dirs: map[string]int{},
		decided: map[string]string{}, journaled: map[string]bool{}}
	flags := b.next(256)
	w.careless, w.crowd, w.yes = flags&1 != 0, flags&14 == 14, flags&48 != 0
	w.dryEnds, w.breaksAt = max(b.next(12)-9, 0), max(b.next(80)-60, 0)
	w.changes = b.next(8)
	for range b.next(12) {
		w.dry = append(w.dry, b.deed())
	}
	w.wet = slices.Clone(w.dry)
	for len(b) > 0 {
		w.deviate(&b)
	}
	executors := map[string]terms.Executor{}
	for _, name := range abi.Operations() {
		executors[name] = w
	}
	door := gate.New(gate.Options{Nodes: []terms.Node{{Name: node, Cluster: "lab", Default: true}},
		Decider: w, Journal: w, Ledger: w, Confirmer: w, Planner: Planner{}, Lowerer: w,
		Throttle: &fair.Refusals{}, Executors: executors,
		Mode: func(context.Context) terms.Mode { return terms.Mode{} }}, w)
	tool := &terms.Tool{Kind: "tool", Name: "t", Imports: []string{"ssh_exec"}, Plans: flags != 255,
		Budget: time.Minute, Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText, error) {
			return terms.Targets{}, nil, nil
		}}
	door.Call(context.Background(), terms.Request{Source: "cli",
		Principal: terms.Principal{ID: "p"}, Tool: tool})
	if w.approved != "" {
		text := fmt.Sprintf("%q", w.planned)
		if was, known := digests.LoadOrStore(w.approved, text); known && was != text {
			t.Errorf("one digest stands for %s and for %s", was, text)
		}
	}
	return w
}

// TestEachPlanHasItsOwnDigest tries every program of up to six deeds that makes stages and blobs,
// and runs something in a stage.
func TestEachPlanHasItsOwnDigest(t *testing.T) {
	blob, stage := []byte{11, 0, 0}, []byte{5, 0, 0}
	first, second := []byte{1, 0, 0}, []byte{1, 1, 0}
	var all func(deeds tape, left int)
	all = func(deeds tape, left int) {
		try(t, append(tape{49, 0, 0, 0, byte(len(deeds) / 3)}, deeds...))
		for _, deed := range [][]byte{blob, stage, first, second} {
			if left > 0 {
				all(slices.Concat(deeds, deed), left-1)
			}
		}
	}
	all(nil, 6)
}

// deviate makes the execution differ from the dry run in one place.
func (w *trial) deviate(b *tape) {
	kind, at, d := b.next(8), b.next(len(w.wet)+1), b.deed()
	if at == len(w.wet) {
		w.wet = append(w.wet, d)
		return
	}
	switch kind {
	case 0:
		w.wet = slices.Insert(w.wet, at, d)
	case 1:
		w.wet = slices.Delete(w.wet, at, at+1)
	case 2:
		w.wet[at] = d
	case 3:
		w.wet[at].more = d.more
	case 4, 5, 6:
		w.wet[at].path = d.path
	case 7:
		other := d.path % len(w.wet)
		w.wet[at], w.wet[other] = w.wet[other], w.wet[at]
	}
}

// random is a tape of a few deeds and at most two deviations, most of them of a plugin that is
// approved and goes on after an error.
func random(rnd *rand.Rand) (b tape) {
	deeds := 1 + rnd.IntN(9)
	b = tape{byte(rnd.IntN(256)), byte(rnd.IntN(256)), byte(rnd.IntN(256)),
		byte(rnd.IntN(8) * rnd.IntN(8) / 40), byte(deeds)}
	for range 3*deeds + 5*rnd.IntN(3) {
		b = append(b, byte(rnd.IntN(256)))
	}
	return b
}

// FuzzNothingRunsButThePlan lets random plugins deviate from their dry runs. What is executed above
// green is a prefix of what was planned and approved, in its order and with its facts. All that is
// executed was decided and journaled before.
func FuzzNothingRunsButThePlan(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	f.Add([]byte{49, 0, 0, 0, 3, 5, 7, 0, 5, 7, 0, 8, 0, 0, 4, 2, 0, 1, 0}) // another stage
	for range 100 {
		f.Add([]byte(random(rnd)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 500 {
			try(t, b)
		}
	})
}

// TestNothingRunsButThePlan is the same for many random tapes, and holds that these come to plans,
// to whole executions and to refused deviations.
func TestNothingRunsButThePlan(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	approved, whole, stopped := 0, 0, 0
	for range 5000 {
		b := random(rnd)
		w := try(t, b)
		if t.Failed() {
			t.Fatalf("tape %x: dry %v, wet %v", b, w.dry, w.wet)
		}
		if w.approved != "" {
			approved++
			if w.above == len(w.planned) {
				whole++
			} else {
				stopped++
			}
		}
	}
	if approved < 500 || whole < 50 || stopped < 50 {
		t.Errorf("%d approved, %d ran as planned, %d were stopped", approved, whole, stopped)
	}
	t.Logf("%d approved, %d ran as planned, %d were stopped", approved, whole, stopped)
}
