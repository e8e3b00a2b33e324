package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero/api"
)

const (
	maxStderr   = 16 << 10 // bytes that are kept of what an instance writes to stdout and stderr
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
	statusPlanned
)

// outOfRange is -1: the module named memory that it does not have, or more than may be written.
const outOfRange = ^uint32(0)

// door is what a running module can reach of the host: a *gate.Running while a call runs, and
// noDoor otherwise.
type door interface {
	Operate(context.Context, abi.Op) (terms.Result, error)
	Log(level int, message string)
	Progress(done, total float64, message string)
}

// noDoor is the door of a module that starts or is described. It holds nothing, and so can reach
// neither a node nor a client.
type noDoor struct{}

func (noDoor) Operate(_ context.Context, op abi.Op) (terms.Result, error) {
	return terms.Result{}, &terms.Refused{Kind: "operation", Op: op.Import(),
		Failed: []string{"call.none"}, Denied: []terms.Reason{{ID: "call.none",
			Msg: "there are no operations while a plugin starts or is described"}}}
}
func (noDoor) Log(int, string)                   {}
func (noDoor) Progress(float64, float64, string) {}

// call is the state of one run of an instance. It lives in the context, never in the module.
type call struct {
	door    door
	of      *terms.Call // nil while a plugin starts or is described
	log     *moduleLog  // nil for none
	env     *environment
	input   []byte
	inputAt int
	output  pieces
	max     int // bytes of output
	over    bool
	resp    []byte
	respAt  int
	notes   terms.Notes
	ticks   int64
	host    int   // units of work done by the host for the module, not yet counted as ticks
	limit   int64 // units of a start, with 1 ns of sleep as a unit; 0 for none
	slept   int64
	turn    cpuTurn
	stack   *[]byte // wazero's, of this call; nil when it could not be found
	stderr  []byte
	trace   string  // of a trap: one line for each function, innermost first
	killed  error   // why the host stopped it
	exit    *uint32 // what it exited with
}

// environment is time and randomness as modules see them, and what others see of what they say.
type environment struct {
	scheduler *cpuScheduler
	now       func() time.Time
	sleep     func(context.Context, time.Duration)
	random    io.Reader
	said      func(context.Context, string) string // nil: the text itself
}

// shown is what others see of what a module says.
func (e *environment) shown(ctx context.Context, text string) string {
	if e.said == nil {
		return text
	}
	return e.said(ctx, text)
}

type callKey struct{}

var (
	errKilled = errors.New("stopped by the host")
	errExited = errors.New("exited")
	errOver   = errors.New("too much output")
)

// check ends the instance when its time is up. The clock is asked, not only the context: its timer
// needs a free processor, which spinning instances may not leave.
func (c *call) check(ctx context.Context) {
	if due, ok := ctx.Deadline(); ok && !time.Now().Before(due) {
		<-ctx.Done() // due now: the cause is set when this returns
	}
	if ctx.Err() != nil {
		c.kill(context.Cause(ctx))
	}
	if c.limit > 0 && c.spent() > c.limit {
		c.kill(fmt.Errorf("it computed or slept for more than %s", time.Duration(c.limit)))
	}
}

// spent is the work of a start, in units of about a nanosecond. It is counted and not timed: how
// busy the machine is must not decide whether a plugin can start.
func (c *call) spent() int64 { return c.ticks*meter.Quantum + c.slept }

func (c *call) kill(why error) {
	c.killed = why
	panic(errKilled)
}

// maxStack bounds the bytes that the calls of an instance take on wazero's stack, which is enough
// for some ten thousand calls deep. wazero's own limit is 50 MB, and since its stack grows by
// copying, each call that recurses without end would take 160 MiB of the host's heap. The stack is
// looked at at each tick, between which it cannot grow by more than some MiB.
const maxStack = 4 << 20

// maxKept is how large a stack an instance that waits may keep.
const maxKept = 64 << 10

var errStack = errors.New("stack overflow")

// stackOf finds the stack of an exported function. wazero has no API for it, so this looks for the
// private field, and returns nil when there is none: then wazero's own limit is what holds.
func stackOf(f api.Function) *[]byte {
	engine := reflect.ValueOf(f)
	if engine.Kind() != reflect.Pointer || engine.Elem().Kind() != reflect.Struct {
		return nil
	}
	field := engine.Elem().FieldByName("stack")
	if !field.IsValid() || field.Type() != reflect.TypeFor[[]byte]() {
		return nil
	}
	return (*[]byte)(unsafe.Pointer(field.UnsafeAddr()))
}

// tick counts a quantum that is spent, and lets others compute.
func (c *call) tick(ctx context.Context) {
	if c.stack != nil && len(*c.stack) > maxStack {
		panic(errStack)
	}
	c.ticks++
	c.turn.yield(ctx)
}

// charge counts bytes that the host copies, cleans or parses for the module as work of the module.
func (c *call) charge(bytes int) { c.host += bytes }

// settle makes ticks of the host's work, and lets others compute: even the few bytes of a tick can
// be long work, as when they are not what they should be.
func (c *call) settle(ctx context.Context) {
	for ; c.host >= meter.Quantum; c.host -= meter.Quantum {
		c.tick(ctx)
	}
	c.turn.yield(ctx)
}

// meanwhile does what may wait, for a node or a client, and lets other instances compute.
func (c *call) meanwhile(ctx context.Context, do func()) {
	had := c.turn.end()
	do()
	if had {
		c.turn.begin(ctx)
	}
}

// firstLine returns the little of stderr that a client may see, with a colon before it. The host's
// log has the rest.
func (c *call) firstLine() string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(c.stderr), []byte("\n"))
	if len(line) == 0 {
		return ""
	}
	return ": " + clean(string(line), 200)
}

