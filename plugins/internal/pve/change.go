package pve

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

// Change brings a guest to a status. It reads the status, runs the command and reads the status
// again.
type Change struct {
	Node    Node
	VMID    int
	Kind    string // lxc or qemu
	Want    string // running or stopped
	Again   bool   // a restart: the guest must have the wanted status before, too
	Argv    []string
	Timeout time.Duration
	Status  func() (Seen, error) // reads it
}

// Seen is the status of a guest at one look.
type Seen struct {
	Status string
	Uptime int64 // seconds, 0 where it is not known
}

// Changed is the result of a change.
type Changed struct {
	Reply
	VMID    int    `json:"vmid"`
	Node    string `json:"node"`
	Status  string `json:"status" doc:"As it is now: running or stopped"`
	Changed bool   `json:"changed" doc:"False when nothing had to be done"`
	Message string `json:"message"`
}

// polls is how often the status is read again after the HA manager was asked, which answers before
// it acts.
const polls = 20

// Do makes the change and returns the status that a look afterwards found. Format is "json", or
// anything else for the text of the answer. The error is an *sdk.Error, or a refusal as the host
// returned it.
func (ch Change) Do(format string) (Changed, error) {
	out := Changed{VMID: ch.VMID, Node: ch.Node.Name, Status: ch.Want}
	before, err := ch.Status()
	if err != nil {
		return out, err
	}
	switch {
	case ch.Again && before.Status != ch.Want:
		return out, &sdk.Error{Code: "not_running",
			Message:    fmt.Sprintf("%s: it is %s", ch.doing(), before.Status),
			Suggestion: "Start it instead."}
	case !ch.Again && before.Status == ch.Want:
		return out.said(format,
			fmt.Sprintf("The %s is %s already; nothing was done.", ch.name(), ch.Want)), nil
	}
	r, err := ch.Node.Run(sdk.ExecOptions{Timeout: ch.Timeout, MaxBytes: 64 << 10}, ch.Argv...)
	if err != nil {
		return out, err
	}
	if r.Planned {
		out.Changed = true
		would := map[string]string{"running": "started", "stopped": "stopped"}[ch.Want]
		if ch.Again {
			would = "restarted"
		}
		return out.said(format, fmt.Sprintf("The %s would be %s.", ch.name(), would)), nil
	}
	if r.Exit != 0 {
		return ch.failed(out, format, r)
	}
	ha := strings.Contains(string(r.Stdout)+string(r.Stderr), "Requesting HA ")
	now, err := ch.wait(ha)
	if err != nil {
		return out, After(err, ch.doing())
	}
	if err := ch.check(before, now, ha); err != nil {
		return out, err
	}
	out.Changed = true
	again := map[bool]string{true: "running again", false: "now " + ch.Want}[ch.Again]
	return out.said(format, fmt.Sprintf("The %s is %s.", ch.name(), again)), nil
}

func (ch Change) name() string {
	return fmt.Sprintf("%s %d on %s", TypeName(ch.Kind), ch.VMID, ch.Node.Name)
}

func (ch Change) doing() string {
	return strings.Join(ch.Argv[:min(2, len(ch.Argv))], " ") + " of " + ch.name()
}

// failed judges a command that exited with an error. An exit code alone proves nothing: the change
// succeeded if the guest has the wanted status.
func (ch Change) failed(out Changed, format string, r sdk.ExecResult) (Changed, error) {
	code := Code(string(r.Stderr))
	if !ch.Again && (code == "already_running" && ch.Want == "running" ||
		code == "not_running" && ch.Want == "stopped") {
		return out.said(format, fmt.Sprintf("The %s is %s already; somebody else was faster.",
			ch.name(), ch.Want)), nil
	}
	if seen, err := ch.Status(); !ch.Again && err == nil && seen.Status == ch.Want {
		out.Changed = true
		return out.said(format, fmt.Sprintf("The %s is now %s. Proxmox complained all the same: %s",
			ch.name(), ch.Want, say(Complaint(r)))), nil
	}
	return out, ch.Node.FailGuest(ch.doing(), ch.VMID, ch.Kind, r)
}

// wait reads the status after the command: once, or until it is the wanted one if the HA manager
// was asked.
func (ch Change) wait(ha bool) (Seen, error) {
	for i := 0; ; i++ {
		seen, err := ch.Status()
		if err != nil || seen.Status == ch.Want || !ha || i == polls {
			return seen, err
		}
	}
}

// check returns an error unless the guest has the wanted status and, after a restart, a new uptime.
func (ch Change) check(before, now Seen, ha bool) error {
	look := "Look at its console or log, and at get_recent_tasks."
	switch {
	case ch.Again && now.Status == ch.Want && before.Uptime > 60 && now.Uptime >= before.Uptime:
		return &sdk.Error{Code: "failed", Suggestion: look,
			Message: fmt.Sprintf("%s: Proxmox reported success, but it was not restarted: it has "+
				"been running for %s", ch.doing(), Ago(now.Uptime))}
	case now.Status == ch.Want:
		return nil
	case ha:
		return &sdk.Error{Code: "unknown_outcome",
			Message: fmt.Sprintf("%s: the HA manager was asked, and it is still %s", ch.doing(),
				now.Status),
			Suggestion: "Look at the status again in a minute."}
	}
	return &sdk.Error{Code: "failed", Suggestion: look,
		Message: fmt.Sprintf("%s: Proxmox reported success, but it is %s", ch.doing(), now.Status)}
}

func (c Changed) said(format, human string) Changed {
	c.Message = human
	c.Reply = Say(format, c, human)
	return c
}
