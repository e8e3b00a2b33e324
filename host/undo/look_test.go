package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// said is a node that answers commands with these texts, behind a door that allows everything.
type said struct {
	gate.Runner
	answers map[string]string
	exit    int // of "pct snapshot"
	sent    []string
}

func (n *said) Decide(context.Context, terms.Question) (terms.Decision, error) {
	return terms.Decision{Allow: true, Tier: terms.Yellow}, nil
}
func (n *said) Intent(context.Context, terms.Record, bool) error { return nil }
func (n *said) Outcome(context.Context, terms.Record) error      { return nil }
func (n *said) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}
func (n *said) End(context.Context, *terms.Call) {}
func (n *said) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{}, nil
}

func (n *said) Execute(
	_ context.Context,
	q terms.Question,
	_ terms.Decision,
) (terms.Result, error) {
	argv := q.Op.(abi.SSHExec).Argv
	n.sent = append(n.sent, strings.Join(argv, " "))
	if argv[0] == "pct" {
		return terms.Result{Value: abi.ExecResponse{Exit: n.exit, Stderr: "out of space"}}, nil
	}
	for what, text := range n.answers {
		if strings.Contains(strings.Join(argv[:3], " "), what) {
			return terms.Result{Value: abi.ExecResponse{Stdout: text}}, nil
		}
	}
	return terms.Result{Value: abi.ExecResponse{Exit: 1}}, nil
}

// keeper returns a Keeper over a node whose calls go through a door to this one.
func (n *said) keeper(book *node) *Keeper {
	r := native.New(n.Runner, "1", Tools...)
	door := gate.New(gate.Options{Decider: n, Journal: n, Ledger: n, Lowerer: shell.Lowerer{},
		Throttle: &fair.Refusals{}, Nodes: []terms.Node{{Name: "pve1", Cluster: "lab"}},
		Executors: map[string]terms.Executor{"ssh_exec": n},
		Mode:      func(context.Context) terms.Mode { return terms.Mode{} }}, r)
	k := book.open()
	k.Call = func(ctx context.Context, tool string, args any) terms.Answer {
		return r.Call(ctx, door, tool, args)
	}
	return k
}

// field is one that a look reads, in the answer to what.
type field struct{ what, name string }

