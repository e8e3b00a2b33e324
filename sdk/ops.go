package sdk

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

// Operations. Each is a function of its own, not a method, so that the linker keeps only the
// imports that a plugin uses: the import section is its list of capabilities. Their errors are
// *Refused, *OpError or *BadRequest.

// ExecOptions limit a command. The host takes the smaller of its own limits and these; 0 leaves it
// to the host.
type ExecOptions struct {
	Stdin    []byte // of SSHExec; at most 1 MiB
	MaxBytes int64  // of stdout and of stderr
	Timeout  time.Duration
}

// ExecResult is a command that ran; any exit code is a result, not an error.
type ExecResult struct {
	Exit      int
	Signal    string // without SIG; empty when it exited by itself
	Stdout    []byte
	Stderr    []byte
	Truncated bool   // an output was longer than allowed
	Binary    bool   // an output is not UTF-8: say so where it is shown as text
	Rendered  string // of SSHScript: the text that was run
	Planned   bool   // it was not run, since the call is only planned; all other fields are zero
}

// SSHExec runs one program on a node. No shell reads its words. Any exit code is a result; the
// error is a *Refused, *OpError or *BadRequest.
func SSHExec(c *Call, node string, argv []string, o ExecOptions) (ExecResult, error) {
	req := abi.SSHExec{OnNode: onNode(node, o.Timeout), Argv: argv, MaxBytes: o.MaxBytes}
	req.Stdin, req.StdinB64 = abi.Split(o.Stdin)
	return exec(c, imports.SSHExec, req)
}

// SSHScript runs command text: simple commands joined by | && || ;. Policy refuses text that it
// cannot parse.
func SSHScript(c *Call, node, script string, o ExecOptions) (ExecResult, error) {
	return exec(c, imports.SSHScript,
		abi.SSHScript{OnNode: onNode(node, o.Timeout), Script: script, MaxBytes: o.MaxBytes})
}

func exec(c *Call, imported imported, req codec.Value) (ExecResult, error) {
	var r abi.ExecResponse
	planned, err := do(c, imported, req, &r)
	if err != nil || planned {
		return ExecResult{Planned: planned}, err
	}
	stdout, err := abi.Join(r.Stdout, r.StdoutB64)
	stderr, err2 := abi.Join(r.Stderr, r.StderrB64)
	if err != nil || err2 != nil {
		return ExecResult{}, &OpError{
			Code:    "bad_response",
			Message: "the host's response has broken base64",
		}
	}
	return ExecResult{
		Exit:      r.Exit,
		Signal:    r.Signal,
		Stdout:    stdout,
		Stderr:    stderr,
		Truncated: r.Truncated,
		Binary: r.StdoutB64 != "" && !utf8.Valid(stdout) ||
			r.StderrB64 != "" && !utf8.Valid(stderr),
		Rendered: r.Rendered,
	}, nil
}

// Stage makes a fresh directory on a node that only its user can read. It is removed when the call
// ends.
func Stage(c *Call, node string) (dir string, err error) {
	var r abi.StageResponse
	_, err = do(c, imports.Stage, abi.Stage{OnNode: onNode(node, 0)}, &r)
	return r.Dir, err
}

// FileInfo describes a file on a node. Type is file, dir, symlink, fifo, socket, device or other.
type FileInfo struct {
	Name     string // of an entry of a list; any bytes
	Type     string
	Size     int64
	Mode     uint32 // permission bits
	ModTime  time.Time
	RealPath string // of SFTPStat
}

func info(f abi.FileInfo) FileInfo {
	name, err := abi.Join(f.Name, f.NameB64)
	if err != nil {
		name = []byte(f.NameB64)
	}
	return FileInfo{
		string(name),
		f.Type,
		f.Size,
		uint32(f.Mode),
		time.Unix(f.MTime, 0).UTC(),
		f.RealPath,
	}
}

// SFTPStat describes the file at an absolute path.
func SFTPStat(c *Call, node, path string) (FileInfo, error) {
	var r abi.FileInfo
	_, err := do(c, imports.SFTPStat, abi.SFTPStat{OnNode: onNode(node, 0), Path: path}, &r)
	return info(r), err
}

// List is a directory's entries, the first ones when there are more than allowed.
type List struct {
	Entries   []FileInfo
	Truncated bool
}

// SFTPList lists a directory; limit 0 leaves it to the host.
func SFTPList(c *Call, node, path string, limit int) (List, error) {
	var r abi.ListResponse
	req := abi.SFTPList{OnNode: onNode(node, 0), Path: path, Limit: limit}
	_, err := do(c, imports.SFTPList, req, &r)
	l := List{Truncated: r.Truncated}
	for _, e := range r.Entries {
		l.Entries = append(l.Entries, info(e))
	}
	return l, err
}

