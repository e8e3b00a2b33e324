package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// deniedQuestions are refused by the lab's site, each for another check.
func deniedQuestions(t testing.TB) map[string]terms.Question {
	call := func(change func(*terms.Question)) terms.Question {
		q := statusCall()
		change(&q)
		return q
	}
	op := func(kinds []string, op abi.Op, change func(*terms.Question)) terms.Question {
		q := statusCall()
		q.Kind, q.Op, q.Facts = terms.KindOperation, op, terms.Facts{}
		q.Call.Tool.Imports, q.Call.Tool.TargetKinds = abi.Operations(), kinds
		q.Call.Targets.GuestPaths, q.Call.Targets.LocalPaths, q.Call.Targets.Hosts = []string{
			"/root/x",
		}, []string{
			"in/x",
		}, []string{
			"api.example.com",
		}
		q.Call.Stages = []terms.StageDir{{Node: "pve1", Dir: "/run/caponier/s1"}}
		q.Call.Decided = terms.Decision{Allow: true, Tier: terms.Yellow}
		if op.NodeName() != "" {
			q.Node = &q.Call.Nodes[0]
		}
		if e, ok := op.(abi.SSHExec); ok {
			cmd := shell.Lowerer{}.Argv(e.Argv)
			q.Cmd = &cmd
		}
		if change != nil {
			change(&q)
		}
		return q
	}
	on := abi.OnNode{Node: "pve1"}
	exec := func(argv ...string) abi.Op { return abi.SSHExec{OnNode: on, Argv: argv} }
	file := func(f terms.FileFacts) func(*terms.Question) {
		return func(q *terms.Question) { q.Facts.File = &f }
	}
	return map[string]terms.Question{
		"protected": call(func(q *terms.Question) { q.Call.Targets.VMIDs = []string{"103"} }),
		"black":     call(func(q *terms.Question) { q.Call.Tool.Name = "reboot_node" }),
		"confirmation": call(
			func(q *terms.Question) {
				q.Call.Tool.Name, q.Call.Targets.VMIDs = "delete_guest",
					[]string{"102"}
			},
		),
		"frozen": call(func(q *terms.Question) { q.Mode.Freezes = []terms.Freeze{{Kind: "all"}} }),
		"read-only": call(
			func(q *terms.Question) { q.Mode.ReadOnly, q.Call.Tool.Name = true, "create_snapshot" },
		),
		"principal": call(func(q *terms.Question) { q.Call.Principal.ID = "eve" }),
		"auth":      call(func(q *terms.Question) { q.Call.Principal.Auth = "oidc" }),
		"roles": call(
			func(q *terms.Question) { q.Call.Principal.Roles = []string{"nobody"} },
		),
		"tool": call(func(q *terms.Question) { q.Call.Tool.Name = "new_tool" }),
		"imports": call(
			func(q *terms.Question) { q.Call.Tool.Imports = []string{"http_request"} },
		),
		"empty target": call(func(q *terms.Question) { q.Call.Targets.VMIDs = nil }),
		"rate":         call(func(q *terms.Question) { q.Facts.Counts.Calls60s = 1000 }),
		"target rate":  call(func(q *terms.Question) { q.Facts.Counts.TargetCalls60s = 1000 }),
		"budget":       call(func(q *terms.Question) { q.Facts.Counts.USDMicrosToday = 1000 }),
		"arguments":    call(func(q *terms.Question) { q.Call.Args.JSON = make([]byte, 2<<20) }),
		"path": call(
			func(q *terms.Question) { q.Call.Targets.Paths = []string{"/root/x"} },
		),
		"host": call(
			func(q *terms.Question) { q.Call.Targets.Hosts = []string{"evil.com"} },
		),
		"command":    func() terms.Question { c, _ := sshCall("rm -rf /"); return c }(),
		"not parsed": func() terms.Question { c, _ := sshCall("echo $(id)"); return c }(),
		"declared":   op([]string{"vmids"}, exec("pct", "reboot", "101"), nil),
		"other text": func() terms.Question {
			_, q := sshCall("uptime")
			c, _ := sshCall("df -h")
			q.Call.Commands, q.Call.Decided = c.Call.Commands, terms.Decision{
				Allow: true,
				Tier:  terms.Yellow,
			}
			return q
		}(),
		"bound":        op([]string{"vmids"}, exec("pct", "stop", "104"), nil),
		"op protected": op([]string{"vmids"}, exec("pct", "status", "103"), nil),
		"op command":   op([]string{"vmids"}, exec("rm", "-rf", "/"), nil),
		"op tier": op(
			[]string{"vmids"},
			exec("pct", "stop", "101"),
			func(q *terms.Question) { q.Call.Decided.Tier = terms.Green },
		),
		"op import": op(
			[]string{"vmids"},
			exec("pct", "status", "101"),
			func(q *terms.Question) { q.Call.Tool.Imports = []string{"stage"} },
		),
		"op stdin": op(
			[]string{"vmids"},
			abi.SSHExec{OnNode: on, Argv: []string{"uptime"}, Stdin: "x"},
			nil,
		),
		"op guest": op(
			[]string{"vmids"},
			exec(
				"pct",
				"exec",
				"101",
				"--keep-env",
				"0",
				"--",
				"timeout",
				"-k",
				"2",
				"9",
				"sh",
				"-c",
				"id",
			),
			nil,
		),
		"op push": op(
			[]string{"vmids"},
			exec("pct", "push", "101", "--", "/etc/passwd", "/root/x"),
			nil,
		),
		"op cluster": op(
			[]string{"vmids"},
			exec("pct", "stop", "101"),
			func(q *terms.Question) {
				q.Node = &terms.Node{Name: "far", Cluster: "other",
					Host: "10.0.0.9"}
			},
		),
		"file place": op(
			[]string{"vmids"},
			abi.SFTPPut{OnNode: on, Local: "in/x", Path: "/etc/cron.d/x"},
			file(terms.FileFacts{RealPath: "/etc/cron.d/x", LocalBytes: 5}),
		),
		"file local": op(
			[]string{"vmids"},
			abi.SFTPPut{OnNode: on, Local: "in/y", Path: "/run/caponier/s1/f"},
			file(terms.FileFacts{RealPath: "/run/caponier/s1/f", LocalBytes: 5}),
		),
		"file real": op(
			[]string{"vmids"},
			abi.SFTPRead{OnNode: on, Path: "/var/log/x"},
			file(terms.FileFacts{RealPath: "/etc/shadow", Exists: true, Type: "file", Bytes: 5}),
		),
		"file size": op(
			[]string{"vmids"},
			abi.SFTPGet{OnNode: on, Local: "in/x", Path: "/run/caponier/s1/f"},
			file(
				terms.FileFacts{
					RealPath: "/run/caponier/s1/f",
					Exists:   true,
					Type:     "file",
					Bytes:    1 << 40,
				},
			),
		),
		"file exists": op(
			[]string{"vmids"},
			abi.SFTPPut{OnNode: on, Local: "in/x", Path: "/run/caponier/s1/f"},
			file(
				terms.FileFacts{
					RealPath:   "/run/caponier/s1/f",
					Exists:     true,
					Type:       "file",
					LocalBytes: 5,
				},
			),
		),
		"file kind": op(
			[]string{"vmids"},
			abi.SFTPRead{OnNode: on, Path: "/var/log/x"},
			file(terms.FileFacts{RealPath: "/var/log/x", Exists: true, Type: "fifo"}),
		),
		"no facts": op([]string{"vmids"}, abi.SFTPRead{OnNode: on, Path: "/var/log/x"}, nil),
		"egress": op(
			[]string{"hosts"},
			abi.HTTPRequest{Method: "GET", URL: "https://api.example.com/"},
			func(q *terms.Question) {
				q.Facts.Addrs = []terms.Addr{{IP: "1.2.3.4",
					Class: "global"}}
			},
		),
		"blob": op(
			nil,
			abi.BlobWrite{Data: abi.Data{Text: strings.Repeat("x", 11<<20)}},
			nil,
		),
		"ask": op(nil, abi.Ask{Key: "k", Message: strings.Repeat("x", 9000)}, nil),
	}
}

