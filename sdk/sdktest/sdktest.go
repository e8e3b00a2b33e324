// Package sdktest runs the tools of a plugin natively, against a host that the test scripts, with
// plain go test.
package sdktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

// Host answers the operations of one test. Each hook has the signature of the sdk function without
// its Call; an operation whose hook is nil fails the test. Errors that a hook returns reach the
// tool as they are: use *sdk.Refused, *sdk.OpError and *sdk.BadRequest. A result with Planned set
// reaches the tool as that of an operation that was recorded in a plan and not executed.
type Host struct {
	Nodes []sdk.Node // the inventory; New gives pve1 (the default) and pve2 in cluster lab
	Round int
	// Rendered is what the host allows to run in place of command text for guests, by argument
	Rendered map[string]string
	// LocalFiles are the files below the call's local_dir
	LocalFiles []sdk.LocalFile

	Hooks

	Requests []Request // what was asked, in order
	Logs     []string
	Progress []string // as JSON

	t     testing.TB
	tools map[string]describedTool
	tool  describedTool // the one that runs
}

// Request is an operation as it went to the host.
type Request struct {
	Import string
	JSON   json.RawMessage
	Tool   string // that asked for it
	Runs   string // of ssh_exec: the command that the tool declares, which this is
}

type describedTool struct {
	Kind        string          `json:"-"`
	Name        string          `json:"name"`
	URI         string          `json:"uri"`
	InputSchema json.RawMessage `json:"input_schema"`
	Output      json.RawMessage `json:"output_schema"`
	Imports     []string        `json:"imports"`
	Commands    []string        `json:"commands"`
}

// Output is the result of a tool. Text is all its text content; Error is nil when it succeeded.
type Output struct {
	Text       string
	Structured json.RawMessage
	Error      *sdk.Error
	BadInput   bool
	JSON       json.RawMessage // the whole of it
}

// New returns the host of one test. Tests that use it must not run in parallel, because a plugin
// serves one host at a time.
func New(t testing.TB) *Host {
	h := &Host{
		t: t,
		Nodes: []sdk.Node{
			{Name: "pve1", Cluster: "lab", Default: true},
			{Name: "pve2", Cluster: "lab"},
		},
		tools: map[string]describedTool{},
	}
	var d struct{ Tools, Resources, Prompts []describedTool }
	if err := json.Unmarshal(h.Describe(), &d); err != nil {
		t.Fatalf("the plugin's description: %v", err)
	}
	for kind, list := range map[string][]describedTool{"tool": d.Tools, "resource": d.Resources,
		"prompt": d.Prompts} {
		for _, tool := range list {
			tool.Kind = kind
			h.tools[tool.Name] = tool
		}
	}
	imports.Host, imports.Notes = h.operation, h.note
	t.Cleanup(func() { imports.Host, imports.Notes = nil, nil })
	return h
}

