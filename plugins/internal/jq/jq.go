// Package jq runs jq filters over JSON, and the short paths that are written where jq is not known:
// .results.0, .name,.email.
package jq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/caponier-mcp/caponier/sdk"
)

const (
	MaxFilter  = 4096  // bytes
	maxOutputs = 10000 // of a filter
	yieldEvery = 50_000
	yieldBytes = 256 << 10
	batchBytes = 16 << 10
)

func fail(code, format string, args ...any) error {
	hint := map[string]string{"too_large": "narrow the filter, or allow a larger result",
		"not_json": "only JSON can be filtered"}[code]
	return &sdk.Error{Code: code, Message: fmt.Sprintf(format, args...), Suggestion: hint}
}

func bad(format string, args ...any) error { return fail("bad_filter", format, args...) }

// Run gives the outputs of a filter, encoded: a single one as it is, several as a list. max is in
// bytes. The host's budget for the call stops what does not end by itself.
func Run(filter string, document []byte, max int) (json.RawMessage, error) {
	if strings.TrimSpace(filter) == "" || len(filter) > MaxFilter {
		return nil, bad("a filter has 1 to %d bytes", MaxFilter)
	}
	list, err := paths(filter)
	if err != nil {
		return nil, err
	}
	if list != nil {
		return pickAll(list, document, max)
	}
	q, err := gojq.Parse(filter)
	if err != nil {
		return nil, bad("the filter is not jq: %v", err)
	}
	if _, err := gojq.Compile(q); err != nil {
		return nil, bad("the filter is not jq: %v", err)
	}
	ops, err := plan(q)
	if err != nil {
		return nil, bad("the filter is not jq: %v", err)
	}
	if err := valid(document); err != nil {
		return nil, err
	}
	outs := outputs{max: max}
	if err := run(ops, document, outs.tidy); err != nil && err != errHalt {
		return nil, err
	}
	return outs.json(), nil
}

func pickAll(list [][]step, document []byte, max int) (json.RawMessage, error) {
	if err := valid(document); err != nil {
		return nil, err
	}
	outs := outputs{max: max}
	for _, path := range list {
		var ops []op
		for _, s := range path {
			at := &gojq.Index{Str: &gojq.String{Str: s.key}}
			if s.list {
				at = &gojq.Index{
					Start: &gojq.Query{
						Term: &gojq.Term{Type: gojq.TermTypeNumber, Number: strconv.Itoa(s.index)},
					},
				}
			}
			o, err := suffix(&gojq.Suffix{Index: at})
			if err != nil {
				return nil, bad("the path: %v", err)
			}
			ops = append(ops, *o)
		}
		if err := run(ops, document, outs.tidy); err != nil {
			return nil, err
		}
	}
	return outs.json(), nil
}

// valid returns an error unless the text is one JSON value. Code that walks through a valid text
// needs no checks of bounds.
func valid(document []byte) error {
	if json.Valid(document) {
		return nil
	}
	_, err := decode(document)
	return fail("not_json", "the document is not one JSON value: %v", err)
}

// outputs is what a filter has given so far.
type outputs struct {
	all       [][]byte
	size, max int
}

func (o *outputs) tidy(b []byte) error {
	b, err := tidy(b)
	if err != nil {
		return fail("filter_failed", "the filter's output: %v", err)
	}
	return o.add(b)
}

func (o *outputs) add(b []byte) error {
	if o.size += len(b) + 1; o.size > o.max || len(o.all) == maxOutputs {
		return fail("too_large", "the filter gives more than %d bytes or %d outputs", o.max,
			maxOutputs)
	}
	o.all = append(o.all, b)
	return nil
}

func (o *outputs) json() json.RawMessage {
	switch len(o.all) {
	case 0:
		return json.RawMessage("null")
	case 1:
		return o.all[0]
	}
	return append(append([]byte("["), bytes.Join(o.all, []byte(","))...), ']')
}

func decode(document []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more after the first value")
	}
	return v, nil
}

// yielding lets the guest's collector work: the interpreter asks for Done at each of its steps.
type yielding struct {
	context.Context
	steps int
}

func (y *yielding) Done() <-chan struct{} {
	if y.steps++; y.steps%yieldEvery == 0 {
		sdk.Yield()
	}
	return nil
}
