package memo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// rules are ways to read an input, each with the members that MembersOf finds. p is asked; a.ok is
// apart.
var rules = map[string]struct{ rego, members string }{
	"nothing":         {`p := 1`, ""},
	"a member":        {`p := input.a`, "input.a"},
	"below a member":  {`p if input.a.b == "x"`, "input.a.b"},
	"both":            {`p if { input.a.b; input.a }`, "input.a"},
	"with a variable": {`p if { some k; input.a[k].c == "x" }`, "input.a"},
	"by a number":     {`p := input.l[0]`, "input.l"},
	"in brackets":     {`p := input["a"]["b"]`, "input.a.b"},
	"the whole":       {`p := input`, "input"},
	"by a name":       {`p if { x := input; x.a == "x" }`, "input"},
	"any member":      {`p contains k if input[k] == "x"`, "input"},
	"a named member":  {`p if { some k in ["a", "b"]; input[k] == "x" }`, "input"},
	"through a rule":  {"p if q\nq if input.a == \"x\"", "input.a"},
	"through a name": {`p if { x := input.a; x.b == "x"; some y in x.c; y == "x" }`,
		"input.a"},
	"through a function": {"p if f(input.a)\nf(x) if x.b == input.b", "input.a input.b"},
	"in an alternative": {`p := 1 if input.a == "x" else := 2 if input.b == "x" else := input.c`,
		"input.a input.b input.c"},
	"in a comprehension": {`p := {x | some x in input.l; x != input.b}`, "input.b input.l"},
	"in every":           {`p if every x in input.l { x == input.b }`, "input.b input.l"},
	"under not":          {`p if not input.a.b`, "input.a.b"},
	"in the head":        {`p[input.a] := input.b`, "input.a input.b"},
	"in a default":       {"default p := 1\np := 2 if input.a", "input.a"},
	"in a call": {`p := object.get(input.a, ["b", "c"], input.b)`,
		"input.a input.b"},
	"a type":          {`p if is_string(input.a)`, "type_name(input.a)"},
	"a type below":    {`p if { is_string(input.a.b); input.b }`, "type_name(input.a.b) input.b"},
	"a type and more": {`p if { is_string(input.a); input.a == "x" }`, "input.a"},
	"a type by name":  {`p if { x := input.a; is_string(x); x == "x" }`, "input.a"},
	"a type in another rule": {"p if { is_string(input.a); q }\nq if input.a == \"x\"",
		"input.a"},
	"not a type": {`p if not is_string(input.a)`, "type_name(input.a)"},
	"a type's name": {`p := type_name(input.a)`,
		"input.a"},
	"apart":          {"p if data.m.a.ok", ""},
	"apart and more": {"p if { data.m.a.ok; input.n }", "input.n"},
	"more of apart":  {"p := data.m.a", "input.n"},
	"a rule of apart": {`p contains x if some x in data.m.a.other`,
		"input.n"},
	"by a variable apart": {`p contains id if { some id; data.m[id].ok }`, ""},
	"any rule apart": {`p contains k if { some id, k; data.m[id][k] }`,
		"input.n"},
	"apart with other data": {`p if data.m.a.ok with data.limit as 3`, "input.n"},
	"apart, and with other data": {"p if { data.m.a.ok; q with data.limit as 3 }\nq if r\n" +
		"r if data.m.a.ok", "input.n"},
	"with another input": {`p if q with input as {"a": input.b}` + "\nq if input.a",
		"input.a input.b"},
	"with another member": {`p if { q == "x" with input.a.b as input.c }` + "\nq := input.a",
		"input.a input.c"},
	"with other data": {`p if { data.z == "x" with data.z as input.b }`, "input.b"},
	"in a template":   {"p := $`{input.a}`", "input.a"},
	"a recursive document": {`p if { walked := [x | some x in input.a]; count(walked) > 1 }`,
		"input.a"},
}

const apart = "package m.a\n\nok if not low\n\nlow if input.n <= limit\n\n" +
	"limit := data.limit\n\nlimit := 1 if not data.limit\n\nother contains input.n\n"

