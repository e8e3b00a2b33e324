package mcp

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

const manyLines = 25_000 // characters that a result may have, as by default

// numbered returns n numbered lines.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// execOutput is what a plugin answers about a command: status fields, and the text of all of it.
func execOutput(stdout, stderr string, exit int) string {
	structured := map[string]any{"exit_code": exit, "node": "pve1", "stderr": stderr,
		"stdout": stdout, "success": exit == 0, "timed_out": false, "truncated": false}
	return string(must(json.Marshal(map[string]any{"structured": structured,
		"content": []any{map[string]any{"type": "text",
			"text": fmt.Sprintf("%s\n%s\n[exit code %d]", stdout, stderr, exit)}}})))
}

func TestATruncatedResultIsTrue(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	for name, c := range map[string]struct {
		stdout, stderr string
		exit           int
		cut            bool
	}{
		"short":                        {"hello\n", "", 0, false},
		"long, with an error after it": {numbered(20_000), "boom\n", 3, true},
		"long":                         {numbered(20_000), "", 0, true},
		"long stderr":                  {"ok\n", numbered(20_000), 1, true},
		"one long line":                {strings.Repeat("é", 200_000), "boom\n", 3, true},
		"both long":                    {numbered(20_000), numbered(20_000), 255, true},
		"escapes and hidden characters": {strings.Repeat("\x1b[31ma\u202e", 40_000), "b\x1b[0m", 2,
			true},
	} {
		t.Run(name, func(t *testing.T) {
			r := ended(s, tool("exec", terms.Hints{}), terms.Answer{CallID: "C1",
				Outcome: terms.Succeeded, Tier: terms.Green,
				Output: terms.Output{JSON: []byte(execOutput(c.stdout, c.stderr, c.exit))}})
			if r.IsError || r.StructuredContent != nil {
				t.Fatalf("isError %v, structured %v", r.IsError, r.StructuredContent)
			}
			// The status stands first, as JSON, and is what the plugin said.
			first := r.Content[0].(*mcp.TextContent).Text
			var status map[string]any
			if err := json.Unmarshal([]byte(first), &status); err != nil {
				t.Fatalf("the text does not begin with the status: %v: %.100s", err, first)
			}
			want := map[string]any{"exit_code": float64(c.exit), "node": "pve1",
				"success": c.exit == 0, "timed_out": false, "truncated": c.cut}
			for k, v := range want {
				if status[k] != v {
					t.Errorf("%s is %v, want %v", k, status[k], v)
				}
			}
			if short := plaintext.Clean(c.stderr); len(short) <= keptWhole &&
				status["stderr"] != short {
				t.Errorf("stderr is %q, want %q", status["stderr"], short)
			}
			if r.sum.Truncated != c.cut {
				t.Errorf("the summary says truncated: %v", r.sum.Truncated)
			}
			all := text(&r.CallToolResult)
			if n := utf8.RuneCountInString(all); n > manyLines+2000 {
				t.Errorf("%d characters are sent", n)
			}
			if tail := fmt.Sprintf("[exit code %d]", c.exit); !strings.Contains(all, tail) {
				t.Errorf("the end is lost")
			}
			if strings.Contains(all, "[Truncated:") != c.cut ||
				strings.Contains(all, "characters left out") != c.cut {
				t.Errorf("the text does not say truly that it was cut: %s", all[len(all)-300:])
			}
			if c.cut && c.stdout != "ok\n" &&
				!strings.Contains(all, plaintext.Clean(c.stdout)[:200]) {
				t.Error("the beginning is lost")
			}
		})
	}
}

// The text has the whole output once, and structuredContent has the whole value, for a tool with an
// output schema alone.
func TestALongOutputIsInEachFormOnce(t *testing.T) {
	marks := map[string]string{}
	out := func(text string) string {
		long := strings.Repeat("x", 500) + "NEEDLE" + strings.Repeat("y", 3000)
		text = strings.ReplaceAll(text, "LONG", long)
		marks[text] = long
		return text
	}
	typed := tool("typed", terms.Hints{})
	typed.OutputSchema = json.RawMessage(`{"type":"object"}`)
	s := newServer(t, helloDoor(), nil)
	for name, c := range map[string]struct {
		tool *terms.Tool
		out  string
	}{
		"text that has the value's string": {tool("a", terms.Hints{}), out(
			`{"structured":{"stdout":"LONG","n":1},"content":[{"type":"text","text":"it says ` +
				`LONG"}]}`)},
		"a value alone": {tool("a", terms.Hints{}), out(`{"structured":{"stdout":"LONG"}}`)},
		"a text alone": {tool("a", terms.Hints{}),
			out(`{"content":[{"type":"text","text":"LONG"}]}`)},
		"text that is the value's JSON": {tool("a", terms.Hints{}), out(
			`{"structured":{"a":"LONG"},"content":[{"type":"text","text":"{\"a\":\"LONG\"}"}]}`)},
		"a schema": {typed, out(
			`{"structured":{"stdout":"LONG","n":1},"content":[{"type":"text","text":"LONG"}]}`)},
		"a schema, without a text": {typed, out(`{"structured":{"stdout":"LONG","n":1}}`)},
	} {
		r := ended(s, c.tool, terms.Answer{CallID: "C1", Outcome: terms.Succeeded,
			Output: terms.Output{JSON: []byte(c.out)}})
		if said := text(&r.CallToolResult); strings.Count(said, "NEEDLE") != 1 {
			t.Errorf("%s: the text has it %d times: %.300s", name, strings.Count(said, "NEEDLE"),
				said)
		}
		whole := string(must(json.Marshal(r.StructuredContent)))
		if c.tool != typed && r.StructuredContent != nil ||
			c.tool == typed && !strings.Contains(whole, marks[c.out]) {
			t.Errorf("%s: structuredContent %.300s", name, whole)
		}
	}
}

