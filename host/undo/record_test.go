package undo

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/reverse"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// node is what a Keeper works with when calls are recorded: a node whose things have a state.
type node struct {
	world
	steps map[int]Step
	is    map[string]State // by kind and name
	fails error            // of an operation
	blind error            // of a look
	acts  func()           // what an operation does
}

func (n *node) Execute(context.Context, terms.Question, terms.Decision) (terms.Result, error) {
	n.events = append(n.events, "execute")
	if n.acts != nil {
		n.acts()
	}
	return terms.Result{}, n.fails
}
func (n *node) PutStep(_ context.Context, s Step) error { n.steps[s.N] = s; return n.broken }
func (n *node) Steps(context.Context, string) (all []Step, err error) {
	for _, i := range slices.Sorted(maps.Keys(n.steps)) { // one that was not done is missing
		all = append(all, n.steps[i])
	}
	return all, nil
}

func (n *node) open() *Keeper {
	n.steps = map[int]Step{}
	return &Keeper{Executor: n, Book: n, Now: func() time.Time { return time.UnixMilli(1e12) },
		Call: func(_ context.Context, _ string, args any) terms.Answer {
			m := args.(map[string]any)
			for _, kind := range []string{"guest", "unit", "file"} {
				if name, is := m[kind].(string); is {
					data, _ := json.Marshal(n.is[kind+":"+name])
					return terms.Answer{Err: n.blind, Output: terms.Output{JSON: data}}
				}
			}
			return terms.Answer{Err: errors.New("nothing to look at")}
		}}
}

func ran(argv ...string) terms.Question {
	q := stop("")
	q.Op = abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: argv}
	q.Cmd = &terms.Command{Lowered: terms.Lowered{Calls: []terms.Simple{{Argv: argv}}}}
	return q
}

func recording(optional bool) terms.Decision {
	return terms.Decision{Allow: true, Obligations: terms.Obligations{
		Undo: terms.Keeping{Record: true, Optional: optional, Days: 7, MaxBytes: 100}}}
}

func (n *node) back(t *testing.T, k *Keeper, who string) *abi.UndoStepsResponse {
	t.Helper()
	u, err := k.back(t.Context(), call, who)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestWhatACallChangedIsTakenBackInReverse(t *testing.T) {
	n := &node{is: map[string]State{"guest:105": {Status: "stopped", Config: "a",
		Values: map[string]string{"memory": "512"}},
		"file:/opt/a": {Status: "sha256:1", Mode: "0640", Data: []byte("old")}}}
	k := n.open()
	n.acts = func() {
		n.is["guest:105"] = State{Status: "running", Config: "a",
			Values: n.is["guest:105"].Values}
	}
	do := func(q terms.Question) {
		if _, err := k.Execute(t.Context(), q, recording(false)); err != nil {
			t.Fatal(err)
		}
	}
	do(ran("pct", "start", "105"))
	n.acts = func() { n.is["guest:105"] = State{Status: "running", Config: "b"} }
	do(ran("pct", "set", "105", "--memory", "1024", "--onboot", "1"))
	n.acts = func() { n.is["file:/opt/a"] = State{Status: "sha256:2"} }
	put := stop("")
	put.Op, put.Facts.File = abi.SFTPPut{OnNode: abi.OnNode{Node: "pve1"}, Local: "a",
		Path: "/opt/a"}, &terms.FileFacts{Exists: true}
	do(put)
	n.acts = nil
	do(ran("pct", "reboot", "105"))
	u := n.back(t, k, "ann")
	var got []string
	for _, s := range u.Steps {
		data, _ := s.Bytes()
		got = append(got, strings.Join(s.Argv, " ")+s.Write+" "+string(data)+s.Mode+s.None)
	}
	want := []string{" the guest has restarted, and what it had in memory is gone",
		"/opt/a old0640",
		"pct set 105 --memory 512 --delete onboot ", "pct shutdown 105 "}
	if u.Bars != "" || u.Tool != "stop" || !slices.Equal(got, want) {
		t.Errorf("bars %q, steps %q", u.Bars, got)
	}
}

func TestAnUndoIsBarred(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(n *node)
		bars   string
	}{
		"when the guest was started meanwhile": {func(n *node) {
			n.is["guest:105"] = State{Status: "running", Config: "a"}
		},
			"guest 105 was stopped after the call, and is running"},
		"when its configuration differs": {func(n *node) {
			n.is["guest:105"] = State{Status: "stopped", Config: "b"}
		},
			"guest 105 has another configuration than the call left it with"},
		"when it was killed, and it is as it was before": {func(n *node) {
			s := n.steps[1]
			s.Ended = ""
			n.steps[1] = s
			n.is["guest:105"] = State{Status: "running", Config: "a"}
		}, "how step 1 of it ended, pct stop 105 on pve1, is not known"},
		"not, when it was killed, and all is as it leaves it": {func(n *node) {
			s := n.steps[1]
			s.Ended = ""
			n.steps[1] = s
		}, ""},
		"when it was killed, and nothing says how it leaves it": {func(n *node) {
			s := n.steps[1]
			s.Ended, s.After = "", State{}
			n.steps[1] = s
		}, "how step 1 of it ended"},
		"of an undo": {func(n *node) {
			s := n.steps[1]
			s.Tool = Tool
			n.steps[1] = s
		}, "undid another one"},
		"of what has no reverse": {func(n *node) {
			s := n.steps[1]
			s.Back = reverse.Way{None: "gone"}
			n.steps[1] = s
		}, "gone"},
		"of what did nothing": {func(n *node) {
			s := n.steps[1]
			s.Before = s.After
			n.steps[1] = s
		}, "changed nothing"},
		"not, while it is as it was": {func(*node) {}, ""},
		"of a snapshot that is unsure": {func(n *node) {
			n.book = []Snapshot{{Call: call, VMID: "105", Principal: "ann", Tool: "stop"}}
		}, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{is: map[string]State{"guest:105": {Status: "running", Config: "a"}}}
			n.acts = func() { n.is["guest:105"] = State{Status: "stopped", Config: "a"} }
			k := n.open()
			if _, err := k.Execute(t.Context(), ran("pct", "stop", "105"),
				recording(false)); err != nil {
				t.Fatal(err)
			}
			tt.change(n)
			if u := n.back(t, k, "ann"); u.Owner != "ann" || (tt.bars == "") != (u.Bars == "") ||
				!strings.Contains(u.Bars, tt.bars) {
				t.Errorf("bars %q, want %q", u.Bars, tt.bars)
			}
			if u := n.back(t, k, "bob"); u.Owner != "ann" || len(u.Steps) != 0 {
				t.Errorf("told to another: %+v", u)
			}
		})
	}
}

