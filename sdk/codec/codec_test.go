package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// tree reads and writes any JSON, for comparison with encoding/json.
type tree struct{ v any }

func (t *tree) ReadJSON(r *Reader) {
	switch first := bytes.TrimLeft(r.data[r.at:], " \t\r\n"); {
	case len(first) == 0:
		passOver(r)
	case first[0] == '{':
		m := map[string]tree{}
		Map(r, &m, Into[tree])
		all := map[string]any{}
		for k, v := range m {
			all[k] = v.v
		}
		t.v = all
	case first[0] == '[':
		l := []tree{}
		List(r, &l, Into[tree])
		all := []any{}
		for _, v := range l {
			all = append(all, v.v)
		}
		t.v = all
	case first[0] == '"':
		s := ""
		Text(r, &s)
		t.v = s
	case first[0] == 't' || first[0] == 'f':
		b := false
		Bool(r, &b)
		t.v = b
	case first[0] == 'n':
		passOver(r)
	default:
		f := 0.0
		Float(r, &f)
		t.v = f
	}
}

func (t tree) WriteJSON(w *Writer) {
	switch v := t.v.(type) {
	case nil:
		w.Null()
	case bool:
		w.Bool(v)
	case float64:
		w.Float(v)
	case string:
		w.Text(v)
	case []any:
		w.Open('[')
		for _, e := range v {
			w.Elem()
			tree{e}.WriteJSON(w)
		}
		w.Close(']')
	case map[string]any:
		w.Open('{')
		for k, e := range v {
			w.Name(k)
			tree{e}.WriteJSON(w)
		}
		w.Close('}')
	}
}

// The property: what is accepted, encoding/json reads the same way, and it is read again from what
// is written of it. What encoding/json accepts is accepted, or breaks one of the stricter rules.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[0.5,"x",null,{"c":false}],"":{}}`, ` [ ] `, `1e5`,
		`"\ud83d\ude00\ud83d\u0041\udc00 \u2028\/\b\f\n\r\t\\\""`, `-0.0e-7`,
		`1e400`, `01`, `-`, `1.`,
		`{"a":1,"a":2}`, `[1,]`, `{"a":1,}`, `[1 2]`, `"a`, `"\u12`, `"\x"`, "\"\x01\"", `tru`,
		`nul`, `{} {}`, `{"a"}`, `{1:2}`, ``, "\"\xff\"", `[[[[]]]]`, `"\ud800\ud800\udc00"`,
		`123456789012345678901234567890`, `1e-9`, `1e21`, `100000000000000000000`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var ours tree
		err := Decode(in, &ours)
		if e := Valid(in); e != nil && err == nil {
			t.Fatalf("%q is read, and not valid: %v", in, e)
		}
		var theirs any
		if e := json.Unmarshal(in, &theirs); e != nil {
			if err == nil {
				t.Fatalf("%q: %v, and encoding/json says %v", in, ours.v, e)
			}
			return
		}
		if err != nil {
			if utf8.Valid(in) && !strings.Contains(err.Error(), "comes twice") &&
				!strings.Contains(err.Error(), "nested deeper") {
				t.Fatalf("%q: %v, and encoding/json reads it", in, err)
			}
			return
		}
		if !reflect.DeepEqual(ours.v, theirs) {
			t.Fatalf("%q: %#v, and encoding/json reads %#v", in, ours.v, theirs)
		}
		out, err := Encode(ours)
		var again tree
		if err != nil || Decode(out, &again) != nil || !reflect.DeepEqual(again, ours) {
			t.Fatalf("%q becomes %s, %v", in, out, err)
		}
	})
}

// The property: text and numbers are written as encoding/json writes them, without its escapes for
// HTML.
func FuzzWrite(f *testing.F) {
	f.Add("a\x00\x1f\"\\\b\f\n\r\t\u2028\u2029<&>\xff\xed\xa0\x80ü😀\u007f", 1e-7, int64(-5))
	f.Add("", 1e21, int64(math.MaxInt64))
	f.Add("\xe2\x80", -1e-10, int64(0))
	f.Fuzz(func(t *testing.T, s string, n float64, i int64) {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]any{s: []any{s, n, i, []byte(s)}}); err != nil {
			t.Fatal(err)
		}
		var w Writer
		w.Open('{')
		w.Name(s)
		w.Open('[')
		w.Elem()
		w.Text(s)
		w.Elem()
		w.Float(n)
		w.Elem()
		w.Int(i)
		w.Elem()
		w.Base64([]byte(s))
		w.Close(']')
		w.Close('}')
		if got, err := w.Bytes(); err != nil || string(got)+"\n" != b.String() {
			t.Fatalf("%s, %v, want %s", got, err, &b)
		}
	})
}

