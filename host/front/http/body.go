package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// smallBody is the size in bytes up to which a body may have any method. Only tools/call may be
// larger.
const smallBody = 64 << 10

// refusedBody is why a body was not read.
type refusedBody struct {
	reason string
	status int
	msg    string
}

func (e *refusedBody) Error() string { return e.msg }

// budget is the share of Options.MaxBodies that one request holds.
type budget struct {
	s    *Server
	who  string
	held int
}

func (b *budget) take(n int64) error {
	if n > 1<<30 || !b.s.bodies.TryAcquireN(b.who, int(n)) {
		return &refusedBody{"memory", http.StatusServiceUnavailable,
			"the bodies of your requests, or of all, take as much memory as they may; try again " +
				"when one is answered"}
	}
	b.held += int(n)
	return nil
}

func (b *budget) release() { b.s.bodies.ReleaseN(b.who, b.held) }

// read returns begin and what follows it in the body, up to size bytes together or to its end.
func (b *budget) read(body io.Reader, begin []byte, size int64) ([]byte, error) {
	if err := b.take(size - int64(len(begin))); err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := io.ReadFull(body, data[copy(data, begin):])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, incomplete
	}
	return data[:len(begin)+n], nil
}

var incomplete = &refusedBody{"body", http.StatusBadRequest, "the body did not arrive whole"}

// body reads the whole body of a request, within its size and the caller's budget. It reads more
// than smallBody only of a tool call.
func (s *Server) body(r *http.Request, b *budget) ([]byte, error) {
	most, length := s.mcp.Options().MaxBody, r.ContentLength
	tooLarge := &refusedBody{"size", http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is "+
		"over the limit of %d bytes; move large data with the upload and download tools", most)}
	if length > most {
		return nil, tooLarge
	}
	size := length
	if length < 0 { // it is not known
		size = most
	}
	data, err := b.read(r.Body, nil, min(size, smallBody))
	if err == nil && size > smallBody && len(data) == smallBody {
		if mcp.MethodOf(data) != "tools/call" {
			return nil, &refusedBody{"size", http.StatusRequestEntityTooLarge, fmt.Sprintf(
				"the body is over the limit of %d bytes for anything but tools/call; a larger "+
					"call must have its method before its params", smallBody)}
		}
		data, err = b.read(r.Body, data, size)
	}
	switch {
	case err != nil:
		return nil, err
	case length >= 0 && int64(len(data)) < length:
		return nil, incomplete
	case length < 0 && int64(len(data)) == most:
		if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
			return nil, tooLarge
		}
	}
	return data, nil
}

// message reads the body of a request and its envelope, or answers with why not.
func (s *Server) message(w http.ResponseWriter, r *http.Request, who string, b *budget) (
	data []byte, env mcp.Envelope, ok bool) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(s.ioTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		refuse(w, "body", http.StatusInternalServerError,
			"the connection cannot be given a deadline")
		return nil, env, false
	}
	data, err := s.body(r, b)
	if no := (*refusedBody)(nil); errors.As(err, &no) {
		if no.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		refuse(w, no.reason, no.status, no.msg)
		return nil, env, false
	}
	_ = control.SetReadDeadline(time.Time{}) // it worked before
	if err := turnOf(r.Context()).begin(r.Context(), s.opts.Turns, who); err != nil {
		return nil, env, false // the client has gone
	}
	env, err = mcp.ReadEnvelope(data)
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		setReason(w, "message")
		reply(w, http.StatusBadRequest, env.ID, wire)
		return nil, env, false
	}
	return data, env, true
}

func reply(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mcp.ErrorReply(id, e)) // the client may have gone
}
