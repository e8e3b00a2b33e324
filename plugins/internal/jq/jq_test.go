package jq

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/itchyny/gojq"

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

// A list of short paths means what its parts mean, and every translation is jq.
func FuzzTranslate(f *testing.F) {
	for _, s := range []string{".results.0", ".name,.email", `."x y"."\""`, ".a.b.c[1].0", ".a|.b", ".", ".,.", `.["\u0061"]`, ".0", ".[0].1", ".a.01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, filter string) {
		out, err := translate(filter)
		if err != nil || out == filter {
			return
		}
		q, err := gojq.Parse(out)
		if err != nil {
			if strings.Contains(filter, `\`) {
				return // an escape that is none in jq
			}
			t.Fatalf("%q became %q, which is not jq: %v", filter, out, err)
		}
		again, err := translate(q.String())
		if err != nil {
			t.Fatalf("%q became %q: %v", filter, q, err)
		}
		if q2, err := gojq.Parse(again); err != nil || q2.String() != q.String() {
			t.Fatalf("%q became %q and then %q, %v", filter, q, again, err)
		}
	})
}