// ReadResult is the beginning of a file, or of a blob from an offset. EOF reports that nothing
// follows.
type ReadResult struct {
	Data []byte
	EOF  bool
}

// SFTPRead reads a file from its beginning; maxBytes 0 leaves it to the host, at most 1 MiB.
func SFTPRead(c *Call, node, path string, maxBytes int64) (ReadResult, error) {
	return read(c, imports.SFTPRead,
		abi.SFTPRead{OnNode: onNode(node, 0), Path: path, MaxBytes: maxBytes})
}

func read(c *Call, imported imported, req codec.Value) (ReadResult, error) {
	var r abi.ReadResponse
	if _, err := do(c, imported, req, &r); err != nil {
		return ReadResult{}, err
	}
	b, err := r.Data.Bytes()
	if err != nil {
		return ReadResult{}, &OpError{
			Code:    "bad_response",
			Message: "the host's response has broken base64",
		}
	}
	return ReadResult{b, r.EOF}, nil
}

// FileOptions are the options of operations that write a file. Mode is octal such as "0644", or
// empty for the host's default.
type FileOptions struct {
	Mode      string
	Overwrite bool
	Parents   bool   // of SFTPPut: make missing directories above the file, with mode 0755
	MaxBytes  int64  // of SFTPGet; 0 leaves it to the host
	SHA256    string // of SFTPGet: the digest that the bytes must have, or empty
	Timeout   time.Duration
}

// Written is a file that was written and verified. SHA256 is hexadecimal.
type Written struct {
	Bytes  int64
	SHA256 string
	Local  string // of SFTPGet: relative to the caller's workspace
	// Planned reports that nothing was written, since the call is only planned. Bytes and SHA256
	// are then what they would be, as far as the host can know.
	Planned bool
}

// SFTPWrite writes data, at most 1 MiB, to a file on a node.
func SFTPWrite(c *Call, node, path string, data []byte, o FileOptions) (Written, error) {
	return write(c, imports.SFTPWrite, abi.SFTPWrite{
		OnNode:    onNode(node, o.Timeout),
		Data:      abi.NewData(data),
		Path:      path,
		Mode:      o.Mode,
		Overwrite: o.Overwrite,
	})
}

// SFTPGet copies a file from a node to the caller's workspace. The plugin never sees its bytes.
func SFTPGet(c *Call, node, path, local string, o FileOptions) (Written, error) {
	return write(c, imports.SFTPGet, getOf(node, path, local, o))
}

func getOf(node, path, local string, o FileOptions) abi.SFTPGet {
	return abi.SFTPGet{
		OnNode:    onNode(node, o.Timeout),
		Path:      path,
		Local:     local,
		Overwrite: o.Overwrite,
		MaxBytes:  o.MaxBytes,
		SHA256:    o.SHA256,
	}
}

// SFTPPut copies a file of the caller's workspace to a node.
func SFTPPut(c *Call, node, local, path string, o FileOptions) (Written, error) {
	return write(c, imports.SFTPPut, putOf(node, local, path, o))
}

func putOf(node, local, path string, o FileOptions) abi.SFTPPut {
	return abi.SFTPPut{
		OnNode:    onNode(node, o.Timeout),
		Path:      path,
		Local:     local,
		Mode:      o.Mode,
		Overwrite: o.Overwrite,
		Parents:   o.Parents,
	}
}

func write(c *Call, imported imported, req codec.Value) (Written, error) {
	var r abi.WriteResponse
	planned, err := do(c, imported, req, &r)
	return Written{r.Bytes, r.SHA256, r.Local, planned}, err
}

// SFTPRemove removes one file.
func SFTPRemove(c *Call, node, path string) error {
	_, err := do(c, imports.SFTPRemove, abi.SFTPRemove{OnNode: onNode(node, 0), Path: path}, nil)
	return err
}

// Request is an HTTP request. Credential names a credential that the host adds after the decision;
// the plugin never sees it.
type Request struct {
	Method, URL      string
	Headers          [][2]string
	Body             []byte // at most 1 MiB
	Credential       string
	MaxHops          int   // redirects, each decided again
	MaxBytes         int64 // of the response
	Save             bool  // keep the body as a blob
	ReserveUSDMicros int64 // what it may cost, in millionths of a dollar
	Timeout          time.Duration
}

// Response is the answer to an HTTP request; any status is a response, not an error.
type Response struct {
	Status  int
	Headers [][2]string
	Body    []byte
	Blob    string // when the body was saved
	Bytes   int64
	Hops    []Hop
	Planned bool // it was not sent, since the call is only planned; Status is 200
}

