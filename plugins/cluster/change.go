package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type actIn struct {
	Node      string `json:"node" doc:"Its node" target:"node"`
	VMID      int    `json:"vmid" doc:"Guest" target:"vmid" min:"100" max:"999999999"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// act makes the tool of one lifecycle command, for guests of one type.
func act(kind, want string, again bool, verb string,
	options ...string) func(*sdk.Call, actIn) (pve.Changed, error) {
	return func(c *sdk.Call, in actIn) (pve.Changed, error) {
		f, err := pve.Find(c, in.Node, in.VMID)
		if err != nil {
			return pve.Changed{}, err
		}
		if f.Type != kind {
			return pve.Changed{}, &sdk.Error{
				Code:       "not_found",
				Message:    fmt.Sprintf("%s is not a %s", f, pve.TypeName(kind)),
				Suggestion: "Use the tool for that type of guest.",
			}
		}
		return f.Change(want, again, 100*time.Second, verb, options...)
	}
}

type sshIn struct {
	Node    string `json:"node" doc:"Node to run on" target:"node"`
	Command string `json:"command" doc:"Simple commands" target:"command" minlen:"1" maxlen:"10000"`
}

func executeSSH(c *sdk.Call, in sshIn) (pve.Ran, error) {
	return pve.Script(c, in.Node, in.Command, "", 30*time.Second)
}

type serviceIn struct {
	Node      string `json:"node" doc:"Node that the service runs on" target:"node"`
	Service   string `json:"service" target:"service" pattern:"^[a-z0-9][a-z0-9:_.@-]{0,199}$"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (serviceIn) Docs() map[string]string {
	return map[string]string{
		"service": "systemd unit",
	}
}

type serviceOut struct {
	pve.Reply
	Node    string `json:"node"`
	Service string `json:"service"`
	State   string `json:"state" doc:"active, as systemctl is-active says"`
}

func restartService(c *sdk.Call, in serviceIn) (serviceOut, error) {
	n := pve.On(c, in.Node)
	unit := in.Service
	if !strings.Contains(unit, ".") {
		unit += ".service"
	}
	doing := fmt.Sprintf("restarting %s on %s", unit, n.Name)
	r, err := n.Run(sdk.ExecOptions{Timeout: 30 * time.Second, MaxBytes: 64 << 10}, "systemctl",
		"restart", "--", unit)
	if err != nil {
		return serviceOut{}, err
	}
	if r.Planned {
		return serviceOut{Node: n.Name, Service: unit,
			Reply: pve.Human(fmt.Sprintf("%s on %s would be restarted.", unit, n.Name))}, nil
	}
	if r.Exit != 0 {
		e := pve.Fail(doing, r)
		e.Suggestion = "Look at it with execute_ssh: systemctl status " + unit + " --no-pager."
		if text := string(r.Stderr); strings.Contains(text, "not found") ||
			strings.Contains(text, "not loaded") {
			e.Code, e.Suggestion = "not_found", "List the units with execute_ssh: systemctl "+
				"list-units --no-pager --type service."
		}
		return serviceOut{}, e
	}
	out := serviceOut{Node: n.Name, Service: unit}
	for i := 0; i < 10; i++ { // "activating" passes
		r, err := n.Run(sdk.ExecOptions{Timeout: pve.Fast, MaxBytes: 4 << 10}, "systemctl",
			"is-active", unit)
		if err != nil {
			return serviceOut{}, pve.After(err, doing)
		}
		if out.State = strings.TrimSpace(string(r.Stdout)); out.State != "activating" &&
			out.State != "reloading" {
			break
		}
	}
	if out.State != "active" {
		return serviceOut{}, &sdk.Error{
			Code:       "failed",
			Message:    fmt.Sprintf("%s: afterwards it is %s", doing, out.State),
			Suggestion: "Look at it with execute_ssh: journalctl -u " + unit + " -n 50 --no-pager.",
		}
	}
	out.Reply = pve.Human(fmt.Sprintf("%s on %s was restarted and is active.", unit, n.Name))
	return out, nil
}

type wakeOut struct {
	pve.Reply
	Node string `json:"node"`
	By   string `json:"by" doc:"The node that sent the packet"`
	MAC  string `json:"mac"`
}

// wakeNode runs on another node: Proxmox sends one broadcast and waits for nothing.
func wakeNode(c *sdk.Call, in nodeIn) (wakeOut, error) {
	by, own := "", ""
	for _, n := range c.Nodes {
		if n.Name == in.Node {
			own = n.Cluster
		}
	}
	for _, n := range c.Nodes {
		if n.Name != in.Node && n.Cluster == own && own != "" && (by == "" || n.Default) {
			by = n.Name
		}
	}
	doing := "waking " + in.Node
	if by == "" || !pve.ValidNode(in.Node) {
		return wakeOut{}, &sdk.Error{
			Code:       "bad_parameter",
			Message:    doing + ": the inventory has no other node of its cluster",
			Suggestion: "Add one to [[remote.nodes]], with the same cluster.",
		}
	}
	var mac string
	if err := pve.On(c, by).JSON(&mac, "create", "/nodes/"+in.Node+"/wakeonlan"); err != nil {
		return wakeOut{}, err
	}
	out := wakeOut{Node: in.Node, By: by, MAC: mac}
	if c.Planned() {
		out.Reply = pve.Human(by + " would send a Wake-on-LAN packet for " + in.Node + ".")
		return out, nil
	}
	out.Reply = pve.Human(
		fmt.Sprintf(
			"%s sent a Wake-on-LAN packet for %s (%s). Look with get_cluster_status in a few "+
				"minutes.",
			by,
			in.Node,
			mac,
		),
	)
	return out, nil
}

type rebootIn struct {
	Node      string `json:"node" doc:"Node name" target:"node"`
	Confirmed bool   `json:"confirmed,omitempty" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (rebootIn) Docs() map[string]string {
	return map[string]string{
		"confirmed": "Changes nothing: no confirmation allows this",
	}
}

type rebootOut struct {
	pve.Reply
	Node    string `json:"node"`
	Message string `json:"message"`
}

// rebootNode asks a node to reboot. Policy has the tool and the command in tier black, so both are
// always refused.
func rebootNode(c *sdk.Call, in rebootIn) (rebootOut, error) {
	n := pve.On(c, in.Node)
	r, err := n.Run(sdk.ExecOptions{Timeout: pve.Fast}, "pvesh", "create",
		"/nodes/"+n.Name+"/status", "--command", "reboot")
	if err != nil {
		return rebootOut{}, err
	}
	if r.Planned {
		message := n.Name + " would be rebooted."
		return rebootOut{pve.Human(message), n.Name, message}, nil
	}
	if r.Exit != 0 {
		return rebootOut{}, pve.Fail("rebooting "+n.Name, r)
	}
	message := n.Name + " reboots in a few seconds."
	return rebootOut{pve.Human(message), n.Name, message}, nil
}