func TestAGuestWithASnapshotIsRolledBackDespiteLaterChanges(t *testing.T) {
	n := &node{is: map[string]State{"guest:105": {Status: "running", Config: "a"}}}
	k := n.open()
	d := recording(false)
	n.book = []Snapshot{{Call: call, VMID: "105", Principal: "ann", Tool: "stop", Taken: true,
		Running: true,
		Name:    "caponier-x", On: "pve2", Program: "qm"}}
	d.Obligations.Snapshot.VMIDs = []string{"105"}
	k.taken = map[string]*once{call + " lab 105": {done: true}}
	for range 2 {
		if _, err := k.Execute(t.Context(), ran("qm", "stop", "105"), d); err != nil {
			t.Fatal(err)
		}
	}
	n.is["guest:105"] = State{Status: "paused", Config: "z"}
	u := n.back(t, k, "ann")
	if u.Bars != "" || len(u.Steps) != 1 || strings.Join(u.Steps[0].Argv,
		" ") != "qm rollback 105 caponier-x --start 1" || u.Steps[0].Node != "pve2" {
		t.Errorf("%+v", u)
	}
	n.book = append(n.book, Snapshot{Call: "later", VMID: "105", Made: time.Now()})
	if u := n.back(t, k, "ann"); !strings.Contains(u.Bars,
		"changed since by call later: undo that one first") {
		t.Errorf("bars %q", u.Bars)
	}
}

func TestWhatCannotBeKeptIsNotDone(t *testing.T) {
	big := stop("")
	big.Op, big.Facts.File = abi.SFTPPut{OnNode: abi.OnNode{Node: "pve1"},
		Path: "/opt/a"}, &terms.FileFacts{Exists: true}
	fresh := big
	fresh.Facts.File = &terms.FileFacts{}
	for name, tt := range map[string]struct {
		q        terms.Question
		n        *node
		optional bool
		done     int
	}{
		"the node does not say": {ran("pct", "stop", "105"),
			&node{blind: errors.New("away")}, false, 0},
		"the file is too large": {big,
			&node{is: map[string]State{"file:/opt/a": {Status: large}}}, false, 0},
		"the file was removed since it was looked up": {big,
			&node{is: map[string]State{"file:/opt/a": {Status: absent}}}, false, 0},
		"the file was made since it was looked up": {fresh,
			&node{is: map[string]State{"file:/opt/a": {Status: "sha256:theirs"}}}, false, 0},
		"the store is away": {ran("pct", "stop", "105"),
			&node{world: world{broken: errors.New("full")}}, false, 0},
		"the site goes on without": {big,
			&node{is: map[string]State{"file:/opt/a": {Status: large}}}, true, 1},
		"but never without the store": {ran("pct", "stop", "105"),
			&node{world: world{broken: errors.New("full")}}, true, 0},
		"values of a guest that is away": {ran("pct", "set", "105", "--memory", "512"),
			&node{is: map[string]State{"guest:105": {Status: absent}}}, false, 0},
		"a value that Proxmox hides": {ran("qm", "set", "105", "--cipassword", "x"), &node{},
			false, 0},
		"what has no reverse is let run": {ran("pct", "reboot", "105"), &node{}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tt.n.open().Execute(t.Context(), tt.q, recording(tt.optional))
			op := (*terms.OpError)(nil)
			if tt.done == 0 && !tt.optional && (!errors.As(err, &op) || op.Code != "no_undo") {
				t.Errorf("error %v", err)
			}
			if got := len(tt.n.events); got != tt.done {
				t.Errorf("%q, want %d executed", tt.n.events, tt.done)
			}
		})
	}
}

