package plan

import (
	"encoding/json"
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
)

// step is a linked statement.
type step func(*run, []*ast.Term) (signal, error)

// signal says where to go on: with the next step, behind the block (the statement is undefined, or
// breaks out), that many blocks further out, or with the function's result.
type signal int

const (
	next      signal = -1
	undefined signal = 0
	returned  signal = 1 << 20
)

func defined(is bool) signal {
	if is {
		return next
	}
	return undefined
}

// block is a sequence of steps.
type block []step

func (b block) run(r *run, frame []*ast.Term) (signal, error) {
	for _, s := range b {
		if at, err := s(r, frame); at != next || err != nil {
			return at, err
		}
	}
	return next, nil
}

// nested runs blocks one after the other. What leaves one of them only is at home here.
func nested(blocks []block) step {
	return func(r *run, frame []*ast.Term) (signal, error) {
		for _, b := range blocks {
			switch at, err := b.run(r, frame); {
			case err != nil || at == returned:
				return at, err
			case at > undefined:
				return at - 1, nil
			}
		}
		return next, nil
	}
}

// step links one statement. The names are those of package ir, which says what each does.
func (l *linker) step(s ir.Stmt) step {
	switch s := s.(type) {
	case *ir.BlockStmt:
		return nested(l.blocks(s.Blocks))
	case *ir.BreakStmt:
		return func(*run, []*ast.Term) (signal, error) { return signal(s.Index), nil }
	case *ir.ReturnLocalStmt:
		return func(*run, []*ast.Term) (signal, error) { return returned, nil }
	case *ir.ResultSetAddStmt:
		value := l.local(s.Value)
		return set(func(r *run, frame []*ast.Term) { r.results = append(r.results, frame[value]) })
	case *ir.CallStmt:
		return l.call(s)
	case *ir.CallDynamicStmt:
		return l.callDynamic(s)
	case *ir.ScanStmt:
		return scan(l.local(s.Source), l.local(s.Key), l.local(s.Value), l.block(s.Block))
	case *ir.NotStmt:
		return not(l.block(s.Block))
	case *ir.WithStmt:
		return l.with(s)
	case *ir.DotStmt:
		return dot(l.operand(s.Source), l.operand(s.Key), l.local(s.Target))
	case *ir.EqualStmt:
		a, b := l.operand(s.A), l.operand(s.B)
		return test(func(frame []*ast.Term) bool { return equal(a.of(frame), b.of(frame)) })
	case *ir.NotEqualStmt:
		a, b := l.operand(s.A), l.operand(s.B)
		return test(func(frame []*ast.Term) bool { return !equal(a.of(frame), b.of(frame)) })
	case *ir.IsDefinedStmt:
		local := l.local(s.Source)
		return test(func(frame []*ast.Term) bool { return frame[local] != nil })
	case *ir.IsUndefinedStmt:
		local := l.local(s.Source)
		return test(func(frame []*ast.Term) bool { return frame[local] == nil })
	case *ir.IsArrayStmt:
		return is[*ast.Array](l.operand(s.Source))
	case *ir.IsObjectStmt:
		return is[ast.Object](l.operand(s.Source))
	case *ir.IsSetStmt:
		return is[ast.Set](l.operand(s.Source))
	case *ir.ObjectMergeStmt:
		return merge(l.local(s.A), l.local(s.B), l.local(s.Target))
	}
	return l.assign(s)
}

