package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// fakeDoor answers calls with what its fields say; a tool that has no function here is invisible.
type fakeDoor struct {
	mu    sync.Mutex
	calls map[string]func(context.Context, gate.Request) gate.Answer
	asked []gate.Request

	frozen []string // tools, principals and nodes whose results are not to be read
}

func (d *fakeDoor) Call(ctx context.Context, r gate.Request) gate.Answer {
	d.mu.Lock()
	d.asked = append(d.asked, r)
	f := d.calls[r.Tool.Name]
	d.mu.Unlock()
	return f(ctx, r)
}

func (d *fakeDoor) Visible(
	_ context.Context,
	p gate.Principal,
	source string,
	t *gate.Tool,
	on gate.Targets,
) bool {
	if slices.Contains(on.VMIDs, "103") || slices.Contains(on.Nodes, "hidden") {
		return false
	}
	return d.calls[t.Name] != nil && !strings.HasPrefix(t.Name, "secret_"+p.ID)
}

func (d *fakeDoor) Readable(
	ctx context.Context,
	p gate.Principal,
	source string,
	t *gate.Tool,
	nodes []string,
) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(
		append([]string{t.Name, p.ID}, nodes...),
		func(what string) bool { return slices.Contains(d.frozen, what) },
	) &&
		d.Visible(ctx, p, source, t, gate.Targets{})
}

func says(out string) func(context.Context, gate.Request) gate.Answer {
	return func(context.Context, gate.Request) gate.Answer {
		return gate.Answer{
			CallID:  "C1",
			Outcome: gate.Succeeded,
			Tier:    gate.Green,
			Output:  gate.Output{JSON: json.RawMessage(out)},
		}
	}
}

func fails(err error, o gate.Outcome) func(context.Context, gate.Request) gate.Answer {
	return func(context.Context, gate.Request) gate.Answer {
		return gate.Answer{CallID: "C1", Outcome: o, Err: err}
	}
}

// blocks waits for its context and says on cancelled that it has ended.
func blocks(started, cancelled chan<- error) func(context.Context, gate.Request) gate.Answer {
	return func(ctx context.Context, _ gate.Request) gate.Answer {
		started <- nil
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return gate.Answer{CallID: "C1", Outcome: gate.Unknown, Err: ctx.Err()}
	}
}

func tool(name string, h gate.Hints) *gate.Tool {
	return &gate.Tool{
		Kind:   "tool",
		Name:   name,
		Plugin: gate.Plugin{Name: "fixture", Version: "1", Digest: "sha256:00"},
		Hints:  h,
		InputSchema: json.RawMessage(
			`{"type":"object","properties":{"vmid":{"type":"integer"}},"additionalProperties":false}`,
		),
	}
}

// fixedIdentity lets everybody in as the principal that a header names, which only a test may do.
type fixedIdentity struct{ proves bool }
type fixedKey struct{}

func (fixedIdentity) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Test-Principal")
		if id == "" {
			id = "demo"
		}
		next.ServeHTTP(
			w,
			r.WithContext(
				context.WithValue(r.Context(), fixedKey{}, gate.Principal{ID: id, Auth: "config"}),
			),
		)
	})
}
func (fixedIdentity) Principal(ctx context.Context) (gate.Principal, bool) {
	p, ok := ctx.Value(fixedKey{}).(gate.Principal)
	return p, ok
}
func (fixedIdentity) Metadata() ([]string, http.Handler) {
	return []string{
			"/.well-known/x",
		}, http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "published") },
		)
}
func (f fixedIdentity) Authenticates() bool { return f.proves }

var red = gate.Hints{Destructive: true}

