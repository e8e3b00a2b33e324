package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// moody is a module that does evil when its input is long, and answers when it is short.
func moody(evil []byte) module {
	return module{
		memory:  []byte{1, 0, 1},
		imports: []imported{output, {module: abiModule, name: "input_len"}},
		call:    op(callf(1), c32(1000), 0x4f, 0x04, 0x40, evil, 0x0b, ok()), // i32.ge_u
	}
}

// growAndTouch grows the memory until it is refused, and writes to every page.
var growAndTouch = op(0x03, 0x40, c32(1), 0x40, 0, c32(0), 0x4a, 0x04, 0x40,
	0x3f, 0, c32(1), 0x6b, c32(16), 0x74, c32(1), c32(65536), 0xfc, 11, 0, 0x0c, 1, 0x0b, 0x0b)

var evil = map[string]struct {
	code []byte
	ends string
}{
	"traps":             {op(0x00), codeTrap},
	"eats all memory":   {op(growAndTouch, 0x00), codeMemory},
	"computes for ever": {op(0x03, 0x40, 0x0c, 0, 0x0b), "budget"},
	"answers with dirt": {op(c32(9), c32(5), callf(0), 0x1a, c32(0), 0x0f), codeProtocol},
	"recurses for ever": {nil, codeTrap},
	"writes for ever": {
		op(0x03, 0x40, c32(0), c32(65536), callf(0), 0x1a, 0x0c, 0, 0x0b), codeProtocol,
	},
	"fills what it has": {
		op(0x03, 0x40, c32(0), c32(1), c32(1<<16), 0xfc, 11, 0, 0x0c, 0, 0x0b), "budget",
	},
	"exits by proc_exit": {nil, codeExit},
}

// hostileViewer returns a tool and calls it with long input as a viewer from as many goroutines,
// until stop is called.
func hostileViewer(
	t *testing.T,
	h *host,
	name string,
	callers int,
) (tool *terms.Tool, stop func()) {
	m := moody(evil[name].code)
	switch name {
	case "recurses for ever":
		m = moody(callf(5))
		m.more = [][]byte{body(callf(5))}
	case "exits by proc_exit":
		m = moody(op(c32(3), callf(2)))
		m.imports = append(m.imports, imported{wasiModule, "proc_exit"})
	}
	tool = h.add(m.bytes())
	h.ready(tool)
	long := *tool
	long.Budget = 50 * time.Millisecond
	if evil[name].ends != "budget" {
		long.Budget = time.Minute
	}
	var over atomic.Bool
	var ran atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for !over.Load() {
				a := h.callOf("viewer", &long, object{"long": strings.Repeat("x", 1000)})
				if got := ended(
					a); got != evil[name].ends && got != codeUnavailable && got != codeMemory {
					t.Errorf("a hostile call ended with %q (%v), want %q", got, a.Err,
						evil[name].ends)
				}
				ran.Add(1)
			}
		})
	}
	soon(t, "hostile calls have run", func() bool { return ran.Load() > 15 })
	return tool, func() { over.Store(true); wg.Wait() }
}

func (h *host) callOf(principal string, tool *terms.Tool, args any) terms.Answer {
	raw, err := json.Marshal(args)
	if err != nil {
		h.t.Error(err)
	}
	return h.door.Call(context.Background(), terms.Request{Source: "test", Tool: tool,
		Arguments: raw, Principal: terms.Principal{ID: principal}})
}

// TestAHostileViewerTakesNoPluginFromAnOperator: whatever a viewer's input does to a plugin, every
// call of an operator to the same plugin is answered meanwhile.
func TestAHostileViewerTakesNoPluginFromAnOperator(t *testing.T) {
	for name := range evil {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{MemoryMax: 8 << 20, MaxInstances: 8})
			tool, stop := hostileViewer(t, h, name, 4)
			defer stop()
			for k := range 30 {
				if a := h.callOf("operator", tool, object{}); a.Err != nil {
					t.Fatalf("call %d of the operator: %v", k, a.Err)
				}
			}
		})
	}
}

// TestTheBreakerCountsByPrincipal: a plugin is out of service for the principal whose calls broke
// it in a row, and only for that one; then one call may try.
func TestTheBreakerCountsByPrincipal(t *testing.T) {
	h := newHost(t, Options{BreakAfter: 3})
	tool := h.add(moody(op(0x00)).bytes())
	long := object{"long": strings.Repeat("x", 1000)}
	breaks := func(principal string, n int) {
		t.Helper()
		for range n {
			want(t, h.callOf(principal, tool, long), codeTrap)
		}
	}
	breaks("viewer", 2)
	want(t, h.callOf("viewer", tool, object{}), "") // not in a row
	breaks("viewer", 3)
	a := h.callOf("viewer", tool, object{})
	want(t, a, codeUnavailable)
	if a.Err == nil || !strings.Contains(a.Err.Error(), "last 3 calls of this principal broke") {
		t.Errorf("the breaker says %q", a.Err)
	}
	want(t, h.callOf("operator", tool, object{}), "")
	b := &h.plugin(tool).breaker
	b.mu.Lock()
	b.by["viewer"].until = time.Now() // as if half a minute had gone by
	b.mu.Unlock()
	want(t, h.callOf("viewer", tool, long), codeTrap) // one may try
	want(t, h.callOf("viewer", tool, object{}), codeUnavailable)
	b.mu.Lock()
	b.by["viewer"].until = time.Now()
	b.mu.Unlock()
	want(t, h.callOf("viewer", tool, object{}), "")
	want(t, h.callOf("viewer", tool, object{}), "")
}

