package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// FuzzData holds the reader of data.yaml to its promise: what it takes can be read in one way only,
// the way in which JSON reads it. It is a package without the policy engine, which takes minutes to
// be built for fuzzing.
func FuzzData(f *testing.F) {
	for _, s := range []string{"a: 1", "{\"a\": [1, \"x\", null, true, {\"b\": -0}]}",
		"a: &x 1\nb: *x", "1: 2", "? a\n: b", "a: 0o7", "a: |\n  x\n", "a: 'x'", "<<: {a: 1}",
		"a:\n- b\n- c", "a: 1\na: 2", "a: 1\n---\nb: 2", "a:\t1", "a: !!int x", "a: 1e3",
		"'a': yes\n\"b\": ~", "{\"a\\u0000\": \"\\ud83d\\ude00\"}", "\"\\uffff\\ufeff\\x7f\": 1",
		"? " + strings.Repeat("a", 2000) + ":b\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, node, err := Map("x.yaml", data)
		if err != nil {
			if v != nil || node != nil {
				t.Fatalf("%q is an error, and %v", data, v)
			}
			return
		}
		text := encode(t, v)
		if hasLongKey(t, v) {
			return // YAML 1.2, 7.4.2: such a key needs "? " before it, which JSON has not
		}
		again, _, err := Map("x.yaml", text)
		if err != nil || !bytes.Equal(encode(t, again), text) {
			t.Fatalf("%q is %s, read again %v, %v", data, text, again, err)
		}
		if other, err := abi.Decode(data, 1<<20); err == nil &&
			!bytes.Equal(encode(t, other), text) {
			t.Fatalf("%q is %s, and as JSON %s", data, text, encode(t, other))
		}
	})
}

func hasLongKey(t *testing.T, v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(x any) bool { return hasLongKey(t, x) })
	case map[string]any:
		for key, x := range v {
			if len(encode(t, key)) > 1000 || hasLongKey(t, x) {
				return true
			}
		}
	}
	return false
}

// unprinted are characters that JSON takes as they are, and YAML only escaped (YAML 1.2, 5.1), or
// that YAML takes for a line's end.
var unprinted = regexp.MustCompile(`[\x7f-\x9f\x{feff}\x{fffe}\x{ffff}]`)

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return unprinted.ReplaceAllFunc(text, func(c []byte) []byte {
		return fmt.Appendf(nil, `\u%04x`, bytes.Runes(c)[0])
	})
}
