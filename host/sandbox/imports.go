package sandbox

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero/api"
)

// abiModule is the module name of the imports of ABI version 1.
const abiModule = "caponier_v1"

// arguments of a host function. The upper half of an i32 is undefined, so each is read with i32.
type arguments []uint64

func (a arguments) i32(i int) uint32 { return uint32(a[i]) }

// hostFunc is an import. The result of do is ignored when the import has none.
type hostFunc struct {
	params, results string // value types, one byte each
	do              func(c *call, ctx context.Context, mem api.Memory, a arguments) uint32
}

// Value types of imports.
const (
	noArgs, i, ii, iii = "", "\x7f", "\x7f\x7f", "\x7f\x7f\x7f"
	iiii, iiiii        = "\x7f\x7f\x7f\x7f", "\x7f\x7f\x7f\x7f\x7f"
	long               = "\x7e"
)

// take copies a range of the module's memory, once: what is decided is what is executed, whatever
// the module does to its memory meanwhile.
func (c *call) take(mem api.Memory, ptr, n uint32) ([]byte, bool) {
	view, ok := mem.Read(ptr, n)
	c.charge(len(view))
	return bytes.Clone(view), ok
}

// give copies the rest of data into the range that the module named, and returns the number of
// bytes.
func (c *call) give(mem api.Memory, a arguments, data []byte, at *int) uint32 {
	view, ok := mem.Read(a.i32(0), a.i32(1))
	if !ok {
		return outOfRange
	}
	n := copy(view, data[*at:])
	*at += n
	c.charge(n)
	return uint32(n)
}

func (c *call) inputLen(context.Context, api.Memory, arguments) uint32 {
	return uint32(len(c.input))
}

func (c *call) respLen(context.Context, api.Memory, arguments) uint32 {
	return uint32(len(c.resp))
}

func (c *call) inputRead(_ context.Context, mem api.Memory, a arguments) uint32 {
	return c.give(mem, a, c.input, &c.inputAt)
}

func (c *call) respRead(_ context.Context, mem api.Memory, a arguments) uint32 {
	return c.give(mem, a, c.resp, &c.respAt)
}

func (c *call) outputWrite(_ context.Context, mem api.Memory, a arguments) uint32 {
	view, ok := mem.Read(a.i32(0), a.i32(1))
	switch {
	case !ok:
		return outOfRange
	case c.output.n+len(view) > c.max:
		c.output, c.over = pieces{}, true
		panic(errOver)
	}
	c.output.add(view)
	c.charge(len(view))
	return 0
}

const maxNotes = 1000 // of each in a call

// note reads one log line or progress note and counts it. Notes over maxNotes, or not in memory,
// are not read.
func (c *call) note(n *int, read func() ([]byte, bool)) (text []byte, ok bool) {
	if *n < maxNotes {
		text, ok = read()
	}
	if !ok {
		c.notes.Dropped++
		return nil, false
	}
	*n++
	return text, true
}

func (c *call) writeLog(ctx context.Context, mem api.Memory, a arguments) uint32 {
	line, ok := c.note(&c.notes.Logs, func() ([]byte, bool) {
		return c.take(mem, a.i32(1), min(a.i32(2), maxNote))
	})
	if !ok {
		return 0
	}
	c.charge(4 * len(line)) // to clean it
	level := min(max(int32(a.i32(0)), int32(slog.LevelDebug)), int32(slog.LevelError))
	text := clean(c.env.shown(ctx, string(line)), maxNote)
	c.meanwhile(ctx, func() {
		c.log.write(slog.Level(level), "plugin log", c.of, text)
		c.door.Log(int(level), text)
	})
	return 0
}

func (c *call) progress(ctx context.Context, mem api.Memory, a arguments) uint32 {
	var p struct {
		Done    float64 `json:"done"`
		Total   float64 `json:"total"`
		Message string  `json:"message"`
	}
	_, ok := c.note(&c.notes.Progress, func() ([]byte, bool) {
		note, ok := c.take(mem, a.i32(0), min(a.i32(1), maxNote+1))
		return note, ok && len(note) <= maxNote && abi.DecodeInto(note, maxNote, &p) == nil
	})
	if ok {
		text := clean(c.env.shown(ctx, p.Message), 500)
		c.meanwhile(ctx, func() { c.door.Progress(p.Done, p.Total, text) })
	}
	return 0
}
