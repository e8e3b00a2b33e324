package plan

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
)

func equal(a, b *ast.Term) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || ast.Compare(a.Value, b.Value) == 0
}

func length(t *ast.Term) int {
	if t != nil {
		if v, ok := t.Value.(interface{ Len() int }); ok {
			return v.Len()
		}
	}
	return 0
}

// get is the element of a value under a key, nil where there is none.
func get(t, key *ast.Term) *ast.Term {
	if t == nil || key == nil {
		return nil
	}
	switch v := t.Value.(type) {
	case ast.Object:
		return v.Get(key)
	case *ast.Array:
		return v.Get(key)
	case ast.Set:
		if v.Contains(key) {
			return key
		}
	}
	return nil
}

func dot(from, key operand, to ir.Local) step {
	return func(_ *run, frame []*ast.Term) (signal, error) {
		frame[to] = get(from.of(frame), key.of(frame))
		return defined(frame[to] != nil), nil
	}
}

var errScan = errors.New("the plan leaves a loop in a way that is not known here")

// scan runs a block for each element. An undefined block goes on with the next one.
func scan(from, key, value ir.Local, b block) step {
	return func(r *run, frame []*ast.Term) (signal, error) {
		source := frame[from]
		if source == nil {
			return next, nil
		}
		each := func(k, v *ast.Term) error {
			if err := r.tick(); err != nil {
				return err
			}
			frame[key], frame[value] = k, v
			at, err := b.run(r, frame)
			if err == nil && at > undefined {
				err = errScan
			}
			return err
		}
		switch v := source.Value.(type) {
		case *ast.Array:
			for i := range v.Len() {
				if err := each(ast.InternedTerm(i), v.Elem(i)); err != nil {
					return undefined, err
				}
			}
		case ast.Object:
			return next, v.Iter(each)
		case ast.Set:
			return next, v.Iter(func(x *ast.Term) error { return each(x, x) })
		}
		return next, nil
	}
}

// merge lays one object over another, level by level. Two other values under one key are an error.
func merge(a, b, to ir.Local) step {
	return func(_ *run, frame []*ast.Term) (signal, error) {
		left, ok := frame[a].Value.(ast.Object)
		right, isObject := frame[b].Value.(ast.Object)
		if !ok || !isObject {
			return undefined, errConflict
		}
		merged, ok := left.Merge(right)
		if !ok {
			return undefined, errConflict
		}
		frame[to] = ast.NewTerm(merged)
		return next, nil
	}
}

// with runs a block while a local, or a part of it, has another value. What was remembered does not
// hold there.
func (l *linker) with(s *ir.WithStmt) step {
	local, value, body := l.local(s.Local), l.operand(s.Value), l.block(s.Block)
	var path []*ast.Term
	for _, i := range s.Path {
		path = append(path, l.strings[i])
	}
	return func(r *run, frame []*ast.Term) (signal, error) {
		before, memos := frame[local], r.memo
		frame[local], r.memo = upsert(before, path, value.of(frame)), make([]memo, len(memos))
		at, err := body.run(r, frame)
		frame[local], r.memo = before, memos
		if at > undefined && at != returned {
			at--
		}
		return at, err
	}
}

// upsert gives a copy of an object in which a path leads to the value.
func upsert(t *ast.Term, path []*ast.Term, value *ast.Term) *ast.Term {
	if len(path) == 0 {
		return value
	}
	var inner *ast.Term
	o := ast.NewObject()
	if t != nil {
		if old, ok := t.Value.(ast.Object); ok {
			old.Foreach(o.Insert)
			inner = old.Get(path[0])
		}
	}
	o.Insert(path[0], upsert(inner, path[1:], value))
	return ast.NewTerm(o)
}
