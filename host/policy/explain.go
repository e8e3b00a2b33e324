package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Explanation is a recorded decision, made again with the policy that made it.
type Explanation struct {
	DecisionID string        `json:"decision_id"`
	Revision   string        `json:"revision"`
	Allowed    bool          `json:"allowed"`
	Tier       string        `json:"tier"`
	Failed     []string      `json:"failed"`
	Denied     []gate.Reason `json:"deny"`
	// whether deciding again came to the same; it may not where the journal holds redacted values
	Same   bool          `json:"same"`
	Checks []FailedCheck `json:"checks"`
}

// FailedCheck is one check that did not hold.
type FailedCheck struct {
	ID     string         `json:"id"`
	Says   string         `json:"says"`
	Remedy string         `json:"remedy"` // what would satisfy it
	Stuck  []string       `json:"stuck"`  // file:line: the expressions that were not true
	Data   map[string]any `json:"data"`   // what the site's data says where those expressions look
}

// Explain decides the recorded question again and looks at each check that did not hold. The bundle
// is what OnRevision was given for the record's revision. It needs neither the running host nor its
// present policy.
func Explain(ctx context.Context, record gate.Record, bundle []byte) (Explanation, error) {
	x := Explanation{DecisionID: record.ID, Revision: record.Revision, Checks: []FailedCheck{}}
	if len(record.Input) == 0 || record.Revision == "" {
		return x, fmt.Errorf("decision %s was not made by policy: %v", record.ID, record.Failed)
	}
	files, err := unpack(bundle)
	if err != nil {
		return x, err
	}
	r, err := build(ctx, files)
	if err != nil {
		return x, fmt.Errorf("building policy revision %s again: %w", record.Revision, err)
	}
	if r.id != record.Revision {
		return x, fmt.Errorf(
			"the kept policy is revision %s, the record says %s",
			r.id,
			record.Revision,
		)
	}
	entry, input, err := recorded(record)
	if err != nil {
		return x, err
	}
	a, err := r.answer(ctx, entry, input)
	if err != nil {
		return x, err
	}
	x.Allowed, x.Tier, x.Failed, x.Denied = a.Allow, a.Tier, a.Failed, a.Deny
	x.Same = a.Allow == (record.Type != "refused") && slices.Equal(a.Failed, record.Failed)
	compiler, err := r.compile(ctx, r.modules)
	if err != nil {
		return x, err
	}
	for _, id := range a.Failed {
		c := FailedCheck{ID: id, Stuck: []string{}, Data: map[string]any{}}
		for _, d := range a.Deny {
			if d.ID == id {
				c.Says = d.Msg
			}
		}
		if c.Remedy, err = r.remedy(ctx, compiler, id); err != nil {
			return x, err
		}
		if err := r.trace(ctx, compiler, input, entry, &c); err != nil {
			return x, err
		}
		x.Checks = append(x.Checks, c)
	}
	return x, nil
}

// recorded gives a record's input as it was decided, but for what is redacted in it.
func recorded(record gate.Record) (entry string, input ast.Value, err error) {
	input, err = ast.ValueFromReader(strings.NewReader(string(record.Input)))
	if err != nil {
		return "", nil, fmt.Errorf("input of decision %s: %w", record.ID, err)
	}
	doc, ok := input.(ast.Object)
	if !ok {
		return "", nil, fmt.Errorf("input of decision %s is not an object", record.ID)
	}
	schema := doc.Get(ast.InternedTerm("schema"))
	for _, s := range []string{callSchema, operationSchema, visibleSchema} {
		if schema != nil && schema.Value.Compare(ast.String(s)) == 0 {
			return strings.TrimSuffix(strings.TrimPrefix(s, "caponier."), "/1"), input, nil
		}
	}
	return "", nil, fmt.Errorf(
		"input of decision %s has schema %v, which this version does not know",
		record.ID,
		schema,
	)
}

func (r *revision) remedy(ctx context.Context, c *ast.Compiler, id string) (string, error) {
	rs, err := rego.New(rego.Query("data.caponier.core.reasons.remedies["+ast.String(id).String()+"]"), rego.Compiler(c), rego.Store(r.store)).
		Eval(ctx)
	if err != nil || len(rs) == 0 {
		return "", err
	}
	s, _ := rs[0].Expressions[0].Value.(string)
	return s, nil
}

// Entries are the commands that the policy in force describes, by the names under which tools
// declare them.
func (e *Engine) Entries(ctx context.Context) (names []string, err error) {
	r := e.current.Load()
	if r == nil {
		return nil, errors.New("no policy is loaded")
	}
	c, err := r.compile(ctx, r.modules)
	if err != nil {
		return nil, err
	}
	rs, err := rego.New(rego.Query("[id | data.caponier.core.lint.entries[id]]; [id | data.caponier.core.lint.own[id]]"), rego.Compiler(c), rego.Store(r.store)).
		Eval(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the command grammar: %w", err)
	}
	for _, x := range rs[0].Expressions {
		ids, _ := x.Value.([]any)
		for _, id := range ids {
			names = append(names, fmt.Sprint(id))
		}
	}
	return names, nil
}