// operate takes a request through the door and leaves the response for the module to read.
func (c *call) operate(ctx context.Context, name string, request []byte, ok bool) uint32 {
	switch {
	case !ok:
		return c.fail(&abi.RequestError{Message: "the request is not in the memory of the plugin"})
	case len(request) > abi.MaxRequest:
		return c.fail(&abi.RequestError{
			Message: fmt.Sprintf("the request has more than %d bytes", abi.MaxRequest)})
	case abi.IsList(request):
		return c.operateMany(ctx, name, request)
	}
	op, err := abi.ParseOp(name, request)
	if err != nil {
		return c.fail(err)
	}
	var res terms.Result
	c.meanwhile(ctx, func() { res, err = c.door.Operate(ctx, op) })
	return c.respond(response(res, err))
}

// respond leaves a response for the module to read, and returns its status.
func (c *call) respond(status uint32, text []byte) uint32 {
	c.resp, c.respAt = text, 0
	return status
}

// response is the status and the text of the response of an operation.
func response(res terms.Result, err error) (uint32, []byte) {
	switch {
	case err != nil:
		return failure(err)
	case res.Value == nil:
		res.Value = struct{}{}
	}
	if res.Plan {
		return encode(statusPlanned, res.Value)
	}
	return encode(statusOK, res.Value)
}

// fail responds with an error, and returns its status.
func (c *call) fail(err error) uint32 { return c.respond(failure(err)) }

// failure is the status and the response of an operation that failed.
func failure(err error) (uint32, []byte) {
	var refused *terms.Refused
	var bad *abi.RequestError
	var op *terms.OpError
	switch {
	case errors.As(err, &refused):
		return encode(statusRefused, refused)
	case errors.As(err, &bad):
		return encode(statusBadRequest, bad)
	case errors.Is(err, terms.ErrPending):
		return statusPending, nil
	case errors.As(err, &op) && op.Outcome == terms.Unknown:
		return encode(statusUnknown, op)
	case errors.As(err, &op):
		return encode(statusFailed, op)
	}
	return encode(statusFailed, terms.OpError{Code: "failed", Message: err.Error()})
}

// encode is the response with a value, and its status.
func encode(status uint32, v any) (uint32, []byte) {
	b, err := json.Marshal(v)
	// when there is no response, the operation was done: the module must not take it for undone
	switch {
	case err != nil:
		status, b = statusUnknown, []byte(`{"code":"bad_response","message":`+
			`"the operation was done, but its response is not JSON"}`)
	case len(b) > maxResponse:
		status, b = statusUnknown, fmt.Appendf(nil, `{"code":"bad_response","message":"the `+
			`operation was done, but its response has %d bytes, and at most %d can be read"}`,
			len(b), maxResponse)
	}
	return status, b
}

// maxAtOnce is how many requests of a list are under way at the same time.
const maxAtOnce = 8

// operateMany takes each request of a list through the door by itself, and leaves all the answers
// for the module to read. Once the call has ended, or one of a list that stops there has not
// succeeded, no other begins.
func (c *call) operateMany(ctx context.Context, name string, request []byte) uint32 {
	ops, err := abi.ParseList(name, request)
	if err != nil {
		return c.fail(err)
	}
	all := abi.ManyResponse{Answers: make([]abi.Answer, len(ops))}
	entry, _ := abi.Lookup(name)
	atOnce := min(maxAtOnce, len(ops))
	if c.of == nil || c.of.InOrder() {
		atOnce = 1
	}
	var next atomic.Int64
	var stopped atomic.Bool
	one := func(op abi.Op) (uint32, []byte) {
		switch {
		case ctx.Err() != nil:
			return failure(terms.Fail("cancelled", "the call has ended"))
		case stopped.Load():
			return failure(terms.Fail(abi.NotBegun, "another one of the list did not succeed"))
		}
		status, text := response(guarded(ctx, c.door, op))
		if entry.Stops() && status != statusOK && status != statusPlanned {
			stopped.Store(true)
		}
		return status, text
	}
	c.meanwhile(ctx, func() {
		var workers sync.WaitGroup
		for range atOnce {
			workers.Go(func() {
				for i := next.Add(1) - 1; int(i) < len(ops); i = next.Add(1) - 1 {
					status, text := one(ops[i])
					all.Answers[i] = abi.Answer{Status: int(status), Response: text}
				}
			})
		}
		workers.Wait()
	})
	return c.respond(encode(statusOK, all))
}

// guarded takes an operation through the door. A panic there ends the instance when it asks for one
// operation; here it must not end the host.
func guarded(ctx context.Context, d door, op abi.Op) (res terms.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &terms.OpError{Code: "panic", Outcome: terms.Unknown,
				Message: fmt.Sprintf("the host panicked while doing this: %v", p)}
		}
	}()
	return d.Operate(ctx, op)
}

// pieces collects bytes without copying what is there already: growing a slice of many MiB, and
// collecting the garbage of that, would stall others.
type pieces struct {
	all [][]byte
	n   int // bytes
}

const maxPieceSize = 256 << 10 // bytes

func (p *pieces) add(b []byte) {
	p.n += len(b)
	for len(b) > 0 {
		last := len(p.all) - 1
		if last < 0 || len(p.all[last]) == cap(p.all[last]) {
			p.all = append(p.all, make([]byte, 0, min(max(len(b), p.n), maxPieceSize)))
			last++
		}
		room := p.all[last][len(p.all[last]):cap(p.all[last])]
		n := copy(room, b)
		p.all[last] = p.all[last][:len(p.all[last])+n]
		b = b[n:]
	}
}

// bytes returns all of them. Nothing may be added afterwards.
func (p *pieces) bytes() []byte {
	if len(p.all) == 1 {
		return p.all[0]
	}
	return bytes.Join(p.all, nil)
}
