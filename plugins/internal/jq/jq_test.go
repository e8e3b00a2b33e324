package jq

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/itchyny/gojq"
)

const doc = `{"name":"n","email":"e","results":[{"id":1,"a.b":2},{"id":2}],"0":"zero",` +
	`"big":12345678901234567890,"x y":{"\"":7},"a":{"b":{"c":[10,[20,30]]}}}`

func TestFiltersThatAreAccepted(t *testing.T) {
	for filter, want := range map[string]string{
		".": doc, " .name ": `"n"`, ".results.0": `{"a.b":2,"id":1}`, ".results[0].id": `1`,
		".results.1.id": `2`, `.results[0]["a.b"]`: `2`, `.["name"]`: `"n"`,
		`."x y"."\""`: `7`, ".name,.email": `["n","e"]`, ".name , .results.0.id": `["n",1]`,
		".a.b.c.1.0": `20`, ".big": `12345678901234567890`, ".missing": `null`,
		".missing.deeper.0": `null`, ".results | " +
			"length": `2`, ".results[].id": `[1,2]`, "[.results[].id] | add": `3`,
		".results[-1].id": `2`, "empty": `null`, "2 * .5": `1`,
		"env": `{}`, ".,.name": `[` + doc + `,"n"]`, ".results | " +
			"map(select(.id > 1))": `[{"id":2}]`, "halt": `null`,
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
		"": "bad_filter", "   ": "bad_filter", ".results.01": "bad_filter", ".[007]": "bad_filter",
		".results.99999999999999999999": "bad_filter", `.["a`: "bad_filter",
		".results[":                      "bad_filter",
		strings.Repeat(".a,", 20) + ".b": "bad_filter", strings.Repeat("x",
			MaxFilter+1): "bad_filter", "input": "bad_filter", `import "x" as x; .`: "bad_filter",
		"$ENV.PATH | error": "filter_failed",
		".name.x":           "filter_failed", "range(100000)": "too_large",
		`"x" * 2000000`: "too_large", `error("no")`: "filter_failed",
		`"secret" | halt_error`: "filter_failed",
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

// A short path returns the same as jq, for any document.
func FuzzShortPaths(f *testing.F) {
	for _, s := range []string{".results.0", ".name,.email", `."x y"."\""`, ".a.b.c[1].0", ".",
		".,.", `.["\u0061"]`, ".0", ".[0].1", ".results.1.id,.big,.none.x"} {
		f.Add(s, doc)
	}
	f.Add(".a", `[{"a":1}]`)
	f.Add(".a", ` {"a" : [ 1 , {"]":"}\\\""} ] , "\u0061":{"b":[]},"c":-1.50e3 } `)
	f.Fuzz(func(t *testing.T, filter, document string) {
		list, err := paths(filter)
		if err != nil || list == nil || !utf8.ValidString(document) || !utf8.ValidString(filter) ||
			strings.Contains(document, `\u`) && strings.Contains(document, `\ud`) {
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

// whole runs a filter as the interpreter alone would. The document must be what encoding/json
// reads.
func whole(t *testing.T, filter, document string) (json.RawMessage, error) {
	t.Helper()
	q, err := gojq.Parse(filter)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := tree([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := gojq.Marshal(doc); err != nil || !equal(t, again, []byte(document)) {
		t.Fatalf("%q is read as %s, %v", document, again, err)
	}
	outs := outputs{max: 1 << 20}
	for iter := q.Run(doc); ; {
		v, more := iter.Next()
		if !more {
			return outs.json(), nil
		}
		if err, broken := v.(error); broken {
			if halt := (*gojq.HaltError)(nil); errors.As(err, &halt) && halt.Value() == nil {
				return outs.json(), nil
			}
			return nil, err
		}
		b, err := gojq.Marshal(v)
		if err != nil {
			return nil, err
		}
		if err := outs.add(b); err != nil {
			return nil, err
		}
	}
}

var streams = []string{
	".results[]",
	".results[].id",
	"[.results[].id]",
	".results | map(.id) | add",
	".results|length",
	".results[] | select(.id>1) | .id",
	".results[1:]",
	".results[-1:] | .[0].id",
	".results[:1][0]",
	".results[-1].id",
	".results[-9]",
	".a[][]",
	".[]",
	"map(.)",
	"[.[]] | length",
	".a | map(.c[1][0])",
	"(.results, .a) | length",
	".results[] | (.id, .id)",
	"[.results[], .name]",
	".results | map(empty)",
	".results | map(.id, .id)",
	"[.results[] | halt]",
	".results[] | if .id == 1 then halt else .id end",
	".results[] | .id, halt",
	".name[1:]",
	".name[]",
	".name | length",
	".missing[]",
	".missing | length",
	".[\"x y\"] | .[]",
	".results[0] | keys",
	".results | map(select(.id > 1)) | length",
	".results | .[] | .id | . + 1",
	".big",
	".results as $r | $r[0].id",
	"def f: .id; .results[] | f",
	".results[] as {id: $i} | $i",
	".results[]?",
	".name[]?",
	".results[.results[0].id].id",
	".results | map(.id)[]",
	"[.results[] | .id] | map(. * 2) | add",
	".results | first",
	"[limit(1; .results[])]",
	"try error(\"x\") catch .",
	".results | map(error)",
	".a.b.c | map(length)",
	".results | group_by(.id) | length",
	"[..] | length",
	"reduce .results[] as $x (0; . + $x.id)",
	".results[0:\"x\"]",
	"label $out | .results[] | if .id == 2 then break $out else .id end",
	".results | map(.id) as [$a, $b] | $a + $b",
	".[0]",
	".results.x",
	"input",
	"path(.results[])",
	".results[] | select(.id > 1, .id > 0)",
	".results | map(select(.id > 1)) | .[].id",
	".results[0] | select(.id)",
	".[] | select(. == \"n\")",
	".results[] | select(halt)",
	".results[] | select(error)",
	"select(.name == \"n\") | .email",
	"del(.results[0]) | .results",
	"$__loc__",
	".results[] |= 1",
}

// What goes through the text gives what the interpreter gives, whatever the filter and the
// document.
func TestStreamingIsWhatTheInterpreterDoes(t *testing.T) {
	for _, filter := range streams {
		if _, err := gojq.Parse(filter); err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		for _, document := range []string{doc, `[]`, ` [ 1 , {"a":[ ] } ,"\u00e9é" ]`,
			`{"results":{"b":2,"a":1,"b":3},"a":[[1],[2,[3]]]}`, `null`, `"text"`, `12.50`,
			`{"results":[]}`} {
			checkStream(t, filter, document)
		}
	}
}

func checkStream(t *testing.T, filter, document string) {
	t.Helper()
	got, err := Run(filter, []byte(document), 1<<20)
	if e := (*sdk.Error)(nil); errors.As(err, &e) && e.Code == "bad_filter" {
		return
	}
	want, wantErr := whole(t, filter, document)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q of %q gives %s, %v; the interpreter alone gives %s, %v", filter, document, got,
			err, want, wantErr)
	}
	if err == nil && !equal(t, got, want) {
		t.Fatalf("%q of %q gives %s, the interpreter alone gives %s", filter, document, got, want)
	}
}

func FuzzStreaming(f *testing.F) {
	for _, s := range streams {
		f.Add(s, doc)
	}
	f.Add(".[]", `{"a":1,"\u0061":2," ":[1,{"]":"}"}]}`)
	f.Fuzz(func(t *testing.T, filter, document string) {
		unsteady := regexp.MustCompile(
			`now|env|ENV|random|input|debug|stderr|range|repeat|recurse|` +
				`\.\.|until|while|limit|\*|tojson|@|ltrimstr|implode|infinite|nan`,
		)
		if len(filter) > 200 || len(document) > 500 || !utf8.ValidString(document) ||
			!utf8.ValidString(filter) ||
			strings.Contains(document, `\ud`) ||
			unsteady.MatchString(filter) ||
			!json.Valid([]byte(document)) {
			return
		}
		// .0 means something else to jq
		if short, err := paths(filter); err != nil || short != nil {
			return
		}
		if _, err := gojq.Parse(filter); err != nil {
			return
		}
		checkStream(t, filter, document)
	})
}
