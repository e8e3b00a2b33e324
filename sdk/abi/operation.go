package abi

import (
	"errors"
	"slices"
	"time"
)

// Op is one operation that a plugin asks for: one of the request types of this package.
type Op interface {
	Import() string         // the name of the import, such as ssh_exec
	NodeName() string       // the inventory name of the node, "" where it runs on no node
	Timeout() time.Duration // as asked for; 0 leaves it to the call's budget
}

// View names the part of the policy input that describes an operation.
type View string

const (
	ViewCommand View = "command"
	ViewFile    View = "file"
	ViewHTTP    View = "http"
	ViewBlob    View = "blob"
	ViewAsk     View = "ask"
	ViewRecord  View = "record" // what the host recorded of its own doing
	ViewListing View = "listing"
)

// FileOp is an operation on a file of a node: all of ViewFile.
type FileOp interface {
	Op
	File() File
}

// File is what an operation does with a file, as far as its request says it.
type File struct {
	Action    string // one word: the name of the operation without sftp_
	Path      string
	Local     *string // the file of the workspace; nil for operations without one
	Mode      string
	Overwrite bool
	Parents   bool
	Data      *Data // nil for operations that carry no bytes
	Moves     Moves
	Limit     int64 // of the bytes that MovesFile means; 0 means all
}

// Moves names the bytes that an operation on a file moves.
type Moves int

const (
	MovesNothing Moves = iota
	MovesFile          // those of the file on the node
	MovesLocal         // those of the file of the workspace
	MovesData          // those that the request carries
)

// Operation is an entry of the table of operations.
type Operation struct {
	Import   string
	OnNode   bool // it runs on a node of the inventory
	Lookup   bool // it is decided twice: before its facts are looked up, then with them
	View     View
	parse    func([]byte) (Op, error) // nil: only tools of the host itself ask for it
	Example  Op                       // one with contents, for a host that tries its policy
	Response any                      // the zero value of its response; nil for one that is empty
}

// What the examples act on.
var (
	on   = OnNode{Node: "node"}
	some = Data{Text: "text"}
)

const at = "/var/log/x"

// operations is the closed set. An import that is not in it does not exist.
var operations = [...]Operation{
	{"ask", false, false, ViewAsk, parse[Ask], Ask{Key: "key", Message: "text"}, AskResponse{}},
	{"blob_read", false, false, ViewBlob, parse[BlobRead], BlobRead{Blob: "name"}, ReadResponse{}},
	{"blob_write", false, false, ViewBlob, parse[BlobWrite],
		BlobWrite{Name: "name", MIME: "text/plain", Data: some}, BlobWriteResponse{}},
	{"discard", false, false, ViewFile, nil, Discard{Path: at}, nil},
	{"http_request", false, true, ViewHTTP, parse[HTTPRequest],
		HTTPRequest{Method: "POST", URL: "https://host.example/path?a=b", Data: some,
			Headers: [][2]string{{"accept", "*/*"}}}, HTTPResponse{}},
	{"list_commands", false, false, ViewListing, parse[ListCommands],
		ListCommands{Node: "node", Word: "pct"}, CommandsResponse{}},
	{"sftp_get", true, true, ViewFile, parse[SFTPGet],
		SFTPGet{OnNode: on, Path: at, Local: "x"}, WriteResponse{}},
	{"sftp_list", true, true, ViewFile, parse[SFTPList],
		SFTPList{OnNode: on, Path: "/var/log"}, ListResponse{}},
	{"sftp_put", true, true, ViewFile, parse[SFTPPut],
		SFTPPut{OnNode: on, Path: at, Local: "x"}, WriteResponse{}},
	{"sftp_read", true, true, ViewFile, parse[SFTPRead],
		SFTPRead{OnNode: on, Path: at, MaxBytes: 1}, ReadResponse{}},
	{"sftp_remove", true, true, ViewFile, parse[SFTPRemove],
		SFTPRemove{OnNode: on, Path: at}, nil},
	{"sftp_stat", true, true, ViewFile, parse[SFTPStat],
		SFTPStat{OnNode: on, Path: at}, FileInfo{}},
	{"sftp_write", true, true, ViewFile, parse[SFTPWrite],
		SFTPWrite{OnNode: on, Path: at, Data: some}, WriteResponse{}},
	{"snapshots", false, false, ViewRecord, parse[Snapshots], Snapshots{}, SnapshotsResponse{}},
	{"ssh_exec", true, false, ViewCommand, parse[SSHExec],
		SSHExec{OnNode: on, Argv: []string{"uptime"}, Stdin: "text"}, ExecResponse{}},
	{"ssh_script", true, false, ViewCommand, parse[SSHScript],
		SSHScript{OnNode: on, Script: "uptime"}, ExecResponse{}},
	{"stage", true, false, ViewFile, parse[Stage], Stage{OnNode: on}, StageResponse{}},
	{"undo_steps", false, true, ViewRecord, parse[UndoSteps],
		UndoSteps{Call: "call"}, UndoStepsResponse{}},
}

