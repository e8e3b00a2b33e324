package replay

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Explain decides the recorded question again and looks at each check that did not hold. The bundle
// is what load.Options.OnRevision was given for the record's revision. Explain needs neither the
// running host nor its present policy. What cannot be decided again is explained from the record
// alone: refusals of the host itself, and records whose policy was not kept (bundle is nil) or
// cannot be built.
func Explain(ctx context.Context, record terms.Record, bundle []byte) (Explanation, error) {
	x := Explanation{DecisionID: record.ID, CallID: record.CallID, Guests: guests(record.Input),
		Revision: record.Revision, Checks: []FailedCheck{}}
	byHost := slices.ContainsFunc(record.Failed, func(id string) bool {
		return strings.Contains(id, ".")
	})
	if len(record.Input) == 0 || record.Revision == "" || byHost {
		x.ofHost(record)
		return x, nil
	}
	fresh := x
	err := x.again(ctx, record, bundle)
	if err == nil || ctx.Err() != nil {
		return x, err
	}
	x = fresh
	x.ofHost(record)
	x.Host, x.Note = false, "it could not be decided again: "+err.Error()
	return x, nil
}

// again decides the record again, and asks each check that does not hold why.
func (x *Explanation) again(ctx context.Context, record terms.Record, bundle []byte) error {
	if bundle == nil {
		return fmt.Errorf("policy revision %s is not kept beside the journal", record.Revision)
	}
	c, err := load.FromBundle(ctx, bundle)
	if err != nil {
		return fmt.Errorf("building policy revision %s again: %w", record.Revision, err)
	}
	if c.Rules.Revision != record.Revision {
		return fmt.Errorf("the kept policy is revision %s, the record says %s", c.Rules.Revision,
			record.Revision)
	}
	decided, err := ast.ValueFromReader(bytes.NewReader(record.Input))
	if err != nil {
		return fmt.Errorf("input of decision %s: %w", record.ID, err)
	}
	a, err := c.Rules.Answer(ctx, decided)
	if err != nil {
		return fmt.Errorf("deciding %s again: %w", record.ID, err)
	}
	x.Allowed, x.Tier, x.Failed, x.Denied = a.Allow, a.Tier.String(), a.Failed, a.Denied
	x.Same = a.Allow == (record.Type != "refused") && slices.Equal(a.Failed, record.Failed)
	t := tracer{c, decided, input.Entry(decided)}
	for _, id := range a.Failed {
		f := FailedCheck{ID: id, Rules: []string{}, Entries: []Entry{}, Stuck: []string{},
			Data: map[string]any{}}
		f.Says = says(id, a)
		if f.Remedy, err = t.remedy(ctx, id); err != nil {
			return err
		}
		if err := t.trace(ctx, &f); err != nil {
			return err
		}
		for _, path := range slices.Sorted(maps.Keys(f.Data)) {
			where, _, _ := strings.Cut(c.Place(path), ": ")
			f.Entries = append(f.Entries, Entry{where, path, f.Data[path]})
		}
		x.Checks = append(x.Checks, f)
	}
	return nil
}

// A tracer asks the checks of one question one by one.
type tracer struct {
	*load.Candidate
	input ast.Value
	entry string
}

func (t *tracer) eval(ctx context.Context, query string, more ...func(*rego.Rego)) (rego.ResultSet,
	error) {
	return rego.New(append(more, rego.Query(query), rego.Compiler(t.Rules.Compiler),
		rego.Store(t.Rules.Store), rego.ParsedInput(t.input),
		rego.StrictBuiltinErrors(true))...).Eval(ctx)
}

func (t *tracer) remedy(ctx context.Context, id string) (string, error) {
	rs, err := t.eval(ctx, "data.caponier.core.reasons.remedies["+ast.String(id).String()+"]")
	if err != nil || len(rs) == 0 {
		return "", err
	}
	s, _ := rs[0].Expressions[0].Value.(string)
	return s, nil
}

// maxStuck is how many places of one check are told.
const maxStuck = 12