const maxStuck = 12

// trace asks the check alone and collects where in its file it got stuck.
func (r *revision) trace(
	ctx context.Context,
	c *ast.Compiler,
	input ast.Value,
	entry string,
	f *FailedCheck,
) error {
	pkg := "data.caponier.core.check." + f.ID
	own := map[string]bool{"core/check/" + f.ID + ".rego": true, "core/" + f.ID + ".rego": true}
	for _, rule := range []string{"ok", entry + "_ok", entry + "_granted", entry + "_known"} {
		buf := topdown.NewBufferTracer()
		_, err := rego.New(rego.Query(pkg+"."+rule), rego.Compiler(c), rego.Store(r.store), rego.ParsedInput(input), rego.QueryTracer(buf), rego.StrictBuiltinErrors(true)).
			Eval(ctx)
		if err != nil {
			if topdown.IsError(err) {
				f.Stuck = append(f.Stuck, err.Error())
				continue
			}
			return errors.Join(fmt.Errorf("tracing %s", pkg), err)
		}
		not := negations{within: map[uint64]bool{}, last: map[uint64]bool{}}
		// by place: what expressions there look up, of which the compiler makes steps of their own
		asked := map[string][]ast.Ref{}
		for _, ev := range *buf {
			if expr, isExpr := ev.Node.(*ast.Expr); not.see(ev) && ev.Op == topdown.FailOp ||
				!isExpr ||
				expr.Location == nil ||
				ev.Location == nil ||
				!strings.HasPrefix(ev.Location.File, "core/") {
				continue
			}
			place, text := fmt.Sprintf(
				"%s:%d",
				ev.Location.File,
				ev.Location.Row,
			), string(
				ev.Location.Text,
			)
			switch ev.Op {
			case topdown.EvalOp:
				refs := siteRefs(ev)
				asked[place] = append(asked[place], refs...)
				// What a check finds by name may be just what it holds against the question, such
				// as the entry that protects a guest.
				if own[ev.Location.File] && strings.Contains(text, "[") {
					r.look(refs, false, f.Data)
				}
			case topdown.FailOp:
				r.look(asked[place], true, f.Data)
				if stuck := place + ": " + text; !slices.Contains(f.Stuck, stuck) {
					f.Stuck = append(f.Stuck, stuck)
				}
			}
		}
	}
	// The check's own expressions say most, what it asked others only how it came to that.
	slices.SortStableFunc(f.Stuck, func(a, b string) int {
		mine := func(stuck string) int {
			file, _, _ := strings.Cut(stuck, ":")
			return map[bool]int{true: 0, false: 1}[own[file]]
		}
		return mine(a) - mine(b)
	})
	f.Stuck = f.Stuck[:min(len(f.Stuck), maxStuck)]
	return nil
}

// negations knows which queries of a trace are below a "not", where failing is what was hoped for.
type negations struct{ within, last map[uint64]bool }

func (n negations) see(ev *topdown.Event) (below bool) {
	if ev.Op == topdown.EnterOp || ev.Op == topdown.EvalOp {
		if _, known := n.within[ev.QueryID]; !known {
			n.within[ev.QueryID] = n.within[ev.ParentID] || n.last[ev.ParentID]
		}
	}
	if expr, ok := ev.Node.(*ast.Expr); ok && ev.Op == topdown.EvalOp {
		n.last[ev.QueryID] = expr.Negated
	}
	return n.within[ev.QueryID]
}

// siteRefs are the references into the site's data in an expression, with the values that variables
// had.
func siteRefs(ev *topdown.Event) (refs []ast.Ref) {
	ast.WalkRefs(ev.Node, func(ref ast.Ref) bool {
		if !ref.HasPrefix(rootSite) || len(ref) == len(rootSite) {
			return false
		}
		ref = ref.Copy()
		for _, t := range ref[1:] {
			if v := ev.Locals.Get(t.Value); v != nil {
				t.Value = v
			}
		}
		if ref.IsGround() {
			refs = append(refs, ref)
		}
		return false
	})
	return refs
}

// look notes what the site's data holds where references point, and that it holds nothing there if
// this is where the check failed.
func (r *revision) look(refs []ast.Ref, missing bool, into map[string]any) {
	for _, ref := range refs {
		var at any = r.data
		var path []string
		for _, t := range ref[1:] {
			key, _ := t.Value.(ast.String)
			m, _ := at.(map[string]any)
			at, path = m[string(key)], append(path, string(key))
		}
		if at != nil || missing {
			into[strings.Join(path[1:], "/")] = at
		}
	}
}