// Hop is a redirect that was followed.
type Hop struct {
	Status int
	URL    string
}

// HTTPRequest sends a request to a server that the site lists.
func HTTPRequest(c *Call, q Request) (Response, error) {
	var r abi.HTTPResponse
	req := abi.HTTPRequest{
		Common:           abi.Common{TimeoutMS: ms(q.Timeout)},
		Data:             abi.NewData(q.Body),
		Method:           q.Method,
		URL:              q.URL,
		Headers:          q.Headers,
		Credential:       q.Credential,
		MaxHops:          q.MaxHops,
		MaxBytes:         q.MaxBytes,
		Save:             q.Save,
		ReserveUSDMicros: q.ReserveUSDMicros,
	}
	planned, err := do(c, imports.HTTPRequest, req, &r)
	if err != nil {
		return Response{}, err
	}
	body, err := r.Data.Bytes()
	if err != nil {
		return Response{}, &OpError{
			Code:    "bad_response",
			Message: "the host's response has broken base64",
		}
	}
	out := Response{Status: r.Status, Headers: r.Headers, Body: body, Blob: r.Blob, Bytes: r.Bytes,
		Planned: planned}
	for _, h := range r.Hops {
		out.Hops = append(out.Hops, Hop(h))
	}
	return out, nil
}

// Blob is data that the host keeps for the caller for a limited time.
type Blob struct {
	Blob, URI string
	Bytes     int64
	SHA256    string
}

// BlobWrite stores data for ttl; 0 means the host's default.
func BlobWrite(c *Call, name, mime string, data []byte, ttl time.Duration) (Blob, error) {
	var r abi.BlobWriteResponse
	_, err := do(
		c, imports.BlobWrite,
		abi.BlobWrite{
			Data: abi.NewData(data),
			Name: name,
			MIME: mime,
			TTLS: int64((ttl + time.Second - 1) / time.Second),
		},
		&r,
	)
	return Blob(r), err
}

// BlobRead reads a blob that the caller owns.
func BlobRead(c *Call, blob string, offset, maxBytes int64) (ReadResult, error) {
	return read(c, imports.BlobRead, abi.BlobRead{Blob: blob, Offset: offset, MaxBytes: maxBytes})
}

// BlobCopy copies a blob that the caller owns to a new file of the caller's workspace.
func BlobCopy(c *Call, blob, local string) (Written, error) {
	return write(c, imports.BlobRead, abi.BlobRead{Blob: blob, Local: local})
}

// CommandList is which commands the caller may run: programs with counts, or the commands of one.
type (
	CommandList = abi.CommandsResponse
	CommandTool = abi.CommandTool
	Program     = abi.Program
	Command     = abi.Command
)

// ListCommands returns which commands the caller may run through tools that take command text for
// nodes: on node, or everywhere if it is empty; a count for each program, or, with a program (and a
// sub-command) as word, each command with what it takes.
func ListCommands(c *Call, node, word string) (CommandList, error) {
	var r CommandList
	_, err := do(c, imports.ListCommands, abi.ListCommands{Node: node, Word: word}, &r)
	return r, err
}

// Answer is the user's answer. Action is accept, decline or cancel.
type Answer struct {
	Action  string
	Content json.RawMessage // an object that fits the schema, when accepted
}

// Ask asks the client's user a question. Key names the question within the call. The error is
// [ErrPending] until the user has answered.
func Ask(c *Call, key, message string, schema json.RawMessage) (Answer, error) {
	var r abi.AskResponse
	var fields map[string]any
	if err := json.Unmarshal(schema, &fields); err != nil {
		return Answer{}, &BadRequest{Field: "schema", Message: err.Error()}
	}
	plain, err := json.Marshal(fields)
	if err != nil {
		return Answer{}, &BadRequest{Field: "schema", Message: err.Error()}
	}
	_, err = do(c, imports.Ask, question{key, message, plain}, &r)
	return Answer{r.Action, r.Content}, err
}

// Levels of [Log], as in log/slog.
const (
	Debug = -4
	Info  = 0
	Warn  = 4
	Fault = 8
)

// Log writes a line, at most 4 KiB, to the host's log.
func Log(c *Call, level int, message string) { imports.Log(int32(level), []byte(message)) }

// Progress tells the client how far the call is; total 0 is unknown.
func Progress(c *Call, done, total float64, message string) {
	if b, err := codec.Encode(abi.Progress{Done: done, Total: total,
		Message: message}); err == nil {
		imports.Note(b)
	}
}

func onNode(node string, timeout time.Duration) abi.OnNode {
	return abi.OnNode{Common: abi.Common{TimeoutMS: ms(timeout)}, Node: node}
}