// Operations returns the names of the operations that a plugin can ask for, sorted.
func Operations() (names []string) {
	for i := range operations {
		if operations[i].parse != nil {
			names = append(names, operations[i].Import)
		}
	}
	return names
}

// Lookup returns the table's entry of an import. Its zero value, with false, is no operation.
func Lookup(name string) (Operation, bool) {
	for i := range operations {
		if operations[i].Import == name {
			return operations[i], true
		}
	}
	return Operation{}, false
}

// Table returns all operations, also those that only tools of the host ask for, sorted by name.
func Table() []Operation { return slices.Clone(operations[:]) }

// ParseOp decodes a plugin's request of the named import strictly. The error is a *RequestError.
func ParseOp(name string, request []byte) (Op, error) {
	entry, known := Lookup(name)
	if !known || entry.parse == nil {
		return nil, &RequestError{Field: "import", Message: name + " is not an operation"}
	}
	op, err := entry.parse(request)
	if bad := (*RequestError)(nil); err != nil && !errors.As(err, &bad) {
		err = &RequestError{Message: err.Error()}
	}
	return op, err
}

// Limits of a request. Deciding on a request costs time with its size, and a decision cannot be
// interrupted by the plugin's budget, so that each size is bounded before policy sees it.
const (
	MaxRequest  = 1_468_006 // bytes: 1 MiB of data as base64
	MaxElements = 10_000    // elements of lists in one request
	MaxWords    = 512       // words of an argv
	MaxPath     = 4_096     // bytes of a path, as PATH_MAX of Linux
	MaxFilter   = 128       // bytes of a word that a list is asked by
)

func parse[T Op](data []byte) (Op, error) {
	var op T
	if err := decodeInto(data, MaxRequest, MaxElements, &op); err != nil {
		return nil, err
	}
	if op.Timeout() < 0 {
		return nil, &RequestError{Field: "timeout_ms", Message: "must not be negative"}
	}
	return op, bounded(op)
}

// bounded checks the sizes that policy would have to pay for.
func bounded(op Op) error {
	var path, local string
	switch op := op.(type) {
	case SSHExec:
		if len(op.Argv) > MaxWords {
			return &RequestError{Field: "argv", Message: "has more than 512 words"}
		}
	case FileOp:
		f := op.File()
		if path = f.Path; f.Local != nil {
			local = *f.Local
		}
	case BlobRead:
		local = op.Local
	case ListCommands:
		if len(op.Node) > MaxFilter || len(op.Word) > MaxFilter {
			return &RequestError{Field: "word", Message: "is longer than 128 bytes"}
		}
	}
	if len(path) > MaxPath || len(local) > MaxPath {
		return &RequestError{Field: "path", Message: "is longer than 4096 bytes"}
	}
	return nil
}

