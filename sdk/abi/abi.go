// Package abi is the wire between a plugin and the host, version 1.
//
// It holds one struct for each request and response, the table of operations, and the strict
// decoder that the host reads requests with. The host and the SDK share it, so that both mean the
// same bytes. Plugins write requests and read responses without reflection, with code that `go
// generate` writes from the tags. It imports the standard library and package codec only. See
// docs/abi.md for the specification.
package abi

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/sdk/codec"
)

//go:generate go run ../internal/gen/abi

// Minor is the minor version of this package's ABI: 1.1 added Input.Rendered, 1.2 the status
// Planned, 1.3 alias_of of a tool, 1.4 Input.LocalFiles, SFTPPut.Parents and lists of requests. A
// description without one is of 1.0.
const Minor = 4

// Status is the i32 that an operation import returns.
type Status = uint32

const (
	OK         Status = iota // the response is the operation's; any exit code of a command is OK
	Failed                   // the operation failed: code, message
	Refused                  // policy refused it, nothing happened: decision_id, failed, deny
	Unknown                  // the request was sent and the answer never came: code, message
	BadRequest               // the request is malformed: field, message
	Pending                  // ask only: return from the call, which starts again with the answer
	Planned                  // the call is only planned: the response is what success looks like
)

// Results of the export caponier_v1_call. Any other value is a protocol error.
const (
	CallOK    int32 = iota
	CallError       // the tool failed: the output holds an error
	CallInput       // the arguments do not fit: the output holds an error
)

// RequestError reports which field of a request is wrong. Field is "" for the request as a whole.
type RequestError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (e *RequestError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Data is bytes as text, or as base64 where they are not UTF-8 or contain NUL. Both fields empty
// means no bytes. Both set is an error.
type Data struct {
	Text string `json:"text,omitempty"`
	B64  string `json:"b64,omitempty"`
}

// NewData returns b in its one form.
func NewData(b []byte) (d Data) {
	d.Text, d.B64 = Split(b)
	return d
}

// Bytes returns the bytes. The error is a *RequestError.
func (d Data) Bytes() ([]byte, error) { return Join(d.Text, d.B64) }

// Split returns b as text if it is UTF-8 without NUL, and as base64 otherwise.
func Split(b []byte) (text, b64 string) {
	if s := string(b); utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s, ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}

// Join is the inverse of Split. The error is a *RequestError.
func Join(text, b64 string) ([]byte, error) {
	if b64 == "" {
		return []byte(text), nil
	}
	if text != "" {
		return nil, &RequestError{Field: "b64", Message: "set the text or its base64, not both"}
	}
	b, err := base64.StdEncoding.Strict().DecodeString(b64)
	if err != nil {
		return nil, &RequestError{Field: "b64", Message: err.Error()}
	}
	return b, nil
}

// Mode is permission bits. It encodes as octal text; a number is read too.
type Mode uint32

func (m Mode) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%04o"`, uint32(m)), nil }

func (m *Mode) UnmarshalJSON(b []byte) error {
	var s string
	base, r := 8, codec.NewReader(b)
	if codec.Text(r, &s); r.End() != nil {
		s, base = string(b), 10
	}
	n, err := strconv.ParseUint(s, base, 32)
	*m = Mode(n)
	return err
}
