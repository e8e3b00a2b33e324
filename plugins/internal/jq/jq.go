// Package jq runs jq filters over JSON, and the short paths that are written where jq is not known: .results.0, .name,.email.
package jq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/caponier-mcp/caponier/sdk"
)

const (
	MaxFilter  = 4096  // bytes
	MaxPaths   = 20    // of a list of short paths
	maxOutputs = 10000 // of a filter
	yieldEvery = 50_000
)

var (
	segment = regexp.MustCompile(`^(?:\.([A-Za-z_][A-Za-z0-9_]*)|\.([0-9]+)|\.?\[([0-9]+)\]|\.?(\["(?:[^"\\]|\\.)*"\])|(\."(?:[^"\\]|\\.)*"))`)
	maxSafe = int64(1)<<53 - 1
)

func fail(code, format string, args ...any) error {
	hint := map[string]string{"too_large": "narrow the filter, or allow a larger result", "not_json": "only JSON can be filtered"}[code]
	return &sdk.Error{Code: code, Message: fmt.Sprintf(format, args...), Suggestion: hint}
}

func bad(format string, args ...any) error { return fail("bad_filter", format, args...) }

// Run gives the outputs of a filter, encoded: a single one as it is, several as a list. max is in bytes. The host's budget for the call stops what
// does not end by itself.
func Run(filter string, document []byte, max int) (json.RawMessage, error) {
	program, err := translate(filter)
	if err != nil {
		return nil, err
	}
	q, err := gojq.Parse(program)
	if err != nil {
		return nil, bad("the filter is not jq: %v", err)
	}
	code, err := gojq.Compile(q)
	if err != nil {
		return nil, bad("the filter is not jq: %v", err)
	}
	doc, err := decode(document)
	if err != nil {
		return nil, fail("not_json", "the document is not one JSON value: %v", err)
	}
	var outs [][]byte
	size := 2
	for iter := code.RunWithContext(&yielding{Context: context.Background()}, doc); ; {
		v, more := iter.Next()
		if !more {
			break
		}
		if err, broken := v.(error); broken {
			halt := (*gojq.HaltError)(nil)
			if errors.As(err, &halt) && halt.Value() == nil {
				break
			}
			return nil, fail("filter_failed", "the filter failed: %.500v", err)
		}
		b, err := gojq.Marshal(v)
		if err != nil {
			return nil, fail("filter_failed", "the filter's output: %v", err)
		}
		if size += len(b) + 1; size > max || len(outs) == maxOutputs {
			return nil, fail("too_large", "the filter gives more than %d bytes or %d outputs", max, maxOutputs)
		}
		outs = append(outs, b)
	}
	switch len(outs) {
	case 0:
		return json.RawMessage("null"), nil
	case 1:
		return outs[0], nil
	}
	return append(append([]byte("["), bytes.Join(outs, []byte(","))...), ']'), nil
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

// translate makes jq of a list of short paths, in which a number is an index, and leaves everything else as it is.
func translate(filter string) (string, error) {
	if strings.TrimSpace(filter) == "" || len(filter) > MaxFilter {
		return "", bad("a filter has 1 to %d bytes", MaxFilter)
	}
	var out []string
	for rest := strings.TrimSpace(filter); ; {
		path, after, err := short(rest)
		if err != nil {
			return "", err
		}
		if path == "" {
			return filter, nil
		}
		if out = append(out, path); len(out) > MaxPaths {
			return "", bad("a list of more than %d paths", MaxPaths)
		}
		after = strings.TrimLeft(after, " \t\n")
		if after == "" {
			return strings.Join(out, ","), nil
		}
		if after[0] != ',' {
			return filter, nil
		}
		rest = strings.TrimLeft(after[1:], " \t\n")
	}
}

// short reads one short path from the beginning of s. path is empty when there is none.
func short(s string) (path, rest string, err error) {
	var b strings.Builder
	rest = s
	for {
		m := segment.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		if b.Len() == 0 {
			b.WriteByte('.')
		}
		switch index := m[2] + m[3]; {
		case index != "":
			if n, err := strconv.ParseInt(index, 10, 64); err != nil || n > maxSafe || strconv.FormatInt(n, 10) != index {
				return "", "", bad("the index %.32s: write it without leading zeros, at most %d", index, maxSafe)
			}
			fmt.Fprintf(&b, "[%s]", index)
		case m[1] != "":
			fmt.Fprintf(&b, "[%q]", m[1])
		case m[4] != "":
			b.WriteString(m[4])
		default:
			b.WriteString("[" + m[5][1:] + "]")
		}
		rest = rest[len(m[0]):]
	}
	if b.Len() == 0 && strings.HasPrefix(s, ".") && (len(s) == 1 || strings.ContainsRune(", \t\n", rune(s[1]))) {
		return ".", s[1:], nil
	}
	return b.String(), rest, nil
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