// Common is part of every request. TimeoutMS 0 leaves the time to the call's budget.
type Common struct {
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

func (c Common) Timeout() time.Duration { return time.Duration(c.TimeoutMS) * time.Millisecond }
func (Common) NodeName() string         { return "" }

// OnNode is part of every request for a node. Node is a name of the inventory.
type OnNode struct {
	Common
	Node string `json:"node"`
}

func (o OnNode) NodeName() string { return o.Node }

// Requests, one type for each operation. Limits of 0 are the host's own.
type (
	// SSHExec runs one program; no shell reads its words.
	SSHExec struct {
		OnNode
		Argv     []string `json:"argv"`
		Stdin    string   `json:"stdin,omitempty"`
		StdinB64 string   `json:"stdin_b64,omitempty"`
		MaxBytes int64    `json:"max_bytes,omitempty"` // of stdout, and again of stderr
	}
	// SSHScript runs command text. The host lowers it to argv lists, decides on these, and sends
	// only its own rendering of them.
	SSHScript struct {
		OnNode
		Script   string `json:"script"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
	}
	// Stage makes a directory that belongs to the call and is removed when the call ends.
	Stage struct{ OnNode }

	SFTPStat struct {
		OnNode
		Path string `json:"path"`
	}
	SFTPList struct {
		OnNode
		Path  string `json:"path"`
		Limit int    `json:"limit,omitempty"`
	}
	SFTPRead struct {
		OnNode
		Path     string `json:"path"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
	}
	SFTPWrite struct {
		OnNode
		Data
		Path      string `json:"path"`
		Mode      string `json:"mode,omitempty"` // octal
		Overwrite bool   `json:"overwrite,omitempty"`
	}
	// SFTPGet copies a file to Local, a path relative to the principal's workspace. SHA256, if set,
	// is the digest that the bytes must have: otherwise nothing replaces the local file.
	SFTPGet struct {
		OnNode
		Path      string `json:"path"`
		Local     string `json:"local"`
		Overwrite bool   `json:"overwrite,omitempty"`
		MaxBytes  int64  `json:"max_bytes,omitempty"`
		SHA256    string `json:"sha256,omitempty"` // lower-case hexadecimal
	}
	// SFTPPut copies Local, a file of the principal's workspace as it was when the call was
	// decided, to Path. With Parents set, missing directories above Path are made, mode 0755.
	SFTPPut struct {
		OnNode
		Local     string `json:"local"`
		Path      string `json:"path"`
		Mode      string `json:"mode,omitempty"`
		Overwrite bool   `json:"overwrite,omitempty"`
		Parents   bool   `json:"parents,omitempty"`
	}
	SFTPRemove struct {
		OnNode
		Path string `json:"path"`
	}

	// Discard removes what a call of an earlier process left behind: a stage or partial upload on
	// the node, or a partial download in the workspace, which is node "". Only the host asks for
	// it.
	Discard struct {
		OnNode
		Path string `json:"path"`
	}

	HTTPRequest struct {
		Common
		Data
		Method           string      `json:"method"`
		URL              string      `json:"url"`
		Headers          [][2]string `json:"headers,omitempty"`
		Credential       string      `json:"credential,omitempty"`
		MaxHops          int         `json:"max_hops,omitempty"`
		MaxBytes         int64       `json:"max_bytes,omitempty"`
		Save             bool        `json:"save,omitempty"`
		ReserveUSDMicros int64       `json:"reserve_usd_micros,omitempty"`
		// The host sets Hop, the number of this redirect, and Hops, those that led here.
		Hop  int   `json:"-"`
		Hops []Hop `json:"-"`
	}

	BlobWrite struct {
		Common
		Data
		Name string `json:"name"`
		MIME string `json:"mime"`
		TTLS int64  `json:"ttl_s,omitempty"` // seconds
	}
	// BlobRead returns bytes from Offset on. With Local set it copies the whole blob to that new
	// file of the principal's workspace instead.
	BlobRead struct {
		Common
		Blob     string `json:"blob"`
		Offset   int64  `json:"offset,omitempty"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
		Local    string `json:"local,omitempty"`
	}
	// ListCommands asks which commands the caller may run through tools that take command text for
	// nodes. It reaches no node.
	ListCommands struct {
		Common
		Node string `json:"node,omitempty"` // on this node of the inventory; "" for all
		Word string `json:"word,omitempty"` // of this program, or program and sub-command
	}
	// Ask puts a question to the user of the client. Schema is a JSON Schema of a flat object.
	Ask struct {
		Common
		Key     string         `json:"key"`
		Message string         `json:"message"`
		Schema  map[string]any `json:"schema"`
	}

	// UndoSteps asks what takes back the steps of a call of the same principal, the last one first.
	UndoSteps struct {
		Common
		Call string `json:"call"`
	}
	// Snapshots asks for the snapshots that the host took before the principal's calls, or with All
	// before everybody's.
	Snapshots struct {
		Common
		All bool `json:"all,omitempty"`
	}
)

func (SSHExec) Import() string      { return "ssh_exec" }
func (SSHScript) Import() string    { return "ssh_script" }
func (Stage) Import() string        { return "stage" }
func (SFTPStat) Import() string     { return "sftp_stat" }
func (SFTPList) Import() string     { return "sftp_list" }
func (SFTPRead) Import() string     { return "sftp_read" }
func (SFTPWrite) Import() string    { return "sftp_write" }
func (SFTPGet) Import() string      { return "sftp_get" }
func (SFTPPut) Import() string      { return "sftp_put" }
func (SFTPRemove) Import() string   { return "sftp_remove" }
func (Discard) Import() string      { return "discard" }
func (HTTPRequest) Import() string  { return "http_request" }
func (BlobWrite) Import() string    { return "blob_write" }
func (BlobRead) Import() string     { return "blob_read" }
func (ListCommands) Import() string { return "list_commands" }
func (Ask) Import() string          { return "ask" }
func (UndoSteps) Import() string    { return "undo_steps" }
func (Snapshots) Import() string    { return "snapshots" }

func (Stage) File() File        { return File{Action: "stage"} }
func (o Discard) File() File    { return File{Action: "discard", Path: o.Path} }
func (o SFTPStat) File() File   { return File{Action: "stat", Path: o.Path} }
func (o SFTPList) File() File   { return File{Action: "list", Path: o.Path} }
func (o SFTPRemove) File() File { return File{Action: "remove", Path: o.Path} }
func (o SFTPRead) File() File {
	return File{Action: "read", Path: o.Path, Moves: MovesFile, Limit: o.MaxBytes}
}
func (o SFTPWrite) File() File {
	return File{Action: "write", Path: o.Path, Mode: o.Mode, Overwrite: o.Overwrite, Data: &o.Data,
		Moves: MovesData}
}
func (o SFTPGet) File() File {
	return File{Action: "get", Path: o.Path, Local: &o.Local, Overwrite: o.Overwrite,
		Moves: MovesFile}
}
func (o SFTPPut) File() File {
	return File{Action: "put", Path: o.Path, Local: &o.Local, Mode: o.Mode, Overwrite: o.Overwrite,
		Parents: o.Parents, Moves: MovesLocal}
}
