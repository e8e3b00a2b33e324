package plan

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// programs are bodies of package t, each with a rule r. Together they use every statement that
// OPA's planner makes.
var programs = map[string]string{
	"constant":                   `r := 1`,
	"big and fractional numbers": `r := [123456789012345678901234567890, 1.5, -0.25, 1e3] if 1.0 == 1`,
	"null":                       `r := null if input.a == null`,
	"input path":                 `r := input.a.b[0]`,
	"undefined path":             `r := input.nothing.here`,
	"array by number":            `r := input.list[1]`,
	"array by text":              `r := input.list["1"]`,
	"scalar is no container":     `r := input.n.x`,
	"set membership":             "s := {1, 2, input.n}\nr if s[input.n]",
	"two values conflict":        "r := 1 if input.a\nr := 2 if input.n",
	"two equal values":           "r := 1 if input.a\nr := 1 if input.n",
	"default":                    "default r := 7\nr := 1 if input.nothing",
	"else":                       "r := 1 if {\n input.n > 100\n} else := 2 if {\n input.n > 10\n} else := 3",
	"partial set":                "r contains x if some x in input.list\nr contains input.n",
	"partial object":             "r[k] := v if some k, v in input.map",
	"partial object conflict":    "r[k] := v if {\n some v in input.list\n k := \"same\"\n}",
	"nested partial object":      "r.a[k] := v if some k, v in input.map\nr.b := 1",
	"set in an object":           "r[k] contains v if {\n some k in [\"x\", \"y\"]\n some v in input.list\n}",
	"function":                   "f(x) := x * 2\nr := [f(y) | some y in input.list]",
	"function with patterns":     "f([x, \"k\"]) := x\nf({\"a\": x}) := x\nr := [f([1, \"k\"]), f({\"a\": 2})]",
	"function is undefined":      "f(x) := x if x > 1000\nr := f(input.n)",
	"not":                        "r if not input.nothing",
	"not of false":               "r if not input.no",
	"not in a loop":              "r := [x | some x in input.list; not x == 2]",
	"every":                      "r if every x in input.list { x > 0 }",
	"every fails":                "r if every x in input.list { x > 1 }",
	"every of nothing":           "r if every x in [] { x > 1 }",
	"every of an object":         "r if every k, v in input.map { k != v }",
	"every of a scalar":          "r if every x in input.n { x > 0 }",
	"every of undefined":         "r if every x in input.nothing { x > 0 }",
	"every in every":             "r if every x in input.list { every y in input.list { x + y > 1 } }",
	"loops in loops":             "r := [[x, y] | some x in input.list; some y in input.list; x < y]",
	// in which order is not said
	"loop over a set":            "r := {[x] | some x in {\"b\", \"a\", input.text}}",
	"loop over a scalar":         "r := [x | some x in input.text]",
	"loop with a key":            "r := {i: x | some i, x in input.list}",
	"object comprehension twice": "r := {x: y | some x in [1, 1]; some y in input.list}",
	"set comprehension":          "r := {y | some x in input.list; y := x % 2}",
	"comprehension in a loop":    "r := [[y | some y in input.list; y != x] | some x in input.list]",
	"unification":                "r := [x, y] if [x, y] = [input.n, input.a]",
	"unification of objects":     "r := x if {\"a\": x, \"b\": 2} = {\"a\": input.n, \"b\": 2}",
	"walks its own keys":         "r := [k | input.map[k] == \"v\"]",
	"virtual and base data":      "r := data.base.x",
	"virtual over base":          "r := data.t.sub",
	"all of a package":           "s := 1\nu := 2\nr := object.keys(data.base)",
	"computed rule":              "a.one := 1\na.two := 2\nr := a[input.key]",
	"computed rule that is none": "a.one := 1\nr := a[input.text]",
	"computed rule by number":    "a.one := 1\nr := a[input.n]",
	"with input":                 "q := input.n\nr := [q, x] if x := q with input.n as 5",
	"with a deep path":           "q := input.new.deep.path\nr := [x, input.n] if x := q with input.new.deep.path as 5",
	"with data":                  "q := data.base.x\nr := [q, x] if x := q with data.base.x as \"other\"",
	"with a rule":                "q := 1\ns := q + 1\nr := [s, x] if x := s with q as 10",
	"with a function":            "f(x) := x\ng(x) := x * 100\nr := [f(1), y] if y := f(1) with f as g",
	"with a built-in":            "r := x if x := count(input.list) with count as 99",
	"with that is undefined":     "q := input.n\nr if q == 1 with input.n as 2",
	"error of a built-in":        "r := x if x := 1 / input.zero",
	"error under not":            "r if not 1 / input.zero",
	"error of a type":            "r if count(input.n) > 0",
	"error in a comprehension":   "r := [x | some y in input.list; x := 10 % input.zero]",
	"false built-in":             "r if startswith(input.text, \"zzz\")",
	"text":                       "r := sprintf(\"%s %d %v\", [input.text, input.n, input.map])",
	"template":                   "r := $\"a {input.text} b {input.nothing}\"",
	"regular expression":         "r if regex.match(`^[a-z]+$`, input.text)",
	"sets":                       "r := ({1, 2, 3} & {2, 3, 4}) | {9} - {9}",
	"array functions":            "r := array.concat(array.slice(input.list, 1, 3), [input.n])",
	"object functions":           "r := object.union(input.map, {\"z\": object.get(input, [\"a\", \"b\"], 0)})",
	"equal across types":         "r := [1 == 1.0, \"1\" == 1, null == false, [] == {}]",
	"order across types":         "r := [null < false, input.list > 10, \"9\" > 10]",
	"true and false":             "r if {\n true\n not false\n}",
	"false":                      "r if false",
	"boolean input":              "r := input.no",
}

