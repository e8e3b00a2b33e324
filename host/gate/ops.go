package gate

import (
	"encoding/base64"
	"errors"
	"slices"
	"time"
)

// Op is one operation that a plugin asked for: a closed set, each kind a struct whose JSON is the
// ABI's request.
type Op interface {
	Import() string   // the import's name, such as ssh_exec
	NodeName() string // inventory name, or "" for operations that run on no node
	Timeout() time.Duration
}

// Common is in every request. TimeoutMS 0 leaves the time to the call's budget.
type Common struct {
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

func (c Common) Timeout() time.Duration { return time.Duration(c.TimeoutMS) * time.Millisecond }
func (Common) NodeName() string         { return "" }

// OnNode is in the request of every operation that runs on a node.
type OnNode struct {
	Common
	Node string `json:"node"`
}

func (o OnNode) NodeName() string { return o.Node }

// Data is bytes as text, or as base64 when they are not UTF-8. Both empty is no bytes; both set is
// an error.
type Data struct {
	Text string `json:"text,omitempty"`
	B64  string `json:"b64,omitempty"`
}

func (d Data) Bytes() ([]byte, error) {
	if d.B64 == "" {
		return []byte(d.Text), nil
	}
	if d.Text != "" {
		return nil, &BadRequest{Field: "b64", Message: "give text or b64, not both"}
	}
	return base64.StdEncoding.Strict().DecodeString(d.B64)
}

type (
	// SSHExec runs one program; no shell looks at its words.
	SSHExec struct {
		OnNode
		Argv     []string `json:"argv"`
		Stdin    string   `json:"stdin,omitempty"`
		StdinB64 string   `json:"stdin_b64,omitempty"`
		MaxBytes int64    `json:"max_bytes,omitempty"` // of stdout and of stderr
	}
	// SSHScript runs command text that is lowered, decided and rendered again; only the rendering
	// is sent.
	SSHScript struct {
		OnNode
		Script   string `json:"script"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
	}
	Stage    struct{ OnNode }
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
	SFTPGet struct {
		OnNode
		Path      string `json:"path"`
		Local     string `json:"local"` // relative, under the principal's workspace
		Overwrite bool   `json:"overwrite,omitempty"`
		MaxBytes  int64  `json:"max_bytes,omitempty"`
	}
	SFTPPut struct {
		OnNode
		Local     string `json:"local"`
		Path      string `json:"path"`
		Mode      string `json:"mode,omitempty"`
		Overwrite bool   `json:"overwrite,omitempty"`
	}
	SFTPRemove struct {
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
		Hop              int         `json:"-"` // which redirect this is, set by the host
		Hops             []Hop       `json:"-"` // the redirects that led here, set by the host
	}
	// Hop is a redirect that was followed: what the server at URL answered.
	Hop struct {
		Status int    `json:"status"`
		URL    string `json:"url"`
	}
	BlobWrite struct {
		Common
		Data
		Name string `json:"name"`
		MIME string `json:"mime"`
		TTLS int64  `json:"ttl_s,omitempty"`
	}
	BlobRead struct {
		Common
		Blob     string `json:"blob"`
		Offset   int64  `json:"offset,omitempty"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
		// copies all of it to this new file of the principal's workspace instead
		Local string `json:"local,omitempty"`
	}
	// Ask puts a question to the client's user. Schema is a JSON Schema of a flat object.
	Ask struct {
		Common
		Key     string         `json:"key"`
		Message string         `json:"message"`
		Schema  map[string]any `json:"schema"`
	}
)

func (SSHExec) Import() string     { return "ssh_exec" }
func (SSHScript) Import() string   { return "ssh_script" }
func (Stage) Import() string       { return "stage" }
func (SFTPStat) Import() string    { return "sftp_stat" }
func (SFTPList) Import() string    { return "sftp_list" }
func (SFTPRead) Import() string    { return "sftp_read" }
func (SFTPWrite) Import() string   { return "sftp_write" }
func (SFTPGet) Import() string     { return "sftp_get" }
func (SFTPPut) Import() string     { return "sftp_put" }
func (SFTPRemove) Import() string  { return "sftp_remove" }
func (HTTPRequest) Import() string { return "http_request" }
func (BlobWrite) Import() string   { return "blob_write" }
func (BlobRead) Import() string    { return "blob_read" }
func (Ask) Import() string         { return "ask" }

// kinds is the whole set. Facts says that the operation is decided as a lookup first.
var kinds = map[string]struct {
	parse func([]byte) (Op, error)
	facts bool
}{
	"ssh_exec": {
		parse[SSHExec],
		false,
	}, "ssh_script": {parse[SSHScript], false}, "stage": {parse[Stage], false},
	"sftp_stat": {
		parse[SFTPStat],
		true,
	}, "sftp_list": {parse[SFTPList], true}, "sftp_read": {parse[SFTPRead], true}, "sftp_write": {parse[SFTPWrite], true},
	"sftp_get": {
		parse[SFTPGet],
		true,
	}, "sftp_put": {parse[SFTPPut], true}, "sftp_remove": {parse[SFTPRemove], true},
	"http_request": {
		parse[HTTPRequest],
		true,
	}, "blob_write": {parse[BlobWrite], false}, "blob_read": {parse[BlobRead], false}, "ask": {parse[Ask], false},
}

// MaxRequest is the largest request of an operation, in bytes: 1 MiB of data as base64.
const MaxRequest = 1_468_006

// maxElements of lists may be in a request: it is as large for its data, and hundreds of thousands
// of words would take the host 0.2 s to read, and more to decide, in which the guest cannot be
// stopped.
const maxElements = 10_000

func parse[T Op](data []byte) (Op, error) {
	var op T
	if err := decodeInto(data, MaxRequest, maxElements, &op); err != nil {
		return nil, err
	}
	if op.Timeout() < 0 {
		return nil, &BadRequest{Field: "timeout_ms", Message: "must not be negative"}
	}
	return op, nil
}

// Operations lists the names of all operation imports, sorted.
func Operations() []string {
	var names []string
	for n := range kinds {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// ParseOp decodes the request of the named import. The error is a *BadRequest.
func ParseOp(name string, request []byte) (Op, error) {
	k, known := kinds[name]
	if !known {
		return nil, &BadRequest{Field: "import", Message: name + " is not an operation"}
	}
	op, err := k.parse(request)
	if bad := (*BadRequest)(nil); err != nil && !errors.As(err, &bad) {
		err = &BadRequest{Message: err.Error()}
	}
	return op, err
}
