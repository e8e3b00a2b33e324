package abi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDecodeRefusesWhatAnotherReaderCouldReadDifferently(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	for name, tt := range map[string]struct{ in, why string }{
		"duplicate key":         {`{"vmid":103,"vmid":101}`, `key "vmid" repeats "vmid"`},
		"case-variant key":      {`{"vmid":101,"VMID":103}`, `key "VMID" repeats "vmid"`},
		"Kelvin sign for k":     {`{"k":1,"K":2}`, `repeats "k"`},
		"long s for s":          {`{"s":1,"ſ":2}`, `repeats "s"`},
		"duplicate key below":   {`{"a":[{"b":1,"b":2}]}`, `/a/0: key "b" repeats`},
		"escaped duplicate key": {`{"vmid":101,"\u0076mid":103}`, `key "vmid" repeats`},
		"float for an integer": {`{"vmid":103.0}`, `/vmid: number 103.0 is not in its ` +
			`plain form`},
		"exponent": {`{"vmid":1.03e2}`, `not in its plain form`},
		"float that rounds to integer": {`{"vmid":103.00000000000000000001}`,
			`not in its plain form`},
		"negative zero":             {`{"vmid":-0}`, `not in its plain form`},
		"beyond what doubles hold":  {`{"vmid":9007199254740993}`, `not in its plain form`},
		"fraction too near to zero": {`{"t":0.0000001}`, `not in its plain form`},
		"fraction with idle zero":   {`{"t":0.70}`, `not in its plain form`},
		"leading zero":              {`{"vmid":0103}`, `invalid character`},
		"plus sign":                 {`{"vmid":+103}`, `invalid character`},
		"NUL in a string":           {`{"c":"a\u0000b"}`, `/c: has a NUL character`},
		"NUL in a key":              {`{"c\u0000":1}`, `has a NUL character`},
		"too deep":                  {deep, `nested deeper than 32`},
		"two values":                {`{} {}`, `more after its first value`},
		"invalid UTF-8":             {"{\"a\":\"\xff\"}", `not valid UTF-8`},
		"too large": {`{"a":"` + strings.Repeat("x", 2000) + `"}`,
			`over the limit`},
		"truncated":        {`{"a":`, `EOF`},
		"truncated object": {`{"a":1`, `EOF`},
		"nothing":          {``, `EOF`},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := Decode([]byte(tt.in), 1000)
			if err == nil || !strings.Contains(err.Error(), tt.why) {
				t.Fatalf("Decode = %v, %v; want an error with %q", v, err, tt.why)
			}
		})
	}
}

