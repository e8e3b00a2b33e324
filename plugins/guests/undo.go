package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

// backward are the commands that take others back: host/reverse has the table, and a test compares.
var backward = []string{
	"pct delsnapshot", "pct rollback", "pct set", "pct shutdown", "pct start", "qm delsnapshot",
	"qm rollback", "qm set", "qm shutdown", "qm start", "systemctl disable", "systemctl enable",
	"systemctl start", "systemctl stop",
}

var undoCallTool = sdk.NewTool(
	"undo_call",
	"Take back one of your own calls, by its id, as far as the host kept what takes it back. "+
		"Example: {\"call\":\"06H0A6GOHA5FO7RMRKRL5E16US\"}",
	sdk.Hints{Title: "Undo a call", Destructive: true, Commands: backward,
		Budget: 5 * time.Minute,
		Runs: "what takes the call back: pct|qm start, shutdown, set, rollback …, systemctl " +
			"start|stop|enable|disable UNIT, SFTP write or remove",
		Imports: []string{"undo_steps", "ssh_exec", "sftp_write", "sftp_remove"}},
	undoCall)

var listSnapshotsTool = sdk.NewTool(
	"list_snapshots",
	"List the snapshots that the host took of guests before your calls changed them. Example: {}",
	sdk.Hints{Title: "List the host's snapshots", ReadOnly: true, Idempotent: true,
		Budget: 30 * time.Second, Runs: "nothing on a node", Imports: []string{"snapshots"}},
	listSnapshots)

type undoCallIn struct {
	Call      string `json:"call" target:"call" doc:"Id of the call"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

type undoCallOut struct {
	pve.Reply
	Call string   `json:"call"`
	Tool string   `json:"tool"`
	Done []string `json:"done" doc:"What was run"`
	Kept []string `json:"not_undone" doc:"What has no reverse, and why"`
}

func undoCall(c *sdk.Call, in undoCallIn) (undoCallOut, error) {
	out := undoCallOut{Call: in.Call, Done: []string{}, Kept: []string{}}
	tool, steps, err := sdk.UndoSteps(c, in.Call)
	if err != nil {
		return out, pve.Lost(err, "asking what takes call "+in.Call+" back")
	}
	out.Tool = tool
	for _, s := range steps {
		what := s.Did + " on " + s.Node
		if s.None != "" {
			out.Kept = append(out.Kept, what+": "+s.None)
			continue
		}
		did, err := takeBack(c, s)
		if err != nil {
			return out, failed(err, fmt.Sprintf("undoing %s (done so far: %s)", what,
				strings.Join(out.Done, "; ")))
		}
		out.Done = append(out.Done, did+" on "+s.Node)
	}
	text := "Call %s (%s) is undone: %s."
	if c.Planned() {
		text = "Call %s (%s) would be undone: %s."
	}
	text = fmt.Sprintf(text, in.Call, tool, strings.Join(out.Done, "; "))
	if len(out.Kept) > 0 {
		text += "\nNot undone:\n  " + strings.Join(out.Kept, "\n  ")
	}
	out.Reply = pve.Human(text)
	return out, nil
}

// failed says which step failed, and what was done before it.
func failed(err error, doing string) error {
	if e := (*sdk.Error)(nil); errors.As(err, &e) {
		return &sdk.Error{Code: e.Code, Message: doing + ": " + e.Message, Suggestion: e.Suggestion}
	}
	return pve.Lost(err, doing)
}

// takeBack does one step, and says what it did.
func takeBack(c *sdk.Call, s sdk.UndoStep) (string, error) {
	switch {
	case s.Remove != "":
		return "removed " + s.Remove, sdk.SFTPRemove(c, s.Node, s.Remove)
	case s.Write != "":
		_, err := sdk.SFTPWrite(c, s.Node, s.Write, s.Data,
			sdk.FileOptions{Mode: s.Mode, Overwrite: true})
		return "put back " + s.Write, err
	}
	text := strings.Join(s.Argv, " ")
	r, err := sdk.SSHExec(c, s.Node, s.Argv, sdk.ExecOptions{MaxBytes: 64 << 10,
		Timeout: 2 * time.Minute})
	if err == nil && r.Exit != 0 {
		err = &sdk.Error{Code: "failed", Message: fmt.Sprintf("%s: exit code %d: %s", text, r.Exit,
			strings.TrimSpace(string(r.Stderr))), Suggestion: "Look at what is there now."}
	}
	return text, err
}

type listSnapshotsIn struct {
	All bool `json:"all,omitempty" doc:"From before everybody's calls, where the site allows it"`
}

type listSnapshotsOut struct {
	pve.Reply
	Snapshots []sdk.Snapshot `json:"snapshots"`
}

func listSnapshots(c *sdk.Call, in listSnapshotsIn) (listSnapshotsOut, error) {
	all, err := sdk.Snapshots(c, in.All)
	if err != nil {
		return listSnapshotsOut{}, pve.Lost(err, "asking for the snapshots of the host")
	}
	rows := [][]string{{"GUEST", "NODE", "SNAPSHOT", "BEFORE CALL", "OF", "TOOL", "EXPIRES"}}
	for _, s := range all {
		name := s.Name
		if !s.Taken {
			name += " (perhaps not there)"
		}
		rows = append(rows, []string{s.VMID, s.Node, name, s.Call, s.Principal, s.Tool,
			time.Unix(s.Expires, 0).UTC().Format(time.RFC3339)})
	}
	return listSnapshotsOut{pve.Human(pve.Table(rows)), append([]sdk.Snapshot{}, all...)}, nil
}
