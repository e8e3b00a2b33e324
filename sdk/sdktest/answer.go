package sdktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Hooks answer the operations of a tool, each the one of its name.
type Hooks struct {
	UndoSteps    func(call string) (tool string, steps []sdk.UndoStep, err error)
	Snapshots    func(all bool) ([]sdk.Snapshot, error)
	SSHExec      func(node string, argv []string, o sdk.ExecOptions) (sdk.ExecResult, error)
	SSHScript    func(node, script string, o sdk.ExecOptions) (sdk.ExecResult, error)
	Stage        func(node string) (string, error)
	SFTPStat     func(node, path string) (sdk.FileInfo, error)
	SFTPList     func(node, path string, limit int) (sdk.List, error)
	SFTPRead     func(node, path string, maxBytes int64) (sdk.ReadResult, error)
	SFTPWrite    func(node, path string, data []byte, o sdk.FileOptions) (sdk.Written, error)
	SFTPGet      func(node, path, local string, o sdk.FileOptions) (sdk.Written, error)
	SFTPPut      func(node, local, path string, o sdk.FileOptions) (sdk.Written, error)
	SFTPRemove   func(node, path string) error
	HTTPRequest  func(sdk.Request) (sdk.Response, error)
	BlobWrite    func(name, mime string, data []byte, ttl time.Duration) (sdk.Blob, error)
	BlobRead     func(blob string, offset, maxBytes int64) (sdk.ReadResult, error)
	BlobCopy     func(blob, local string) (sdk.Written, error)
	ListCommands func(node, word string) (abi.CommandsResponse, error)
	Ask          func(key, message string, schema json.RawMessage) (sdk.Answer, error)
}

// answer decodes a request as the host does, and calls the hook of its operation.
func (h *Host) answer(name string, request []byte) (any, error) {
	h.t.Helper()
	op, err := abi.ParseOp(name, request)
	if bad := (*abi.RequestError)(nil); errors.As(err, &bad) {
		return nil, &sdk.BadRequest{Field: bad.Field, Message: bad.Message}
	}
	if !h.hooked(op) {
		h.t.Errorf("the tool asked for %s, for which the test has no hook: %s", name, request)
		return nil, &sdk.BadRequest{Field: "import", Message: name + " is not available on " +
			"this host"}
	}
	data, err := dataOf(op)
	if err != nil {
		return nil, &sdk.BadRequest{Field: "b64", Message: err.Error()}
	}
	switch q := op.(type) {
	case abi.SSHExec:
		return ran(h.SSHExec(q.Node, q.Argv,
			sdk.ExecOptions{Stdin: data, MaxBytes: q.MaxBytes, Timeout: q.Timeout()}))
	case abi.SSHScript:
		return ran(h.SSHScript(q.Node, q.Script,
			sdk.ExecOptions{MaxBytes: q.MaxBytes, Timeout: q.Timeout()}))
	case abi.Stage:
		dir, err := h.Stage(q.Node)
		return abi.StageResponse{Dir: dir}, err
	case abi.HTTPRequest:
		return h.http(q, data)
	case abi.BlobWrite:
		b, err := h.BlobWrite(q.Name, q.MIME, data, time.Duration(q.TTLS)*time.Second)
		return abi.BlobWriteResponse(b), err
	case abi.BlobRead:
		if q.Local != "" {
			return written(h.BlobCopy(q.Blob, q.Local))
		}
		return readBack(h.BlobRead(q.Blob, q.Offset, q.MaxBytes))
	case abi.UndoSteps:
		tool, steps, err := h.UndoSteps(q.Call)
		r := abi.UndoStepsResponse{Call: q.Call, Tool: tool, Steps: []abi.UndoStep{}}
		for _, s := range steps {
			r.Steps = append(r.Steps, abi.UndoStep{Data: abi.NewData(s.Data), Node: s.Node,
				Did: s.Did, Argv: s.Argv, Remove: s.Remove, Write: s.Write, Mode: s.Mode,
				None: s.None})
		}
		return r, err
	case abi.Snapshots:
		all, err := h.Snapshots(q.All)
		return abi.SnapshotsResponse{Snapshots: all}, err
	case abi.ListCommands:
		return h.ListCommands(q.Node, q.Word)
	case abi.Ask:
		schema, _ := json.Marshal(q.Schema)
		a, err := h.Ask(q.Key, q.Message, schema)
		return abi.AskResponse{Action: a.Action, Content: a.Content}, err
	}
	return h.file(op, data)
}

