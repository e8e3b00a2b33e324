package pve

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const guest = `{"vmid":101,"type":"lxc","node":"pve1"}`

func TestAnswersThatNoWorkingNodeGivesAreErrors(t *testing.T) {
	for answer, why := range map[string]string{
		`null`:                                   "it is null",
		``:                                       "cut short",
		`[`:                                      "EOF",
		`[]x`:                                    "more than one",
		`[] []`:                                  "more than one",
		`{}`:                                     "not a list",
		`"x"`:                                    "not a list",
		`[null]`:                                 "entry 0 is not an object",
		`[{}]`:                                   "entry 0 has no type",
		`[{"vmid":101,"type":null}]`:             "entry 0 has no type",
		`[` + guest + `,1]`:                      "entry 1 is not an object",
		`[{"vmid":101,"vmid":103,"type":"lxc"}]`: `the key "vmid" stands twice`,
		`[{"vmid":101,"VMID":103,"type":"lxc"}]`: `the key "VMID" stands twice`,
		`[{"vmid":101.7,"type":"lxc","node":"n"}]`:                       "not an integer",
		`[{"vmid":1e308,"type":"lxc","node":"n"}]`:                       "not an integer",
		`[{"vmid":18446744073709551717,"type":"lxc","node":"n"}]`:        "not an integer",
		`[{"type":"lxc","node":"n"}]`:                                    "0 is not a VMID",
		`[{"vmid":"101","type":"lxc"}]`:                                  "on no node",
		`[{"vmid":101,"type":"vz","node":"n"}]`:                          `unknown type "vz"`,
		`[` + guest + `,` + strings.Replace(guest, "pve1", "p", 1) + `]`: "listed twice",
		`[` + strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100) + `]`:  "too deep",
	} {
		var all []Guest
		err := decode([]byte(answer), &all)
		if err == nil {
			err = checkGuests(all)
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.60s: %v; want an error with %q", answer, err, why)
		}
	}
}

// What decode accepts it reads exactly as encoding/json does.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`[]`, `[` + guest + `]`, `[{"type":"lxc","a":{"b":[1]}}]`,
		`[null]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		var ours, theirs []Guest
		if decode([]byte(answer), &ours) != nil {
			return
		}
		if err := json.Unmarshal([]byte(answer), &theirs); err != nil || !reflect.DeepEqual(ours,
			theirs) {
			t.Errorf("%q: %v, encoding/json reads %v, %v", answer, ours, theirs, err)
		}
	})
}

func TestAKeyWithTwoValuesHasNoValue(t *testing.T) {
	m := KeyValues("status: running\nstatus: stopped\nname: a\nname: a\n")
	if _, has := m["status"]; has || m["name"] != "a" {
		t.Errorf("%v", m)
	}
}