var odd = []any{
	nil,
	"",
	" ",
	"0",
	"1",
	"9",
	"-1",
	"null",
	"true",
	"*",
	"green",
	"yellow",
	"approved",
	"/",
	"101",
	"pve1",
	"demo",
	int64(0),
	int64(1),
	int64(-1),
	int64(1 << 40),
	0.5,
	true,
	false,
	[]any{},
	[]any{nil},
	[]any{""},
	[]any{"101"},
	[]any{"operator"},
	map[string]any{},
	map[string]any{"a": "b"},
	map[string]any{"101": "101"},
}

// mutants calls f with the document changed in one place: a value deleted, or replaced by one of
// another type.
func mutants(doc any, f func(where string)) {
	var walk func(at string, v any, set func(any), remove func())
	walk = func(at string, v any, set func(any), remove func()) {
		if remove != nil {
			remove()
			f(at + " deleted")
			set(v)
		}
		for _, o := range odd {
			if set != nil && kindOf(o) != kindOf(v) {
				set(o)
				f(fmt.Sprintf("%s = %v", at, o))
				set(v)
			}
		}
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(at+"/"+k, v[k], func(x any) { v[k] = x }, func() { delete(v, k) })
			}
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s/%d", at, i), v[i], func(x any) { v[i] = x }, nil)
			}
		}
	}
	walk("", doc, nil, nil)
}

