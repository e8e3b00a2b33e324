package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// farewell is how long running calls may go on when stdin has ended: enough for the answers to what
// a shell piped in.
const farewell = time.Second

// Stdio serves one client over stdin and stdout until stdin ends, which returns nil, or ctx ends.
// Then it cancels running calls and waits for their answers, at most Options.StopTimeout. While it
// runs, nothing else may write to stdout: os.Stdout is stderr.
func (s *Server) Stdio(ctx context.Context) error {
	if s.opts.Principal.ID == "" {
		return errors.New("serving stdio: no principal is configured: set cli.principal")
	}
	in, out := s.opts.Stdin, s.opts.Stdout
	if in == nil {
		in = os.Stdin
	}
	if out == nil {
		stdout := os.Stdout
		out, os.Stdout = stdout, os.Stderr
		defer func() { os.Stdout = stdout }()
		IgnoreBrokenPipe()
	}
	who := Caller{Principal: s.opts.Principal, Source: "stdio", Gone: context.Background()}
	t := &lines{in: bufio.NewReaderSize(in, 64<<10), out: out, most: int(s.opts.MaxBody), who: who,
		ready: s.opts.Ready, root: s.root, log: s.log,
		eof: make(chan struct{}), closed: make(chan struct{}), read: make(chan line)}
	session, err := s.sdk.Connect(context.WithoutCancel(ctx), t, nil)
	if err != nil {
		return fmt.Errorf("serving stdio: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
		return err
	case <-t.eof: // the SDK has cancelled what still ran
		select {
		case err = <-ended:
		case <-time.After(s.opts.StopTimeout):
			err = errors.New("serving stdio: a call did not end after the client had gone")
		}
		return err
	case <-ctx.Done():
	}
	s.Stop()
	if !WaitFor(func() bool { return t.open.Load() == 0 }, s.opts.StopTimeout) {
		return fmt.Errorf("serving stdio: %d calls did not end within %s of being cancelled",
			t.open.Load(), s.opts.StopTimeout)
	}
	err = session.Close()
	if !errors.Is(ctx.Err(), context.Canceled) {
		err = errors.Join(err, ctx.Err())
	}
	return err
}

// WaitFor polls until done, at most for a time, and reports whether it was: what it waits for
// happens inside the SDK.
func WaitFor(done func() bool, most time.Duration) bool {
	for end := time.Now().Add(most); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// lines is MCP's stdio transport: one JSON message a line. The SDK's own ends the session silently
// at the first line that it cannot read; this one answers it, logs what is wrong with it, and goes
// on.
type lines struct {
	in   *bufio.Reader
	out  io.Writer
	most int
	who  Caller
	log  *slog.Logger

	ready <-chan struct{}
	root  context.Context // ends when the host stops

	read   chan line
	eof    chan struct{} // stdin has ended and the SDK was told
	closed chan struct{}
	once   sync.Once
	open   atomic.Int64 // requests that are not answered

	mu sync.Mutex // guards writing to out
}

type line struct {
	msg jsonrpc.Message
	err error
}

func (t *lines) SessionID() string { return "" }

// Connect starts the reader. While it waits for stdin it cannot be stopped: it ends with the
// process or with stdin.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	go func() {
		for {
			msg, err := t.next()
			select {
			case t.read <- line{msg, err}:
			case <-t.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return t, nil
}

// next returns the next message that can be read, and answers those that cannot.
func (t *lines) next() (jsonrpc.Message, error) {
	for {
		raw, err := t.line()
		if errors.Is(err, errLong) {
			t.refuse(nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(
				"the line is over the limit of %d bytes; move large data with the upload and "+
					"download tools", t.most)}, raw)
			continue
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		env, bad := ReadEnvelope(raw)
		if bad == nil {
			msg, err := env.message(raw)
			if err == nil {
				return msg, nil
			}
			bad = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
				Message: "not a JSON-RPC 2.0 message: " + err.Error()}
		}
		var wire *jsonrpc.Error
		errors.As(bad, &wire)
		t.refuse(env.ID, wire, raw)
	}
}

var errLong = errors.New("line too long")

// line reads up to a newline or the end. It skips a line over the limit to its end without keeping
// it.
func (t *lines) line() ([]byte, error) {
	var buf []byte
	long := false
	for {
		part, err := t.in.ReadSlice('\n')
		if len(buf)+len(part) > t.most {
			long = true
		}
		if !long {
			buf = append(buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long && (err == nil || err == io.EOF):
			return buf, errLong // at the end of stdin the next read reports it again
		case err == io.EOF && len(bytes.TrimSpace(buf)) > 0:
			return buf, nil
		default:
			return buf, err
		}
	}
}

func (t *lines) refuse(id []byte, e *jsonrpc.Error, raw []byte) {
	hint := "MCP over stdio is one JSON-RPC message a line, in UTF-8"
	if bytes.HasPrefix(bytes.ToLower(raw), []byte("content-length")) {
		hint += "; Content-Length headers belong to another protocol"
	}
	t.log.Error("a line on stdin was refused", "error", e.Message, "hint", hint, "starts",
		cut(string(raw[:min(len(raw), 60)]), 60))
	if err := t.write(ErrorReply(id, e)); err != nil {
		t.log.Error("stdout cannot be written", "error", err)
	}
}

// Read reports the end of stdin only after the open requests are answered, or have had their time:
// the SDK answers none after it.
func (t *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	var l line
	select {
	case l = <-t.read:
	case <-t.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.err != nil {
		select {
		case <-t.ready:
		case <-t.root.Done():
		}
		WaitFor(func() bool { return t.open.Load() == 0 }, farewell)
		close(t.eof)
		return nil, l.err
	}
	if req, isRequest := l.msg.(*jsonrpc.Request); isRequest {
		req.Extra = &mcp.RequestExtra{TokenInfo: t.who.TokenInfo()}
		if req.IsCall() {
			t.open.Add(1)
		}
	}
	return l.msg, nil
}

func (t *lines) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if _, answer := msg.(*jsonrpc.Response); answer {
		defer t.open.Add(-1)
	}
	return t.write(data)
}

func (t *lines) write(data []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.out.Write(append(data, '\n'))
	return err
}

func (t *lines) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}
