package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero/api"
)

const (
	maxNote     = 4 << 10 // bytes of a log line or a progress note, and of what is kept of stderr
	maxNotes    = 1000    // of each in a call
	maxResponse = 16 << 20
)

// Statuses of operations.
const (
	statusOK uint32 = iota
	statusFailed
	statusRefused
	statusUnknown
	statusBadRequest
	statusPending // ask only
)

// -1: the guest named memory that it does not have, or more than may be written
const outOfRange = ^uint32(0)

// call is the state of one run of a guest: it lives in the context, never in the module.
type call struct {
	// nil while a module is initialised or described: there are no operations then
	running *gate.Running
	env     *environment
	input   []byte
	inputAt int
	output  pieces
	max     int // bytes of output
	over    bool
	resp    []byte
	respAt  int
	notes   gate.Notes
	ticks   int64
	host    int // units of work that the host has done for the guest and not yet counted as ticks
	pace    pace
	stack   *[]byte // wazero's, of this call; nil when it is not where it should be
	stderr  []byte
	killed  error   // why the host stopped it
	exit    *uint32 // what it exited with
}

// environment is time and randomness as the guest sees them.
type environment struct {
	turns  *turns
	now    func() time.Time
	sleep  func(context.Context, time.Duration)
	random io.Reader
}

type callKey struct{}

var (
	errKilled = errors.New("stopped by the host")
	errExited = errors.New("exited")
	errOver   = errors.New("too much output")
)

// check ends the guest when its time is up. The clock is asked, not only the context: its timer
// needs a free processor, which spinning guests may not leave.
func (c *call) check(ctx context.Context) {
	if due, ok := ctx.Deadline(); ok && !time.Now().Before(due) {
		<-ctx.Done() // due now: the cause is set when this returns
	}
	if ctx.Err() != nil {
		c.killed = context.Cause(ctx)
		panic(errKilled)
	}
}

// maxStack bytes may the calls of a guest take on wazero's stack: some ten thousand calls deep. Its
// own limit is 50 MB, and since it grows by copying, the host's heap would have 160 MiB of it for
// each call that recurses without end. It is looked at at each tick, between which it cannot grow
// by more than some MiB.
const maxStack = 4 << 20

var errStack = errors.New("stack overflow")

// stackOf finds the stack of a function that is called. There is no call for it, so it looks for
// the field, and gives nil when there is none.
func stackOf(f api.Function) *[]byte {
	if engine := reflect.ValueOf(f); engine.Kind() == reflect.Pointer &&
		engine.Elem().Kind() == reflect.Struct {
		if field := engine.Elem().FieldByName("stack"); field.IsValid() &&
			field.Type() == reflect.TypeFor[[]byte]() {
			return (*[]byte)(unsafe.Pointer(field.UnsafeAddr()))
		}
	}
	return nil
}

// tick counts a quantum that is spent, and lets others compute.
func (c *call) tick(ctx context.Context) {
	if c.stack != nil && len(*c.stack) > maxStack {
		panic(errStack)
	}
	c.ticks++
	c.pace.pass(ctx)
}

// charge counts what the host does for a guest with so many bytes, copying, cleaning and parsing,
// as work of the guest.
func (c *call) charge(bytes int) { c.host += bytes }

// settle makes ticks of the host's work, and lets others compute: the few bytes of a tick can be
// long work, as when they are not what they should be.
func (c *call) settle(ctx context.Context) {
	for ; c.host >= quantum; c.host -= quantum {
		c.tick(ctx)
	}
	c.pace.pass(ctx)
}

// meanwhile does what may wait for something, as a node or a client, and lets other guests compute.
func (c *call) meanwhile(ctx context.Context, do func()) {
	had := c.pace.leave()
	do()
	if had {
		c.pace.enter(ctx)
	}
}

// run calls an exported function and says why it did not return.
func (c *call) run(ctx context.Context, in *instance, f api.Function) (code uint32, err error) {
	ctx = context.WithValue(ctx, callKey{}, c)
	c.stack = stackOf(f)
	var stack [1]uint64
	c.pace.turns = c.env.turns
	c.pace.enter(ctx)
	err = f.CallWithStack(ctx, stack[:])
	c.pace.leave()
	c.notes.CPUTicks = (c.ticks+1)*quantum - int64(int32(in.ticks.Get()))
	switch {
	case c.killed != nil:
		return 0, c.killed
	case c.over:
		return 0, &gate.PluginError{
			Code: "plugin_protocol",
			Message: fmt.Sprintf(
				"the plugin gave more than %d bytes of output (sandbox.max_output)",
				c.max,
			),
		}
	case c.exit != nil:
		return 0, &gate.PluginError{
			Code:    "plugin_exit",
			Message: fmt.Sprintf("the plugin exited with code %d%s", *c.exit, c.firstLine()),
		}
	case err != nil && (in.memory.refused || bytes.Contains(c.stderr, []byte("out of memory"))):
		return 0, &gate.PluginError{
			Code: "plugin_memory",
			Message: fmt.Sprintf(
				"the plugin ran out of its %d MiB of memory (sandbox.memory_max)",
				in.memory.max>>20,
			),
		}
	case err != nil:
		reason, _, _ := strings.Cut(err.Error(), "\n")
		return 0, &gate.PluginError{
			Code:    "plugin_trap",
			Message: clean(reason, 200) + c.firstLine(),
		}
	}
	return uint32(stack[0]), nil
}

