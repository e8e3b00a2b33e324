package jq

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/itchyny/gojq"
)

var errHalt = errors.New("the filter ended itself")

// run passes one value, as text, through the stages and calls emit with each output.
func run(ops []op, value []byte, emit func([]byte) error) error {
	if len(ops) == 0 {
		return emit(value)
	}
	o, rest := ops[0], ops[1:]
	next := func(v []byte) error { return run(rest, v, emit) }
	value = value[space(value, 0):]
	list := value[0] == '['
	walks := list || value[0] == '{'
	switch {
	case o.kind == index && (o.index.list && list || !o.index.list && value[0] == '{'):
		return next(enter(value, o.index))
	case o.kind == slice && list:
		return next(cut(value, o.from, o.to))
	case (o.kind == index || o.kind == slice) && walks: // fails without a tree
		return fail("filter_failed",
			"the filter wants a list where there is an object, or an object where there is a list")
	case o.kind == iterate && walks:
		return each(rest, value, emit)
	case o.kind == length && walks:
		return counted(func(n func([]byte) error) error { return elements(value, n) }, next)
	case o.kind == collect && len(rest) > 0 && rest[0].kind == length: // needs no list
		return counted(func(n func([]byte) error) error { return run(o.inner, value, n) },
			func(v []byte) error { return run(rest[1:], v, emit) })
	case o.kind == collect:
		return collected(o.inner, value, next)
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

// each runs the stages on each element, in batches where the next stage is a program.
func each(rest []op, value []byte, emit func([]byte) error) error {
	switch {
	case len(rest) == 1 && rest[0].kind == interpret:
		return batches(value,
			func(some []byte) error { return interpreted(rest[0].each, some, emit) })
	case len(rest) > 0 && rest[0].kind == choose:
		return batches(value, func(some []byte) error {
			return rest[0].choose(some, func(v []byte) error { return run(rest[1:], v, emit) })
		})
	}
	return elements(value, func(v []byte) error { return run(rest, v, emit) })
}

// counted emits how many values the walk visits.
func counted(walk func(func([]byte) error) error, next func([]byte) error) error {
	n := 0
	if err := walk(func([]byte) error { n++; return nil }); err != nil {
		return err
	}
	return next(strconv.AppendInt(nil, int64(n), 10))
}

// collected emits the outputs of the inner stages as one list.
func collected(inner []op, value []byte, next func([]byte) error) error {
	all := []byte{'['}
	err := run(inner, value, func(v []byte) error {
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
}

// choose emits the elements of the list for which the condition holds, once for each true output of
// the condition.
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

// evaluate runs a program on a value and calls do with each output.
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
