package jq

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/sdk"
)

const doc = `{"name":"n","email":"e","results":[{"id":1,"a.b":2},{"id":2}],"0":"zero","big":12345678901234567890,"x y":{"\"":7},"a":{"b":{"c":[10,[20,30]]}}}`

func TestFiltersThatAreAccepted(t *testing.T) {
	for filter, want := range map[string]string{
		".": doc, " .name ": `"n"`, ".results.0": `{"a.b":2,"id":1}`, ".results[0].id": `1`, ".results.1.id": `2`, `.results[0]["a.b"]`: `2`, `.["name"]`: `"n"`,
		`."x y"."\""`: `7`, ".name,.email": `["n","e"]`, ".name , .results.0.id": `["n",1]`, ".a.b.c.1.0": `20`, ".big": `12345678901234567890`, ".missing": `null`,
		".missing.deeper.0": `null`, ".results | length": `2`, ".results[].id": `[1,2]`, "[.results[].id] | add": `3`, ".results[-1].id": `2`, "empty": `null`, "2 * .5": `1`,
		"env": `{}`, ".,.name": `[` + doc + `,"n"]`, ".results | map(select(.id > 1))": `[{"id":2}]`, "halt": `null`,
	} {
		got, err := Run(filter, []byte(doc), 1<<20)
		if err != nil || !same(got, want) {
			t.Errorf("%s gives %s, %v; want %s", filter, got, err, want)
		}
	}
}

func same(got json.RawMessage, want string) bool {
	a, errA := decode(got)
	b, errB := decode([]byte(want))
	return errA == nil && errB == nil && reflect.DeepEqual(a, b)
}

func TestFiltersThatAreRefusedSayWhy(t *testing.T) {
	for filter, code := range map[string]string{
		"": "bad_filter", "   ": "bad_filter", ".results.01": "bad_filter", ".[007]": "bad_filter", ".results.99999999999999999999": "bad_filter", `.["a`: "bad_filter", ".results[": "bad_filter",
		strings.Repeat(".a,", 20) + ".b": "bad_filter", strings.Repeat("x", MaxFilter+1): "bad_filter", "input": "bad_filter", `import "x" as x; .`: "bad_filter", "$ENV.PATH | error": "filter_failed",
		".name.x": "filter_failed", "range(100000)": "too_large", `"x" * 2000000`: "too_large", `error("no")`: "filter_failed", `"secret" | halt_error`: "filter_failed",
	} {
		_, err := Run(filter, []byte(doc), 1<<20)
		if e := (*sdk.Error)(nil); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%.60s: error %v, want code %s", filter, err, code)
		}
	}
	for _, broken := range []string{"", "{", "1 2", "<html>"} {
		_, err := Run(".", []byte(broken), 1<<20)
		if e := (*sdk.Error)(nil); !errors.As(err, &e) || e.Code != "not_json" {
			t.Errorf("document %q: error %v, want code not_json", broken, err)
		}
	}
}

// A short path gives what jq gives for it, whatever the document.
func FuzzShortPaths(f *testing.F) {
	for _, s := range []string{".results.0", ".name,.email", `."x y"."\""`, ".a.b.c[1].0", ".", ".,.", `.["\u0061"]`, ".0", ".[0].1", ".results.1.id,.big,.none.x"} {
		f.Add(s, doc)
	}
	f.Add(".a", `[{"a":1}]`)
	f.Add(".a", ` {"a" : [ 1 , {"]":"}\\\""} ] , "\u0061":{"b":[]},"c":-1.50e3 } `)
	f.Fuzz(func(t *testing.T, filter, document string) {
		list, err := paths(filter)
		if err != nil || list == nil || !utf8.ValidString(document) || !utf8.ValidString(filter) || strings.Contains(document, `\u`) && strings.Contains(document, `\ud`) {
			return
		}
		var programs []string
		for _, path := range list {
			program := "."
			for _, s := range path {
				key, _ := json.Marshal(s.key)
				if s.list {
					key = []byte(strconv.Itoa(s.index))
				}
				program += "[" + string(key) + "]"
			}
			programs = append(programs, program)
		}
		got, err := Run(filter, []byte(document), 1<<20)
		// The comma and a pipe make it a filter that is no list of paths.
		want, wantErr := Run(strings.Join(programs, ",")+"|.", []byte(document), 1<<20)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q of %q gives error %v, jq gives %v", filter, document, err, wantErr)
		}
		if err == nil && !equal(t, got, want) {
			t.Fatalf("%q of %q gives %s, jq gives %s", filter, document, got, want)
		}
	})
}

func equal(t *testing.T, a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("%s and %s are not both JSON", a, b)
	}
	return reflect.DeepEqual(x, y)
}