// TestInputThatNeedsTooMuchDoesNotOpenTheBreaker: running out of memory or time depends on what was
// asked for, so that the next call of the same principal may well succeed.
func TestInputThatNeedsTooMuchDoesNotOpenTheBreaker(t *testing.T) {
	for _, name := range []string{"eats all memory", "computes for ever"} {
		h := newHost(t, Options{BreakAfter: 3, MemoryMax: 1 << 20})
		tool := h.add(moody(evil[name].code).bytes())
		short := *tool
		short.Budget = 50 * time.Millisecond
		for range 10 {
			want(t, h.callOf("viewer", &short, object{"long": strings.Repeat("x", 1000)}),
				evil[name].ends)
		}
		want(t, h.callOf("viewer", tool, object{}), "")
	}
}

func TestTheBreakerForgetsPrincipals(t *testing.T) {
	b := breaker{after: 3, pause: time.Nanosecond}
	for k := range 10 * maxBroken {
		b.record(fmt.Sprint(k), broken(codeTrap, "x"))
	}
	if n := len(b.by); n > maxBroken+1 {
		t.Errorf("%d principals are remembered, want at most %d", n, maxBroken)
	}
}

// TestMemoryIsBoundedForEachPrincipal: the instances of one principal together grow by four times
// memory_max and no more, those of another by as much meanwhile, and all is given back.
func TestMemoryIsBoundedForEachPrincipal(t *testing.T) {
	h := newHost(t, Options{MemoryMax: 1 << 20, MaxInstances: 32})
	release := make(chan struct{})
	h.execute = func(terms.Question) (terms.Result, error) { <-release; return terms.Result{}, nil }
	// grows to its maximum, then waits in an operation, and then traps if it got less
	m := asker("stage", requests["stage"])
	m.memory = []byte{1, 0, 1}
	m.call = op(growAndTouch, c32(64), c32(int64(len(requests["stage"]))), callf(1), 0x1a,
		0x3f, 0, c32(16), 0x49, 0x04, 0x40, 0x00, 0x0b, c32(64), c32(15), callf(0), 0x1a, c32(0))
	tool := h.add(m.bytes())
	ends := map[string]*[2]atomic.Int64{"viewer": {}, "operator": {}}
	var wg sync.WaitGroup
	start := func(principal string, n int) {
		for range n {
			wg.Go(func() {
				a := h.callOf(principal, tool, object{})
				if a.Err == nil {
					ends[principal][0].Add(1)
				} else if want(t, a,
					codeMemory); strings.Contains(a.Err.Error(), "together, 4 MiB") {
					ends[principal][1].Add(1)
				}
			})
		}
	}
	waiting := func(n int) func() bool {
		return func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.executed) == n }
	}
	start("viewer", 8)
	soon(t, "eight instances of the viewer wait", waiting(8))
	if used, _ := h.box.memory.Held(); used > 64 {
		t.Errorf("the viewer's instances grew by %d pages, want at most 64", used)
	}
	start("operator", 4)
	soon(t, "four instances of the operator wait", waiting(12))
	close(release)
	wg.Wait()
	if n := ends["operator"][0].Load(); n != 4 {
		t.Errorf("%d of 4 calls of the operator had their memory", n)
	}
	if n := ends["viewer"][1].Load(); n == 0 {
		t.Error(
			"no call of the viewer was told that they have all the memory they may have together")
	}
	h.box.work.Wait()
	if used, _ := h.box.memory.Held(); used != 0 {
		t.Errorf("%d pages are held after the last call", used)
	}
}

// lines decodes what a sandbox has logged.
func lines(t *testing.T, log *bytes.Buffer) (records []map[string]any) {
	for line := range bytes.Lines(log.Bytes()) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		records = append(records, r)
	}
	return records
}

// writer logs a line, writes text to stderr by fd_write, and then runs the code.
func writer(log, text string, code []byte) module {
	data := append(append([]byte{3}, dataAt(8, okJSON)[1:]...), dataAt(1024, log)[1:]...)
	data = append(data, dataAt(2048, text)[1:]...)
	return module{
		imports: []imported{output, {abiModule, "log"}, {wasiModule, "fd_write"}},
		data:    data,
		call: op(c32(4), c32(1024), c32(int64(len(log))), callf(1),
			c32(512), c32(2048), 0x36, 2, 0, c32(516), c32(int64(len(text))), 0x36, 2, 0,
			c32(2), c32(512), c32(1), c32(520), callf(2), 0x1a, code),
	}
}

