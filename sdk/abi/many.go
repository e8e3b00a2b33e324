package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxMany is how many requests a list may hold.
const MaxMany = 256

// Many reports that a request may be a list of requests, which the host takes through the door one
// by one, several at the same time. Only an operation that changes nothing on a node may be listed.
func (o Operation) Many() bool { return o.Import == "sftp_get" }

// ManyResponse answers a list of requests: each by itself, in the order of the list.
type (
	ManyResponse struct {
		Answers []Answer `json:"answers"`
	}
	// Answer is the status and the response that the request would have got alone.
	Answer struct {
		Status   int             `json:"status"` // a Status
		Response json.RawMessage `json:"response"`
	}
)

// IsList reports whether a request is a list of requests.
func IsList(request []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(request, " \t\r\n"), []byte("["))
}

// ParseList decodes a plugin's list of requests of the named import strictly. A list with one wrong
// request is wrong as a whole. The error is a *RequestError.
func ParseList(name string, request []byte) ([]Op, error) {
	bad := func(field, format string, args ...any) ([]Op, error) {
		return nil, &RequestError{Field: field, Message: fmt.Sprintf(format, args...)}
	}
	if entry, known := Lookup(name); !known || entry.parse == nil || !entry.Many() {
		return bad("", "%s takes one request, and no list", name)
	}
	v, err := DecodeLimited(request, MaxRequest, MaxElements)
	if err != nil {
		return bad("", "%v", err)
	}
	list, is := v.([]any)
	if !is || len(list) == 0 || len(list) > MaxMany {
		return bad("", "a list has 1 to %d requests", MaxMany)
	}
	ops, locals := make([]Op, 0, len(list)), map[string]bool{}
	for i, one := range list {
		text, err := Encode(one)
		if err != nil {
			return bad(fmt.Sprint(i), "%v", err)
		}
		op, err := ParseOp(name, text)
		if wrong := (*RequestError)(nil); errors.As(err, &wrong) {
			return bad(fmt.Sprintf("%d/%s", i, wrong.Field), "%s", wrong.Message)
		}
		if get, is := op.(SFTPGet); is {
			if locals[get.Local] {
				return bad(fmt.Sprintf("%d/local", i), "%q stands twice in the list", get.Local)
			}
			locals[get.Local] = true
		}
		ops = append(ops, op)
	}
	return ops, nil
}