func passOver(r *Reader) {
	var any json.RawMessage
	Raw(r, &any)
}

type place struct {
	N    int8
	B    bool
	S    string
	F    float64
	Pair [2]string
	Raw  json.RawMessage
}

func (p *place) ReadJSON(r *Reader) {
	if !r.Object() {
		return
	}
	seen := uint64(0)
	for name, more := r.More(); more; name, more = r.More() {
		switch name {
		case "n":
			Int(r.Once(&seen, 0), &p.N)
		case "b":
			Bool(r.Once(&seen, 1), &p.B)
		case "s":
			Text(r.Once(&seen, 2), &p.S)
		case "f":
			Float(r.Once(&seen, 3), &p.F)
		case "pair":
			Array(r.Once(&seen, 4), p.Pair[:], Text[string])
		case "raw":
			Raw(r.Once(&seen, 5), &p.Raw)
		default:
			passOver(r)
		}
	}
}

func TestWhatDoesNotFitIsNamed(t *testing.T) {
	for in, want := range map[string]string{
		`{"n":128}`:                           `n: want a whole number in range, have 128`,
		`{"n":1.0}`:                           `n: want a whole number in range, have 1.0`,
		`{"n":"1"}`:                           `n: want a number, have '"' at byte 5`,
		`{"n":1,"x":{},"n":1}`:                `n: comes twice`,
		`{"b":1}`:                             `b: want true or false, have '1' at byte 5`,
		`{"s":1}`:                             `s: want a string, have '1' at byte 5`,
		`{"f":1e999}`:                         `f: want a number in range, have 1e999`,
		`{"pair":{}}`:                         `pair: want a list, have '{' at byte 8`,
		`[]`:                                  `want an object, have '[' at byte 0`,
		`{"n":1`:                              `n: the JSON ends early`,
		`{"n"`:                                `n: the JSON ends early, want a colon`,
		`{"n":1}x`:                            `more than one JSON value`,
		`{"raw":` + strings.Repeat("[", 1000): `raw: nested deeper than 100`,
		``:                                    `the JSON ends early, want an object`,
	} {
		if err := Decode([]byte(in), &place{}); err == nil || err.Error() != want {
			t.Errorf("%.40s: %v, want %s", in, err, want)
		}
	}
}

func TestWhatIsAbsentStays(t *testing.T) {
	p := place{N: 1, B: true, S: "s", F: 0.5, Pair: [2]string{"a", "b"}}
	want := p
	want.Raw = json.RawMessage("null")
	err := Decode([]byte(`{"n":null,"b":null,"s":null,"f":null,"pair":null,"raw":null,"N":7}`), &p)
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, %v", p, err)
	}
	if err := Decode([]byte(`{"pair":["x"],"b":false}`), &p); err != nil || p.B ||
		p.Pair != [2]string{"x"} {
		t.Errorf("%+v, %v", p, err)
	}
	if err := Decode([]byte(`{"pair":["x","y",["z"]]}`), &p); err != nil ||
		p.Pair != [2]string{"x", "y"} {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWhatIsNoJSONIsNotWritten(t *testing.T) {
	for name, write := range map[string]func(w *Writer){
		"NaN":      func(w *Writer) { w.Float(math.NaN()) },
		"infinity": func(w *Writer) { w.Float(math.Inf(-1)) },
		"half":     func(w *Writer) { w.Checked([]byte(`{"a":`)) },
		"two":      func(w *Writer) { w.Checked([]byte(`1 2`)) },
	} {
		var w Writer
		if write(&w); w.wrong == "" {
			t.Errorf("%s is written as %s", name, w.b)
		}
		if b, err := w.Bytes(); err == nil {
			t.Errorf("%s: %s", name, b)
		}
	}
}
