package sandbox

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

var (
	forever  = op(0x03, 0x40, 0x0c, 0, 0x0b, 0x00) // loop br 0 end unreachable
	spinCall = op(forever)
)

// exponential returns 40 functions that each call the next twice: 2^40 calls without a loop.
func exponential(base int) [][]byte {
	var fs [][]byte
	for k := range 39 {
		fs = append(fs, body(op(callf(base+k+1), callf(base+k+1))))
	}
	return append(fs, body(nil))
}

func TestHostileModulesEndOnlyTheirCall(t *testing.T) {
	// loads that depend on loads
	longBody := bytes.Repeat(op(c32(64), 0x28, 2, 0, 0x28, 2, 0, 0x1a), 50_000)
	for name, c := range map[string]struct {
		build module
		code  string
		says  string // in the error
	}{
		"unreachable is a trap": {module{call: op(0x00)}, "plugin_trap", "unreachable"},
		"division by zero is a trap": {
			module{call: op(c32(1), c32(0), 0x6d)}, "plugin_trap", "divide by zero",
		},
		"a load outside memory is a trap": {
			module{call: op(c32(-4), 0x28, 2, 0)}, "plugin_trap", "out of bounds",
		},
		"an indirect call outside the table is a trap": {
			module{table: []byte{1, 0x70, 0, 1}, call: op(c32(7), 0x11, 0, 0)}, "plugin_trap",
			"table",
		},
		"recursion without end is a trap": {
			module{more: [][]byte{body(callf(3))}, call: op(callf(3), c32(0))}, "plugin_trap",
			"stack overflow",
		},
		"proc_exit is an exit": {
			module{
				imports: []imported{{module: wasiModule, name: "proc_exit"}},
				call:    op(c32(3), callf(0), c32(0)),
			},
			"plugin_exit", "code 3",
		},
		"memory that cannot grow, then a trap": {
			module{memory: []byte{1, 0, 1}, call: op(c32(2000), 0x40, 0, 0x1a, 0x00)},
			"plugin_memory", "memory_max",
		},
		"a loop without end is stopped": {module{call: spinCall}, "budget", "budget"},
		"a loop that calls nothing but grows is stopped": {
			module{call: op(0x03, 0x40, c32(0), 0x40, 0, 0x1a, 0x0c, 0, 0x0b, 0x00)}, "budget",
			"budget",
		},
		"exponential calls without a loop are stopped": {
			module{more: exponential(3), call: op(callf(3), c32(0))}, "budget", "budget",
		},
		"a loop of a very long straight body is stopped": {
			module{call: op(0x03, 0x40, longBody, 0x0c, 0, 0x0b, 0x00)}, "budget", "budget",
		},
		"filling memory again and again is stopped": {
			module{
				memory: []byte{1, 1, 0x80, 8, 0x80, 8},
				call: op(0x03, 0x40, c32(0), c32(1), c32(1<<26), 0xfc, 11, 0, 0x0c, 0, 0x0b,
					0x00),
			},
			"budget", "budget",
		},
		"copying memory again and again is stopped": {
			module{
				memory: []byte{1, 1, 0x80, 8, 0x80, 8},
				call: op(0x03, 0x40, c32(0), c32(1), c32(1<<26-1), 0xfc, 10, 0, 0, 0x0c, 0, 0x0b,
					0x00),
			},
			"budget", "budget",
		},
		"sleeping past the budget is stopped": {sleeper(), "budget", "budget"},
		"reading input in a loop is stopped": {
			module{
				imports: []imported{{module: abiModule, name: "input_read"}},
				call:    op(0x03, 0x40, c32(0), c32(65536), callf(0), 0x1a, 0x0c, 0, 0x0b, 0x00),
			},
			"budget", "budget",
		},
		"random bytes in a loop are stopped": {
			module{
				memory:  []byte{1, 1, 0x80, 8, 0x80, 8},
				imports: []imported{{module: wasiModule, name: "random_get"}},
				call:    op(0x03, 0x40, c32(0), c32(1<<26), callf(0), 0x1a, 0x0c, 0, 0x0b, 0x00),
			},
			"budget", "budget",
		},
		"a code that the ABI does not know is a broken ABI": {
			module{imports: []imported{output}, call: op(ok(), 0x1a, c32(7))}, "plugin_protocol",
			"returned 7",
		},
		"no output is a broken ABI": {module{call: c32(0)}, "plugin_protocol", "0 bytes"},
		"output that is not JSON is a broken ABI": {
			module{imports: []imported{output}, call: op(c32(9), c32(5), callf(0), 0x1a, c32(0))},
			"plugin_protocol", "JSON",
		},
		"too much output is a broken ABI": {
			module{
				imports: []imported{output},
				call:    op(0x03, 0x40, c32(0), c32(65536), callf(0), 0x45, 0x0d, 0, 0x0b, c32(0)),
			},
			"plugin_protocol", "more than 16777216 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{CacheDir: compileCache}) // one has a very long body
			tool := h.add(c.build.bytes())
			tool.Budget = 300 * time.Millisecond
			if c.code != "budget" {
				tool.Budget = 10 * time.Second
			}
			h.ready(tool)
			began := time.Now()
			a := h.call(tool, object{})
			took := time.Since(began)
			want(t, a, c.code)
			if a.Err != nil && !strings.Contains(a.Err.Error(), c.says) {
				t.Errorf("the error is %q, which does not say %q", a.Err, c.says)
			}
			if c.code == "budget" {
				t.Logf("stopped %s after its deadline", took-tool.Budget)
				// TestInstancesAreStoppedInTime checks how soon; this machine may be busy
				if over := took - tool.Budget; over > 10*time.Second {
					t.Errorf("it was stopped %s after its deadline", over)
				}
			}
			good := h.add(module{imports: []imported{output}, call: ok()}.bytes())
			want(t, h.call(good, object{}), "")
		})
	}
}

// sleeper waits an hour by poll_oneoff.
func sleeper() module {
	// i64.store of about 10 hours in ns
	hour := op(c32(64+24), 0x42, 0x80, 0xc0, 0xca, 0xf3, 0x84, 0xa3, 0x02, 0x37, 3, 0)
	return module{
		imports: []imported{{module: wasiModule, name: "poll_oneoff"}},
		call:    op(hour, c32(64), c32(256), c32(1), c32(512), callf(0)),
	}
}

func TestCancelledCallsStopTheirInstance(t *testing.T) {
	h := newHost(t, Options{})
	tool := h.add(module{call: spinCall}.bytes())
	want(t, h.callTimed(tool, 50*time.Millisecond), "cancelled")
}

func (h *host) callTimed(tool *terms.Tool, after time.Duration) terms.Answer {
	ctx, cancel := context.WithCancel(context.Background())
	stop := time.AfterFunc(after, cancel)
	defer stop.Stop()
	return h.callWith(ctx, tool, object{})
}

func TestStartOfAPluginIsStopped(t *testing.T) {
	for name, g := range map[string]module{
		"in _initialize":        {init: op(0x03, 0x40, 0x0c, 0, 0x0b)},
		"in its start function": {start: true, more: [][]byte{body(op(0x03, 0x40, 0x0c, 0, 0x0b))}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{StartTimeout: 50 * time.Millisecond})
			a := h.call(h.add(g.bytes()), object{})
			want(t, a, "plugin_unavailable")
			if !strings.Contains(a.Err.Error(), "computed or slept for more than 50ms") {
				t.Errorf("the error is %q, which does not say what was too long", a.Err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			if _, _, err := describeModule(ctx, g.bytes(), ""); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Errorf("describing it gave %v", err)
			}
		})
	}
}