// file answers the operations on files of a node.
func (h *Host) file(op abi.Op, data []byte) (any, error) {
	switch q := op.(type) {
	case abi.SFTPStat:
		f, err := h.SFTPStat(q.Node, q.Path)
		return info(f), err
	case abi.SFTPList:
		l, err := h.SFTPList(q.Node, q.Path, q.Limit)
		out := abi.ListResponse{Entries: []abi.FileInfo{}, Truncated: l.Truncated}
		for _, e := range l.Entries {
			out.Entries = append(out.Entries, info(e))
		}
		return out, err
	case abi.SFTPRead:
		return readBack(h.SFTPRead(q.Node, q.Path, q.MaxBytes))
	case abi.SFTPWrite:
		return written(h.SFTPWrite(q.Node, q.Path, data,
			sdk.FileOptions{Mode: q.Mode, Overwrite: q.Overwrite, Timeout: q.Timeout()}))
	case abi.SFTPGet:
		return written(h.SFTPGet(q.Node, q.Path, q.Local, sdk.FileOptions{Overwrite: q.Overwrite,
			MaxBytes: q.MaxBytes, SHA256: q.SHA256, Timeout: q.Timeout()}))
	case abi.SFTPPut:
		return written(h.SFTPPut(q.Node, q.Local, q.Path,
			sdk.FileOptions{Mode: q.Mode, Overwrite: q.Overwrite, Parents: q.Parents,
				Timeout: q.Timeout()}))
	case abi.SFTPRemove:
		return struct{}{}, h.SFTPRemove(q.Node, q.Path)
	}
	return nil, &sdk.BadRequest{Field: "import", Message: fmt.Sprintf("%T is not an operation", op)}
}

// hooked reports whether the test answers the operation.
func (h *Host) hooked(op abi.Op) bool {
	if q, reads := op.(abi.BlobRead); reads && q.Local != "" {
		return h.BlobCopy != nil
	}
	hook := reflect.ValueOf(h.Hooks).FieldByName(reflect.TypeOf(op).Name())
	return hook.IsValid() && !hook.IsNil()
}

// dataOf returns the bytes that a request carries.
func dataOf(op abi.Op) ([]byte, error) {
	switch q := op.(type) {
	case abi.SSHExec:
		return abi.Join(q.Stdin, q.StdinB64)
	case interface{ Bytes() ([]byte, error) }:
		return q.Bytes()
	}
	return nil, nil
}

func (h *Host) http(q abi.HTTPRequest, body []byte) (any, error) {
	r, err := h.HTTPRequest(sdk.Request{Method: q.Method, URL: q.URL, Headers: q.Headers,
		Body:       body,
		Credential: q.Credential, MaxHops: q.MaxHops, MaxBytes: q.MaxBytes, Save: q.Save,
		ReserveUSDMicros: q.ReserveUSDMicros, Timeout: q.Timeout()})
	out := abi.HTTPResponse{Data: abi.NewData(r.Body), Status: r.Status, Headers: r.Headers,
		Blob: r.Blob, Bytes: r.Bytes}
	for _, hop := range r.Hops {
		out.Hops = append(out.Hops, abi.Hop(hop))
	}
	if r.Planned && err == nil {
		return planned{out}, nil
	}
	return out, err
}

func info(f sdk.FileInfo) abi.FileInfo {
	name, b64 := abi.Split([]byte(f.Name))
	return abi.FileInfo{Name: name, NameB64: b64, Type: f.Type, Size: f.Size,
		Mode:  abi.Mode(f.Mode),
		MTime: f.ModTime.Unix(), RealPath: f.RealPath}
}

// planned is the response of an operation that a hook says is only planned.
type planned struct{ response any }

func ran(r sdk.ExecResult, err error) (any, error) {
	if r.Planned && err == nil {
		return planned{abi.ExecResponse{}}, nil
	}
	out := abi.ExecResponse{Exit: r.Exit, Signal: r.Signal, Truncated: r.Truncated,
		Rendered: r.Rendered}
	out.Stdout, out.StdoutB64 = abi.Split(r.Stdout)
	out.Stderr, out.StderrB64 = abi.Split(r.Stderr)
	return out, err
}

func readBack(r sdk.ReadResult, err error) (any, error) {
	return abi.ReadResponse{Data: abi.NewData(r.Data), Bytes: int64(len(r.Data)), EOF: r.EOF}, err
}

func written(w sdk.Written, err error) (any, error) {
	out := abi.WriteResponse{Bytes: w.Bytes, SHA256: w.SHA256, Local: w.Local}
	if w.Planned && err == nil {
		return planned{out}, nil
	}
	return out, err
}
