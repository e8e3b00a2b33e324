package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// FuzzParseList compares a list with its requests alone: it is read exactly if there are 1 to
// MaxMany, each is read alone, and no two are copied to one place; then it is these requests.
func FuzzParseList(f *testing.F) {
	a, b := `{"node":"n","path":"/a","local":"a"}`, `{"node":"n","path":"/b","local":"b"}`
	for _, s := range []string{`[]`, `[` + a + `]`, "\n[" + a + `,` + b + `]`,
		`[` + a + `,` + a + `]`,
		`[` + a + `,null]`, `[` + a + `,[]]`, `[` + a + `,{"node":"n","node":"n"}]`, `[` + a + `] `,
		`[` + a + `,` + b, `[` + a + `]` + b, a, `[{"local":"\u0061"},{"local":"a"}]`,
		`[{"Local":""}]`} {
		f.Add("sftp_get", []byte(s))
		f.Add("sftp_put", []byte(s))
	}
	f.Fuzz(func(t *testing.T, name string, request []byte) {
		got, err := ParseList(name, request)
		wrong := (*RequestError)(nil)
		if err != nil && (!errors.As(err, &wrong) || wrong.Message == "" || got != nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if err == nil && !IsList(request) {
			t.Fatalf("%q is no list", request)
		}
		var all []json.RawMessage
		want := []Op{}
		entry, _ := Lookup(name)
		ok := entry.Many() && len(request) <= MaxRequest && json.Unmarshal(request, &all) == nil &&
			len(all) > 0 && len(all) <= MaxMany
		places := map[string]bool{}
		for _, one := range all {
			op, err := ParseOp(name, one)
			place := ""
			switch op := op.(type) {
			case SFTPGet:
				place = op.Local
			case SFTPPut:
				place = fmt.Sprintf("%q %q", op.Node, op.Path)
			}
			ok = ok && (err != nil || !places[place])
			places[place] = true
			ok = ok && err == nil
			want = append(want, op)
		}
		if (err == nil) != ok || ok && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v, want %v, %v", request, got, err, want, ok)
		}
	})
}

// Operations of which a list may be asked copy files. A list stops where one changes the node.
func TestOnlyCopiesAreListed(t *testing.T) {
	for _, name := range Operations() {
		entry, _ := Lookup(name)
		if put := name == "sftp_put"; entry.Many() != (put || name == "sftp_get") ||
			entry.Stops() != put {
			t.Errorf("%s: %v, %v", name, entry.Many(), entry.Stops())
		}
	}
	if (Operation{}).Many() {
		t.Error("no operation is listed")
	}
}
