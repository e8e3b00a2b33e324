package pve

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

// MaxOutput is the cap on each output of a caller's own command, in bytes.
const MaxOutput = 256 << 10

// Ran is the result of a caller's own command.
type Ran struct {
	Reply
	Node      string `json:"node"`
	Success   bool   `json:"success" doc:"The exit code is 0 and it was not stopped"`
	ExitCode  int    `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	TimedOut  bool   `json:"timed_out"`
	Truncated bool   `json:"truncated"`
	Notice    string `json:"notice,omitempty"`
}

// Docs describes what does not fit into a tag.
func (Ran) Docs() map[string]string {
	return map[string]string{
		"truncated": "There was more output, or a process that was left behind holds it open",
	}
}

// NewRan reads how a command ended. Stopped is empty, or why it was stopped.
func NewRan(node string, r sdk.ExecResult, stopped string) Ran {
	out := Ran{
		Node:      node,
		ExitCode:  r.Exit,
		Stdout:    text(r.Stdout, r.Binary),
		Stderr:    text(r.Stderr, r.Binary),
		Truncated: r.Truncated,
		TimedOut:  stopped != "",
		Notice:    stopped,
	}
	out.Success = r.Exit == 0 && r.Signal == "" && stopped == ""
	switch {
	case r.Planned:
		out.Notice = "It would be run. What it prints is not known before."
	case stopped != "":
	case r.Signal != "":
		out.Notice = "It was ended by the signal " + r.Signal + "."
	case r.Truncated && len(r.Stdout) < MaxOutput && len(r.Stderr) < MaxOutput:
		out.Notice = "The command ended, but a process that it left behind still holds its " +
			"output " +
			"open, so the rest was not waited for."
	case r.Truncated:
		out.Notice = fmt.Sprintf("The output is cut at %d KiB: narrow it with head, tail or grep.",
			MaxOutput>>10)
	}
	if r.Binary {
		out.Notice = strings.TrimSpace(out.Notice + " The output is not UTF-8: each run of other " +
			"bytes is shown as \uFFFD. Use base64 or od to see them.")
	}
	return out
}

// Human is the result as text.
func (r Ran) Human() string {
	var parts []string
	if r.Stdout != "" {
		parts = append(parts, strings.TrimSuffix(r.Stdout, "\n"))
	}
	if r.Stderr != "" {
		parts = append(parts, "[stderr]\n"+strings.TrimSuffix(r.Stderr, "\n"))
	}
	if r.ExitCode != 0 {
		parts = append(parts, fmt.Sprintf("[exit code %d]", r.ExitCode))
	}
	if r.Notice != "" {
		parts = append(parts, "[notice] "+r.Notice)
	}
	if len(parts) == 0 {
		return "[no output, exit code 0]"
	}
	return strings.Join(parts, "\n")
}

// text returns an output as text. One that is binary has other bytes than UTF-8.
func text(b []byte, binary bool) string {
	if !binary {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Script runs command text of the caller on a node, as far as policy can read it.
func Script(c *sdk.Call, node, script, format string, limit time.Duration) (Ran, error) {
	n := On(c, node)
	r, err := sdk.SSHScript(c, n.Name, script, sdk.ExecOptions{Timeout: limit, MaxBytes: MaxOutput})
	if err != nil {
		return Ran{}, Lost(err, "running the command on "+n.Name)
	}
	out := NewRan(n.Name, r, "")
	out.Reply = Say(format, out, out.Human())
	return out, nil
}

// Mode writes three or four octal digits as four.
func Mode(permissions string) string {
	return strings.Repeat("0", max(0, 4-len(permissions))) + permissions
}
