// Package sdk is what the author of a Caponier plugin imports.
//
// A plugin is a main package that calls [Serve] in an init function and is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags="-s -w" \
//		-buildmode=c-shared -o NAME.wasm ./NAME
//
// A plugin has no files, no network and no environment. It asks the host for operations, and policy
// decides each one.
package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

// Hints describe a tool and what it needs. Policy decides what it may do.
type Hints struct {
	Title       string
	ReadOnly    bool // changes nothing
	Destructive bool // may destroy what is there
	Idempotent  bool // twice is the same as once
	OpenWorld   bool // reaches beyond the nodes
	// Imports are the operations that the tool may use, such as "ssh_exec"; others are refused.
	Imports []string
	// Commands are the commands that it may run on a node, by their names in the command grammar,
	// such as "pct start". "*" means the caller's own text.
	Commands []string
	Budget   time.Duration // for the tool and its operations together; 0 leaves it to the host
	Runs     string        // one line for people: what it does on the node
	// AliasOf names the tool that does the same job, of any plugin. A host lists one of the two.
	AliasOf string
}

// Tool is a tool, resource or prompt for [Serve].
type Tool struct {
	kind, name string
	desc       description
	run        func(*Call, json.RawMessage) (output, error)
	prime      func()
}

type description struct {
	Name         string          `json:"name"`
	URI          string          `json:"uri,omitempty"`
	MIME         string          `json:"mime_type,omitempty"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Hints        hints           `json:"hints"`
	Imports      []string        `json:"imports"`
	Commands     []string        `json:"commands,omitempty"`
	BudgetMS     int64           `json:"budget_ms,omitempty"`
	Runs         string          `json:"runs,omitempty"`
	AliasOf      string          `json:"alias_of,omitempty"`
}

type hints struct {
	ReadOnly    bool `json:"read_only"`
	Destructive bool `json:"destructive"`
	Idempotent  bool `json:"idempotent"`
	OpenWorld   bool `json:"open_world"`
}

func newDescription(name, doc string, h Hints) description {
	if h.Imports == nil {
		h.Imports = []string{}
	}
	return description{
		Name:        name,
		Title:       h.Title,
		Description: doc,
		Imports:     h.Imports,
		Commands:    h.Commands,
		BudgetMS:    h.Budget.Milliseconds(),
		Runs:        h.Runs,
		AliasOf:     h.AliasOf,
		Hints:       hints{h.ReadOnly, h.Destructive, h.Idempotent, h.OpenWorld},
	}
}

// NewTool returns a tool that calls fn. In is a struct; its tags make the input schema, which is
// closed: unknown arguments are refused.
//
//	json:"vmid"       the name; omitempty, omitzero, a pointer or a default make it optional
//	doc:"…"           its description; see [Documented] for long ones
//	min:"1" max:"9"   limits of numbers
//	minlen, maxlen    limits of text, in characters; pattern:"…" is a regular expression
//	maxitems:"9"      limit of lists; minitems too
//	enum:"a,b"        the values that are allowed
//	default:"a"       the value of an absent argument
//	target:"vmid"     what it acts on, for policy: vmid node service host url command
//	                  guest_command remote_path guest_path local_path; remote_dir and
//	                  local_dir, which stand for all that is below them; or call for
//	                  what the call with this id acted on
//	confirm:"true"    it is the confirmation flag of a dangerous tool
//
// Out is a struct or a map, which becomes the structured result and the output schema. The schema
// admits a member truncated, with which the host marks a result that it had to cut. If Out has a
// method Text() string, that returns the text for people; otherwise the text is the JSON. Out may
// also be string, or [Result] for full control; these have no output schema. NewTool panics when In
// or Out has no JSON Schema.
func NewTool[In, Out any](name, doc string, h Hints, fn func(*Call, In) (Out, error)) Tool {
	d := newDescription(name, doc, h)
	d.InputSchema = mustSchema(name, reflect.TypeFor[In](), false)
	if out := reflect.TypeFor[Out](); out != reflect.TypeFor[Result]() &&
		out.Kind() != reflect.String {
		d.OutputSchema = mustSchema(name, out, true)
	}
	return Tool{
		kind: "tool",
		name: name,
		desc: d,
		run: func(c *Call, args json.RawMessage) (output, error) {
			var in In
			if err := decode(args, &in); err != nil {
				return output{}, &inputError{err}
			}
			out, err := fn(c, in)
			if err != nil {
				return output{}, err
			}
			return render(out)
		},
		prime: func() {
			var in In
			var out Out
			json.Unmarshal([]byte("{}"), &in)
			json.Marshal(&in)
			render(out)
		},
	}
}

// decode applies the defaults of the tags, then the arguments, strictly.
func decode(args json.RawMessage, in any) error {
	if err := setDefaults(reflect.ValueOf(in).Elem()); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

type inputError struct{ error }

func render(v any) (output, error) {
	switch v := v.(type) {
	case Result:
		if v.Content == nil {
			v.Content = []Content{}
		}
		return output{Content: v.Content, Structured: v.Structured,
			SpentUSDMicros: v.SpentUSDMicros}, nil
	case string:
		return output{Content: []Content{Text(v)}}, nil
	}
	b, err := json.Marshal(noNil(reflect.ValueOf(v)).Interface())
	if err != nil {
		return output{}, err
	}
	text := string(b)
	if t, ok := v.(interface{ Text() string }); ok {
		text = t.Text()
	}
	return output{Content: []Content{Text(text)}, Structured: encoded(b)}, nil
}

// plugin is what this module serves. An instance runs one call at a time.
var plugin struct {
	served        bool
	name, version string
	tools         []Tool
}

func init() {
	imports.Describe, imports.Call = describe, call
	imports.Reset = func() { plugin.served = false }
}

// Serve registers the plugin's tools, resources and prompts. Call it in an init function, because
// main never runs in a plugin. It can be called at most once: a second call panics.
func Serve(name, version string, tools ...Tool) {
	if plugin.served {
		panic("sdk: Serve can be called at most once; the plugin " + plugin.name +
			" is already served")
	}
	plugin.served = true
	plugin.name, plugin.version, plugin.tools = name, version, tools
	prime()
}

// prime fills the caches of encoding/json and collects the garbage of initialisation. Every call
// starts from the state after it, so no call has to do this work again.
func prime() {
	for _, t := range plugin.tools {
		if t.prime != nil {
			t.prime()
		}
	}
	failure(&Error{})
	runtime.GC()
}

func describe() ([]byte, error) {
	if plugin.name == "" {
		return nil, errors.New("the plugin serves nothing: call sdk.Serve in an init function")
	}
	d := struct {
		ABI       int           `json:"abi"`
		Minor     int           `json:"minor"`
		Name      string        `json:"name"`
		Version   string        `json:"version"`
		Tools     []description `json:"tools"`
		Resources []description `json:"resources"`
		Prompts   []description `json:"prompts"`
	}{1, abi.Minor, plugin.name, plugin.version, []description{}, []description{}, []description{}}
	for _, t := range plugin.tools {
		switch t.kind {
		case "tool":
			d.Tools = append(d.Tools, t.desc)
		case "resource":
			d.Resources = append(d.Resources, t.desc)
		case "prompt":
			d.Prompts = append(d.Prompts, t.desc)
		}
	}
	return json.Marshal(d)
}

// call runs one call from its input to its output, the same in the sandbox and natively.
func call(input []byte) (int32, []byte) {
	var in abi.Input
	if err := codec.Decode(input, &in); err != nil {
		return failure(&inputError{fmt.Errorf("input of the call: %w", err)})
	}
	c := &Call{
		ID:       in.Call.ID,
		Deadline: time.UnixMilli(in.Call.DeadlineMS),
		Round:    in.Call.Round,
		URI:      in.URI,
		Rendered: in.Rendered,
	}
	for _, n := range in.Nodes {
		c.Nodes = append(c.Nodes, Node(n))
	}
	for _, f := range in.LocalFiles {
		c.LocalFiles = append(c.LocalFiles, LocalFile(f))
	}
	for _, t := range plugin.tools {
		if t.kind == in.Kind &&
			(t.name == in.Name || t.kind == "resource" && t.desc.URI == in.URI) {
			out, err := t.run(c, in.Args)
			if err != nil {
				return failure(err)
			}
			b, err := out.encode()
			if err != nil {
				return failure(fmt.Errorf("encoding the result of %s: %w", in.Name, err))
			}
			return abi.CallOK, b
		}
	}
	return failure(&inputError{fmt.Errorf("this plugin has no %s %q", in.Kind, in.Name)})
}

func failure(err error) (int32, []byte) {
	code, e := abi.CallError, abi.Error{Code: "failed", Message: err.Error()}
	var own *Error
	var refused *Refused
	var op *OpError
	var bad *BadRequest
	var input *inputError
	switch {
	case errors.As(err, &own):
		e = abi.Error(*own)
	case errors.Is(err, ErrPending):
		e.Code = "pending"
	case errors.As(err, &refused):
		e.Code, e.Suggestion = "refused", "this was refused by policy; another way to the same "+
			"end will be refused too"
	case errors.As(err, &op):
		e.Code = op.Code
		if op.Unknown {
			e.Suggestion = "it may have been done, or may still be running: look before you " +
				"repeat it"
		}
	case errors.As(err, &bad):
		e.Code = "bad_request"
	case errors.As(err, &input):
		code, e.Code = abi.CallInput, "bad_input"
	}
	// text always encodes
	b, _ := output{Content: []Content{Text(e.Message)}, Error: &e}.encode()
	return code, b
}

// Yield lets the garbage collector of the guest work. Call it in loops that run long without any
// operation.
func Yield() { runtime.Gosched() }