func kindOf(v any) string {
	switch v.(type) {
	case int64, float64, int:
		return "number"
	}
	return fmt.Sprintf("%T", v)
}

// TestNoMutilatedInputIsAllowed asks the rules alone, without the decoder that would refuse nearly
// all of these, and the decoder too.
func TestNoMutilatedInputIsAllowed(t *testing.T) {
	e, r := site(t, lab), rulesOf(t, lab)
	n, decoded := 0, 0
	for name, q := range deniedQuestions(t) {
		d, err := e.Decide(context.Background(), q)
		if err != nil || d.Allow {
			t.Fatalf("%s is not refused: %+v %v", name, d, err)
		}
		in := jsonOf(&q)
		doc, err := abi.Decode(in, input.Max)
		if err != nil {
			t.Fatal(err)
		}
		mutants(doc, func(where string) {
			if n++; !*allMutants && n%stride != 0 {
				return
			}
			v, err := ast.InterfaceToValue(doc)
			if err != nil {
				t.Fatal(err)
			}
			if a, err := r.Answer(context.Background(), v); err == nil && a.Allow {
				t.Errorf("%s: %s is allowed by the rules", name, where)
			}
			text, _ := json.Marshal(doc)
			if d, err := input.Parse(text); err == nil {
				decoded++
				v, err := r.Input(context.Background(), d)
				if err != nil {
					t.Fatal(err)
				}
				if a, err := r.Answer(context.Background(), v); err == nil && a.Allow {
					t.Errorf("%s: %s is allowed through the decoder", name, where)
				}
			}
		})
	}
	t.Logf("%d mutants, %d of which the decoder took", n, decoded)
}

// All 73,000 take minutes; without -all-mutants every 37th is asked, spread over all places and
// values.
var allMutants = flag.Bool("all-mutants", false, "ask every mutilated input, which takes minutes")

const stride = 37

func TestNonCanonicalTargetsAreRefused(t *testing.T) {
	e := site(t, lab)
	for _, x := range []string{"0101", " 101", "101 ", "101\n", "1.01e2", "101.0", "+101", "1_01",
		"１０１", "0x65", "", "1", "99", "1000000000", "101,102", "*"} {
		q := statusCall()
		q.Call.Targets.VMIDs = []string{x}
		if d := decide(t, e, q); d.Allow || !slices.Contains(d.Failed, "target") {
			t.Errorf("vmid %q: %v", x, d.Failed)
		}
	}
	for _, x := range []string{"-pve1", "pve1.", "pve_1", "pve1 ", "", "pve1.lab", "pve1/..",
		"pvé"} {
		q := statusCall()
		q.Call.Targets.Nodes = []string{x}
		if d := decide(t, e, q); d.Allow || !slices.Contains(d.Failed, "target") {
			t.Errorf("node %q: %v", x, d.Failed)
		}
	}
	for _, x := range []string{"/a/../b", "a", "/a//b", "/a/", "/a/./b", "", "/a\x00b"} {
		q := statusCall()
		q.Call.Targets.Paths = []string{x}
		if d := decide(t, e, q); d.Allow || !slices.Contains(d.Failed, "target") {
			t.Errorf("path %q: %v", x, d.Failed)
		}
	}
}