func newServer(t *testing.T, door *fakeDoor, change func(*Options)) *Server {
	t.Helper()
	o := Options{
		Principal: gate.Principal{ID: "local", Auth: "config"},
		Identity:  fixedIdentity{},
		Log:       slog.New(slog.NewTextHandler(newTestWriter(t), nil)),
		Health:    func() Health { return Health{SSHConnected: true, PolicyRevision: "rev1", LockChecksum: "sum1"} },
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o, door)
	if err != nil {
		t.Fatal(err)
	}
	var tools []*gate.Tool
	for name := range door.calls {
		h := gate.Hints{ReadOnly: true}
		if strings.HasPrefix(name, "red_") {
			h = red
		}
		tl := tool(name, h)
		if strings.HasSuffix(name, "_typed") {
			tl.OutputSchema = json.RawMessage(
				`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
			)
			tl.ValidateOutput = func(v any) error {
				if m, ok := v.(map[string]any); !ok || m["n"] == nil {
					return errors.New("n is missing")
				}
				return nil
			}
		}
		tools = append(tools, tl)
	}
	if err := s.SetTools(append(tools, tool("hidden", gate.Hints{}))); err != nil {
		t.Fatal(err)
	}
	return s
}

// testWriter logs to a test while it runs; a call that outlives its test on purpose has nowhere to
// log to.
type testWriter struct {
	t *testing.T

	mu   sync.Mutex // guards over
	over bool
}

func newTestWriter(t *testing.T) *testWriter {
	w := &testWriter{t: t}
	t.Cleanup(func() { w.mu.Lock(); defer w.mu.Unlock(); w.over = true })
	return w
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Logf("%s", p)
	}
	return len(p), nil
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// serve runs Serve on loopback until the test ends and gives its URL.
func serve(t *testing.T, s *Server) (url string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var once sync.Once
	var result error
	stop = func() error { once.Do(func() { cancel(); result = <-ended }); return result }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + l.Addr().String(), stop
}

// transports are the ways in: each gives a connected client of the version that it names.
var transports = map[string]func(*testing.T, *Server, *mcp.ClientOptions) *mcp.ClientSession{
	"stdio 2026": func(t *testing.T, s *Server, o *mcp.ClientOptions) *mcp.ClientSession { return overStdio(t, s, o, "") },
	"stdio 2025": func(t *testing.T, s *Server, o *mcp.ClientOptions) *mcp.ClientSession {
		return overStdio(t, s, o, "2025-11-25")
	},
	"http 2026": func(t *testing.T, s *Server, o *mcp.ClientOptions) *mcp.ClientSession { return overHTTP(t, s, o, "") },
	"http 2025": func(t *testing.T, s *Server, o *mcp.ClientOptions) *mcp.ClientSession {
		return overHTTP(t, s, o, "2025-11-25")
	},
}

func overStdio(t *testing.T, s *Server, o *mcp.ClientOptions, version string) *mcp.ClientSession {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.opts.Stdin, s.opts.Stdout = inR, outW
	ended := make(chan error, 1)
	go func() { ended <- s.Stdio(context.Background()); outW.Close() }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).
		Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		// something was told to a client that had gone
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Stdio: %v", err)
		}
	})
	return cs
}

func overHTTP(t *testing.T, s *Server, o *mcp.ClientOptions, version string) *mcp.ClientSession {
	url, _ := serve(t, s)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

func everywhere(
	t *testing.T,
	door func() *fakeDoor,
	change func(*Options),
	check func(*testing.T, *mcp.ClientSession, *fakeDoor),
) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := door()
			check(t, connect(t, newServer(t, d, change), nil), d)
		})
	}
}

func text(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			b.WriteString(tc.Text + "\n")
		}
	}
	return b.String()
}

func meta(t *testing.T, r *mcp.CallToolResult) (s summary) {
	t.Helper()
	data, err := json.Marshal(r.Meta[metaCall])
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAClientOfEachEraSeesAndCallsItsTools(t *testing.T) {
	door := func() *fakeDoor {
		return &fakeDoor{
			calls: map[string]func(context.Context, gate.Request) gate.Answer{
				"hello":    says(`{"content":[{"type":"text","text":"hi"}]}`),
				"red_stop": says(`{"content":[]}`),
				"n_typed":  says(`{"content":[],"structured":{"n":9007199254740993}}`),
			},
		}
	}
	everywhere(t, door, nil, func(t *testing.T, cs *mcp.ClientSession, d *fakeDoor) {
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if list.CacheScope != "private" && list.CacheScope != "" {
			t.Errorf("cache scope %q", list.CacheScope)
		}
		got := map[string]*mcp.Tool{}
		for _, tl := range list.Tools {
			got[tl.Name] = tl
		}
		if got["hidden"] != nil || len(got) != 3 {
			t.Errorf("tools %v, the hidden one must not be seen", got)
		}
		if a := got["hello"].Annotations; !a.ReadOnlyHint || *a.DestructiveHint ||
			*a.OpenWorldHint {
			t.Errorf("hello: %+v", a)
		}
		if a := got["red_stop"].Annotations; a.ReadOnlyHint || !*a.DestructiveHint {
			t.Errorf("red_stop: %+v", a)
		}
		if ins := cs.InitializeResult(); ins == nil ||
			!strings.Contains(ins.Instructions, "fixture (3)") ||
			!strings.Contains(ins.Instructions, "decision id") {
			t.Errorf("instructions do not tell what is offered: %+v", ins)
		}
		r, err := cs.CallTool(
			t.Context(),
			&mcp.CallToolParams{Name: "hello", Arguments: map[string]any{"vmid": 103}},
		)
		if err != nil || r.IsError || text(r) != "hi\n" {
			t.Fatalf("%v %+v", err, r)
		}
		if m := meta(t, r); m.Outcome != gate.Succeeded || m.CallID != "C1" || m.Tier != "green" ||
			!m.Untrusted ||
			m.Refused == nil {
			t.Errorf("meta %+v", m)
		}
		if a := d.asked[0]; string(a.Arguments) != `{"vmid":103}` ||
			(a.Principal.ID != "local" && a.Principal.ID != "demo") ||
			a.Source == "" {
			t.Errorf("the door was asked %+v with %s", a, a.Arguments)
		}
		r, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "n_typed"})
		if err != nil || text(r) != "{\"n\":9007199254740993}\n" {
			t.Errorf(
				"structured output is not repeated as text, numbers unchanged: %v %q",
				err,
				text(r),
			)
		}
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"})
		if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) ||
			wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("unknown tool: %v", err)
		}
	})
}

func TestEveryEndOfACallIsConvertedOnPurpose(t *testing.T) {
	refused := &gate.Refused{
		DecisionID: "D1",
		Kind:       "call",
		Failed:     []string{"target.protected"},
		Denied:     []gate.Reason{{ID: "protected.vmid", Msg: "103 is protected\x1b[31m"}},
	}
	door := func() *fakeDoor {
		return &fakeDoor{calls: map[string]func(context.Context, gate.Request) gate.Answer{
			"args": fails(
				&gate.InvalidArguments{
					Tool: "args",
					Err:  errors.New(`/vmid: number 103.0 is not in its plain form`),
				},
				gate.Refusal,
			),
			"refused": fails(refused, gate.Refusal),
			"waits": fails(
				&gate.Waiting{
					ApprovalID: "A1",
					Where:      "caponier approvals approve A1",
					Expires:    time.Now().Add(time.Hour),
				},
				gate.Waits,
			),
			"traps": fails(
				&gate.PluginError{Code: "plugin_trap", Message: "unreachable"},
				gate.Failed,
			),
			"leaks": fails(
				errors.New("dial /home/op/.ssh/id_ed25519: passphrase hunter2"),
				gate.Failed,
			),
			"budget": fails(
				&gate.BudgetError{
					Tool:            "budget",
					CallID:          "C1",
					Limit:           1500 * time.Millisecond,
					MayHaveExecuted: true,
				},
				gate.Unknown,
			),
			"panics": func(context.Context, gate.Request) gate.Answer { panic("secret in a panic") },
			"swallows": func(context.Context, gate.Request) gate.Answer {
				a := says(`{"content":[{"type":"text","text":"all fine"}]}`)(nil, gate.Request{})
				op := *refused
				op.Kind, op.Op = "operation", "ssh_exec"
				a.Refused = []*gate.Refused{&op}
				return a
			},
			"unwritten": func(context.Context, gate.Request) gate.Answer {
				a := says(`{"content":[{"type":"text","text":"done"}]}`)(nil, gate.Request{})
				a.JournalFailed = true
				return a
			},
			"toolerr": func(context.Context, gate.Request) gate.Answer {
				return gate.Answer{
					CallID:  "C1",
					Outcome: gate.Failed,
					Output: gate.Output{
						Code: 1,
						JSON: json.RawMessage(
							`{"error":{"code":"stopped","message":"container 101 is stopped","suggestion":"Start it first."}}`,
						),
					},
				}
			},
			"refused_typed": fails(refused, gate.Refusal),
		}}
	}
	want := map[string]struct {
		isError bool
		texts   []string
		code    string
		outcome gate.Outcome
	}{
		"args": {
			true,
			[]string{"103.0 is not in its plain form", "Nothing was executed"},
			"invalid_arguments",
			gate.Refusal,
		},
		"refused": {
			true,
			[]string{"103 is protected", "protected.vmid", "target.protected", "Decision D1"},
			"refused",
			gate.Refusal,
		},
		"refused_typed": {true, []string{"103 is protected"}, "refused", gate.Refusal},
		"waits": {
			true,
			[]string{"approvals approve A1", "same call again", "expires"},
			"waiting",
			gate.Waits,
		},
		"traps": {true, []string{"plugin_trap", "unreachable"}, "plugin_trap", gate.Failed},
		"leaks": {true, []string{"internal"}, "internal", gate.Failed},
		"swallows": {
			false,
			[]string{"all fine", "refused a part", "ssh_exec refused by policy", "D1"},
			"",
			gate.Succeeded,
		},
		"unwritten": {false, []string{"done", "journal_failed"}, "", gate.Succeeded},
		"toolerr": {
			true,
			[]string{"container 101 is stopped (stopped). Start it first."},
			"stopped",
			gate.Failed,
		},
	}
	everywhere(t, door, nil, func(t *testing.T, cs *mcp.ClientSession, _ *fakeDoor) {
		for name, w := range want {
			r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, m := text(r), meta(t, r)
			for _, part := range w.texts {
				if !strings.Contains(got, part) {
					t.Errorf("%s: text lacks %q: %q", name, part, got)
				}
			}
			if strings.Contains(got, "hunter2") || strings.ContainsRune(got, 0x1b) {
				t.Errorf("%s: leaks: %q", name, got)
			}
			if r.IsError != w.isError || m.Outcome != w.outcome || m.CallID != "C1" ||
				(m.Error == nil) != (w.code == "") ||
				m.Error != nil && m.Error.Code != w.code {
				t.Errorf("%s: isError %v, meta %+v", name, r.IsError, m)
			}
			if sc := fmt.Sprint(r.StructuredContent); w.isError &&
				(strings.HasSuffix(name, "_typed") != (sc == "<nil>")) {
				t.Errorf(
					"%s: structuredContent %s; it must be there unless the tool has an output schema",
					name,
					sc,
				)
			}
			if (name == "swallows" || strings.HasPrefix(name, "refused")) &&
				(len(m.Refused) != 1 || m.Refused[0].DecisionID != "D1" || m.Refused[0].Deny[0].ID != "protected.vmid") {
				t.Errorf("%s: refused %+v", name, m.Refused)
			}
			if m.JournalFailed != (name == "unwritten") {
				t.Errorf("%s: journal_failed %v", name, m.JournalFailed)
			}
		}
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "budget"})
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != -32001 ||
			!strings.Contains(string(wire.Data), `"kind":"budget"`) ||
			!strings.Contains(string(wire.Data), `"limit_ms":1500`) ||
			!strings.Contains(string(wire.Data), `"may_have_executed":true`) ||
			!strings.Contains(string(wire.Data), `"call_id":"C1"`) ||
			!strings.Contains(string(wire.Data), `"tool":"budget"`) {
			t.Errorf("budget: %v %+v", err, wire)
		}
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "panics"})
		if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInternalError ||
			strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "look before you repeat") {
			t.Errorf("panics: %v", err)
		}
		if r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "unwritten"}); err != nil ||
			r.IsError {
			t.Errorf("the process does not serve on after a panic: %v", err)
		}
	})
}
