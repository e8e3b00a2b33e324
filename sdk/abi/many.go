package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxMany is how many requests a list may hold.
const MaxMany = 256

// Many reports that a request may be a list of requests. The host takes each of them through the
// door by itself, several at the same time. Only copies of files may be listed. A plugin that asks
// for a list says that the order of the copies does not matter.
func (o Operation) Many() bool { return o.Import == "sftp_get" || o.Stops() }

// Stops reports that no request of a list begins after another one was refused, has failed or has
// an unknown outcome.
func (o Operation) Stops() bool { return o.Import == "sftp_put" }

// NotBegun is the code of the failure that answers a request of such a list that did not begin.
const NotBegun = "not_begun"

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
	ops, places := make([]Op, 0, len(list)), map[string]bool{}
	for i, one := range list {
		text, err := Encode(one)
		if err != nil {
			return bad(fmt.Sprint(i), "%v", err)
		}
		op, err := ParseOp(name, text)
		if wrong := (*RequestError)(nil); errors.As(err, &wrong) {
			return bad(fmt.Sprintf("%d/%s", i, wrong.Field), "%s", wrong.Message)
		}
		field, place := goesTo(op)
		if places[place] {
			return bad(fmt.Sprintf("%d/%s", i, field), "%q stands twice in the list", place)
		}
		places[place] = true
		ops = append(ops, op)
	}
	return ops, nil
}

// goesTo returns the place of a copy, and the field that names it.
func goesTo(op Op) (field, place string) {
	switch op := op.(type) {
	case SFTPGet:
		return "local", op.Local
	case SFTPPut:
		return "path", op.Node + ":" + op.Path
	}
	return "", ""
}