// TestMoreIsNeverMoreAllowed adds targets, words, addresses and features to what is refused.
func TestMoreIsNeverMoreAllowed(t *testing.T) {
	e := site(t, lab)
	more := map[string]func(*terms.Question){
		"vmid": func(q *terms.Question) {
			q.Call.Targets.VMIDs = append(slices.Clone(q.Call.Targets.VMIDs), "105")
		},
		"node": func(q *terms.Question) {
			q.Call.Targets.Nodes = append(slices.Clone(q.Call.Targets.Nodes), "pve2")
		},
		"service": func(q *terms.Question) {
			q.Call.Targets.Services = append(slices.Clone(q.Call.Targets.Services), "nginx.service")
		},
		"path": func(q *terms.Question) {
			q.Call.Targets.Paths = append(slices.Clone(q.Call.Targets.Paths), "/var/log/x")
		},
		"command": func(q *terms.Question) {
			for _, c := range []*terms.Command{q.Cmd} {
				if c != nil {
					x := *c
					x.Calls = append(
						slices.Clone(x.Calls),
						terms.Simple{Argv: []string{"uptime"}, Static: true},
					)
					q.Cmd = &x
				}
			}
		},
		"feature": func(q *terms.Question) {
			if q.Cmd != nil {
				x := *q.Cmd
				x.Features = append(slices.Clone(x.Features), "pipe")
				q.Cmd = &x
			}
		},
		"address": func(q *terms.Question) {
			q.Facts.Addrs = append(
				slices.Clone(q.Facts.Addrs),
				terms.Addr{IP: "93.184.216.34", Class: "global"},
			)
		},
	}
	for name, q := range deniedQuestions(t) {
		for what, change := range more {
			call := *q.Call
			x := q
			x.Call = &call
			// a call's targets count only where the declared kinds are filled already; an
			// operation's parent is fixed
			filled := true
			if q.Kind == terms.KindCall {
				filled = name != "empty target"
			} else if what == "vmid" || what == "node" || what == "service" || what == "path" {
				continue
			}
			change(&x)
			if d := decide(t, e, x); filled && d.Allow {
				t.Errorf("%s is allowed with one more %s", name, what)
			}
		}
	}
	for _, line := range lines(t, "testdata/hostile.txt") {
		_, rest, _ := strings.Cut(line, ": ")
		_, op := sshCall(rest[splitReason(rest)+2:])
		op.Call.Decided = terms.Decision{Allow: true, Tier: terms.Red}
		for _, what := range []string{"command", "feature"} {
			x := op
			more[what](&x)
			if d := decide(t, e, x); d.Allow {
				t.Errorf("%s is allowed with one more %s", line, what)
			}
		}
	}
}

// FuzzParse holds the reader of documents to a round trip: what it takes it gives back, in
// canonical form.
func FuzzParse(f *testing.F) {
	r := rulesOf(f, lab)
	for _, q := range deniedQuestions(f) {
		if in := jsonOf(&q); len(in) < 10_000 {
			f.Add([]byte(in))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := input.Parse(data)
		if err != nil {
			return
		}
		if _, err := r.Input(context.Background(), d); err != nil {
			t.Fatal(err)
		}
		given, err := abi.Decode(data, input.Max)
		if err != nil {
			t.Fatal(err)
		}
		again, err := abi.Decode(value.JSON(d, nil, nil), input.Max)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range []any{given, again} { // the roles are the policy's
			doc.(map[string]any)["principal"].(map[string]any)["roles"] = nil
		}
		a, _ := abi.Encode(given)
		b, _ := abi.Encode(again)
		if !bytes.Equal(a, b) {
			t.Fatalf("given %s\nunderstood %s", a, b)
		}
	})
}