func compiled(t *testing.T, rego string) *ast.Compiler {
	t.Helper()
	c, err := ast.CompileModules(map[string]string{"p.rego": "package p\n\n" + rego,
		"a.rego": apart})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMembersAreFoundInEveryWayToReadThem(t *testing.T) {
	for name, row := range rules {
		m := memo.MembersOf(compiled(t, row.rego), ast.MustParseRef("data.p.p"),
			ast.MustParseRef("data.m.a.ok"))
		if m.String() != row.members {
			t.Errorf("%s: found %q, want %q", name, m, row.members)
		}
	}
}

// TestInputsOfOneKeyHaveOneAnswer asks each rule about many inputs: where the key and what is apart
// are the same, the answer must be.
func TestInputsOfOneKeyHaveOneAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var inputs []ast.Value
	for range 400 {
		inputs = append(inputs, document(random))
	}
	for name, row := range rules {
		c := compiled(t, row.rego)
		m := memo.MembersOf(c, ast.MustParseRef("data.p.p"), ast.MustParseRef("data.m.a.ok"))
		ask, askApart := asking(t, c, "data.p.p"), asking(t, c, "data.m.a.ok")
		answers, shared := map[string]string{}, 0
		for range 1000 {
			in := inputs[random.IntN(len(inputs))]
			key, got := string(m.Key(nil, in))+"|"+askApart(in), ask(in)
			before, known := answers[key]
			if known && before != got {
				t.Fatalf("%s: with the key %q %v gives %s, and another input %s", name, key, in,
					got, before)
			}
			if known {
				shared++
			}
			answers[key] = got
		}
		if shared == 0 {
			t.Errorf("%s: no two inputs share a key", name)
		}
	}
}

// TestKeysTellBytesApart has names of files of a node, which need not be UTF-8.
func TestKeysTellBytesApart(t *testing.T) {
	m := memo.MembersOf(compiled(t, "p := input.a"), ast.MustParseRef("data.p.p"))
	keys := map[string]string{}
	for _, text := range []string{"", "\xff", "\xfe", "\ufffd", "\\xff", `\ufffd`, "\xff\"",
		"\xff\\", "\"\xff\"", "\xff,", "\x00\xff"} {
		for _, v := range []ast.Value{ast.String(text), ast.NewArray(ast.StringTerm(text)),
			ast.NewObject(ast.Item(ast.StringTerm(text), ast.NullTerm()))} {
			in := ast.NewObject(ast.Item(ast.StringTerm("a"), ast.NewTerm(v)))
			key := string(m.Key(nil, in))
			if other, known := keys[key]; known {
				t.Errorf("%q and %s have one key", text, other)
			}
			keys[key] = fmt.Sprintf("%q", text)
		}
	}
}

// asking returns what answers with the value of a rule, as text.
func asking(t *testing.T, c *ast.Compiler, rule string) func(ast.Value) string {
	t.Helper()
	q, err := c.QueryCompiler().Compile(ast.MustParseBody("answer = " + rule))
	if err != nil {
		t.Fatal(err)
	}
	store := inmem.NewFromObject(map[string]any{"z": map[string]any{"b": "x"}})
	txn := storage.NewTransactionOrDie(context.Background(), store)
	return func(in ast.Value) (text string) {
		err := topdown.NewQuery(q).WithCompiler(c).WithInput(ast.NewTerm(in)).WithStore(store).
			WithTransaction(txn).Iter(context.Background(),
			func(r topdown.QueryResult) error { text = r["answer"].String(); return nil })
		if err != nil {
			return "an error" // a conflict, which is an answer too
		}
		return text
	}
}

// names and texts are those of the members of a document.
var (
	names = []string{"a", "b", "c", "l", "n", "z"}
	texts = []string{`"x"`, `"y"`, `""`, `"a\n+b"`, "null", "true", "1", "2", "[]", "{}",
		`{"b":"x"}`, `{"b":"y"}`, `{"b":"x","c":["x"]}`, `{"b":{"c":"x"}}`, `["x"]`, `["x","y"]`,
		`{"k":{"c":"x"}}`, `{"b":null}`, `{"b":2}`}
)

// document returns an object of few names and values, so that many have members in common.
func document(r *rand.Rand) ast.Value {
	text := "{"
	for _, name := range names {
		if r.IntN(4) > 0 {
			if text != "{" {
				text += ","
			}
			text += fmt.Sprintf("%q: %s", name, texts[r.IntN(len(texts))])
		}
	}
	return ast.MustParseTerm(text + "}").Value
}
