package jq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/itchyny/gojq"

	"github.com/caponier-mcp/caponier/sdk"
)

// A document as a tree takes several times its own size, which a plugin does not have for ten
// megabytes. So the beginning of a filter goes through the text as it is, as far as it only walks:
// .rows[], map(f), [.rows[] | f], .rows[2:5], length. What comes after runs in the interpreter, on
// one element at a time.

// op is one stage of a filter. It gives none, one or several values for each that it is given. code
// does the same in the interpreter, for values of a type that the stage does not walk through.
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

// plan takes a filter apart into stages.
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

// program is a stage in the interpreter alone.
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

// pipeline lists what stands between the pipes of a filter that defines and binds nothing.
func pipeline(q *gojq.Query) []*gojq.Query {
	if q.Op == gojq.OpPipe && plain(q) {
		return append(pipeline(q.Left), pipeline(q.Right)...)
	}
	return []*gojq.Query{q}
}

func plain(q *gojq.Query) bool {
	return q.Meta == nil && len(q.Imports)+len(q.FuncDefs)+len(q.Patterns) == 0
}

// walk gives the stages of what only walks, or nil.
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

// base gives the stages of a term without its suffixes: not nil when it walks.
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
		// what is chosen goes on as it stands
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

// suffix is the stage of .name, [0], [2:5] or []; nil for one that has to be computed, or may fail.
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

// constant reads a whole number; an absent one is nil.
func constant(q *gojq.Query) (*int, bool) {
	if q == nil {
		return nil, true
	}
	n, err := strconv.ParseInt(q.String(), 10, 32)
	i := int(n)
	return &i, err == nil
}

var errHalt = errors.New("the filter ended itself")

// run gives one value to the first stage, and what comes out of the last one to emit. Values are
// text.
func run(ops []op, value []byte, emit func([]byte) error) error {
	if len(ops) == 0 {
		return emit(value)
	}
	o, rest := ops[0], ops[1:]
	next := func(v []byte) error { return run(rest, v, emit) }
	value = value[space(value, 0):]
	list := value[0] == '['
	switch {
	case o.kind == index && (o.index.list && list || !o.index.list && value[0] == '{'):
		return next(enter(value, o.index))
	case o.kind == slice && list:
		return next(cut(value, o.from, o.to))
	case (o.kind == index || o.kind == slice) && (list || value[0] == '{'): // not worth a tree
		return fail("filter_failed",
			"the filter wants a list where there is an object, or an object where there is a list")
	case o.kind == iterate && (list || value[0] == '{') && len(rest) == 1 &&
		rest[0].kind == interpret:
		return batches(value,
			func(some []byte) error { return interpreted(rest[0].each, some, emit) })
	case o.kind == iterate && (list || value[0] == '{') && len(rest) > 0 && rest[0].kind == choose:
		return batches(value, func(some []byte) error {
			return rest[0].choose(some, func(v []byte) error { return run(rest[1:], v, emit) })
		})
	case o.kind == iterate && (list || value[0] == '{'):
		return elements(value, next)
	case o.kind == length && (list || value[0] == '{'):
		n := 0
		err := elements(value, func([]byte) error { n++; return nil })
		if err != nil {
			return err
		}
		return next(strconv.AppendInt(nil, int64(n), 10))
	case o.kind == collect && len(rest) > 0 && rest[0].kind == length: // not worth a list
		n := 0
		if err := run(o.inner, value, func([]byte) error { n++; return nil }); err != nil {
			return err
		}
		return run(rest[1:], strconv.AppendInt(nil, int64(n), 10), emit)
	case o.kind == collect:
		all := []byte{'['}
		err := run(o.inner, value, func(v []byte) error {
			if len(all) > 1 {
				all = append(all, ',')
			}
			all = append(all, v...)
			return nil
		})
		if err != nil {
			return err
		}
		return next(append(all, ']'))
	case o.kind == choose:
		return o.choose(slices.Concat([]byte{'['}, value, []byte{']'}), next)
	case o.kind == comma:
		for _, branch := range o.branches {
			if err := run(branch, value, next); err != nil {
				return err
			}
		}
		return nil
	}
	return interpreted(o.code, value, next)
}

