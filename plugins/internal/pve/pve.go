// Package pve drives Proxmox VE's command line from a plugin: it runs argv lists, names what went
// wrong, and reads output that is not quite JSON.
package pve

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

// Fast is the deadline of one start of pct, qm or pvesh that only reads. A start costs 0.6 to 2
// seconds, double under load.
const Fast = 15 * time.Second

// Node is a node that commands run on, during one call.
type Node struct {
	Call *sdk.Call
	Name string
}

// On picks the named node, or the default one when name is empty.
func On(c *sdk.Call, name string) Node { return Node{c, c.Node(name)} }

// Run runs argv and returns its exit code; any exit code is a result. The error is an
// *sdk.Error, or a refusal as the host returned it. The code is timeout or unknown_outcome when the
// end of the command was not seen.
func (n Node) Run(o sdk.ExecOptions, argv ...string) (sdk.ExecResult, error) {
	r, err := sdk.SSHExec(n.Call, n.Name, argv, o)
	return r, Lost(err,
		fmt.Sprintf("%s on %s", strings.Join(argv[:min(3, len(argv))], " "), n.Name))
}

// Lost turns an operation that failed into an error with a suggestion. A refusal by policy, and any
// other error, is returned as it is.
func Lost(err error, doing string) error {
	op := (*sdk.OpError)(nil)
	if !errors.As(err, &op) {
		return err
	}
	e := &sdk.Error{
		Code:       op.Code,
		Message:    doing + ": " + op.Message,
		Suggestion: "The message says what is wrong. If the arguments are right, tell your user.",
	}
	if s, known := remedies[op.Code]; known {
		e.Suggestion = s
	}
	switch {
	case op.Code == "timeout":
		e.Suggestion = "It may still be running on the node, or in the guest: look at its status " +
			"before you try again."
	case op.Unknown:
		e.Code = "unknown_outcome"
		e.Suggestion = "The connection was lost after the command was sent: look at the status " +
			"of what it acts on before you try again."
	}
	return e
}

const (
	unreachable = "Check that the node is up and reachable (caponier check), then try again."
	nodeFault   = "Trying again does not help. Tell your user: caponier check looks at the nodes."
	pathFault   = "Give the path of a regular file: directories, links and devices are not copied."
)

// remedies are the suggestions for the codes of the host. Only errors of a node name caponier
// check: it does not look at arguments or at files of the workspace.
var remedies = map[string]string{
	"connection":   unreachable,
	"lost":         unreachable,
	"protocol":     nodeFault,
	"shell_output": nodeFault,
	"locale":       nodeFault,
	"not_a_file":   pathFault,
	"not_a_path":   "Correct the path: the message says what is wrong with it.",
	"bad_input":    "Correct the arguments: the message says what is wrong with them.",
	"not_found":    "Check the name or the path: the message says what does not exist.",
	"exists":       "Set overwrite to replace it, or choose another path.",
	"disk_full":    "Free space where the file should go, then try again.",
	"too_large":    "The site's policy or max_bytes limits the size.",
	"host_key": "Do not try again, and do not look for a way around: the machine that answers " +
		"may not be the node. Tell your user, who has to compare the key on the node's console.",
	"auth": "Trying again does not help. Tell your user: the node does not accept the login " +
		"that the configuration names (caponier check).",
	"shell": "Trying again does not help. Tell your user: the login shell on the node has to " +
		"be repaired (caponier check).",
	"permission": "Trying again does not help: the account that caponier logs in with may not " +
		"do this.",
	"changed":   "It was changed meanwhile: look at it, then call again.",
	"cancelled": "Nothing was sent: call again.",
}

// After returns the error of a look that failed after the change itself had succeeded.
func After(err error, doing string) error {
	if err == nil {
		return nil
	}
	return &sdk.Error{
		Code: "unknown_outcome",
		Message: doing + ": the command succeeded, but reading the status afterwards failed: " +
			err.Error(),
		Suggestion: "Look at the status before you try again: it is most likely done.",
	}
}

