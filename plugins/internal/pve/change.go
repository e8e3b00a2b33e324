package pve

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

// Change brings a guest to a status: it looks first, acts, and believes only what it sees
// afterwards.
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

// Seen is a guest as a look at it found it.
type Seen struct {
	Status string
	Uptime int64 // seconds, 0 where it is not known
}

// Changed is how it ended.
type Changed struct {
	Reply
	VMID    int    `json:"vmid"`
	Node    string `json:"node"`
	Status  string `json:"status" doc:"As it is now: running or stopped"`
	Changed bool   `json:"changed" doc:"False when nothing had to be done"`
	Message string `json:"message"`
}

// polls is how often the status is read again when the HA manager, which answers before it acts,
// was asked.
const polls = 20

// Do makes the change. Format is that of the text of the answer.
func (ch Change) Do(format string) (Changed, error) {
	name := fmt.Sprintf("%s %d on %s", TypeName(ch.Kind), ch.VMID, ch.Node.Name)
	doing := strings.Join(ch.Argv[:min(2, len(ch.Argv))], " ") + " of " + name
	out := Changed{VMID: ch.VMID, Node: ch.Node.Name, Status: ch.Want}
	seen, err := ch.Status()
	if err != nil {
		return out, err
	}
	before, state := seen, seen.Status
	switch {
	case ch.Again && state != ch.Want:
		return out, &sdk.Error{
			Code:       "not_running",
			Message:    fmt.Sprintf("%s: it is %s", doing, state),
			Suggestion: "Start it instead.",
		}
	case !ch.Again && state == ch.Want:
		return out.said(format,
			fmt.Sprintf("The %s is %s already; nothing was done.", name, ch.Want)), nil
	}
	r, err := ch.Node.Run(sdk.ExecOptions{Timeout: ch.Timeout, MaxBytes: 64 << 10}, ch.Argv...)
	if err != nil {
		return out, err
	}
	if r.Exit != 0 {
		if code := Code(string(r.Stderr)); !ch.Again &&
			(code == "already_running" && ch.Want == "running" || code == "not_running" &&
				ch.Want == "stopped") {
			return out.said(format,
				fmt.Sprintf("The %s is %s already; somebody else was faster.", name, ch.Want)), nil
		}
		// An exit code proves nothing: what is so now counts.
		if seen, err := ch.Status(); !ch.Again && err == nil && seen.Status == ch.Want {
			out.Changed = true
			return out.said(
				format,
				fmt.Sprintf("The %s is now %s. Proxmox complained all the same: %s", name, ch.Want,
					say(Complaint(r))),
			), nil
		}
		return out, ch.Node.FailGuest(doing, ch.VMID, ch.Kind, r)
	}
	ha := strings.Contains(string(r.Stdout)+string(r.Stderr), "Requesting HA ")
	for i := 0; ; i++ {
		if seen, err = ch.Status(); err != nil {
			return out, After(err, doing)
		}
		if state = seen.Status; state == ch.Want || !ha || i == polls {
			break
		}
	}
	if ch.Again && state == ch.Want && before.Uptime > 60 && seen.Uptime >= before.Uptime {
		return out, &sdk.Error{
			Code: "failed",
			Message: fmt.Sprintf(
				"%s: Proxmox reported success, but it runs since before, for %s now",
				doing,
				Ago(seen.Uptime),
			),
			Suggestion: "Look at its console or log, and at get_recent_tasks.",
		}
	}
	if state == ch.Want {
		out.Changed = true
		again := map[bool]string{true: "running again", false: "now " + ch.Want}[ch.Again]
		return out.said(format, fmt.Sprintf("The %s is %s.", name, again)), nil
	}
	if ha {
		return out, &sdk.Error{
			Code: "unknown_outcome",
			Message: fmt.Sprintf("%s: the HA manager was asked, and it is still %s", doing,
				state),
			Suggestion: "Look at the status again in a minute.",
		}
	}
	return out, &sdk.Error{
		Code:       "failed",
		Message:    fmt.Sprintf("%s: Proxmox reported success, but it is %s", doing, state),
		Suggestion: "Look at its console or log, and at get_recent_tasks.",
	}
}

func (c Changed) said(format, human string) Changed {
	c.Message = human
	c.Reply = Say(format, c, human)
	return c
}
