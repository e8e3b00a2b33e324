package sdk

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
)

// Call is one call of a tool while it runs. It must not be used after the tool has returned.
type Call struct {
	ID       string
	Deadline time.Time // when the host stops the call
	Round    int       // 1, and one more each time the call starts again after [Ask]
	URI      string    // of a resource
	Nodes    []Node    // the inventory, as far as the plugin may know it

	// Rendered holds, by argument, what the host allows to run in place of an argument that is
	// command text for a guest. An argument is missing when the host could not parse its text.
	Rendered map[string]string

	// LocalFiles are the files below the arguments with target local_dir, sorted by path, as they
	// were when the call was decided: [SFTPPut] uploads these bytes or nothing. The host lists them
	// for a tool that imports sftp_put and has an argument with target remote_dir.
	LocalFiles []LocalFile

	planned bool
}

// Planned reports whether the call is only planned, and has come to an operation that was recorded
// instead of executed. From then on, a node still is as it was: a tool must not wait for it to
// change, nor report what it reads as the result.
func (c *Call) Planned() bool { return c.planned }

// CommandText returns what to run in a guest for the argument arg, which holds text: the rendering
// of the host, or text itself where the host did not parse it. Policy refuses any other text.
func (c *Call) CommandText(arg, text string) string {
	if r := c.Rendered[arg]; r != "" {
		return r
	}
	return text
}

// Node is a machine that operations can run on.
type Node struct {
	Name    string
	Cluster string
	Default bool
}

// Node returns name, or the name of the default node when name is empty.
func (c *Call) Node(name string) string {
	for _, n := range c.Nodes {
		if name == "" && n.Default {
			return n.Name
		}
	}
	return name
}

// LocalFile is a file of the caller's workspace. SHA256 is hexadecimal. It is empty for what cannot
// be uploaded: a link, a special file, a file that is too large or whose name no node can have.
type LocalFile struct {
	Path   string // relative to the workspace
	SHA256 string
}

// Error is an error that a tool returns on purpose. Code is one word for programs; Suggestion says
// what would help.
type Error struct {
	Code       string
	Message    string
	Suggestion string
}

func (e *Error) Error() string { return e.Message }

// Refused is the error of an operation that policy did not allow. Nothing happened. The host
// records the refusal even if the tool ignores it.
type Refused struct {
	DecisionID string
	Failed     []string // ids of the checks that did not hold
	Deny       []Reason
}

// Reason is one objection of policy to an operation.
type Reason struct{ ID, Msg string }

func (e *Refused) Error() string {
	s := "refused by policy"
	for i, d := range e.Deny {
		s += [2]string{": ", "; "}[min(i, 1)] + d.Msg
	}
	if len(e.Deny) == 0 && len(e.Failed) > 0 {
		s += ": " + strings.Join(e.Failed, ", ")
	}
	return s + " (decision " + e.DecisionID + ")"
}

// OpError is the error of an operation that failed. Unknown means that it may have been done, or
// may still be running: do not repeat it without looking.
type OpError struct {
	Code, Message string
	Unknown       bool
}

func (e *OpError) Error() string { return e.Code + ": " + e.Message }

// BadRequest is the error of a malformed request. Field is empty when no single field is wrong.
type BadRequest struct{ Field, Message string }

func (e *BadRequest) Error() string { return strings.TrimPrefix(e.Field+": "+e.Message, ": ") }

// ErrPending is returned by [Ask] until the user has answered. Return it from the tool; the host
// then starts the tool again.
var ErrPending = errors.New("waiting for the user's answer")

// imported is the import of one operation.
type imported = func([]byte) (abi.Status, []byte)

// do encodes a request, asks, and decodes the response into resp, which may be nil.
func do(c *Call, imported imported, req codec.Value, resp codec.Target) (planned bool,
	err error) {
	b, err := codec.Encode(req)
	if err != nil {
		return false, &BadRequest{Message: err.Error()}
	}
	status, b := imported(b)
	if status != abi.OK && status != abi.Planned {
		return false, failed(status, b)
	}
	if planned = status == abi.Planned; planned && c != nil {
		c.planned = true
	}
	if resp == nil {
		return planned, nil
	}
	if err := codec.Decode(b, resp); err != nil {
		return planned, &OpError{
			Code:    "bad_response",
			Message: "the host's response: " + err.Error(),
		}
	}
	return planned, nil
}

// failed returns the error of a status that is neither OK nor Planned.
func failed(status abi.Status, b []byte) error {
	var f abi.Failure
	if err := codec.Decode(b, &f); err != nil && status != abi.Pending {
		f = abi.Failure{
			Code:    "bad_response",
			Message: fmt.Sprintf("status %d with an unreadable response: %v", status, err),
		}
	}
	switch status {
	case abi.Pending:
		return ErrPending
	case abi.Refused:
		r := &Refused{DecisionID: f.DecisionID, Failed: f.Failed}
		for _, d := range f.Deny {
			r.Deny = append(r.Deny, Reason(d))
		}
		return r
	case abi.BadRequest:
		return &BadRequest{Field: f.Field, Message: f.Message}
	}
	return &OpError{Code: f.Code, Message: f.Message, Unknown: status == abi.Unknown}
}

// ms rounds up, so that a short timeout does not become none.
func ms(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
