package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type execIn struct {
	VMID    int    `json:"vmid" doc:"VMID of the container" min:"100" max:"999999999" target:"vmid"`
	Command string `json:"command" doc:"Command text for sh -c inside the container, at most 10000 bytes" minlen:"1" maxlen:"10000" target:"guest_command"`
	Timeout int    `json:"timeout" doc:"Seconds after which the command is stopped" min:"1" max:"300" default:"30"`
	Format  string `json:"response_format" doc:"Whether the text of the answer is for people or JSON" enum:"text,json" default:"text"`
	Node    string `json:"node,omitempty" doc:"Node that the container is on; the default node when absent" target:"node"`
}

type execOut struct {
	pve.Reply
	VMID      int    `json:"vmid"`
	Node      string `json:"node"`
	Success   bool   `json:"success" doc:"The exit code is 0 and it was not stopped"`
	ExitCode  int    `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	TimedOut  bool   `json:"timed_out"`
	Truncated bool   `json:"truncated" doc:"There was more output, or a process that was left behind holds it open"`
	Notice    string `json:"notice,omitempty"`
}

var now = time.Now

func runCommand(c *sdk.Call, in execIn) (execOut, error) {
	ct := at(c, in.Node, in.VMID)
	limit := time.Duration(in.Timeout) * time.Second
	began := now()
	r, err := ct.exec(limit, "sh", "-c", in.Command)
	if err != nil {
		return execOut{}, err
	}
	if err := ct.unable("running a command in", r); err != nil {
		return execOut{}, err
	}
	out := execOut{VMID: in.VMID, Node: ct.Name, ExitCode: r.Exit, Stdout: utf8(r.Stdout), Stderr: utf8(r.Stderr), Truncated: r.Truncated}
	// 124 is what timeout of coreutils says, 143 that of busybox, 137 both after the kill; a program may exit with any of them by itself.
	stopped := r.Exit == 124 || r.Exit == 143 || r.Exit == 137
	out.TimedOut = stopped && now().Sub(began) >= limit-time.Second/2
	out.Success = r.Exit == 0 && !out.TimedOut
	switch {
	case out.TimedOut:
		out.Notice = fmt.Sprintf("It was stopped after %d seconds. Processes that it had put into the background may still be running in the container: look with ps.", in.Timeout)
	case r.Truncated && len(r.Stdout) < maxOutput && len(r.Stderr) < maxOutput:
		out.Notice = "The command ended, but a process that it left behind in the container still holds its output open, so the rest was not waited for."
	case r.Truncated:
		out.Notice = fmt.Sprintf("The output is cut at %d KiB: narrow it with head, tail or grep.", maxOutput>>10)
	}
	var b strings.Builder
	b.WriteString(out.Stdout)
	if out.Stderr != "" {
		b.WriteString("\n[stderr]\n" + out.Stderr)
	}
	if out.ExitCode != 0 {
		fmt.Fprintf(&b, "\n[exit code %d]", out.ExitCode)
	}
	if out.Notice != "" {
		b.WriteString("\n[notice] " + out.Notice)
	}
	out.Reply = pve.Say(in.Format, out, strings.TrimPrefix(b.String(), "\n"))
	return out, nil
}

func utf8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
