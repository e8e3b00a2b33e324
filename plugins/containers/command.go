package main

import (
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type execIn struct {
	VMID    int    `json:"vmid" doc:"Container" min:"100" max:"999999999" target:"vmid"`
	Command string `json:"command" target:"guest_command" minlen:"1" maxlen:"10000"`
	Timeout int    `json:"timeout" doc:"Seconds" min:"1" max:"300" default:"30"`
	Format  string `json:"response_format" doc:"Text form" default:"text" enum:"text,json"`
	Node    string `json:"node,omitempty" doc:"Its node, if not the default" target:"node"`
}

// Docs describes what does not fit into a tag.
func (execIn) Docs() map[string]string {
	return map[string]string{
		"command": "For sh -c in the container",
	}
}

type execOut struct {
	VMID int `json:"vmid"`
	pve.Ran
}

var now = time.Now

func runCommand(c *sdk.Call, in execIn) (execOut, error) {
	ct := at(c, in.Node, in.VMID)
	limit := time.Duration(in.Timeout) * time.Second
	began := now()
	r, err := ct.exec(limit, "sh", "-c", c.CommandText("command", in.Command))
	if err != nil {
		return execOut{}, err
	}
	if err := ct.unable("running a command in", r); err != nil {
		return execOut{}, err
	}
	// timeout of coreutils exits with 124, that of busybox with 143, and both with 137 after the
	// kill. A program may exit with any of these by itself, so the time decides.
	stopped := ""
	if (r.Exit == 124 || r.Exit == 143 || r.Exit == 137) &&
		now().Sub(began) >= limit-time.Second/2 {
		stopped = fmt.Sprintf(
			"It was stopped after %d seconds. Processes that it had put into the background may "+
				"still be running in the container: look with ps.",
			in.Timeout,
		)
	}
	out := execOut{in.VMID, pve.NewRan(ct.Name, r, stopped)}
	out.Reply = pve.Say(in.Format, out, out.Human())
	return out, nil
}
