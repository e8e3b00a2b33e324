package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

// container is one container on the node that the call runs on.
type container struct {
	pve.Node
	vmid int
}

func at(c *sdk.Call, node string, vmid int) container {
	return container{pve.On(c, node), vmid}
}

func (ct container) doing(what string) string {
	return fmt.Sprintf("%s container %d on %s", what, ct.vmid, ct.Name)
}

// pct runs a pct command. The exit code of pct push and pull proves nothing.
func (ct container) pct(timeout time.Duration, verb string,
	rest ...string) (sdk.ExecResult, error) {
	return ct.Run(
		sdk.ExecOptions{Timeout: timeout, MaxBytes: pve.MaxOutput},
		append([]string{"pct", verb, pve.ID(ct.vmid)}, rest...)...)
}

// exec runs argv in the container and stops it there after limit, because it outlives the
// connection. It gets no environment of the node, and pct reads no option after --.
func (ct container) exec(limit time.Duration, argv ...string) (sdk.ExecResult, error) {
	seconds := fmt.Sprint(int(limit / time.Second))
	return ct.pct(
		limit+grace,
		"exec",
		append([]string{"--keep-env", "0", "--", "timeout", "-k", "2", seconds}, argv...)...)
}

const (
	grace   = 10 * time.Second // for pct itself, the kill after two seconds, and a busy node
	helper  = 20 * time.Second // for stat in a container
	hashing = 60 * time.Second // for sha256sum in a container
)

// unable returns the reason why pct exec did not start the program, or nil when the program ran.
func (ct container) unable(what string, r sdk.ExecResult) error {
	text := pve.Complaint(r)
	switch first, _, _ := strings.Cut(text, "\n"); {
	case r.Exit == 0 || len(r.Stdout) > 0:
		return nil
	case first == fmt.Sprintf("container '%d' not running!", ct.vmid),
		strings.HasPrefix(first, "Configuration file 'nodes/"),
		strings.HasPrefix(first, "CT is locked ("),
		strings.HasPrefix(first, "400 "),
		strings.HasPrefix(first, "Unknown option"),
		strings.HasPrefix(first, "ipcc_send_rec"),
		strings.HasPrefix(first, "please run as root"):
		return ct.FailGuest(ct.doing(what), ct.vmid, "lxc", r)
	case strings.HasPrefix(first, "lxc-attach: ") && strings.Contains(text,
		`Failed to exec "timeout"`):
		return &sdk.Error{
			Code:       "unsupported",
			Message:    ct.doing(what) + ": the container has no timeout program",
			Suggestion: "Install coreutils or busybox in the container.",
		}
	case strings.HasPrefix(first, "lxc-attach: ") && !strings.Contains(text, "Failed to exec"):
		return pve.FailText(ct.doing(what), text)
	}
	return nil
}

// status asks what the container is doing right now.
func (ct container) status() (string, error) {
	r, err := ct.pct(pve.Fast, "status")
	if err != nil {
		return "", err
	}
	state := pve.KeyValues(string(r.Stdout))["status"]
	if r.Exit != 0 || state == "" {
		return "", ct.FailGuest(ct.doing("reading the status of"), ct.vmid, "lxc", r)
	}
	return state, nil
}