// Property: truncation keeps every number, flag, null, key and short string, and the shape; it
// stays within its limit, wherever the long strings are.
func TestTruncationKeepsStatusFields(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var longest int
		var random func(depth int) any
		random = func(depth int) any {
			switch n := rnd.IntN(9); {
			case n == 0:
				return rnd.IntN(2) == 0
			case n == 1:
				return json.Number(fmt.Sprint(rnd.Int64()))
			case n == 2:
				return nil
			case n < 5 || depth == 0:
				return strings.Repeat("s", rnd.IntN(keptWhole))
			case n < 7:
				longest++
				return strings.Repeat("é", keptWhole+1+rnd.IntN(20_000))
			case n == 7:
				m := map[string]any{}
				for i := range rnd.IntN(6) {
					m[fmt.Sprint("k", i)] = random(depth - 1)
				}
				return m
			}
			l := []any{}
			for range rnd.IntN(5) {
				l = append(l, random(depth-1))
			}
			return l
		}
		original := map[string]any{"a": random(4), "b": random(4), "exit_code": json.Number("3")}
		tr, got := &truncation{}, any(nil)
		if err := tr.walk(clone(original), func(v any) { got = v }, 0); err != nil {
			t.Fatal(err)
		}
		cut := tr.fit(manyLines)
		compare(t, seed, "", original, got)
		left := count(got)
		if cut != (tr.total > manyLines) && longest > 0 {
			t.Errorf("seed %d: %d characters, cut %v", seed, tr.total, cut)
		}
		short := tr.total - sumLong(original)
		if left > max(manyLines, short+longest*keptWhole) {
			t.Errorf("seed %d: %d characters are left", seed, left)
		}
	}
}

func clone(v any) any {
	switch v := v.(type) {
	case []any:
		l := make([]any, len(v))
		for i := range v {
			l[i] = clone(v[i])
		}
		return l
	case map[string]any:
		m := map[string]any{}
		for k := range v {
			m[k] = clone(v[k])
		}
		return m
	}
	return v
}

func each(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			each(e, visit)
		}
	case map[string]any:
		for _, e := range v {
			each(e, visit)
		}
	}
}

func count(v any) (n int) {
	each(v, func(s string) { n += utf8.RuneCountInString(s) })
	return n
}

func sumLong(v any) (n int) {
	each(v, func(s string) {
		if c := utf8.RuneCountInString(s); c > keptWhole {
			n += c
		}
	})
	return n
}

func compare(t *testing.T, seed uint64, at string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		if len(g) != len(w) {
			t.Fatalf("seed %d: %s has %d keys, want %d", seed, at, len(g), len(w))
		}
		for k := range w {
			compare(t, seed, at+"/"+k, w[k], g[k])
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			t.Fatalf("seed %d: %s has %d elements, want %d", seed, at, len(g), len(w))
		}
		for i := range w {
			compare(t, seed, fmt.Sprint(at, "/", i), w[i], g[i])
		}
	case string:
		g, _ := got.(string)
		if n := utf8.RuneCountInString(w); n > keptWhole && g != w &&
			strings.Contains(g, "characters left out") {
			return
		}
		if g != w {
			t.Fatalf("seed %d: %s is %q, want %q", seed, at, g, w)
		}
	default:
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %s is %v, want %v", seed, at, got, want)
		}
	}
}

// Many short strings are long together: lists lose their middle, and say so.
func TestALongListLosesItsMiddle(t *testing.T) {
	var list []any
	for i := range 20_000 {
		list = append(list, map[string]any{"vmid": i, "name": fmt.Sprint("guest-", i)})
	}
	out := must(json.Marshal(map[string]any{"structured": map[string]any{"guests": list,
		"n": 20_000}}))
	for _, typed := range []bool{false, true} {
		tl := tool("list", terms.Hints{})
		if typed {
			tl.OutputSchema = json.RawMessage(`{"type":"object"}`)
		}
		r := ended(newServer(t, helloDoor(), nil), tl, terms.Answer{CallID: "C1",
			Outcome: terms.Succeeded, Output: terms.Output{JSON: out}})
		var v struct {
			Guests []struct{ VMID int }
			N      int
		}
		data := []byte(r.Content[0].(*mcp.TextContent).Text)
		if typed {
			data = must(json.Marshal(r.StructuredContent))
		}
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		if n := len(v.Guests); n < 100 || n > 2000 || v.N != 20_000 || v.Guests[0].VMID != 0 ||
			v.Guests[n-1].VMID != 19_999 || !r.sum.Truncated {
			t.Errorf("typed %v: %d guests of 20,000, n %d, truncated %v", typed, n, v.N,
				r.sum.Truncated)
		}
		if wire := must(json.Marshal(&r.CallToolResult)); len(wire) > 4*manyLines ||
			typed && len(must(json.Marshal(r.StructuredContent))) > 2*manyLines {
			t.Errorf("typed %v: %d bytes are sent", typed, len(wire))
		}
	}
}