// choose gives those of the elements, once for each truth that the condition has for it.
func (o op) choose(list []byte, next func([]byte) error) error {
	i := space(list, 1)
	return evaluate(o.each, list, func(v any) error {
		end := skip(list, i)
		element := list[i:end]
		i = after(list, end)
		truths, _ := v.([]any)
		for _, t := range truths {
			if t == nil || t == false {
				continue
			}
			if err := next(element); err != nil {
				return err
			}
		}
		return nil
	})
}

func interpreted(code *gojq.Code, value []byte, next func([]byte) error) error {
	return evaluate(code, value, func(v any) error {
		b, err := gojq.Marshal(v)
		if err != nil {
			return fail("filter_failed", "the filter's output: %v", err)
		}
		return next(b)
	})
}

// evaluate runs a program on a value and gives its outputs to do.
func evaluate(code *gojq.Code, value []byte, do func(any) error) error {
	v, err := tree(value)
	if err != nil {
		return fail("not_json", "the document is not one JSON value: %v", err)
	}
	for iter := code.RunWithContext(&yielding{Context: context.Background()}, v); ; {
		v, more := iter.Next()
		if !more {
			return nil
		}
		if err, broken := v.(error); broken {
			halt := (*gojq.HaltError)(nil)
			if errors.As(err, &halt) && halt.Value() == nil {
				return errHalt
			}
			return fail("filter_failed", "the filter failed: %.500v", err)
		}
		if err := do(v); err != nil {
			return err
		}
	}
}

// elements gives the values of a list, or those of an object in the order of its keys, the last of
// those that repeat.
func elements(b []byte, each func([]byte) error) error {
	if b[0] == '[' {
		n := 0
		for i := space(b, 1); b[i] != ']'; {
			end := skip(b, i)
			if err := each(b[i:end]); err != nil {
				return err
			}
			if n += end - i; n > yieldBytes { // for the collector
				sdk.Yield()
				n = 0
			}
			i = after(b, end)
		}
		return nil
	}
	values := map[string][]byte{}
	for i := space(b, 1); b[i] != '}'; {
		end := skip(b, i)
		var key string
		if err := json.Unmarshal(b[i:end], &key); err != nil {
			return fail("not_json", "a key of an object: %v", err)
		}
		i = space(b, space(b, end)+1) // over the colon
		end = skip(b, i)
		values[key] = b[i:end]
		i = after(b, end)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := each(values[key]); err != nil {
			return err
		}
	}
	return nil
}

// batches gives the elements in lists of some.
func batches(b []byte, do func([]byte) error) error {
	some := []byte{'['}
	flush := func() error {
		err := do(append(some, ']'))
		some = append(make([]byte, 0, 2*batchBytes), '[') // what was given may still be in use
		return err
	}
	err := elements(b, func(e []byte) error {
		if len(some) > 1 {
			some = append(some, ',')
		}
		if some = append(some, e...); len(some) < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(some) > 1 {
		err = flush()
	}
	return err
}

// after gives where the next element begins, or the bracket that ends the list.
func after(b []byte, end int) int {
	if end = space(b, end); b[end] == ',' {
		end = space(b, end+1)
	}
	return end
}

func count(b []byte) (n int) {
	for i := space(b, 1); b[i] != ']'; n++ {
		i = after(b, skip(b, i))
	}
	return n
}

// cut is a part of a list, as [from:to] means it.
func cut(b []byte, from, to *int) []byte {
	n := count(b)
	at := func(i *int, absent int) int {
		if i == nil {
			return absent
		}
		if *i < 0 {
			return max(*i+n, 0)
		}
		return min(*i, n)
	}
	first, last := at(from, 0), at(to, n)
	out, k := []byte{'['}, 0
	for i := space(b, 1); b[i] != ']' && k < last; k++ {
		end := skip(b, i)
		if k >= first {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, b[i:end]...)
		}
		i = after(b, end)
	}
	return append(out, ']')
}

// tidy makes an output of a piece of the document.
func tidy(b []byte) ([]byte, error) {
	var out bytes.Buffer
	err := json.Compact(&out, b)
	return bytes.ToValidUTF8(out.Bytes(), []byte("\uFFFD")), err
}