// assign links the statements that only set locals, and refuses the rest.
func (l *linker) assign(s ir.Stmt) step {
	switch s := s.(type) {
	case *ir.AssignVarStmt:
		from, to := l.operand(s.Source), l.local(s.Target)
		return set(func(_ *run, frame []*ast.Term) { frame[to] = from.of(frame) })
	case *ir.AssignVarOnceStmt:
		return once(l.operand(s.Source), l.local(s.Target))
	case *ir.AssignIntStmt:
		return constant(l.local(s.Target), ast.InternedTerm(int(s.Value)))
	case *ir.ResetLocalStmt:
		return constant(l.local(s.Target), nil)
	case *ir.MakeNullStmt:
		return constant(l.local(s.Target), ast.NullTerm())
	case *ir.MakeNumberIntStmt:
		return constant(l.local(s.Target), ast.InternedTerm(int(s.Value)))
	case *ir.MakeNumberRefStmt:
		return constant(l.local(s.Target), ast.NumberTerm(json.Number(l.raw[s.Index])))
	case *ir.MakeArrayStmt:
		to := l.local(s.Target)
		return set(func(_ *run, frame []*ast.Term) { frame[to] = ast.ArrayTerm() })
	case *ir.MakeObjectStmt:
		to := l.local(s.Target)
		return set(func(_ *run, frame []*ast.Term) { frame[to] = ast.ObjectTerm() })
	case *ir.MakeSetStmt:
		to := l.local(s.Target)
		return set(func(_ *run, frame []*ast.Term) { frame[to] = ast.SetTerm() })
	case *ir.LenStmt:
		from, to := l.operand(s.Source), l.local(s.Target)
		return set(func(_ *run, frame []*ast.Term) { frame[to] = ast.InternedTerm(length(from.of(frame))) })
	case *ir.ArrayAppendStmt:
		array, value := l.local(s.Array), l.operand(s.Value)
		return set(func(_ *run, frame []*ast.Term) {
			frame[array] = ast.NewTerm(frame[array].Value.(*ast.Array).Append(value.of(frame)))
		})
	case *ir.SetAddStmt:
		to, value := l.local(s.Set), l.operand(s.Value)
		return set(func(_ *run, frame []*ast.Term) { frame[to].Value.(ast.Set).Add(value.of(frame)) })
	case *ir.ObjectInsertStmt:
		object, key, value := l.local(s.Object), l.operand(s.Key), l.operand(s.Value)
		return set(func(_ *run, frame []*ast.Term) {
			frame[object].Value.(ast.Object).Insert(key.of(frame), value.of(frame))
		})
	case *ir.ObjectInsertOnceStmt:
		return insertOnce(l.local(s.Object), l.operand(s.Key), l.operand(s.Value))
	}
	return l.fail("there is no statement %T here", s)
}

func set(do func(*run, []*ast.Term)) step {
	return func(r *run, frame []*ast.Term) (signal, error) {
		do(r, frame)
		return next, nil
	}
}

func test(holds func([]*ast.Term) bool) step {
	return func(_ *run, frame []*ast.Term) (signal, error) { return defined(holds(frame)), nil }
}

func constant(to ir.Local, t *ast.Term) step {
	return set(func(_ *run, frame []*ast.Term) { frame[to] = t })
}

func is[T ast.Value](from operand) step {
	return test(func(frame []*ast.Term) bool {
		t := from.of(frame)
		if t == nil {
			return false
		}
		_, ok := t.Value.(T)
		return ok
	})
}

var errConflict = errors.New("a rule has two values at once")

func once(from operand, to ir.Local) step {
	return func(_ *run, frame []*ast.Term) (signal, error) {
		v := from.of(frame)
		if old := frame[to]; old != nil && !equal(old, v) {
			return undefined, errConflict
		}
		frame[to] = v
		return next, nil
	}
}

func insertOnce(object ir.Local, key, value operand) step {
	return func(_ *run, frame []*ast.Term) (signal, error) {
		o, k, v := frame[object].Value.(ast.Object), key.of(frame), value.of(frame)
		if old := o.Get(k); old != nil && !equal(old, v) {
			return undefined, errConflict
		}
		o.Insert(k, v)
		return next, nil
	}
}

func not(b block) step {
	return func(r *run, frame []*ast.Term) (signal, error) {
		at, err := b.run(r, frame)
		switch {
		case err != nil || at == returned:
			return at, err
		case at > undefined:
			return at - 1, nil
		}
		return defined(at == undefined), nil
	}
}
