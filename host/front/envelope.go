package front

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

// envelope is what a message is about, as far as the host must know before the SDK reads it.
type envelope struct {
	ID      json.RawMessage // as it was written; nil for none
	Method  string          // "" for a response
	Version string          // the protocol version in _meta, "" for none
}

const maxEnvelopeDepth = 64

// readEnvelope checks a message before the SDK sees it, so that whoever else reads the same bytes
// (a proxy, a log, the SDK) must read the same message: exactly one JSON object of valid UTF-8, no
// key twice in any object nor keys that differ only in case, an id that survives the trip, bounded
// nesting. The arguments of a tool are left to the gate, which is as strict and whose answer the
// model can read. An error is a *jsonrpc.Error.
func readEnvelope(data []byte) (e envelope, err error) {
	fail := func(code int64, format string, args ...any) (envelope, error) {
		return e, &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	if !utf8.Valid(data) {
		return fail(jsonrpc.CodeParseError, "the message is not valid UTF-8")
	}
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return fail(jsonrpc.CodeParseError, "the message is empty")
	case data[0] == '[':
		return fail(
			jsonrpc.CodeInvalidRequest,
			"batches are not served: send one JSON-RPC message at a time",
		)
	case data[0] != '{':
		return fail(jsonrpc.CodeParseError, "the message is not a JSON object")
	}
	w := walker{Decoder: json.NewDecoder(bytes.NewReader(data)), e: &e}
	w.UseNumber()
	if err := w.value("", 0); err != nil {
		var clash *clashError
		if errors.As(err, &clash) {
			return fail(jsonrpc.CodeInvalidRequest, "%s", clash)
		}
		return fail(jsonrpc.CodeParseError, "the message is not JSON: %s", err)
	}
	if _, err := w.Token(); err != io.EOF {
		return fail(jsonrpc.CodeParseError, "there is more after the message's end")
	}
	// the SDK decodes these, and the gate sees only what it made of them
	if w.args != nil && e.Method != "tools/call" {
		args := walker{Decoder: json.NewDecoder(bytes.NewReader(w.args)), e: &envelope{}}
		args.UseNumber()
		if err := args.value("/params/arguments/", 2); err != nil {
			return fail(jsonrpc.CodeInvalidRequest, "arguments: %s", err)
		}
	}
	return e, nil
}

type clashError struct{ msg string }

func (e *clashError) Error() string { return e.msg }

// walker reads a message's tokens and notes what its envelope needs.
type walker struct {
	*json.Decoder
	e    *envelope
	args json.RawMessage // of params, which are not walked
}

func (w *walker) value(at string, depth int) error {
	if depth > maxEnvelopeDepth {
		return &clashError{fmt.Sprintf("the message is nested deeper than %d", maxEnvelopeDepth)}
	}
	if at == "/params/arguments" {
		return w.Decode(&w.args)
	}
	tok, err := w.Token()
	if err != nil {
		return err
	}
	switch tok {
	case json.Delim('{'):
		seen := map[string]string{}
		for w.More() {
			k, err := w.Token()
			if err != nil {
				return err
			}
			key := k.(string)
			low := strings.ToLower(strings.ToUpper(key))
			if first, twice := seen[low]; twice {
				return &clashError{fmt.Sprintf("key %q repeats %q", key, first)}
			}
			if seen[low] = key; depth == 0 && low != key {
				return &clashError{
					fmt.Sprintf("key %q is not JSON-RPC's; keys are lower case", key),
				}
			}
			if strings.ContainsRune(key, 0) {
				return &clashError{fmt.Sprintf("key %q has a NUL character", key)}
			}
			if err := w.value(at+"/"+key, depth+1); err != nil {
				return err
			}
		}
		_, err = w.Token()
		return err
	case json.Delim('['):
		for w.More() {
			if err := w.value(at+"/-", depth+1); err != nil {
				return err
			}
		}
		_, err = w.Token()
		return err
	}
	return w.note(at, tok)
}

func (w *walker) note(at string, tok json.Token) error {
	switch at {
	case "/id":
		switch id := tok.(type) {
		case string:
			if len(id) > 256 {
				return &clashError{"id is longer than 256 bytes"}
			}
			quoted, err := json.Marshal(id)
			w.e.ID = quoted
			return err
		case json.Number:
			if n, err := strconv.ParseInt(string(id), 10, 64); err != nil || n >= 1<<53 || n <= -1<<53 || strconv.FormatInt(n, 10) != string(id) {
				return &clashError{"id is a number that not every reader reads the same: use a string or an integer within ±9007199254740991"}
			}
			w.e.ID = json.RawMessage(id)
			return nil
		}
		return &clashError{"id is neither a string nor an integer"}
	case "/method":
		method, isString := tok.(string)
		if w.e.Method = method; !isString || method == "" {
			return &clashError{"method is not a string, or empty"}
		}
	case "/params/_meta/io.modelcontextprotocol/protocolVersion":
		w.e.Version, _ = tok.(string)
	}
	return nil
}

// errorReply is the JSON-RPC answer to a message that was refused; id is null when the message did
// not get as far as telling it.
func errorReply(id json.RawMessage, e *jsonrpc.Error) []byte {
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
