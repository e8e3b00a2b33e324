package abi_test

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
	"github.com/caponier-mcp/caponier/sdk/internal/gen"
)

func TestTheGeneratedCodecIsCurrent(t *testing.T) {
	files, err := gen.ABI()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what the types say: run go generate in sdk/abi (%v)", name, err)
		}
	}
}

// anything fills a value with what a random source says, empty and nil now and then.
func anything(r *rand.Rand, v reflect.Value) {
	texts := []string{"", "a", "<&>\u2028\"\\\n\x01", "ü😀", "null"}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if tag := v.Type().Field(i).Tag.Get("json"); tag != "-" {
				anything(r, v.Field(i))
			}
		}
	case reflect.String:
		v.SetString(texts[r.Intn(len(texts))])
	case reflect.Bool:
		v.SetBool(r.Intn(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{0, 1, -7, 1 << 52}[r.Intn(4)])
	case reflect.Uint32:
		v.SetUint(uint64(r.Intn(0o7777)))
	case reflect.Float64:
		v.SetFloat([]float64{0, 0.5, -1e-9, 1e22}[r.Intn(4)])
	case reflect.Array:
		for i := range v.Len() {
			anything(r, v.Index(i))
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":[1,"b"]}`))
			return
		}
		if n := r.Intn(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		}
		for i := range v.Len() {
			anything(r, v.Index(i))
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf(map[string]string{"a": "b", "c\n": ""}))
		}
	default:
		panic("no values of " + v.Type().String())
	}
}

// TestTheGeneratedCodecSaysWhatEncodingJSONSays for every type that crosses, with many values: the
// host reads and writes the same types by their tags.
func TestTheGeneratedCodecSaysWhatEncodingJSONSays(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for _, typ := range append(gen.Wire(), reflect.TypeFor[abi.Input]()) {
		tries := 0
		for range 200 {
			v := reflect.New(typ)
			anything(r, v.Elem())
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(v.Interface()); err != nil {
				t.Fatal(err)
			}
			want := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
			if w, writes := v.Elem().Interface().(codec.Value); writes {
				tries++
				if got, err := codec.Encode(w); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s: %s, %v, want %s", typ, got, err, want)
				}
			}
			if _, reads := v.Interface().(codec.Target); reads {
				tries++
				same(t, typ, want)
			}
		}
		if tries == 0 && typ != reflect.TypeFor[abi.Ask]() {
			t.Errorf("%s has no codec", typ)
		}
	}
}

// same reads in with both codecs.
func same(t *testing.T, typ reflect.Type, in []byte) {
	t.Helper()
	ours, theirs := reflect.New(typ), reflect.New(typ)
	if err := codec.Decode(in, ours.Interface().(codec.Target)); err != nil {
		t.Fatalf("%s from %s: %v", typ, in, err)
	}
	if err := json.Unmarshal(in, theirs.Interface()); err != nil ||
		!reflect.DeepEqual(ours.Interface(), theirs.Interface()) {
		t.Fatalf("%s from %s: %+v, want %+v, %v", typ, in, ours, theirs, err)
	}
}

// The property: a response or an input that the strict decoder takes, and encoding/json can read
// into its type, is read to the same value; nothing else is read that encoding/json cannot read.
func FuzzCodec(f *testing.F) {
	types := []reflect.Type{
		reflect.TypeFor[abi.ExecResponse](), reflect.TypeFor[abi.ListResponse](),
		reflect.TypeFor[abi.HTTPResponse](), reflect.TypeFor[abi.Failure](),
		reflect.TypeFor[abi.UndoStepsResponse](), reflect.TypeFor[abi.Input](),
	}
	for i, s := range []string{`{"exit":1,"stdout":"a","truncated":true}`,
		`{"entries":[{"name":"a","mode":"0644","size":5},{"mode":420}]}`,
		`{"headers":[["a","b"],["c"],[]],"hops":[{"status":301,"url":"x"}]}`,
		`{"deny":[{"id":"a","msg":"b"}],"failed":["x"]}`, `{"steps":[{"argv":["a"],"text":"b"}]}`,
		`{"abi":1,"args":{"a":1},"rendered":{"a":"b"},"nodes":[{"default":true}]}`} {
		f.Add(uint8(i), []byte(s))
	}
	f.Fuzz(func(t *testing.T, n uint8, in []byte) {
		typ := types[int(n)%len(types)]
		theirs := json.Unmarshal(in, reflect.New(typ).Interface())
		err := codec.Decode(in, reflect.New(typ).Interface().(codec.Target))
		if strict, bad := abi.Decode(in, 1<<16); bad == nil && theirs == nil {
			if err != nil {
				t.Fatalf("%s from %s: %v", typ, in, err)
			}
			if lower(strict) {
				same(t, typ, in)
			}
		} else if err == nil && theirs != nil && lower(strict) && bad == nil {
			t.Fatalf("%s from %s, which encoding/json does not take: %v", typ, in, theirs)
		}
	})
}

// lower reports whether encoding/json can take no key for another one that differs in case.
func lower(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			for _, c := range k {
				if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_", c) {
					return false
				}
			}
			if !lower(e) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if !lower(e) {
				return false
			}
		}
	}
	return true
}
