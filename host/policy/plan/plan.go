// Package plan evaluates Rego that OPA's planner has lowered to its intermediate representation.
//
// The representation (package v1/ir of OPA, https://www.openpolicyagent.org/docs/ir) is what OPA
// itself makes policy.wasm from. Here each of its statements becomes one Go function when a policy
// is loaded, so that a decision only runs them: no unification, no search, little garbage. Values
// and built-in functions are OPA's own, and an error of any of them ends the evaluation, as strict
// evaluation in topdown does. Topdown stays what policy tests and explanations run on, and the
// tests of package policy hold the two to the same decisions.
package plan

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Policy holds the entry points of a policy, ready to run. Its methods may be called concurrently.
type Policy struct {
	data    *ast.Term
	entries map[string]block
	locals  int // of the largest entry
	funcs   []*function
	byPath  map[string]*function // what a reference with computed parts may call
	runs    sync.Pool
}

// function is a rule or a function of the policy. One without arguments of its own gives the same
// value all through an evaluation.
type function struct {
	index  int
	params []ir.Local
	locals int
	result ir.Local
	body   []block
}

func (f *function) remembered() bool { return len(f.params) == 2 }

// run is one evaluation.
type run struct {
	policy  *Policy
	ctx     context.Context
	builtin topdown.BuiltinContext
	out     *ast.Term // what the last built-in gave
	keep    func(*ast.Term) error
	memo    []memo
	stack   []*ast.Term // frames follow one another here
	top     int
	steps   int
	results []*ast.Term
}

type memo struct {
	known bool
	value *ast.Term
}

// Eval gives the value of an entry point, such as "caponier/core/call/decision", for an input, or
// nil where that is undefined. It ends soon after ctx does, with its cause.
func (p *Policy) Eval(ctx context.Context, entry string, input ast.Value) (ast.Value, error) {
	body, ok := p.entries[entry]
	if !ok {
		return nil, fmt.Errorf("the policy has no entry point %s", entry)
	}
	r, _ := p.runs.Get().(*run)
	if r == nil {
		r = &run{policy: p, memo: make([]memo, len(p.funcs)), stack: make([]*ast.Term, 4096)}
		r.keep = func(t *ast.Term) error { r.out = t; return nil }
	}
	r.ctx, r.builtin = ctx, topdown.BuiltinContext{Context: ctx}
	frame := r.push(p.locals)
	frame[ir.Input], frame[ir.Data] = ast.NewTerm(input), p.data
	_, err := body.run(r, frame)
	results := r.results
	clear(r.memo)
	clear(r.stack[:r.top])
	r.ctx, r.builtin, r.out, r.results, r.top, r.steps = nil, topdown.BuiltinContext{}, nil, nil, 0, 0
	p.runs.Put(r)
	switch {
	case err != nil:
		return nil, err
	case len(results) == 0:
		return nil, nil
	case len(results) > 1:
		return nil, errors.New("the entry point has several values")
	}
	return results[0].Value.(ast.Object).Get(resultKey).Value, nil
}

var resultKey = ast.StringTerm("result")

func (r *run) push(n int) []*ast.Term {
	if r.top+n > len(r.stack) {
		return make([]*ast.Term, n)
	}
	r.top += n
	return r.stack[r.top-n : r.top : r.top]
}

// call gives the value of a function, nil where it is undefined.
func (r *run) call(f *function, args []*ast.Term) (*ast.Term, error) {
	if f.remembered() && r.memo[f.index].known {
		return r.memo[f.index].value, nil
	}
	mark := r.top
	frame := r.push(f.locals)
	for i, local := range f.params {
		frame[local] = args[i]
	}
	var value *ast.Term
	for _, b := range f.body {
		s, err := b.run(r, frame)
		if err != nil {
			return nil, err
		}
		if s == returned {
			value = frame[f.result]
			break
		}
	}
	if r.top != mark {
		clear(r.stack[mark:r.top])
		r.top = mark
	}
	if f.remembered() {
		r.memo[f.index] = memo{true, value}
	}
	return value, nil
}

// tick ends an evaluation whose time is over.
func (r *run) tick() error {
	if r.steps++; r.steps%256 == 0 {
		return context.Cause(r.ctx)
	}
	return nil
}
