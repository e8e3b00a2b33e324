package pvetest_test

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

type leaf struct {
	N int8    `json:"n"`
	S string  `json:"s,omitempty"`
	P *string `json:"p"`
}

// raw is any JSON that a tool hands through.
type raw struct{ json.RawMessage }

// Generate implements quick.Generator.
func (raw) Generate(r *rand.Rand, _ int) reflect.Value {
	all := []string{`null`, `1`, `"a"`, `[{}]`, `{"a":[null]}`}
	return reflect.ValueOf(raw{json.RawMessage(all[r.Intn(len(all))])})
}

type embedded struct {
	U uint32  `json:"u"`
	F float32 `json:"f"`
}

// every has a field of each form that a result can have.
type every struct {
	embedded
	B       bool              `json:"b"`
	I       int64             `json:"i"`
	Maybe   *int              `json:"maybe"`
	Left    *leaf             `json:"left,omitempty"`
	Inner   leaf              `json:"inner"`
	List    []leaf            `json:"list"`
	Some    []string          `json:"some,omitempty"`
	Holes   []*leaf           `json:"holes"`
	Deep    [][]int           `json:"deep"`
	Bytes   []byte            `json:"bytes"`
	By      map[string][]bool `json:"by"`
	ByHole  map[string]*int   `json:"by_hole"`
	Quoted  int               `json:"quoted,string"`
	Self    raw               `json:"self"`
	Any     any               `json:"any"`
	When    time.Time         `json:"when"`
	Skipped chan int          `json:"-"`
}

var next every

func serve() {
	sdk.Serve("outputs", "1.0.0", sdk.NewTool("every", "Returns whatever the test has set.",
		sdk.Hints{Title: "All forms", Budget: time.Second, Runs: "nothing"},
		func(*sdk.Call, struct{}) (every, error) { return next, nil }))
}

func init() { serve() }

// Property: whatever the values are, a result fits the schema that its Go type gave, also by
// another validator.
func TestResultsFitTheSchemasOfTheirTypes(t *testing.T) {
	h := sdktest.New(t)
	description := h.Describe()
	if _, err := plugin.NewEntry("outputs.wasm", nil, nil, description); err != nil {
		t.Fatalf("a lock refuses the schema: %v", err)
	}
	rnd := rand.New(rand.NewSource(7))
	check := func() {
		t.Helper()
		out, err := h.Call("every", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		pvetest.Fits(t, description, "every", out.Structured)
		cut := strings.TrimSuffix(string(out.Structured), "}") + `,"truncated":true}`
		pvetest.Fits(t, description, "every", []byte(cut))
	}
	check() // nothing in it is set
	kind := reflect.TypeFor[every]()
	for range 300 {
		v := reflect.New(kind).Elem()
		for i := range kind.NumField() {
			f := kind.Field(i)
			if f.Type == reflect.TypeFor[time.Time]() || f.Tag.Get("json") == "-" ||
				!f.IsExported() {
				continue
			}
			if f.Name == "Any" {
				v.Field(i).Set(reflect.ValueOf(map[string]any{"a": []any{nil, rnd.Float64()}}))
				continue
			}
			x, ok := quick.Value(f.Type, rnd)
			if !ok {
				t.Fatalf("no value for %s", f.Name)
			}
			v.Field(i).Set(x)
		}
		next = v.Interface().(every)
		next.U, next.F = rnd.Uint32(), rnd.Float32()
		check()
	}
}
