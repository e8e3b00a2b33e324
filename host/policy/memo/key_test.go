package memo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
)

// A doc is of all types that an input has.
type doc struct {
	Z     map[string]any             `json:"z"`
	A     *part                      `json:"a"`
	B     any                        `json:"b"`
	N     int                        `json:"n"`
	L     []part                     `json:"l"`
	C     *map[string]part           `json:"c"`
	Other map[string]map[string]bool `json:"other"`
	inner
}

type inner struct {
	K *int64 `json:"k"`
}

type part struct {
	B    string   `json:"b"`
	C    []string `json:"c"`
	K    bool     `json:"k"`
	None *[]part  `json:"none"`
	not  int
}

// some returns a document at random. The texts are quoted in different ways, or no UTF-8.
func some(r *rand.Rand) *doc {
	text := func() string {
		all := []string{"", "x", "y", "<&>", "<\n", `"\`, "\xff", "\xfe", "\ufffd", "é", "b",
			"+-=\n"}
		return all[r.IntN(len(all))]
	}
	half := func() bool { return r.IntN(2) == 0 }
	one := func() part {
		p := part{B: text(), K: half(), not: r.IntN(3)}
		for range r.IntN(3) {
			p.C = append(p.C, text())
		}
		if half() {
			p.None = &[]part{{B: text()}}
		}
		return p
	}
	scalar := func() any {
		p := one()
		all := []any{text(), half(), r.IntN(3) - 1, int64(1) << 62, &p, value.Redacted, []string{}}
		return all[r.IntN(len(all))]
	}
	d := &doc{Z: map[string]any{}, B: scalar(), N: r.IntN(3) - 1}
	for range r.IntN(4) {
		d.Z[text()] = scalar()
		d.L = append(d.L, one())
	}
	if half() {
		p, n := one(), int64(r.IntN(2))
		d.A, d.K = &p, &n
		d.C = &map[string]part{text(): one(), "b": p}
	}
	d.Other = map[string]map[string]bool{text(): {text(): half(), "x": half()}}
	return d
}

// TestGoValuesHaveTheKeysOfTheirRegoValues is for both ways to have a key, of all ways to read.
func TestGoValuesHaveTheKeysOfTheirRegoValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, row := range rules {
		c := compiled(t, row.rego)
		m := memo.MembersOf(c, ast.MustParseRef("data.p.p"), ast.MustParseRef("data.m.a.ok"))
		ask := asking(t, c, "data.p.p")
		whole := memo.MembersOf(c, ast.MustParseRef("data.p.p")) // nothing is apart
		for range 60 {
			d := some(r)
			v := value.Of(d)
			if got, want := string(m.Key(nil, d)), string(m.Key(nil, v)); got != want {
				t.Fatalf("%s: %v has the key\n%q\nand its Rego value\n%q", name, v, got, want)
			}
			for _, in := range []any{d, v} {
				few := whole.Of(in)
				if !bytes.Equal(whole.Key(nil, few), whole.Key(nil, v)) {
					t.Fatalf("%s: of %v %v is left, with another key", name, v, few)
				}
				if got, want := ask(few), ask(v); got != want {
					t.Fatalf("%s: %v gives %s, and %v %s", name, v, want, few, got)
				}
			}
		}
	}
}

// TestTextsOfGoValuesAreThoseOfTheirRegoValues holds JSON to what the rules decide on.
func TestTextsOfGoValuesAreThoseOfTheirRegoValues(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	masked := map[string]bool{"a": true, "z": true}
	for range 5_000 {
		d := some(r)
		v := value.Of(d)
		if got, want := string(value.JSON(d, nil, nil)), text(v, nil, nil, false); got != want {
			t.Fatalf("JSON is\n%s\nwant\n%s", got, want)
		}
		mask := func(s string) string { return fmt.Sprintf("(%d)", len(s)) }
		got, want := string(value.JSON(d, masked, mask)), text(v, masked, mask, false)
		if got != want {
			t.Fatalf("masked, JSON is\n%s\nwant\n%s", got, want)
		}
	}
}

// text writes a Rego value as JSON.
func text(v ast.Value, masked map[string]bool, mask func(string) string, below bool) (s string) {
	quote := func(s string) string {
		plain := utf8.ValidString(s)
		for _, c := range s {
			plain = plain && c >= ' ' && c < 0x7f && c != '"' && c != '\\'
		}
		if plain {
			return strconv.Quote(s)
		}
		b, _ := json.Marshal(s)
		return string(b)
	}
	switch v := v.(type) {
	case ast.String:
		if below && mask != nil {
			return quote(mask(string(v)))
		}
		return quote(string(v))
	case *ast.Array:
		v.Foreach(func(x *ast.Term) { s += "," + text(x.Value, masked, mask, below) })
		return "[" + s[min(1, len(s)):] + "]"
	case ast.Object:
		v.Foreach(func(k, x *ast.Term) {
			name := value.Text(k)
			s += "," + quote(name) + ":" + text(x.Value, masked, mask, below || masked[name])
		})
		return "{" + s[min(1, len(s)):] + "}"
	}
	return v.String()
}
