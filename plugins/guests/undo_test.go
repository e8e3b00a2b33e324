package main

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

const undone = "06H0A6GOHA5FO7RMRKRL5E16US"

func TestUndoDoesTheStepsInTheirOrderAndSaysWhatItCannot(t *testing.T) {
	h := sdktest.New(t)
	defer pvetest.Note(h)
	var did []string
	h.UndoSteps = func(call string) (string, []sdk.UndoStep, error) {
		if call != undone {
			t.Errorf("asked about %s", call)
		}
		return "stop_guest", []sdk.UndoStep{
			{Node: "pve1", Did: "upload a to /opt/a", Write: "/opt/a", Data: []byte("old"),
				Mode: "0640"},
			{Node: "pve1", Did: "write /opt/b", Remove: "/opt/b"},
			{Node: "pve2", Did: "pct reboot 105", None: "the guest has restarted"},
			{Node: "pve2", Did: "pct stop 105", Argv: []string{"pct", "start", "105"}}}, nil
	}
	h.SFTPWrite = func(node, path string, data []byte, o sdk.FileOptions) (sdk.Written, error) {
		did = append(did, node+" write "+path+" "+string(data)+" "+o.Mode)
		if !o.Overwrite {
			t.Error("it does not replace what is there")
		}
		return sdk.Written{}, nil
	}
	h.SFTPRemove = func(node, path string) error {
		did = append(did, node+" remove "+path)
		return nil
	}
	exit := 0
	h.SSHExec = func(node string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
		did = append(did, node+" "+strings.Join(argv, " "))
		return sdk.ExecResult{Exit: exit, Stderr: []byte("locked")}, nil
	}
	o, err := h.Call("undo_call", `{"call":"`+undone+`"}`)
	if err != nil || o.Error != nil {
		t.Fatal(err, o.Error)
	}
	want := "pve1 write /opt/a old 0640; pve1 remove /opt/b; pve2 pct start 105"
	if got := strings.Join(did, "; "); got != want {
		t.Errorf("did %q", got)
	}
	text := o.Text
	if !strings.Contains(text,
		"is undone: put back /opt/a on pve1; removed /opt/b on pve1; pct start 105 on pve2") ||
		!strings.Contains(text, "Not undone:\n  pct reboot 105 on pve2: the guest has restarted") {
		t.Errorf("said %q", text)
	}
	exit = 255
	o, err = h.Call("undo_call", `{"call":"`+undone+`"}`)
	if err != nil || o.Error == nil || !strings.Contains(o.Error.Message,
		"pct start 105: exit code 255: locked") ||
		!strings.Contains(o.Error.Message,
			"done so far: put back /opt/a on pve1; removed /opt/b on pve1") {
		t.Errorf("a step that fails: %v %+v", err, o.Error)
	}
}

func TestARefusedUndoDoesNothing(t *testing.T) {
	h := sdktest.New(t)
	defer pvetest.Note(h)
	h.UndoSteps = func(string) (string, []sdk.UndoStep, error) {
		return "", nil, &sdk.Refused{DecisionID: "D", Failed: []string{"record"}}
	}
	o, err := h.Call("undo_call", `{"call":"`+undone+`"}`)
	if err != nil || o.Error == nil || len(h.Requests) != 1 {
		t.Errorf("%v %+v, asked for %v", err, o, h.Requests)
	}
}

func TestTheHostsSnapshotsAreATable(t *testing.T) {
	h := sdktest.New(t)
	defer pvetest.Note(h)
	h.Snapshots = func(all bool) ([]sdk.Snapshot, error) {
		return []sdk.Snapshot{{VMID: "105", Node: "pve1", Name: "caponier-a", Call: undone,
			Taken: !all}}, nil
	}
	for args, want := range map[string]string{`{}`: "caponier-a  ",
		`{"all":true}`: "caponier-a (perhaps not there)"} {
		o, err := h.Call("list_snapshots", args)
		if err != nil || o.Error != nil || !strings.Contains(o.Text, want) {
			t.Errorf("%s: %v %+v", args, err, o)
		}
	}
}

func TestEveryReverseRunsUnchanged(t *testing.T) {
	h := sdktest.New(t)
	defer pvetest.Note(h)
	var steps []sdk.UndoStep
	for _, c := range backward {
		steps = append(steps, sdk.UndoStep{Node: "pve1", Did: "x",
			Argv: append(strings.Fields(c), "105")})
	}
	h.UndoSteps = func(string) (string, []sdk.UndoStep, error) { return "x", steps, nil }
	ran := 0
	h.SSHExec = func(_ string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
		if want := strings.Join(steps[ran].Argv, " "); strings.Join(argv, " ") != want {
			t.Errorf("ran %q, want %q", argv, want)
		}
		ran++
		return sdk.ExecResult{}, nil
	}
	if o, err := h.Call("undo_call", `{"call":"`+undone+`"}`); err != nil || o.Error != nil ||
		ran != len(backward) {
		t.Errorf("%v %+v, ran %d", err, o.Error, ran)
	}
}
