package jq

import (
	"strconv"

	"github.com/itchyny/gojq"
)

// A document as a tree takes several times its own size; a plugin has no memory for that with ten
// megabytes. So the first stages of a filter read the text itself, as far as they only walk:
// .rows[], map(f), [.rows[] | f], .rows[2:5], length. The rest runs in the interpreter, on
// one element at a time.

// op is one stage of a filter. It emits zero or more values for each input value. code does the
// same in the interpreter, for values of a type that the stage cannot walk.
type op struct {
	kind     kind
	index    step
	from, to *int   // of a slice
	inner    []op   // of collect
	branches [][]op // of comma
	code     *gojq.Code
	// the same for each element of a list: to start the interpreter costs more than most elements
	// do
	each *gojq.Code
}

type kind int

const (
	interpret kind = iota
	index
	slice
	iterate
	length
	collect
	comma
	choose
)

// plan divides a filter into stages.
func plan(q *gojq.Query) ([]op, error) {
	var ops []op
	nodes := pipeline(q)
	for i, n := range nodes {
		stages, err := walk(n)
		if err != nil {
			return nil, err
		}
		if stages == nil { // all that follows is one program
			rest := n
			for _, next := range nodes[i+1:] {
				rest = &gojq.Query{Left: rest, Op: gojq.OpPipe, Right: next}
			}
			o, err := program(interpret, rest)
			return append(ops, o), err
		}
		ops = append(ops, stages...)
	}
	return ops, nil
}

// program returns a stage that runs in the interpreter.
func program(k kind, q *gojq.Query) (op, error) {
	code, err := gojq.Compile(q)
	if err != nil {
		return op{}, err
	}
	elements := &gojq.Query{
		Term: &gojq.Term{Type: gojq.TermTypeIdentity, SuffixList: []*gojq.Suffix{{Iter: true}}},
	}
	each, err := gojq.Compile(&gojq.Query{Left: elements, Op: gojq.OpPipe, Right: q})
	return op{kind: k, code: code, each: each}, err
}

// pipeline returns the parts between the pipes of a filter without definitions and bindings.
func pipeline(q *gojq.Query) []*gojq.Query {
	if q.Op == gojq.OpPipe && plain(q) {
		return append(pipeline(q.Left), pipeline(q.Right)...)
	}
	return []*gojq.Query{q}
}

func plain(q *gojq.Query) bool {
	return q.Meta == nil && len(q.Imports)+len(q.FuncDefs)+len(q.Patterns) == 0
}

// walk returns the stages of a filter that only walks, or nil for any other.
func walk(q *gojq.Query) ([]op, error) {
	switch {
	case !plain(q):
		return nil, nil
	case q.Op == gojq.OpComma:
		left, err := plan(q.Left)
		if err != nil {
			return nil, err
		}
		right, err := plan(q.Right)
		return []op{{kind: comma, branches: [][]op{left, right}}}, err
	case q.Term == nil:
		return nil, nil
	}
	t := q.Term
	ops, err := base(t)
	if ops == nil || err != nil {
		return nil, err
	}
	for _, s := range t.SuffixList {
		o, err := suffix(s)
		if o == nil || err != nil {
			return nil, err
		}
		ops = append(ops, *o)
	}
	return ops, nil
}

// base returns the stages of a term without its suffixes, or nil if it does not walk.
func base(t *gojq.Term) ([]op, error) {
	switch {
	case t.Type == gojq.TermTypeIdentity:
		return []op{}, nil
	case t.Type == gojq.TermTypeIndex:
		o, err := suffix(&gojq.Suffix{Index: t.Index})
		if o == nil || err != nil {
			return nil, err
		}
		return []op{*o}, nil
	case t.Type == gojq.TermTypeQuery:
		return plan(t.Query)
	case t.Type == gojq.TermTypeArray && t.Array.Query != nil:
		inner, err := plan(t.Array.Query)
		return []op{{kind: collect, inner: inner}}, err
	case t.Type == gojq.TermTypeFunc && t.Func.Name == "map" && len(t.Func.Args) == 1:
		each, err := suffix(&gojq.Suffix{Iter: true})
		if err != nil {
			return nil, err
		}
		inner, err := plan(t.Func.Args[0])
		return []op{{kind: collect, inner: append([]op{*each}, inner...)}}, err
	case t.Type == gojq.TermTypeFunc && t.Func.Name == "select" && len(t.Func.Args) == 1:
		// The chosen element itself goes on.
		o, err := program(choose, &gojq.Query{
			Term: &gojq.Term{Type: gojq.TermTypeArray, Array: &gojq.Array{Query: t.Func.Args[0]}},
		})
		return []op{o}, err
	case t.Type == gojq.TermTypeFunc && t.Func.Name == "length" && len(t.Func.Args) == 0:
		code, err := gojq.Compile(&gojq.Query{Term: t})
		return []op{{kind: length, code: code}}, err
	}
	return nil, nil
}

// suffix returns the stage of .name, [0], [2:5] or [], or nil for a suffix that must be computed or
// may fail.
func suffix(s *gojq.Suffix) (*op, error) {
	code, err := gojq.Compile(
		&gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIdentity, SuffixList: []*gojq.Suffix{s}}},
	)
	if err != nil || s.Optional {
		return nil, err
	}
	o := &op{code: code}
	switch i := s.Index; {
	case s.Iter:
		o.kind = iterate
	case i.IsSlice:
		from, okFrom := constant(i.Start)
		to, okTo := constant(i.End)
		if !okFrom || !okTo {
			return nil, nil
		}
		o.kind, o.from, o.to = slice, from, to
	case i.Name != "":
		o.kind, o.index = index, step{key: i.Name}
	case i.Str != nil && i.Str.Queries == nil:
		o.kind, o.index = index, step{key: i.Str.Str}
	default:
		n, ok := constant(i.Start)
		if !ok || n == nil {
			return nil, nil
		}
		o.kind, o.index = index, step{index: *n, list: true}
	}
	return o, nil
}

// constant returns a whole number, or nil if q is absent.
func constant(q *gojq.Query) (*int, bool) {
	if q == nil {
		return nil, true
	}
	n, err := strconv.ParseInt(q.String(), 10, 32)
	i := int(n)
	return &i, err == nil
}
