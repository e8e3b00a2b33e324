package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// thing is a file, a unit or a guest that a call and others change. Its state is text: a file's
// bytes, "" for none; a unit's properties; a guest's status and memory.
type thing struct {
	about, is string
	most      int64    // bytes of a file that the site has kept
	log       []string // what happened, for people
	called    map[string]bool
	after     string // how the last operation would leave it
	end       string // ok, failed, lost before or lost after
}

// one is a thing with the Keeper of the call that changes it.
type one struct {
	*thing
	n *node
	k *Keeper
}

func begin(about, is string, most int64) *one {
	o := &one{thing: &thing{about: about, is: is, most: most, called: map[string]bool{is: true}},
		n: &node{}}
	o.k = o.n.open()
	o.k.Call = func(_ context.Context, _ string, args any) terms.Answer {
		data, err := json.Marshal(o.look(args.(map[string]any)["max_bytes"].(int64)))
		return terms.Answer{Err: err, Output: terms.Output{JSON: data}}
	}
	o.n.acts = func() {
		if o.n.fails = nil; o.end == "ok" || o.end == "lost after" {
			o.is = o.after
		}
		if o.end == "failed" {
			o.n.fails = terms.Fail("failed", "no")
		} else if o.end != "ok" {
			o.n.fails = &terms.OpError{Code: "lost", Outcome: terms.Unknown}
		}
	}
	return o
}

// look is what the host's tool says of the thing.
func (t *thing) look(most int64) State {
	kind, _, _ := strings.Cut(t.about, ":")
	switch {
	case kind == "guest":
		status, memory, _ := strings.Cut(t.is, " ")
		return State{Status: status, Config: memory, Values: map[string]string{"memory": memory}}
	case kind == "unit":
		return State{Status: t.is}
	case t.is == "":
		return State{Status: absent}
	case int64(len(t.is)) > most:
		return State{Status: large, Mode: "0644"}
	}
	return State{Status: digest([]byte(t.is)), Mode: "0644", Data: []byte(t.is)}
}

// ran returns how a command leaves the thing.
func (t *thing) ran(argv []string) string {
	status, memory, _ := strings.Cut(t.is, " ")
	switch argv[1] {
	case "set":
		return status + " " + argv[4]
	case "enable", "disable":
		return status + " UnitFileState=" + argv[1] + "d"
	}
	return map[string]string{"pct start": "running", "pct stop": "stopped",
		"pct shutdown": "stopped", "systemctl start": "ActiveState=active",
		"systemctl stop": "ActiveState=inactive"}[argv[0]+" "+argv[1]] + " " + memory
}

// do has the call do one operation: a command, or on a file "write BYTES", "put BYTES" or "remove".
// Meanwhile happens between the lookup that is decided on and the operation.
func (o *one) do(t *testing.T, what, end string, meanwhile ...func()) {
	q, words := ran(strings.Fields(what)...), strings.Fields(what)
	on := abi.OnNode{Node: "pve1"}
	path := strings.TrimPrefix(o.about, "file:")
	data := strings.Join(words[1:], "")
	if path != o.about {
		q.Cmd, q.Facts.File = nil, &terms.FileFacts{Exists: o.is != ""}
	}
	for _, happens := range meanwhile {
		happens()
	}
	switch words[0] {
	case "write":
		q.Op, o.after = abi.SFTPWrite{OnNode: on, Path: path, Data: abi.NewData([]byte(data))}, data
	case "put":
		q.Op, o.after = abi.SFTPPut{OnNode: on, Path: path, Local: "a"}, data
		q.Call.Files = map[string]string{"a": digest([]byte(data))}
	case "remove":
		q.Op, o.after = abi.SFTPRemove{OnNode: on, Path: path}, ""
	default:
		o.after = o.ran(words)
	}
	o.end = end
	d := recording(false)
	d.Obligations.Undo.MaxBytes = o.most
	done := len(o.n.events)
	_, err := o.k.Execute(t.Context(), q, d)
	if len(o.n.events) > done && (err == nil) != (end == "ok") {
		t.Fatal(err)
	}
	o.called[o.after] = true
	o.log = append(o.log, fmt.Sprintf("call: %.20s (%s)", what, end))
}

func (o *one) undo(t *testing.T) (bars string) {
	u := o.n.back(t, o.k, "ann")
	if u.Bars != "" {
		return u.Bars
	}
	for _, s := range u.Steps {
		data, err := s.Bytes()
		switch {
		case err != nil:
			t.Fatal(err)
		case s.Remove != "":
			o.is = ""
		case s.Write != "":
			o.is = string(data)
		case s.None == "":
			o.is = o.ran(s.Argv)
		}
		o.log = append(o.log, fmt.Sprint("undo: ", s.Did))
	}
	return ""
}