// Nothing that a plugin says beside its output is shown but by Options.Said: log lines, progress,
// traces, and what it wrote before it ended.
func TestWhatPluginsSayIsShownAsTheHostSays(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, Options{Log: slog.New(slog.NewJSONHandler(&log, nil)),
		Said: func(_ context.Context, text string) string {
			return strings.ReplaceAll(text, "secret", "[kept]")
		}})
	var told []string
	h.call(h.add(writer("a secret 1", "panic: secret 2\nsecret 3", op(0x00)).bytes()), object{})
	h.call(h.add(writer("b secret 4", "secret 5", ok()).bytes()), object{})
	note := `{"done":1,"total":2,"message":"secret 6"}`
	h.door.Call(t.Context(), terms.Request{Source: "test", Arguments: []byte("{}"),
		Tool: h.add(module{imports: []imported{output, {abiModule, "progress"}},
			data: append(append([]byte{2}, dataAt(8, okJSON)[1:]...), dataAt(1024, note)[1:]...),
			call: op(c32(1024), c32(int64(len(note))), callf(1), ok())}.bytes()),
		Progress: func(_, _ float64, message string) { told = append(told, message) }})
	if err := h.box.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := log.String(); strings.Contains(all, "secret") || strings.Count(all, "[kept]") < 5 {
		t.Errorf("the log has %s", all)
	}
	if !slices.Contains(told, "[kept] 6") || strings.Contains(fmt.Sprint(told), "secret") {
		t.Errorf("progress: %q", told)
	}
}

// TestTheHostsLogHasWhatPluginsSay: a panic with its whole trace, output, log lines, with plugin,
// tool and call; cleaned; and that a plugin is out of service or cannot be used.
func TestTheHostsLogHasWhatPluginsSay(t *testing.T) {
	var log bytes.Buffer
	o := Options{BreakAfter: 2, Log: slog.New(slog.NewJSONHandler(&log, nil))}
	h := newHost(t, o)
	trace := "panic: my panic 42 \x1b[31m\n\ngoroutine 1 [running]:\n\tmain.go:20 +0x1\n"
	trace += strings.Repeat("more frames\n", 500)
	bad := h.add(writer("careful\u202e", trace, op(0x00)).bytes())
	good := h.add(writer("fine", "hello\n", ok()).bytes())
	first := h.call(bad, object{})
	want(t, first, codeTrap)
	want(t, h.call(bad, object{}), codeTrap)
	second := h.call(good, object{})
	want(t, second, "")
	want(t, h.call(h.add(module{call: op(0xfd, 12)}.bytes()), object{}), codeUnavailable)
	if err := h.box.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		message, level, call string
		text                 []string
	}{
		{"plugin log", "WARN", first.CallID, []string{"careful"}},
		{"the plugin broke", "ERROR", first.CallID,
			[]string{
				"panic: my panic 42", "\n    main.go:20 +0x1\n",
				strings.Repeat("more frames\n", 400),
			}},
		{"the plugin is out of service for a principal", "ERROR", "", nil},
		{"output of the plugin", "INFO", second.CallID, []string{"hello"}},
		{"the plugin cannot be used", "ERROR", "", nil},
		{"compiling the plugin", "INFO", "", nil},
		{"the plugin is ready", "INFO", "", nil},
	} {
		found := false
		for _, r := range lines(t, &log) {
			text, _ := r["text"].(string)
			call, _ := r["call"].(string)
			if strings.ContainsAny(text, "\x1b\u202e") {
				t.Errorf("the log has what could act on a terminal: %q", text)
			}
			all := r["msg"] == w.message && r["level"] == w.level && r["plugin"] == "test" &&
				call == w.call
			for _, part := range w.text {
				all = all && strings.Contains(text, part)
			}
			found = found || all
		}
		if !found {
			t.Errorf("no record %+v in %.3000s", w, log.String())
		}
	}
}

// TestAPluginCannotDrownTheLog, nor the records of other principals; and the gap is reported.
func TestAPluginCannotDrownTheLog(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(0, 0)
	l := &moduleLog{log: slog.New(
		slog.NewJSONHandler(&log, nil)), now: func() time.Time { return now }}
	as := func(principal string) *terms.Call {
		return &terms.Call{ID: "c", Tool: &terms.Tool{}, Principal: terms.Principal{ID: principal}}
	}
	for range 10 * maxRecords {
		l.write(slog.LevelInfo, "plugin log", as("viewer"), "x")
	}
	if n := len(lines(t, &log)); n != maxRecords {
		t.Errorf("%d records in one minute, want %d", n, maxRecords)
	}
	l.write(slog.LevelInfo, "plugin log", as("operator"), "x")
	now = now.Add(time.Minute)
	l.write(slog.LevelInfo, "plugin log", as("viewer"), "x")
	all := lines(t, &log)
	if len(all) != maxRecords+2 || all[maxRecords]["records_dropped"] != float64(9*maxRecords) {
		t.Errorf("%d records, the last %v", len(all), all[len(all)-2:])
	}
}