// firstLine is the little of the guest's stderr that a client gets to see; the log has more.
func (c *call) firstLine() string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(c.stderr), []byte("\n"))
	if len(line) == 0 {
		return ""
	}
	return ": " + clean(string(line), 200)
}

// clean shortens text and replaces what could move a terminal's cursor.
func clean(s string, max int) string {
	out := make([]byte, 0, min(len(s), max)+len("…"))
	for _, r := range s {
		before := len(out)
		switch {
		case r >= ' ' && r <= '~':
			out = append(out, byte(r))
		case r == utf8.RuneError:
			out = append(out, '?')
		case !unicode.IsPrint(r):
			out = append(out, ' ')
		default:
			out = utf8.AppendRune(out, r)
		}
		if len(out) > max {
			return string(append(out[:before], "…"...))
		}
	}
	return string(out)
}

// operate takes a request through the door and leaves the response for the guest to read.
func (c *call) operate(ctx context.Context, name string, request []byte, ok bool) uint32 {
	if !ok {
		return c.respond(
			statusBadRequest,
			abi.RequestError{Message: "the request is not in the memory of the plugin"},
		)
	}
	if len(request) > abi.MaxRequest {
		return c.respond(
			statusBadRequest,
			abi.RequestError{
				Message: fmt.Sprintf("the request has more than %d bytes", abi.MaxRequest),
			},
		)
	}
	op, err := abi.ParseOp(name, request)
	if err != nil {
		return c.fail(err)
	}
	if c.running == nil {
		return c.respond(
			statusRefused,
			gate.Refused{Kind: "operation", Op: name, Failed: []string{"call.none"},
				Denied: []gate.Reason{
					{
						ID:  "call.none",
						Msg: "there are no operations while a plugin starts or is described",
					},
				}},
		)
	}
	var res gate.Result
	c.meanwhile(ctx, func() { res, err = c.running.Operate(ctx, op) })
	if err != nil {
		return c.fail(err)
	}
	if res.Value == nil {
		res.Value = struct{}{}
	}
	return c.respond(statusOK, res.Value)
}

// fail gives the status of an error.
func (c *call) fail(err error) uint32 {
	var refused *gate.Refused
	var bad *abi.RequestError
	var op *gate.OpError
	switch {
	case errors.As(err, &refused):
		return c.respond(statusRefused, refused)
	case errors.As(err, &bad):
		return c.respond(statusBadRequest, bad)
	case errors.Is(err, gate.ErrPending):
		c.resp, c.respAt = nil, 0
		return statusPending
	case errors.As(err, &op) && op.Outcome == gate.Unknown:
		return c.respond(statusUnknown, op)
	case errors.As(err, &op):
		return c.respond(statusFailed, op)
	}
	return c.respond(statusFailed, gate.OpError{Code: "failed", Message: err.Error()})
}

func (c *call) respond(status uint32, v any) uint32 {
	c.resp, c.respAt = nil, 0
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxResponse {
		err = fmt.Errorf("it has %d bytes, and at most %d may be read", len(b), maxResponse)
	}
	if err != nil { // what was done is done, and the guest must not take it for undone
		status, b = statusUnknown, []byte(
			`{"code":"bad_response","message":"the operation was done, but its response cannot be given"}`,
		)
	}
	c.resp = b
	return status
}

// note reads one log line or progress note and counts it. What is over the number, or not in
// memory, is not even read.
func (c *call) note(n *int, read func() ([]byte, bool)) (text []byte, ok bool) {
	if *n < maxNotes {
		text, ok = read()
	}
	if !ok {
		c.notes.Dropped++
		return nil, false
	}
	*n++
	return text, c.running != nil
}

func (c *call) log(ctx context.Context, level int32, read func() ([]byte, bool)) {
	if line, ok := c.note(&c.notes.Logs, read); ok {
		c.charge(4 * len(line)) // to clean it
		c.meanwhile(ctx, func() {
			c.running.Log(
				int(min(max(level, int32(slog.LevelDebug)), int32(slog.LevelError))),
				clean(string(line), maxNote),
			)
		})
	}
}

func (c *call) progress(ctx context.Context, read func() ([]byte, bool)) {
	var p struct {
		Done    float64 `json:"done"`
		Total   float64 `json:"total"`
		Message string  `json:"message"`
	}
	_, ok := c.note(&c.notes.Progress, func() ([]byte, bool) {
		note, ok := read()
		return note, ok && len(note) <= maxNote && abi.DecodeInto(note, maxNote, &p) == nil
	})
	if ok {
		c.meanwhile(ctx, func() { c.running.Progress(p.Done, p.Total, clean(p.Message, 500)) })
	}
}