// trace asks the check alone and collects where it got stuck.
func (t *tracer) trace(ctx context.Context, f *FailedCheck) error {
	pkg := "data.caponier.core.check." + f.ID
	own := map[string]bool{"core/check/" + f.ID + ".rego": true, "core/" + f.ID + ".rego": true}
	if f.ID == "site" {
		pkg = "data.caponier.site." + t.entry
	}
	for _, rule := range []string{"ok", "reached", "granted", "deny"} {
		buf := topdown.NewBufferTracer()
		if _, err := t.eval(ctx, pkg+"."+rule, rego.QueryTracer(buf)); topdown.IsError(err) {
			f.Stuck = append(f.Stuck, err.Error())
			continue
		} else if err != nil {
			return fmt.Errorf("tracing %s: %w", pkg, err)
		}
		if f.ID == "site" {
			t.refusing(*buf, f)
		} else {
			t.stuck(*buf, own, f)
		}
	}
	// The check's own expressions say most.
	slices.SortStableFunc(f.Stuck, func(a, b string) int {
		mine := func(stuck string) int {
			if file, _, _ := strings.Cut(stuck, ":"); own[file] {
				return 0
			}
			return 1
		}
		return mine(a) - mine(b)
	})
	f.Stuck = f.Stuck[:min(len(f.Stuck), maxStuck)]
	return nil
}

// refusing collects the site's rules that held, each of which refuses.
func (t *tracer) refusing(trace topdown.BufferTracer, f *FailedCheck) {
	for _, ev := range trace {
		rule, ok := ev.Node.(*ast.Rule)
		if !ok || ev.Op != topdown.ExitOp || rule.Head.Name != "deny" && textual(rule) != "deny" {
			continue
		}
		line, _, _ := strings.Cut(string(rule.Location.Text), "\n")
		place := fmt.Sprintf("%s:%d: %s", rule.Location.File, rule.Location.Row, line)
		if !slices.Contains(f.Rules, place) {
			f.Rules = append(f.Rules, place)
		}
	}
}

func textual(rule *ast.Rule) string { return rule.Head.Ref()[0].Value.String() }

// stuck collects the expressions that were not true, and what they look up in the site's data.
func (t *tracer) stuck(trace topdown.BufferTracer, own map[string]bool, f *FailedCheck) {
	not := negations{within: map[uint64]bool{}, last: map[uint64]bool{}}
	asked := map[string][]ast.Ref{} // by place: the compiler makes steps of one expression
	for _, ev := range trace {
		expr, isExpr := ev.Node.(*ast.Expr)
		if not.see(ev) && ev.Op == topdown.FailOp || !isExpr || expr.Location == nil ||
			ev.Location == nil || !strings.HasPrefix(ev.Location.File, "core/") {
			continue
		}
		place := fmt.Sprintf("%s:%d", ev.Location.File, ev.Location.Row)
		text := string(ev.Location.Text)
		if ev.Location.File == "core/quick.rego" || strings.HasPrefix(text, "quick.") {
			continue // what the tables do not hold is read word by word
		}
		switch ev.Op {
		case topdown.EvalOp:
			refs := siteRefs(ev)
			asked[place] = append(asked[place], refs...)
			// What a check finds by name can be just what it holds against the question, such as
			// the entry that protects a guest.
			if own[ev.Location.File] && strings.Contains(text, "[") {
				t.look(refs, false, f.Data)
			}
		case topdown.FailOp:
			t.look(asked[place], true, f.Data)
			if stuck := place + ": " + text; !slices.Contains(f.Stuck, stuck) {
				f.Stuck = append(f.Stuck, stuck)
			}
		}
	}
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

var rootSite = ast.MustParseRef("data.site")

// siteRefs returns the references into the site's data in an expression, with the values that
// variables had.
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
func (t *tracer) look(refs []ast.Ref, missing bool, into map[string]any) {
	for _, ref := range refs {
		var at any = t.Data()
		var path []string
		for _, x := range ref[1:] {
			key, _ := x.Value.(ast.String)
			m, _ := at.(map[string]any)
			at, path = m[string(key)], append(path, string(key))
		}
		if at != nil || missing {
			into[strings.Join(path[1:], "/")] = at
		}
	}
}