// Describe returns the plugin's description, as the lock keeps it.
func (h *Host) Describe() []byte {
	b, err := imports.Describe()
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// Call calls a tool, resource or prompt by its name, as the sandbox does. It checks the arguments
// against the tool's schema first, as the host does. The error is about the call itself: an unknown
// tool, arguments that do not fit, or a result that does not fit the tool's output schema, which
// the host would not hand on. A failure of the tool is in Output.Error.
func (h *Host) Call(tool, argsJSON string) (Output, error) {
	t, ok := h.tools[tool]
	if !ok {
		return Output{}, fmt.Errorf("the plugin has no tool, resource or prompt %q", tool)
	}
	if err := validate(t.InputSchema, []byte(argsJSON)); err != nil {
		return Output{}, fmt.Errorf("arguments of %s: %w", tool, err)
	}
	in := abi.Input{ABI: 1, Kind: t.Kind, Name: tool, URI: t.URI, Args: json.RawMessage(argsJSON),
		Call: abi.CallInfo{
			ID:         "test",
			DeadlineMS: time.Now().Add(time.Minute).UnixMilli(),
			Round:      max(h.Round, 1),
		}, Rendered: h.Rendered}
	for _, n := range h.Nodes {
		in.Nodes = append(in.Nodes, abi.Node(n))
	}
	for _, f := range h.LocalFiles {
		in.LocalFiles = append(in.LocalFiles, abi.LocalFile(f))
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return Output{}, err
	}
	h.tool = t
	code, b := imports.Call(raw)
	var o struct {
		Content    []sdk.Content
		Structured json.RawMessage
		Error      *abi.Error
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return Output{}, fmt.Errorf("output of %s: %w", tool, err)
	}
	out := Output{
		Structured: o.Structured,
		BadInput:   code == abi.CallInput,
		JSON:       b,
		Error:      (*sdk.Error)(o.Error),
	}
	if (code != abi.CallOK) != (o.Error != nil) {
		return out, fmt.Errorf("%s returned code %d with error %v", tool, code, o.Error)
	}
	if code == abi.CallOK && len(t.Output) > 0 {
		if err := validate(t.Output, o.Structured); err != nil {
			return out, fmt.Errorf("result of %s against its output schema: %w", tool, err)
		}
	}
	for _, c := range o.Content {
		out.Text += c.Text
	}
	return out, nil
}

func (h *Host) note(name string, level int32, note []byte) {
	if name == "log" {
		h.Logs = append(h.Logs, string(note))
	} else {
		h.Progress = append(h.Progress, string(note))
	}
}

// operation answers one request over the same JSON that crosses into a sandbox.
func (h *Host) operation(name string, request []byte) (abi.Status, []byte) {
	h.Requests = append(h.Requests,
		Request{name, slices.Clone(request), h.tool.Name, h.runs(name, request)})
	if !slices.Contains(h.tool.Imports, name) {
		h.t.Errorf("%s uses %s, which is not among its Imports: the host would refuse it",
			h.tool.Name, name)
	}
	if abi.IsList(request) {
		return h.many(name, request)
	}
	return h.one(name, request)
}

// many answers each request of a list by itself, as long as the host would begin another.
func (h *Host) many(name string, request []byte) (abi.Status, []byte) {
	var all []json.RawMessage
	if _, err := abi.ParseList(name, request); err != nil || json.Unmarshal(request, &all) != nil {
		b, _ := json.Marshal(abi.Failure{Message: fmt.Sprint(err)})
		return abi.BadRequest, b
	}
	entry, _ := abi.Lookup(name)
	r, stopped := abi.ManyResponse{}, false
	for _, one := range all {
		status, text := abi.Failed, []byte(`{"code":"`+abi.NotBegun+`","message":"not begun"}`)
		if !stopped {
			status, text = h.one(name, one)
		}
		stopped = entry.Stops() && status != abi.OK && status != abi.Planned
		r.Answers = append(r.Answers, abi.Answer{Status: int(status), Response: text})
	}
	b, _ := json.Marshal(r)
	return abi.OK, b
}

// one answers one request.
func (h *Host) one(name string, request []byte) (abi.Status, []byte) {
	resp, err := h.answer(name, request)
	var refused *sdk.Refused
	var op *sdk.OpError
	var bad *sdk.BadRequest
	status, f := abi.OK, abi.Failure{}
	switch {
	case err == nil:
		if p, is := resp.(planned); is {
			status, resp = abi.Planned, p.response
		}
		b, err := json.Marshal(resp)
		if err != nil {
			h.t.Errorf("response of %s: %v", name, err)
		}
		return status, b
	case errors.Is(err, sdk.ErrPending):
		return abi.Pending, nil
	case errors.As(err, &refused):
		status, f = abi.Refused, abi.Failure{DecisionID: refused.DecisionID, Failed: refused.Failed}
		for _, d := range refused.Deny {
			f.Deny = append(f.Deny, abi.Reason(d))
		}
	case errors.As(err, &op):
		status, f = abi.Failed, abi.Failure{Code: op.Code, Message: op.Message}
		if op.Unknown {
			status = abi.Unknown
		}
	case errors.As(err, &bad):
		status, f = abi.BadRequest, abi.Failure{Field: bad.Field, Message: bad.Message}
	default:
		status, f = abi.Failed, abi.Failure{Code: "failed", Message: err.Error()}
	}
	b, _ := json.Marshal(f) // texts only: always encodes
	return status, b
}