// object returns a JSON object with these members, of which one is replaced by text: "" leaves it
// out.
func object(members []string, name, text string) string {
	var all []string
	for i := 0; i < len(members); i += 2 {
		one := fmt.Sprintf("%q:%s", members[i], members[i+1])
		if members[i] == name {
			one = text
		}
		if one != "" {
			all = append(all, one)
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

var good = map[string][]string{
	"/nodes/pve1/lxc/105/status": {"status", `"running"`, "cpu", "0.0000123", "pid", "null", "ha",
		`{"managed":0}`},
	"/nodes/pve1/lxc/105/config":  {"digest", `"aa"`, "memory", "2097152", "net0", `"name=eth0"`},
	"/nodes/pve1/qemu/200/status": {"status", `"running"`, "qmpstatus", `"paused"`},
	"/nodes/pve1/qemu/200/config": {"digest", `"bb"`, "cores", `"2"`},
}

func answering(in field, text string) *said {
	n := &said{answers: map[string]string{
		"/cluster/resources": `[{"id":"lxc/105","type":"lxc","node":"pve1","vmid":105,` +
			`"status":"running"},` +
			`{"id":"qemu/200","type":"qemu","node":"pve1","vmid":200,"status":"running"}]`,
		"systemctl show": "ActiveState=active\nUnitFileState=enabled\n"}}
	for what, members := range good {
		name := ""
		if what == in.what {
			name = in.name
		}
		n.answers[what] = object(members, name, text)
	}
	return n
}

// Each field that the look before an operation reads is left out, null, empty, of another type, and
// there twice: then the operation is not sent.
func TestALookThatIsNotWholeStopsTheOperation(t *testing.T) {
	lxc, vm := ran("pct", "stop", "105"), ran("qm", "stop", "200")
	do := func(n *said, q terms.Question) (sent int, err error) {
		book := &node{}
		_, err = n.keeper(book).Execute(t.Context(), q, recording(false))
		return len(book.events), err
	}
	for _, q := range []terms.Question{lxc, vm, ran("systemctl", "stop", "cron")} {
		if sent, err := do(answering(field{}, ""), q); sent != 1 || err != nil {
			t.Fatalf("%v with good answers: sent %d, %v", q.Op, sent, err)
		}
	}
	for _, c := range []struct {
		q terms.Question
		field
	}{
		{lxc, field{"/nodes/pve1/lxc/105/status", "status"}},
		{lxc, field{"/nodes/pve1/lxc/105/config", "digest"}},
		{vm, field{"/nodes/pve1/qemu/200/status", "status"}},
		{vm, field{"/nodes/pve1/qemu/200/status", "qmpstatus"}},
		{vm, field{"/nodes/pve1/qemu/200/config", "digest"}},
	} {
		key := fmt.Sprintf("%q:", c.name)
		for _, text := range []string{"", key + "null", key + `""`, key + "1", key + "[]", key +
			"{}", key + "true",
			key + `["a"]`, key + `"a",` + key + `"a"`, key + `"a",` + key + `"b"`, key + `"a",` +
				key + "null",
			strings.ToUpper(key) + `"a"`} {
			if sent, err := do(answering(c.field, text), c.q); sent != 0 || err == nil ||
				!strings.Contains(err.Error(), "no_undo") {
				t.Errorf("%s of %s is %q: sent %d, %v", c.name, c.what, text, sent, err)
			}
		}
	}
	for what := range good {
		q := map[bool]terms.Question{true: lxc, false: vm}[strings.Contains(what, "lxc")]
		for _, text := range []string{"", "null", "[]", `"running"`, "{}", "[{}]",
			`{"status":"running"`} {
			n := answering(field{}, "")
			if n.answers[what] = text; text == "" {
				delete(n.answers, what)
			}
			if sent, err := do(n, q); sent != 0 || err == nil {
				t.Errorf("%s is answered with %q: sent %d, %v", what, text, sent, err)
			}
		}
	}
	for _, text := range []string{"", "\n", "ActiveState=active\n", "UnitFileState=enabled\n",
		"ActiveState=\nUnitFileState=enabled\n",
		"ActiveState=active\nActiveState=inactive\nUnitFileState=enabled\n",
		"ActiveState=active\nUnitFileState=enabled\nUnitFileState=disabled\n",
		"ActiveState=active\nUnitFileState=enabled disabled\n",
		"ActiveState=active UnitFileState=enabled\n", "null", "ActiveState=active\nUnitFileState"} {
		n := answering(field{}, "")
		n.answers["systemctl show"] = text
		if sent, err := do(n, ran("systemctl", "stop", "cron")); sent != 0 || err == nil ||
			!strings.Contains(err.Error(), "no_undo") {
			t.Errorf("the unit is %q: sent %d, %v", text, sent, err)
		}
	}
}

// A value before is set back as it was written, and one that the node does not tell stops the set.
func TestValuesThatAreSetBackAreThoseOfTheNode(t *testing.T) {
	set := ran("pct", "set", "105", "--memory", "512")
	for text, want := range map[string]string{
		`"memory":2097152`:               "pct set 105 --memory 2097152",
		`"memory":"2097152"`:             "pct set 105 --memory 2097152",
		"":                               "pct set 105 --delete memory",
		`"memory":null`:                  "",
		`"memory":512,"memory":1024`:     "",
		`"memory":[512]`:                 "",
		`"memory":{}`:                    "",
		`"other":1,"other":2,"memory":1`: "",
	} {
		book := &node{}
		_, err := answering(field{"/nodes/pve1/lxc/105/config", "memory"},
			text).keeper(book).Execute(
			t.Context(), set, recording(false))
		if want == "" && (err == nil || len(book.events) > 0) {
			t.Errorf("%s: sent %q, to be taken back with %q", text, book.events,
				book.steps[1].Back.Argv)
		}
		if got := strings.Join(book.steps[1].Back.Argv, " "); want != "" &&
			(got != want || err != nil) {
			t.Errorf("%s: %q %v, want %q", text, got, err, want)
		}
	}
}

// The record of a snapshot stays unless the node's list shows that it is not there.
func TestTheRecordOfASnapshotStaysUntilItIsCertainThatThereIsNone(t *testing.T) {
	const current = `[{"name":"current"}]`
	there := fmt.Sprintf(`[{"name":"caponier-%s"},{"name":"current"}]`, strings.ToLower(call))
	for claim, c := range map[string]struct {
		list string
		exit int
		kept bool
	}{
		"the storage refuses, and none is there":          {current, 255, false},
		"the storage refuses, and one is there":           {there, 255, true},
		"the storage refuses, and the node lists nothing": {"[]", 255, true},
		"the storage refuses, and the node answers null":  {"null", 255, true},
		"the storage refuses, and the list does not come": {"", 255, true},
		"it is reported as made, and none is there":       {current, 0, false},
		"it is reported as made, and nothing is listed":   {"[]", 0, true},
		"it is reported as made, and the list is odd":     {`{"a":1}`, 0, true},
	} {
		t.Run(claim, func(t *testing.T) {
			n := answering(field{}, "")
			n.answers["/105/feature"] = `{"hasFeature":1}`
			if n.answers["/105/snapshot"] = c.list; c.list == "" {
				delete(n.answers, "/105/snapshot")
			}
			n.exit = c.exit
			book := &node{}
			k := n.keeper(book)
			q := ran("pct", "stop", "105")
			_, err := k.Execute(t.Context(), q, first(false, "105"))
			if err == nil || !strings.Contains(err.Error(), "no_snapshot") ||
				len(book.events) == 0 ||
				book.events[len(book.events)-1] == "execute" {
				t.Errorf("%v, %q", err, book.events)
			}
			if kept := len(book.book) == 1; kept != c.kept || kept && book.book[0].Taken {
				text, _ := json.Marshal(book.book)
				t.Errorf("recorded %s, %v", text, err)
			}
		})
	}
}

func TestNoSnapshotIsTakenOfAGuestOfWhichTheClusterSaysNothingSure(t *testing.T) {
	for odd, sent := range map[string]bool{"": true, `,"tags":"a=b"`: false} {
		n := answering(field{}, "")
		n.answers["/cluster/resources"] = strings.Replace(n.answers["/cluster/resources"],
			`"status":"running"`, `"status":"running"`+odd, 1)
		n.answers["/105/feature"] = `{"hasFeature":1}`
		n.answers["/105/snapshot"] = fmt.Sprintf(`[{"name":"caponier-%s"},{"name":"current"}]`,
			strings.ToLower(call))
		_, err := n.keeper(&node{}).Execute(t.Context(), ran("pct", "stop", "105"),
			first(false, "105"))
		if got := strings.Contains(strings.Join(n.sent, "\n"), "pct snapshot"); got != sent ||
			!sent && !strings.Contains(err.Error(), "not known to be so") {
			t.Errorf("%q: sent %q, %v", odd, n.sent, err)
		}
	}
}
