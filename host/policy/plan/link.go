package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/compile"
	"github.com/open-policy-agent/opa/v1/ir"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Options say what to make a policy of.
type Options struct {
	Modules      map[string]*ast.Module // by file name; they are not changed
	Data         map[string]any         // the base documents, of JSON's types
	Capabilities *ast.Capabilities
	Entries      []string // such as "caponier/core/call/decision"
}

// New plans and links a policy. It refuses what it could not run: unknown statements, functions and
// built-ins.
func New(ctx context.Context, o Options) (*Policy, error) {
	b := &bundle.Bundle{Data: map[string]any{}}
	for name, m := range o.Modules {
		b.Modules = append(
			b.Modules,
			bundle.ModuleFile{
				URL:          name,
				Path:         name,
				RelativePath: name,
				Parsed:       m.Copy(),
				Raw:          []byte("package x"),
			},
		)
	}
	slices.SortFunc(
		b.Modules,
		func(x, y bundle.ModuleFile) int { return strings.Compare(x.Path, y.Path) },
	)
	c := compile.New().
		WithTarget(compile.TargetPlan).
		WithBundle(b).
		WithEntrypoints(o.Entries...).
		WithCapabilities(o.Capabilities).
		WithRegoVersion(ast.RegoV1).
		WithPruneUnused(true)
	if err := c.Build(ctx); err != nil {
		return nil, fmt.Errorf("planning the policy: %w", err)
	}
	var policy ir.Policy
	if err := json.NewDecoder(bytes.NewReader(c.Bundle().PlanModules[0].Raw)).Decode(&policy); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	data, err := ast.InterfaceToValue(o.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the policy's data: %w", err)
	}
	return link(&policy, ast.NewTerm(data))
}

// linker turns statements into steps.
type linker struct {
	policy  *Policy
	strings []*ast.Term
	raw     []string
	named   map[string]*function
	locals  int // of the function being linked
	inside  string
	problem error // the first
}

func link(from *ir.Policy, data *ast.Term) (*Policy, error) {
	p := &Policy{data: data, entries: map[string]block{}, byPath: map[string]*function{}}
	l := &linker{policy: p, named: map[string]*function{}}
	for _, s := range from.Static.Strings {
		l.strings, l.raw = append(l.strings, ast.StringTerm(s.Value)), append(l.raw, s.Value)
	}
	for i, f := range from.Funcs.Funcs {
		linked := &function{index: i, params: f.Params, result: f.Return}
		p.funcs, l.named[f.Name] = append(p.funcs, linked), linked
		if f.Path != nil {
			p.byPath[strings.Join(f.Path, "\x00")] = linked
		}
	}
	for i, f := range from.Funcs.Funcs {
		l.inside, l.locals = f.Name, 0
		for _, local := range append(f.Params, f.Return) {
			l.local(local)
		}
		p.funcs[i].body = l.blocks(f.Blocks)
		p.funcs[i].locals = l.locals
	}
	for _, e := range from.Plans.Plans {
		l.inside, l.locals = e.Name, 2
		p.entries[e.Name] = block{nested(l.blocks(e.Blocks))}
		p.locals = max(p.locals, l.locals)
	}
	return p, l.problem
}

func (l *linker) fail(format string, args ...any) step {
	if l.problem == nil {
		l.problem = fmt.Errorf("planning %s: %w", l.inside, fmt.Errorf(format, args...))
	}
	return nil
}

func (l *linker) local(x ir.Local) ir.Local {
	l.locals = max(l.locals, int(x)+1)
	return x
}

func (l *linker) blocks(from []*ir.Block) (to []block) {
	for _, b := range from {
		to = append(to, l.block(b))
	}
	return to
}

func (l *linker) block(from *ir.Block) (to block) {
	for _, s := range from.Stmts {
		if _, nothing := s.(*ir.NopStmt); !nothing {
			to = append(to, l.step(s))
		}
	}
	return to
}

// operand is a constant or a local.
type operand struct {
	constant *ast.Term
	local    ir.Local
}

func (o operand) of(frame []*ast.Term) *ast.Term {
	if o.constant != nil {
		return o.constant
	}
	return frame[o.local]
}

func (l *linker) operand(o ir.Operand) operand {
	switch v := o.Value.(type) {
	case *ir.Local:
		return operand{local: l.local(*v)}
	case *ir.StringIndex:
		return operand{constant: l.strings[*v]}
	case *ir.Bool:
		return operand{constant: ast.InternedTerm(bool(*v))}
	}
	l.fail("an operand is a %T", o.Value)
	return operand{}
}

func (l *linker) operands(from []ir.Operand) (to []operand) {
	for _, o := range from {
		to = append(to, l.operand(o))
	}
	return to
}

// call makes the step of a function of the policy or of a built-in.
func (l *linker) call(s *ir.CallStmt) step {
	args, result := l.operands(s.Args), l.local(s.Result)
	if f := l.named[s.Func]; f != nil {
		return func(r *run, frame []*ast.Term) (signal, error) {
			if f.remembered() && r.memo[f.index].known {
				frame[result] = r.memo[f.index].value
				return defined(frame[result] != nil), nil
			}
			var space [8]*ast.Term
			v, err := r.call(f, fill(space[:0], args, frame))
			frame[result] = v
			return defined(v != nil), err
		}
	}
	decl, f := ast.BuiltinMap[s.Func], topdown.GetBuiltin(s.Func)
	if decl == nil || f == nil || decl.Relation || decl.Decl.Result() == nil {
		return l.fail("there is no function %q here", s.Func)
	}
	return func(r *run, frame []*ast.Term) (signal, error) {
		r.out = nil
		if err := f(r.builtin, fill(make([]*ast.Term, 0, len(args)), args, frame), r.keep); err != nil {
			return undefined, err
		}
		frame[result] = r.out
		return defined(r.out != nil), nil
	}
}

func fill(to []*ast.Term, from []operand, frame []*ast.Term) []*ast.Term {
	for _, o := range from {
		to = append(to, o.of(frame))
	}
	return to
}

// callDynamic finds the rule by a path of which parts were computed. Where there is none, base data
// may have a value, which the plan looks up next; where a rule is undefined, the whole reference
// is, and that is three blocks out.
func (l *linker) callDynamic(s *ir.CallDynamicStmt) step {
	path, result := l.operands(s.Path), l.local(s.Result)
	args := []ir.Local{}
	for _, a := range s.Args {
		args = append(args, l.local(a))
	}
	return func(r *run, frame []*ast.Term) (signal, error) {
		parts := make([]string, len(path))
		for i, o := range path {
			text, ok := o.of(frame).Value.(ast.String)
			if !ok {
				return undefined, nil
			}
			parts[i] = string(text)
		}
		f := r.policy.byPath[strings.Join(parts, "\x00")]
		if f == nil || len(f.params) != len(args) {
			return undefined, nil
		}
		given := make([]*ast.Term, len(args))
		for i, a := range args {
			given[i] = frame[a]
		}
		v, err := r.call(f, given)
		if frame[result] = v; v == nil {
			return 3, err
		}
		return next, err
	}
}