const input = `{"a": {"b": ["x", "y"]}, "n": 42, "no": false, "zero": 0, "text": "word", "key": "one", "list": [1, 2, 3], "map": {"k": "v", "l": "w"}}`

var base = map[string]any{"base": map[string]any{"x": "base", "y": []any{"p", "q"}}}

// pair is a program's rule r, here and in topdown.
type pair struct {
	here  *Policy
	there rego.PreparedEvalQuery
}

func prepare(t testing.TB, body string) pair {
	t.Helper()
	text := "package t\n\n" + body
	m, err := ast.ParseModuleWithOpts("t.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	here, err := New(
		context.Background(),
		Options{
			Modules:      map[string]*ast.Module{"t.rego": m},
			Data:         base,
			Capabilities: ast.CapabilitiesForThisVersion(),
			Entries:      []string{"t/r"},
		},
	)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	there, err := rego.New(rego.Query("data.t.r"), rego.Module("t.rego", text), rego.Store(inmem.NewFromObject(base)), rego.StrictBuiltinErrors(true)).
		PrepareForEval(context.Background())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return pair{here, there}
}

func (p pair) eval(t testing.TB, in ast.Value) (here, there ast.Value, err, oracle error) {
	here, err = p.here.Eval(context.Background(), "t/r", in)
	rs, oracle := p.there.Eval(context.Background(), rego.EvalParsedInput(in))
	if oracle == nil && len(rs) == 1 {
		there, oracle = ast.InterfaceToValue(rs[0].Expressions[0].Value)
	}
	if here != nil { // as results are given: sets are arrays
		plain, jsonErr := ast.JSON(here)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		here, _ = ast.InterfaceToValue(plain)
	}
	return here, there, err, oracle
}

func TestPlansMeanWhatTopdownSays(t *testing.T) {
	for name, body := range programs {
		t.Run(name, func(t *testing.T) {
			here, there, err, oracle := prepare(t, body).eval(t, ast.MustParseTerm(input).Value)
			if (err == nil) != (oracle == nil) {
				t.Fatalf("here %v, topdown %v", err, oracle)
			}
			if (here == nil) != (there == nil) || here != nil && here.Compare(there) != 0 {
				t.Errorf("here %v, topdown %v", here, there)
			}
		})
	}
}

// FuzzInputs asks all programs about inputs of any shape. Where topdown has a value it must be
// ours, and where it has none ours may be nothing or an error, never a value.
func FuzzInputs(f *testing.F) {
	for _, seed := range []string{input, `{}`, `null`, `[]`, `{"list": {"1": 2}, "map": [1, 2], "n": "x", "zero": 1}`, `{"list": [1, [2], {"a": 3}, null], "n": -1, "a": null, "text": 5}`} {
		f.Add(seed)
	}
	pairs := map[string]pair{}
	for name, body := range programs {
		pairs[name] = prepare(f, body)
	}
	f.Fuzz(func(t *testing.T, in string) {
		value, err := ast.ValueFromReader(strings.NewReader(in))
		if err != nil || len(in) > 500 {
			return
		}
		for name, p := range pairs {
			here, there, err, oracle := p.eval(t, value)
			switch {
			case oracle == nil && err == nil && ((here == nil) != (there == nil) || here != nil && here.Compare(there) != 0):
				t.Errorf("%s: here %v, topdown %v", name, here, there)
			case oracle != nil && err == nil && here != nil:
				t.Errorf("%s: here %v, topdown %v", name, here, oracle)
			}
		}
	})
}

func TestEndlessRulesEndWithTheirContext(t *testing.T) {
	text := "package t\n\nn := [x | some x in input]\n\nr if {\n some a in n\n some b in n\n some c in n\n some d in n\n a + b + c + d < 0\n}"
	p, err := New(
		context.Background(),
		Options{
			Modules: map[string]*ast.Module{
				"t.rego": ast.MustParseModuleWithOpts(
					text,
					ast.ParserOptions{RegoVersion: ast.RegoV1},
				),
			},
			Data:         base,
			Capabilities: ast.CapabilitiesForThisVersion(),
			Entries:      []string{"t/r"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]*ast.Term, 1000)
	for i := range list {
		list[i] = ast.InternedTerm(i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Eval(ctx, "t/r", ast.NewArray(list...)); !errors.Is(
		err,
		context.DeadlineExceeded,
	) {
		t.Errorf("%v", err)
	}
	// what the ended one left behind does no harm
	if v, err := p.Eval(context.Background(), "t/r", ast.NewArray()); err != nil || v != nil {
		t.Errorf("%v %v", v, err)
	}
	if _, err := p.Eval(context.Background(), "t/x", ast.NewArray()); err == nil {
		t.Error("an entry point that is none was run")
	}
}

func TestWhatCannotBeRunIsRefused(t *testing.T) {
	for name, body := range map[string]string{"walk": `r := [x | walk(input, [_, x])]`} {
		_, err := New(
			context.Background(),
			Options{
				Modules: map[string]*ast.Module{
					"t.rego": ast.MustParseModuleWithOpts(
						"package t\n\n"+body,
						ast.ParserOptions{RegoVersion: ast.RegoV1},
					),
				},
				Data:         base,
				Capabilities: ast.CapabilitiesForThisVersion(),
				Entries:      []string{"t/r"},
			},
		)
		if err == nil || !strings.Contains(err.Error(), "there is no function") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
