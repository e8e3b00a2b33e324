package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// flaky starts well when the clock says so: it traps in _initialize while the second is 0.
func flaky() module {
	clock := imported{module: wasiModule, name: "clock_time_get"}
	now := op(c32(0), 0x42, 0, c32(256), callf(1), 0x1a) // to 256, in ns
	return module{
		imports: []imported{output, clock},
		init:    op(now, c32(256), 0x29, 3, 0, 0x50, 0x04, 0x40, 0x00, 0x0b), // eqz; if trap
		call:    ok(),
	}
}

// TestAFailedStartIsTriedAgain: by the first call after the back-off, which doubles.
func TestAFailedStartIsTriedAgain(t *testing.T) {
	h := newHost(t, Options{RetryAfter: time.Second})
	var well atomic.Bool
	var starts atomic.Int64
	h.box.env.now = func() time.Time {
		starts.Add(1)
		if well.Load() {
			return time.Unix(1, 0)
		}
		return time.Unix(0, 0)
	}
	tool := h.add(flaky().bytes())
	a := h.call(tool, object{})
	want(t, a, codeUnavailable)
	if !strings.Contains(a.Err.Error(), "failed starts: 1") {
		t.Errorf("the error is %q", a.Err)
	}
	for range 5 { // within the back-off, or the next one
		want(t, h.call(tool, object{}), codeUnavailable)
	}
	if n := starts.Load(); n > 2 {
		t.Errorf("%d starts in the first second or so", n)
	}
	if err := h.box.Readiness()[tool.Plugin.Digest]; err == nil ||
		!errors.As(err, new(*terms.PluginError)) {
		t.Errorf("the state is %v", err)
	}
	well.Store(true)
	soon(t, "a call succeeds", func() bool { return h.call(tool, object{}).Err == nil })
	if err := h.box.Readiness()[tool.Plugin.Digest]; err != nil {
		t.Errorf("the state is %v", err)
	}
	if p := h.plugin(tool); p.source != nil {
		t.Error("the module's bytes are kept though they are not needed any more")
	}
}

// TestAModuleThatCannotBeCompiledIsNotTriedAgain: the same bytes fail in the same way.
func TestAModuleThatCannotBeCompiledIsNotTriedAgain(t *testing.T) {
	h := newHost(t, Options{RetryAfter: time.Nanosecond})
	tool := h.add(module{call: op(0x42, 0)}.bytes())
	want(t, h.call(tool, object{}), codeUnavailable)
	tried := h.plugin(tool).tried
	want(t, h.call(tool, object{}), codeUnavailable)
	if h.plugin(tool).tried != tried {
		t.Error("it was tried again")
	}
}

// TestAStartIsMeasuredByItsWork: the wall clock does not count, however long the module waits for a
// processor; sleeping does.
func TestAStartIsMeasuredByItsWork(t *testing.T) {
	slow := module{imports: []imported{
		output, {module: wasiModule, name: "clock_time_get"},
	}, call: ok(),
		init: op(c32(0), 0x42, 0, c32(256), callf(1), 0x1a)}
	h := newHost(t, Options{StartTimeout: 10 * time.Millisecond})
	h.box.env.now = func() time.Time { time.Sleep(100 * time.Millisecond); return time.Now() }
	want(t, h.call(h.add(slow.bytes()), object{}), "")

	h = newHost(t, Options{StartTimeout: 10 * time.Millisecond})
	sleepy := sleeper()
	sleepy.init, sleepy.call = op(sleepy.call, 0x1a), nil
	began := time.Now()
	a := h.call(h.add(sleepy.bytes()), object{})
	want(t, a, codeUnavailable)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a start that sleeps for hours was stopped after %s", took)
	}
}

func TestWarmWaitsForEveryPlugin(t *testing.T) {
	h := newHost(t, Options{CacheDir: t.TempDir() + "/cache"})
	h.add(module{imports: []imported{output}, call: ok()}.bytes())
	if err := h.box.Warm(t.Context()); err != nil {
		t.Error(err)
	}
	if files := kept(t, h.box.o.CacheDir); len(files) != 1 {
		t.Errorf("the cache holds %v", files)
	}
	h.add(module{call: op(0x42, 0)}.bytes())
	if err := h.box.Warm(t.Context()); err == nil || !strings.Contains(err.Error(), "compiling") {
		t.Errorf("a module that cannot be compiled: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.add(bomb())
	if err := h.box.Warm(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := h.box.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.box.Warm(t.Context()); err == nil {
		t.Error("a closed sandbox became warm")
	}
}

// TestACallIsToldThatItsPluginIsBeingCompiled: as progress, before the call's budget begins.
func TestACallIsToldThatItsPluginIsBeingCompiled(t *testing.T) {
	h := newHost(t, Options{})
	tool := h.add(
		module{imports: []imported{output}, call: ok(), more: [][]byte{bombBody()}}.bytes())
	tool.Budget = 5 * time.Second
	var told []string
	a := h.door.Call(t.Context(), terms.Request{Source: "test", Tool: tool, Arguments: []byte("{}"),
		Progress: func(_, _ float64, message string) { told = append(told, message) }})
	want(t, a, "")
	if len(told) != 1 || !strings.Contains(told[0], "Starting plugin test") {
		t.Errorf("the call was told %q", told)
	}
}

func TestAModuleIsOpenedWhenItIsFirstCalled(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		evil bool
		want string
	}{
		"good":           {},
		"gone":           {err: errors.New("no such file"), want: "no such file"},
		"another module": {evil: true, want: "plugins.lock says"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			wasm := module{imports: []imported{output}, call: ok()}.bytes()
			sum, opened := sha256.Sum256(wasm), 0
			p := terms.Plugin{Name: "later", Digest: "sha256:" + hex.EncodeToString(sum[:])}
			if c.evil {
				wasm = append(wasm, 0)
			}
			err := h.box.Later(p, func() ([]byte, error) { opened++; return wasm, c.err }, nil)
			if err != nil || opened > 0 || h.box.Readiness()[p.Digest] != nil {
				t.Fatalf("%v, opened %d times before a call", err, opened)
			}
			for range 2 {
				err = h.box.Ready(t.Context(), &terms.Call{Tool: &terms.Tool{Plugin: p}},
					func(string) {})
				if (c.want == "") != (err == nil) ||
					err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			}
			if opened != 1 {
				t.Errorf("opened %d times", opened)
			}
		})
	}
}