// TestDecodeTakesTimeWithTheSizeAlone: one long key over many values took two minutes, in a request
// that any plugin may make.
func TestDecodeTakesTimeWithTheSizeAlone(t *testing.T) {
	deep := strings.Repeat(`{"`+strings.Repeat("k", 10_000)+`":[`, 15) + strings.Repeat("1,",
		500_000) + "1" + strings.Repeat("]}", 15)
	for name, in := range map[string]string{"a long key": `{"` + strings.Repeat("k", 500_000) +
		`":[` + strings.Repeat("1,", 400_000) + `1]}`, "long keys": deep} {
		began := time.Now()
		if _, err := Decode([]byte(in), MaxRequest); err != nil {
			t.Errorf("%s: %.100s", name, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: %s for %d bytes", name, took, len(in))
		}
	}
	_, err := Decode([]byte(`{"a":[0,{"b":[true,1.50]}]}`), MaxRequest)
	if err == nil || !strings.HasPrefix(err.Error(), "/a/1/b/1: ") {
		t.Errorf("the place is not named: %v", err)
	}
}

func TestDecodeKeepsPlainValues(t *testing.T) {
	in := `{"b":true,"f":0.7,"i":103,"l":[1,"<&>",null],"n":-5,"o":{},"s":"ü"}`
	v, err := Decode([]byte(in), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if i := v.(map[string]any)["i"]; i != int64(103) {
		t.Errorf("i = %T %v, want int64 103", i, i)
	}
	if out, _ := Encode(v); string(out) != in {
		t.Errorf("Encode = %s, want %s", out, in)
	}
}

// The property: what Decode accepts, encoding/json reads the same way, and its canonical form
// decodes to the same value and encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[0.5,"x",null,{"c":false}]}`, `{"vmid":103.0}`, `"a"`,
		`[]`, `{"a":1,"A":2}`, `1e5`, `{"\u0061":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := Decode(in, 1<<16)
		if err != nil {
			return
		}
		canonical, err := Encode(v)
		if err != nil {
			t.Fatalf("Encode after Decode(%q): %v", in, err)
		}
		again, err := Decode(canonical, 1<<17)
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("Decode(%s) = %#v, %v; want %#v", canonical, again, err, v)
		}
		if twice, _ := Encode(again); !bytes.Equal(canonical, twice) {
			t.Fatalf("canonical form changes: %s then %s", canonical, twice)
		}
		var theirs, ours any
		if json.Unmarshal(in, &theirs) != nil || json.Unmarshal(canonical, &ours) != nil ||
			!reflect.DeepEqual(theirs, ours) {
			t.Fatalf("encoding/json reads %q as %v and our form %s as %v", in, theirs, canonical,
				ours)
		}
	})
}

// A request of 1.4 MB of words kept a processor busy for 0.2 s beyond its call's deadline.
func TestARequestHasABoundedNumberOfWords(t *testing.T) {
	words := func(n int) []byte {
		return []byte(`{"node":"pve1","argv":["true"` + strings.Repeat(`,"a"`, n-1) + `]}`)
	}
	if _, err := ParseOp("ssh_exec", words(MaxWords)); err != nil {
		t.Error(err)
	}
	for n, why := range map[int]string{
		MaxWords + 1: "argv: has more than 512 words", MaxElements + 1: "/argv: too many elements",
		350_000: "/argv: too many elements",
	} {
		if _, err := ParseOp("ssh_exec", words(n)); err == nil || !strings.Contains(err.Error(),
			why) {
			t.Errorf("%d words: %v, want %q", n, err, why)
		}
	}
}

// Policy reads every byte of a path, so that its length is bounded before policy is asked.
func TestPathsAreBounded(t *testing.T) {
	long := strings.Repeat("p", MaxPath+1)
	for name, request := range map[string]string{
		"sftp_stat": `{"node":"n","path":"P"}`, "sftp_list": `{"node":"n","path":"P"}`,
		"sftp_read": `{"node":"n","path":"P"}`, "sftp_write": `{"node":"n","path":"P"}`,
		"sftp_remove": `{"node":"n","path":"P"}`, "blob_read": `{"blob":"b","local":"P"}`,
		"sftp_get": `{"node":"n","path":"/a","local":"P"}`,
		"sftp_put": `{"node":"n","path":"P","local":"a"}`,
	} {
		for _, n := range []int{MaxPath, MaxPath + 1} {
			_, err := ParseOp(name, []byte(strings.Replace(request, "P", long[:n], 1)))
			if refused := err != nil; refused != (n > MaxPath) {
				t.Errorf("%s with a path of %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestParseOpIsStrict(t *testing.T) {
	for name, tt := range map[string]struct{ op, in, why string }{
		"unknown field": {"ssh_exec", `{"node":"pve1","argv":["true"],"host":"10.0.0.1"}`,
			"host"},
		"field in another case": {"ssh_exec", `{"node":"pve1","Argv":["true"]}`,
			"Argv: unknown field"},
		"unknown operation": {"ssh_raw", `{}`, "ssh_raw is not an operation"},
		"wrong type":        {"ssh_exec", `{"node":1,"argv":[]}`, "node"},
		"duplicate field":   {"ssh_exec", `{"node":"a","node":"b","argv":[]}`, "repeats"},
		"negative time": {"ssh_exec", `{"node":"a","argv":["x"],"timeout_ms":-1}`,
			"timeout_ms"},
		"list for an object": {"stage", `[]`, "not an object"},
		"host-only field of http": {"http_request", `{"method":"GET","url":"http://x/","Hop":3}`,
			"Hop: unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			op, err := ParseOp(tt.op, []byte(tt.in))
			if bad, ok := err.(*RequestError); !ok || !strings.Contains(bad.Error(), tt.why) {
				t.Fatalf("ParseOp = %v, %v; want a *RequestError with %q", op, err, tt.why)
			}
		})
	}
	op, err := ParseOp("ssh_exec",
		[]byte(`{"node":"pve1","argv":["echo","<a>"],"timeout_ms":5000}`))
	if want := (SSHExec{OnNode: OnNode{Common{5000}, "pve1"}, Argv: []string{"echo",
		"<a>"}}); err != nil ||
		!reflect.DeepEqual(op, want) {
		t.Fatalf("ParseOp = %#v, %v; want %#v", op, err, want)
	}
	if _, err := (Data{Text: "a", B64: "YQ=="}).Bytes(); err == nil {
		t.Error("text and b64 together are accepted")
	}
	if len(Operations()) != 17 {
		t.Errorf("Operations() = %v, want 17", Operations())
	}
}
