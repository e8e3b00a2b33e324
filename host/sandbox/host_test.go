package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// goModule returns a plugin of test/modules. It runs make, which builds it when it has changed.
func goModule(t testing.TB, name string) []byte {
	t.Helper()
	once, _ := builds.LoadOrStore(name, sync.OnceValues(func() ([]byte, error) {
		cmd := exec.Command("make", "-s", "build/modules/"+name+".wasm")
		cmd.Dir = "../.."
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the module %s: %w\n%s", name, err, text)
		}
		return os.ReadFile("../../build/modules/" + name + ".wasm")
	}))
	wasm, err := once.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

var builds sync.Map // by name

// compileCache keeps compiled modules from one test run to the next. Compiling one of megabytes
// takes seconds, ten times as long under the race detector, and only tests of compiling need it.
const compileCache = "../../build/cache"

// host is a door with a real sandbox; everything else is faked.
type host struct {
	t       testing.TB
	box     *Sandbox
	door    *gate.Door
	decide  func(terms.Question) terms.Decision // nil allows all
	execute func(terms.Question) (terms.Result, error)
	intent  func(terms.Record) error // nil writes

	mu       sync.Mutex
	records  []terms.Record
	executed []string
}

func newHost(t testing.TB, o Options) *host {
	t.Helper()
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	box, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, box: box}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h.openDoor(box)
	return h
}

// openDoor puts the door before a runner.
func (h *host) openDoor(r gate.Runner) {
	execs := map[string]terms.Executor{}
	for _, name := range abi.Operations() {
		execs[name] = h
	}
	h.door = gate.New(
		gate.Options{
			Throttle:  &fair.Refusals{},
			Nodes:     []terms.Node{{Name: "pve1", Cluster: "lab", Default: true}},
			Decider:   h,
			Journal:   h,
			Ledger:    h,
			Lowerer:   h,
			Executors: execs,
			Mode:      func(context.Context) terms.Mode { return terms.Mode{} },
		},
		r,
	)
}

func (h *host) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	if h.decide != nil {
		return h.decide(q), nil
	}
	return terms.Decision{Allow: true, Tier: terms.Green, Revision: "test"}, nil
}

func (h *host) Intent(_ context.Context, r terms.Record, _ bool) error {
	if h.intent != nil {
		if err := h.intent(r); err != nil {
			return err
		}
	}
	return h.keep(r)
}
func (h *host) Outcome(_ context.Context, r terms.Record) error { return h.keep(r) }
func (h *host) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}
func (h *host) Script(string) terms.Command {
	return terms.Command{Form: "script", Lowered: terms.Lowered{Parsed: true}}
}
func (h *host) Argv(argv []string) terms.Command {
	return terms.Command{
		Form:    "argv",
		Lowered: terms.Lowered{Parsed: true, Calls: []terms.Simple{{Argv: argv, Static: true}}},
	}
}

func (h *host) Lookup(
	context.Context,
	terms.Question,
) (terms.Facts, error) {
	return terms.Facts{}, nil
}
func (h *host) End(context.Context, *terms.Call) {}

func (h *host) Execute(
	_ context.Context,
	q terms.Question,
	_ terms.Decision,
) (terms.Result, error) {
	h.mu.Lock()
	h.executed = append(h.executed, q.Op.Import())
	h.mu.Unlock()
	if h.execute != nil {
		return h.execute(q)
	}
	if e, ok := q.Op.(abi.SSHExec); ok {
		return terms.Result{
			Value: map[string]any{"exit": 0, "stdout": e.Stdin, "stderr": "", "truncated": false},
		}, nil
	}
	return terms.Result{}, nil
}

func (h *host) keep(r terms.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Notes = nil // points into the whole output
	h.records = append(h.records, r)
	return nil
}

// add puts a module into the sandbox and returns a tool of it that may do everything.
func (h *host) add(wasm []byte) *terms.Tool {
	h.t.Helper()
	tool := toolOf(wasm)
	if err := h.box.Add(tool.Plugin, wasm, abi.Operations()); err != nil {
		h.t.Fatal(err)
	}
	return tool
}

func toolOf(wasm []byte) *terms.Tool {
	sum := sha256.Sum256(wasm)
	return &terms.Tool{
		Kind: "tool",
		Name: "echo",
		Plugin: terms.Plugin{
			Name: "test", Version: "1", Digest: "sha256:" + hex.EncodeToString(sum[:]),
		},
		Imports:  abi.Operations(),
		Budget:   10 * time.Second,
		Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (t terms.Targets, c []terms.CommandText,
			err error) {
			return
		},
	}
}

func (h *host) call(tool *terms.Tool, args any) terms.Answer {
	return h.callWith(context.Background(), tool, args)
}

func (h *host) callWith(ctx context.Context, tool *terms.Tool, args any) terms.Answer {
	h.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.door.Call(
		ctx,
		terms.Request{
			Source:    "test",
			Principal: terms.Principal{ID: "p"},
			Tool:      tool,
			Arguments: raw,
		},
	)
}

// callAs calls a tool without arguments as another principal.
func (h *host) callAs(principal string, tool *terms.Tool) terms.Answer {
	return h.door.Call(context.Background(),
		terms.Request{Source: "test", Principal: terms.Principal{ID: principal}, Tool: tool})
}

// want checks how a call ended.
func want(t testing.TB, a terms.Answer, code string) {
	t.Helper()
	if got := ended(a); got != code {
		t.Errorf("the call ended with %q (%v), want %q; output %d %.200s", got, a.Err, code,
			a.Output.Code, a.Output.JSON)
	}
}

// ended says how a call ended: the code of a *terms.PluginError, "budget", "cancelled" or "".
func ended(a terms.Answer) string {
	var p *terms.PluginError
	var b *terms.BudgetError
	switch {
	case errors.As(a.Err, &p):
		return p.Code
	case errors.As(a.Err, &b):
		return "budget"
	case errors.Is(a.Err, context.Canceled):
		return "cancelled"
	case a.Err != nil:
		return fmt.Sprintf("%T", a.Err)
	}
	return ""
}

// plugin returns the plugin of a tool.
func (h *host) plugin(tool *terms.Tool) *plugin { return h.box.plugins[tool.Plugin.Digest] }

// ready waits until the plugin of a tool is ready.
func (h *host) ready(tool *terms.Tool) {
	h.t.Helper()
	if err := h.box.Ready(context.Background(), &terms.Call{Tool: tool}, nil); err != nil {
		h.t.Fatal(err)
	}
}