// JSON runs pvesh, which must print one JSON value, and decodes it. A command that is only planned
// leaves into as it is.
func (n Node) JSON(into any, words ...string) error {
	argv := append(append([]string{"pvesh"}, words...), "--output-format", "json")
	r, err := n.Run(sdk.ExecOptions{Timeout: Fast, MaxBytes: 1 << 20}, argv...)
	if err != nil || r.Planned {
		return err
	}
	doing := fmt.Sprintf("asking %s for %s", n.Name, words[min(1, len(words)-1)])
	if r.Exit != 0 {
		return Fail(doing, r)
	}
	if r.Truncated {
		return &sdk.Error{
			Code:       "too_large",
			Message:    doing + ": the answer is larger than 1 MiB",
			Suggestion: "Ask for less: one node, or one guest.",
		}
	}
	if err := decode(r.Stdout, into); err != nil {
		return contradiction(doing, err)
	}
	return nil
}

// contradiction is the error of an answer that a working node does not print.
func contradiction(doing string, err error) error {
	return &sdk.Error{Code: "bad_answer",
		Message:    fmt.Sprintf("%s: the answer is not what pvesh of PVE 9 prints: %v", doing, err),
		Suggestion: "Do not rely on this node. Tell your user, who can run the same pvesh on it."}
}

// Guest is a row of /cluster/resources. Its figures are about ten seconds old; a guest without
// figures has the status unknown.
type Guest struct {
	VMID     Int    `json:"vmid"`
	Type     string `json:"type" need:"true"` // lxc or qemu
	Node     string `json:"node"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Lock     string `json:"lock"`
	Tags     string `json:"tags"`
	Pool     string `json:"pool"`
	HAState  string `json:"hastate"`
	Template Int    `json:"template"`
	CPU      Float  `json:"cpu"` // fraction of MaxCPU
	MaxCPU   Float  `json:"maxcpu"`
	Mem      Int    `json:"mem"` // bytes, as the next three
	MaxMem   Int    `json:"maxmem"`
	Disk     Int    `json:"disk"`
	MaxDisk  Int    `json:"maxdisk"`
	Uptime   Int    `json:"uptime"` // seconds
}

// Guests lists all guests of the node's cluster, sorted by VMID.
func (n Node) Guests() ([]Guest, error) {
	var all []Guest
	if err := n.JSON(&all, "get", "/cluster/resources", "--type", "vm"); err != nil {
		return nil, err
	}
	if err := checkGuests(all); err != nil {
		return nil, contradiction("asking "+n.Name+" for its guests", err)
	}
	return sortGuests(all), nil
}

// FailGuest is Fail for a command about one guest. Proxmox has one text for a guest that is on
// another node and for one that does not exist, so it asks the cluster which it is.
func (n Node) FailGuest(doing string, vmid int, kind string, r sdk.ExecResult) error {
	err := Fail(doing, r)
	if !strings.Contains(string(r.Stderr), "Configuration file '") {
		return err
	}
	all, lookup := n.Guests()
	if lookup != nil {
		return err // the lookup is a courtesy
	}
	for _, g := range all {
		switch {
		case int(g.VMID) != vmid:
		case g.Type != kind:
			return &sdk.Error{
				Code: "not_found",
				Message: fmt.Sprintf("%s: %d is a %s, not a %s", doing, vmid, TypeName(g.Type),
					TypeName(kind)),
				Suggestion: "Use a tool for that type of guest.",
			}
		case g.Node != n.Name:
			return &sdk.Error{
				Code:       "on_other_node",
				Message:    fmt.Sprintf("%s: %d is on node %s", doing, vmid, g.Node),
				Suggestion: fmt.Sprintf("Call again with \"node\": %q.", g.Node),
			}
		}
	}
	return err
}

// TypeName names a guest's type for people.
func TypeName(kind string) string {
	if kind == "qemu" {
		return "virtual machine"
	}
	return "container"
}

// ID writes a VMID in its one form.
func ID(vmid int) string { return strconv.Itoa(vmid) }