// kinds are the things, with what a call and others do to them: others leave states that a command
// brings back.
var kinds = []struct {
	about, is   string
	does, other []string
	most        int64
}{
	{"file:/opt/a", "", []string{"write a", "write b", "put c", "remove"},
		[]string{"x", "y", "z", ""}, 100},
	{"file:/opt/large", "", []string{"write a", "put bbbbb", "put ccccc", "remove"},
		[]string{"xxxxx", "yyyyy", "z", "", "zzzzz"}, 4},
	{"guest:105", "stopped 512", []string{"pct start 105", "pct stop 105",
		"pct set 105 --memory 1024", "pct set 105 --memory 2048"},
		[]string{"running 512", "stopped 1024", "running 4096", "stopped 4096"}, 100},
	{"unit:cron.service", "ActiveState=active UnitFileState=enabled",
		[]string{"systemctl start cron", "systemctl stop cron", "systemctl enable cron",
			"systemctl disable cron"},
		[]string{"ActiveState=inactive UnitFileState=enabled",
			"ActiveState=active UnitFileState=disabled",
			"ActiveState=inactive UnitFileState=disabled"}, 100},
}

// Calls change one thing, and others change it in between. An undo that is not barred leaves what
// the last of the others left, or what was there first; one that nothing stands against is not
// barred. What others leave as the call has left it at some time cannot be told from the call's.
func TestAnUndoNeverDestroysWhatOthersDid(t *testing.T) {
	ends := []string{"ok", "ok", "ok", "failed", "lost before", "lost after"}
	for _, kind := range kinds {
		t.Run(kind.about, func(t *testing.T) {
			rnd, undone, barred := rand.New(rand.NewPCG(1, 2)), 0, 0
			pick := func(list []string) string { return list[rnd.IntN(len(list))] }
			for range 5000 {
				o := begin(kind.about, kind.is, kind.most)
				want, alone := o.is, true
				others := func() (did bool) {
					other := pick(kind.other)
					if did = rnd.IntN(3) == 0 && !o.called[other]; did {
						o.is, want, alone = other, other, false
						o.log = append(o.log, fmt.Sprintf("other: %.20s", other))
					}
					return did
				}
				for range 2 + rnd.IntN(4) {
					if others() {
						continue
					}
					end := pick(ends)
					o.do(t, pick(kind.does), end, func() { others() })
					alone = alone && !strings.HasPrefix(end, "lost") &&
						int64(len(o.after)) <= o.most
				}
				bars := o.undo(t)
				if bars == "" && o.is != want {
					t.Fatalf("%s: %.20q is left, want %.20q:\n%s", kind.about, o.is, want,
						strings.Join(o.log, "\n"))
				}
				if alone && bars != "" && !strings.Contains(bars, "nothing") {
					t.Fatalf("%s: barred by %q:\n%s", kind.about, bars, strings.Join(o.log, "\n"))
				}
				if bars == "" {
					undone++
				} else {
					barred++
				}
			}
			if undone < 100 || barred < 100 {
				t.Errorf("%s: %d undone, %d barred", kind.about, undone, barred)
			}
		})
	}
}

// The reason says which steps the change came between, or whose end was not seen.
func TestAFileThatAnotherMadeBetweenTwoWritesStays(t *testing.T) {
	o := begin("file:/opt/a", "", 100)
	o.do(t, "write a", "lost before")
	o.is = "somebody else's"
	o.do(t, "write a", "ok")
	if bars := o.undo(t); !strings.Contains(bars, "how step 1 of it ended") {
		t.Errorf("bars %q, %q", bars, o.log)
	}
	o = begin("file:/opt/a", "", 100)
	o.do(t, "write a", "ok")
	o.is = "somebody else's"
	o.do(t, "write b", "ok")
	if bars := o.undo(t); !strings.Contains(bars, "between steps 1 and 2 of it") {
		t.Errorf("bars %q, %q", bars, o.log)
	}
}

// What is too large to compare may be anything, and what the site has kept is compared whole.
func TestAFileIsComparedUpToWhatTheSiteHasKept(t *testing.T) {
	o := begin("file:/opt/a", "", maxKept)
	o.do(t, "put "+strings.Repeat("a", maxKept+1), "ok")
	o.is = strings.Repeat("b", maxKept+1)
	if bars := o.undo(t); !strings.Contains(bars, "too large to compare") {
		t.Errorf("another large file: bars %.100q, %q", bars, o.log)
	}
	o = begin("file:/opt/a", "", 2*maxKept)
	o.do(t, "put "+strings.Repeat("a", maxKept+1), "ok")
	if bars := o.undo(t); bars != "" || o.is != "" {
		t.Errorf("the call's own file: bars %.100q, %q", bars, o.log)
	}
}
