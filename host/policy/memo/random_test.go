package memo_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/open-policy-agent/opa/v1/ast"
)

// A writer writes Rego at random. Rules refer only to those of a lower number, so that none refers
// to itself.
type writer struct {
	*rand.Rand
	rule, names int
	members     []string // that this module reads
}

func (w *writer) one(of ...string) string { return of[w.IntN(len(of))] }

func (w *writer) name() string {
	w.names++
	return fmt.Sprint("x", w.names)
}

// term returns a term that reads the input or data in one of many ways.
func (w *writer) term(depth int) string {
	switch n := w.IntN(16); {
	case n < 6 || depth == 0:
		return "input." + w.one(w.members...)
	case n == 6:
		return w.one(`"x"`, `"y"`, "null", "2", "[]", "1", "data.z", "data.z.b")
	case n == 7:
		return w.one("data.m.a.ok", "data.m.a.ok", "data.m.a.other", "data.m.a")
	case n < 11 && w.rule > 0:
		return fmt.Sprintf("data.p.h%d", w.IntN(w.rule))
	case n == 11:
		return fmt.Sprintf(`object.get(%s, "b", %s)`, w.term(depth-1), w.term(depth-1))
	case n == 12:
		x := w.name()
		return fmt.Sprintf("{%s | some %s in %s; %s}", x, x, w.term(depth-1), w.line(depth-1))
	case n == 13:
		return fmt.Sprintf("type_name(%s)", w.term(depth-1))
	case n == 14:
		return fmt.Sprintf("f(%s)", w.term(depth-1))
	}
	return fmt.Sprintf("[%s, %s]", w.term(depth-1), w.term(depth-1))
}

// line returns an expression.
func (w *writer) line(depth int) string {
	if depth <= 0 {
		return w.term(0)
	}
	x := w.name()
	switch w.IntN(10) {
	case 0, 1:
		return fmt.Sprintf("%s %s %s", w.term(depth), w.one("==", "!=", "<"), w.term(depth))
	case 2:
		return fmt.Sprintf("is_%s(%s)", w.one("string", "object", "null"), w.term(depth))
	case 3:
		return "not " + w.term(depth)
	case 4:
		return fmt.Sprintf("some %s in %s; %s == %s", x, w.term(depth), x, w.term(depth))
	case 5:
		return fmt.Sprintf("every %s in %s { %s != %s }", x, w.term(depth), x, w.term(depth))
	case 6:
		return fmt.Sprintf("%s := %s; %s == %s", x, w.term(depth), x, w.term(depth))
	case 7:
		return fmt.Sprintf("%s with data.limit as %s", w.one(w.term(depth), "data.m.a.ok"),
			w.one("1", "2", "3", w.term(depth)))
	case 8:
		return fmt.Sprintf("%s with %s as %s", w.term(depth), w.one("input", "input.a", "input.a.b",
			"input.n", "data.z", "data.z.b"), w.term(depth))
	}
	return w.term(depth)
}

// module returns a package of rules, the last of which is p. Each has an alternative.
func (w *writer) module() string {
	b := strings.Builder{}
	for range 1 + w.IntN(3) {
		w.members = append(w.members, w.one("a", "b", "c", "l", "a.b", "a.b.c", "l[0]",
			"a[input.b]"))
	}
	b.WriteString("package p\n\nf(x) := x.b if x.b != input.c\n\nf(x) := x if not x.b\n\n")
	for w.rule = 0; w.rule < 4; w.rule++ {
		name := fmt.Sprint("h", w.rule)
		if w.rule == 3 {
			name = "p"
		}
		fmt.Fprintf(&b, "%s := %s if {\n\t%s\n\t%s\n} else := %s if {\n\t%s\n}\n\n", name,
			w.term(2), w.line(2), w.line(1), w.term(1), w.line(1))
	}
	return b.String()
}

// TestRandomRulesOfOneKeyHaveOneAnswer writes rules at random. Where the key and what is apart are
// the same for two inputs, the answer must be.
func TestRandomRulesOfOneKeyHaveOneAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var inputs []ast.Value
	for range 40 {
		in := document(random)
		inputs = append(inputs, in)
		for _, name := range names { // and others that differ from it in one member
			one := ast.NewObject(ast.Item(ast.StringTerm(name), ast.MustParseTerm(
				texts[random.IntN(len(texts))])))
			both, _ := in.(ast.Object).MergeWith(one, func(_, b *ast.Term) (*ast.Term, bool) {
				return b, false
			})
			inputs = append(inputs, both)
		}
	}
	compiled, shared, defined := 0, 0, 0
	for range 600 {
		rego := (&writer{Rand: random}).module()
		c, err := ast.CompileModules(map[string]string{"p.rego": rego, "a.rego": apart})
		if err != nil {
			continue // such as what can be seen to be of the wrong type
		}
		compiled++
		m := memo.MembersOf(c, ast.MustParseRef("data.p.p"), ast.MustParseRef("data.m.a.ok"))
		ask, askApart := asking(t, c, "data.p.p"), asking(t, c, "data.m.a.ok")
		answers := map[string]string{}
		for _, in := range inputs {
			key, got := string(m.Key(nil, in))+"|"+askApart(in), ask(in)
			before, known := answers[key]
			if known && before != got {
				t.Fatalf("with the members %s %v gives %s, and another input %s:\n%s", m, in, got,
					before, rego)
			}
			if known {
				shared++
			}
			if answers[key] = got; got != "" {
				defined++
			}
		}
	}
	t.Logf("%d modules; of %d answers %d share a key, %d are defined", compiled,
		len(inputs)*compiled, shared, defined)
	if compiled < 100 || shared < 20*compiled || defined < 10*compiled {
		t.Error("too few of the rules are of use")
	}
}
