// Package abi is the wire between a plugin and the host: the JSON of requests and responses, and
// the imports that carry it.
package abi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Status is what an operation import returns.
type Status = uint32

const (
	OK         Status = iota // any exit code of a command is ok
	Failed                   // {code,message}
	Refused                  // {decision_id,failed[],deny[]}
	Unknown                  // {code,message}: the request was sent and the answer never came
	BadRequest               // {field,message}
	Pending                  // ask only: return from the call
)

// What caponier_v1_call returns.
const (
	CallOK    int32 = iota
	CallError       // the tool failed: the output holds error
	CallInput       // the arguments do not fit: the output holds error
)

// Data is bytes as text, or as base64 when they are not UTF-8.
type Data struct {
	Text string `json:"text,omitempty"`
	B64  string `json:"b64,omitempty"`
}

func NewData(b []byte) (d Data) {
	d.Text, d.B64 = Split(b)
	return d
}

func (d Data) Bytes() ([]byte, error) { return Join(d.Text, d.B64) }

// Split gives bytes as text when they are UTF-8 without NUL, which strict JSON refuses, and as
// base64 otherwise.
func Split(b []byte) (text, b64 string) {
	if utf8.Valid(b) {
		text = string(b)
		for i := range len(text) {
			if text[i] == 0 {
				return "", base64.StdEncoding.EncodeToString(b)
			}
		}
		return text, ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}

func Join(text, b64 string) ([]byte, error) {
	if b64 == "" {
		return []byte(text), nil
	}
	return base64.StdEncoding.Strict().DecodeString(b64)
}

// Mode is permission bits: octal text, or a number.
type Mode uint32

func (m Mode) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%04o"`, uint32(m)), nil }

func (m *Mode) UnmarshalJSON(b []byte) error {
	var s string
	base := 8
	if json.Unmarshal(b, &s) != nil {
		s, base = string(b), 10
	}
	n, err := strconv.ParseUint(s, base, 32)
	*m = Mode(n)
	return err
}

type (
	Common struct {
		TimeoutMS int64 `json:"timeout_ms,omitempty"`
	}
	OnNode struct {
		Common
		Node string `json:"node"`
	}
	ExecRequest struct {
		OnNode
		Argv     []string `json:"argv"`
		Stdin    string   `json:"stdin,omitempty"`
		StdinB64 string   `json:"stdin_b64,omitempty"`
		MaxBytes int64    `json:"max_bytes,omitempty"`
	}
	ScriptRequest struct {
		OnNode
		Script   string `json:"script"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
	}
	ExecResponse struct {
		Exit      int    `json:"exit"`
		Signal    string `json:"signal,omitempty"`
		Stdout    string `json:"stdout"`
		StdoutB64 string `json:"stdout_b64,omitempty"`
		Stderr    string `json:"stderr"`
		StderrB64 string `json:"stderr_b64,omitempty"`
		Truncated bool   `json:"truncated"`
		Rendered  string `json:"rendered,omitempty"`
	}
	StageResponse struct {
		Dir string `json:"dir"`
	}
	// FileRequest is the request of every sftp_* import: each uses the fields that DESIGN gives it.
	FileRequest struct {
		OnNode
		Data
		Path      string `json:"path"`
		Local     string `json:"local,omitempty"`
		Mode      string `json:"mode,omitempty"`
		Overwrite bool   `json:"overwrite,omitempty"`
		Limit     int    `json:"limit,omitempty"`
		MaxBytes  int64  `json:"max_bytes,omitempty"`
	}
	FileInfo struct {
		Name     string `json:"name,omitempty"`
		NameB64  string `json:"name_b64,omitempty"` // when it is not UTF-8
		Type     string `json:"type"`
		Size     int64  `json:"size"`
		Mode     Mode   `json:"mode"`
		MTime    int64  `json:"mtime"` // seconds since 1970
		RealPath string `json:"real_path,omitempty"`
	}
	ListResponse struct {
		Entries   []FileInfo `json:"entries"`
		Truncated bool       `json:"truncated"`
	}
	ReadResponse struct {
		Data
		Bytes int64 `json:"bytes"`
		EOF   bool  `json:"eof"`
	}
	WriteResponse struct {
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
		Local  string `json:"local,omitempty"`
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
	}
	HTTPResponse struct {
		Data
		Status  int         `json:"status"`
		Headers [][2]string `json:"headers"`
		Blob    string      `json:"blob,omitempty"`
		Bytes   int64       `json:"bytes"`
		Hops    []Hop       `json:"hops"`
	}
	Hop struct {
		Status int    `json:"status"`
		URL    string `json:"url"`
	}
	BlobWriteRequest struct {
		Common
		Data
		Name string `json:"name"`
		MIME string `json:"mime"`
		TTLS int64  `json:"ttl_s,omitempty"`
	}
	BlobWriteResponse struct {
		Blob   string `json:"blob"`
		URI    string `json:"uri"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	BlobReadRequest struct {
		Common
		Blob     string `json:"blob"`
		Offset   int64  `json:"offset,omitempty"`
		MaxBytes int64  `json:"max_bytes,omitempty"`
		Local    string `json:"local,omitempty"`
	}
	AskRequest struct {
		Common
		Key     string          `json:"key"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"schema"`
	}
	AskResponse struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}
	// Failure is the response of every status but OK.
	Failure struct {
		Code       string   `json:"code,omitempty"`
		Field      string   `json:"field,omitempty"`
		Message    string   `json:"message,omitempty"`
		DecisionID string   `json:"decision_id,omitempty"`
		Failed     []string `json:"failed,omitempty"`
		Deny       []Reason `json:"deny,omitempty"`
	}
	Reason struct {
		ID  string `json:"id"`
		Msg string `json:"msg"`
	}
	Progress struct {
		Done    float64 `json:"done"`
		Total   float64 `json:"total,omitempty"`
		Message string  `json:"message,omitempty"`
	}
)

// Wire returns one of everything that goes between an operation and its plugin.
func Wire() []any {
	return []any{
		&ExecRequest{},
		&ScriptRequest{},
		&ExecResponse{},
		&OnNode{},
		&StageResponse{},
		&FileRequest{},
		&FileInfo{},
		&ListResponse{},
		&ReadResponse{},
		&WriteResponse{},
		&HTTPRequest{},
		&HTTPResponse{},
		&BlobWriteRequest{},
		&BlobWriteResponse{},
		&BlobReadRequest{},
		&AskRequest{},
		&AskResponse{},
		&Failure{},
		&Progress{},
	}
}

type (
	// Input is what the guest reads when it is called.
	Input struct {
		ABI   int             `json:"abi"`
		Kind  string          `json:"kind"` // tool, resource or prompt
		Name  string          `json:"name"`
		Args  json.RawMessage `json:"args"`
		URI   string          `json:"uri,omitempty"`
		Call  CallInfo        `json:"call"`
		Nodes []Node          `json:"nodes"`
		// by argument, the text to run in place of an argument that is command text
		Rendered map[string]string `json:"rendered,omitempty"`
	}
	CallInfo struct {
		ID         string `json:"id"`
		DeadlineMS int64  `json:"deadline_ms"` // since 1970
		Round      int    `json:"round"`
	}
	Node struct {
		Name    string `json:"name"`
		Cluster string `json:"cluster"`
		Default bool   `json:"default"`
	}
	// Error is the error of an output.
	Error struct {
		Code       string `json:"code"`
		Message    string `json:"message"`
		Suggestion string `json:"suggestion,omitempty"`
	}
)

// Describe and Call are the guest's two exported functions without the memory between; package sdk
// sets them.
var (
	Describe func() ([]byte, error)
	Call     func(input []byte) (code int32, output []byte)
)