// What a lost answer would have said can be seen where the command leaves one state alone.
func TestAnUnknownOutcomeBarsTheUndoUnlessWhatItLeavesIsThere(t *testing.T) {
	lost := &terms.OpError{Code: "lost", Outcome: terms.Unknown}
	put, drop, write := stop(""), stop(""), stop("")
	on := abi.OnNode{Node: "pve1"}
	put.Op, put.Facts.File = abi.SFTPPut{OnNode: on, Local: "a",
		Path: "/opt/a"}, &terms.FileFacts{Exists: true}
	put.Call.Files = map[string]string{"a": "sha256:new"}
	drop.Op, drop.Facts.File = abi.SFTPRemove{OnNode: on,
		Path: "/opt/a"}, &terms.FileFacts{Exists: true}
	write.Op, write.Facts.File = abi.SFTPWrite{OnNode: on, Path: "/opt/a",
		Data: abi.NewData([]byte("new"))}, &terms.FileFacts{Exists: true}
	guest, file := State{Status: "running", Config: "a"}, State{Status: "sha256:old",
		Data: []byte("old")}
	unit := State{Status: "ActiveState=active UnitFileState=enabled"}
	for name, tt := range map[string]struct {
		q      terms.Question
		about  string
		before State
		after  State
		back   string // "": barred
	}{
		"stopped": {ran("pct", "stop", "105"), "guest:105", guest,
			State{Status: "stopped", Config: "a"}, "pct start 105"},
		"not stopped": {ran("pct", "stop", "105"), "guest:105", guest, guest, ""},
		"stopped, and changed": {ran("pct", "stop", "105"), "guest:105", guest,
			State{Status: "stopped", Config: "b"}, ""},
		"paused instead": {ran("qm", "stop", "105"), "guest:105", guest,
			State{Status: "paused", Config: "a"}, ""},
		"was stopped before": {ran("pct", "stop", "105"), "guest:105",
			State{Status: "stopped", Config: "a"}, State{Status: "stopped", Config: "a"}, ""},
		"memory set": {ran("pct", "set", "105", "--memory", "9"), "guest:105", guest,
			State{Status: "running", Config: "b"}, ""},
		"disabled": {ran("systemctl", "disable", "cron"), "unit:cron.service", unit,
			State{Status: "ActiveState=active UnitFileState=disabled"}, "systemctl enable cron"},
		"disabled, and it stopped": {ran("systemctl", "disable", "cron"), "unit:cron.service", unit,
			State{Status: "ActiveState=inactive UnitFileState=disabled"}, ""},
		"uploaded": {put, "file:/opt/a", file, State{Status: "sha256:new"},
			"/opt/a"},
		"uploaded something else": {put, "file:/opt/a", file, State{Status: "sha256:odd"}, ""},
		"written": {write, "file:/opt/a", file,
			State{Status: digest([]byte("new"))}, "/opt/a"},
		"half written": {write, "file:/opt/a", file, State{Status: digest([]byte("n"))}, ""},
		"removed":      {drop, "file:/opt/a", file, State{Status: absent}, "/opt/a"},
		"not removed":  {drop, "file:/opt/a", file, file, ""},
		"rebooted":     {ran("pct", "reboot", "105"), "guest:105", guest, guest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{is: map[string]State{tt.about: tt.before}, fails: lost}
			k := n.open()
			if _, err := k.Execute(t.Context(), tt.q, recording(false)); err == nil {
				t.Fatal("no error")
			}
			n.is[tt.about] = tt.after
			u := n.back(t, k, "ann")
			if tt.back == "" {
				if !strings.Contains(u.Bars, "is not known: look at the node") {
					t.Errorf("bars %q, steps %+v", u.Bars, u.Steps)
				}
			} else if u.Bars != "" || len(u.Steps) != 1 ||
				strings.Join(u.Steps[0].Argv, " ")+u.Steps[0].Write != tt.back ||
				!strings.Contains(u.Steps[0].Did, unseen) {
				t.Errorf("bars %q, steps %+v", u.Bars, u.Steps)
			}
		})
	}
}
