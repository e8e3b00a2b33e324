package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	maxDepth  = 64
	maxValues = 10_000 // in one message, arguments included
)

// Envelope is what the host must know of a message before the SDK reads it.
type Envelope struct {
	ID      json.RawMessage // as it was written; nil for none
	Method  string          // "" for a response
	Version string          // the protocol version in _meta, "" for none

	params json.RawMessage // as they were written; nil for none
	id     any             // a string or a float64, as encoding/json decodes them
	tag    string          // the version of JSON-RPC
}

// message returns the request that the envelope is of. A response is read by the SDK, of data.
func (e Envelope) message(data []byte) (jsonrpc.Message, error) {
	if e.Method == "" {
		return jsonrpc.DecodeMessage(data)
	}
	if e.tag != "2.0" {
		return nil, fmt.Errorf("jsonrpc is %q, want \"2.0\"", e.tag)
	}
	id, err := jsonrpc.MakeID(e.id)
	return &jsonrpc.Request{ID: id, Method: e.Method, Params: e.params}, err
}

// ReadEnvelope checks a message before the SDK sees it, so that every reader of the same bytes (a
// proxy, a log, the SDK) reads the same message: exactly one JSON object of valid UTF-8, no key
// twice in any object nor keys that differ only in case, an id that every reader reads the same, at
// most 64 levels and 10,000 values. The arguments of a tool call are left to the gate, which is as
// strict and whose answer the model can read. An error is a *jsonrpc.Error.
func ReadEnvelope(data []byte) (e Envelope, err error) {
	fail := func(code int64, format string, args ...any) (Envelope, error) {
		return e, &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	data = bytes.Trim(data, " \t\r\n") // what JSON allows around a value
	switch {
	case !utf8.Valid(data):
		return fail(jsonrpc.CodeParseError, "the message is not valid UTF-8")
	case len(data) == 0:
		return fail(jsonrpc.CodeParseError, "the message is empty")
	case data[0] == '[':
		return fail(jsonrpc.CodeInvalidRequest,
			"batches are not served: send one JSON-RPC message at a time")
	case data[0] != '{':
		return fail(jsonrpc.CodeParseError, "the message is not a JSON object")
	}
	w := walker{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data, e: &e}
	w.UseNumber()
	err = w.value("", 0)
	if clash := (*clashError)(nil); errors.As(err, &clash) {
		return fail(jsonrpc.CodeInvalidRequest, "%s", clash)
	} else if err != nil {
		return fail(jsonrpc.CodeParseError, "the message is not JSON: %s", err)
	}
	if _, err := w.Token(); err != io.EOF {
		return fail(jsonrpc.CodeParseError, "there is more after the message's end")
	}
	// The SDK decodes these, and the gate sees only the result.
	if w.inArgs != nil && e.Method != "tools/call" {
		return fail(jsonrpc.CodeInvalidRequest, "arguments: %s", w.inArgs)
	}
	return e, nil
}

// clashError is valid JSON that readers may understand differently.
type clashError struct{ msg string }

func (e *clashError) Error() string { return e.msg }

func clash(format string, args ...any) error { return &clashError{fmt.Sprintf(format, args...)} }

// walker reads a message's tokens and notes what its envelope needs.
type walker struct {
	*json.Decoder
	data   []byte
	e      *Envelope
	values int
	inArgs error // the first clash inside params.arguments
}

// Paths join keys by NUL, which no key may have.
const (
	idPath      = "\x00id"
	tagPath     = "\x00jsonrpc"
	paramsPath  = "\x00params"
	methodPath  = "\x00method"
	argsPath    = "\x00params\x00arguments"
	versionPath = "\x00params\x00_meta\x00io.modelcontextprotocol/protocolVersion"
	otherPath   = "\x00params\x00-"
)

func underArgs(at string) bool { return strings.HasPrefix(at+"\x00", argsPath+"\x00") }

// report returns a clash, unless it is inside the arguments: then it is noted.
func (w *walker) report(at string, err error) error {
	if !underArgs(at) {
		return err
	}
	if w.inArgs == nil {
		w.inArgs = err
	}
	return nil
}

func (w *walker) value(at string, depth int) error {
	if w.values++; w.values > maxValues {
		return clash("the message has more than %d values", maxValues)
	}
	if depth > maxDepth {
		deep := clash("the message is nested deeper than %d", maxDepth)
		if err := w.report(at, deep); err != nil {
			return err
		}
		return w.Decode(new(json.RawMessage)) // the gate will refuse them
	}
	tok, err := w.Token()
	if err == nil {
		err = w.note(at, tok)
	}
	if err != nil {
		return err
	}
	switch tok {
	case json.Delim('{'):
		err = w.object(at, depth)
	case json.Delim('['):
		for w.More() && err == nil {
			err = w.value(at+"\x00-", depth+1)
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	_, err = w.Token()
	return err
}

func (w *walker) object(at string, depth int) error {
	seen := map[string]string{}
	for w.More() {
		tok, err := w.Token()
		if err != nil {
			return err
		}
		key := tok.(string)
		// K (Kelvin) lowers to k, and readers may fold it.
		low := strings.ToLower(strings.ToUpper(key))
		first, twice := seen[low]
		switch {
		case twice:
			err = clash("key %q repeats %q", key, first)
		case depth == 0 && low != key:
			err = clash("key %q is not JSON-RPC's; keys are lower case", key)
		case strings.ContainsRune(key, 0):
			err = clash("key %q has a NUL character", key)
		}
		if seen[low] = key; err != nil {
			if err = w.report(at, err); err != nil {
				return err
			}
		}
		// Below params, the paths of keys matter no more: long ones would take long to copy.
		inside := otherPath
		if depth < 3 && len(key) < 64 {
			inside = at + "\x00" + key
		} else if underArgs(at) {
			inside = argsPath + "\x00-"
		}
		begin := w.InputOffset()
		if err := w.value(inside, depth+1); err != nil {
			return err
		}
		if inside == paramsPath {
			w.e.params = bytes.TrimLeft(w.data[begin:w.InputOffset()], ": \t\r\n")
		}
	}
	return nil
}

// note checks the first token of a value: an object or a list is no id and no method.
func (w *walker) note(at string, tok json.Token) error {
	switch at {
	case idPath:
		switch id := tok.(type) {
		case string:
			if len(id) > 256 {
				return clash("id is longer than 256 bytes")
			}
			quoted, err := json.Marshal(id)
			w.e.ID, w.e.id = quoted, id
			return err
		case json.Number:
			n, err := strconv.ParseInt(string(id), 10, 64)
			if err != nil || n >= 1<<53 || n <= -1<<53 || strconv.FormatInt(n, 10) != string(id) {
				return clash("id is a number that not every reader reads the same: use a string " +
					"or an integer within ±9007199254740991")
			}
			w.e.ID, w.e.id = json.RawMessage(id), float64(n)
			return nil
		}
		return clash("id is neither a string nor an integer")
	case methodPath:
		method, isString := tok.(string)
		if w.e.Method = method; !isString || method == "" {
			return clash("method is not a string, or empty")
		}
	case versionPath:
		w.e.Version, _ = tok.(string)
	case tagPath:
		w.e.tag, _ = tok.(string)
	}
	return nil
}

// MethodOf returns the method of a message of which only the beginning is there, or "" if that does
// not say.
func MethodOf(begin []byte) (method string) {
	d := json.NewDecoder(bytes.NewReader(begin))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		if key == "method" {
			_ = d.Decode(&method) // anything else than a string is no method
			return method
		}
		if d.Decode(new(json.RawMessage)) != nil {
			return ""
		}
	}
	return ""
}

// ErrorReply is the JSON-RPC answer to a message that was refused. The id is null if the message
// did not get as far as telling it.
func ErrorReply(id json.RawMessage, e *jsonrpc.Error) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	reply, err := json.Marshal(struct {
		V     string          `json:"jsonrpc"`
		ID    json.RawMessage `json:"id"`
		Error *jsonrpc.Error  `json:"error"`
	}{"2.0", id, e})
	if err != nil { // it is made of strings and numbers
		panic(err)
	}
	return reply
}
