package front

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// parts are all parts of a door: policy answers by the tool's name, the guest does one operation.
type parts struct{ journal error }

func (p parts) Decide(_ context.Context, q gate.Question) (gate.Decision, error) {
	switch name := q.Call.Tool.Name; {
	case name == "protected":
		return gate.Decision{Tier: gate.Yellow, Failed: []string{"protected", "rate"}}, nil
	case name == "red" && q.Call.Confirmation.State != "approved":
		return gate.Decision{
			Tier:          gate.Red,
			Failed:        []string{"confirmation"},
			NeedsApproval: true,
		}, nil
	case name == "inner" && q.Kind == gate.KindOperation:
		return gate.Decision{Tier: gate.Red, Failed: []string{"bound"}}, nil
	}
	return gate.Decision{Allow: true, Tier: gate.Yellow}, nil
}
func (p parts) Intent(context.Context, gate.Record, bool) error { return p.journal }
func (p parts) Outcome(context.Context, gate.Record) error      { return nil }
func (p parts) Take(context.Context, *gate.Call) (gate.Counts, func(), error) {
	return gate.Counts{}, func() {}, nil
}

func (p parts) Confirm(
	_ context.Context,
	_ *gate.Call,
	_ gate.Decision,
	say func(string),
) (gate.Confirmation, error) {
	say("waiting for a person")
	return gate.Confirmation{}, &gate.Waiting{ApprovalID: "R1"}
}
func (p parts) Script(string) gate.Command              { return gate.Command{} }
func (p parts) Argv([]string) gate.Command              { return gate.Command{} }
func (p parts) Ready(context.Context, *gate.Tool, func(string)) error { return nil }
func (p parts) Run(ctx context.Context, r *gate.Running) (gate.Output, error) {
	// what came of it is counted, and not this test's business
	_, _ = r.Operate(
		ctx,
		abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: []string{"secret-argument"}},
	)
	return gate.Output{JSON: json.RawMessage(`{}`)}, nil
}

func (p parts) Lookup(
	context.Context,
	gate.Question,
) (gate.Facts, error) {
	return gate.Facts{}, nil
}
func (p parts) Execute(context.Context, gate.Question, gate.Decision) (gate.Result, error) {
	return gate.Result{}, nil
}
func (p parts) End(context.Context, *gate.Call) {}

func metered(p parts) (*gate.Door, *Meter) {
	m := NewMeter()
	o := gate.Options{
		Throttle:  &fair.Refusals{},
		Nodes:     []gate.Node{{Name: "pve1"}},
		Decider:   p,
		Journal:   p,
		Ledger:    p,
		Confirmer: p,
		Lowerer:   p,
		Runner:    p,
		Executors: map[string]gate.Executor{"ssh_exec": p},
		Mode:      func() gate.Mode { return gate.Mode{} },
	}
	m.Watch(&o)
	return gate.New(o), m
}

func callFor(name string) gate.Request {
	return gate.Request{
		Source:    "http",
		Principal: gate.Principal{ID: "secret-agent"},
		Arguments: []byte(`{"password":"secret-argument"}`),
		Tool: &gate.Tool{
			Kind:     "tool",
			Name:     name,
			Imports:  []string{"ssh_exec"},
			Budget:   time.Minute,
			Validate: func(map[string]any) error { return nil },
			Derive: func(map[string]any) (gate.Targets, []gate.CommandText, error) {
				return gate.Targets{Nodes: []string{"pve1"}}, nil, nil
			},
		},
	}
}

// scrape serves the metrics on an address of their own and gives what a path answers there.
func scrape(
	t *testing.T,
	o Options,
) func(path string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	s, err := New(o, &fakeDoor{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeMetrics(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(path string, change ...func(*http.Request)) (int, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range change {
			c(r)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
}

func TestDecisionsAreCountedByRuleAndNothingIsNamed(t *testing.T) {
	d, m := metered(parts{})
	said := ""
	for _, name := range []string{"fine", "fine", "protected", "red", "inner"} {
		r := callFor(name)
		r.Progress = func(_, _ float64, message string) { said += message }
		d.Call(t.Context(), r)
	}
	if said != "waiting for a person" {
		t.Errorf("the client of a waiting call heard %q", said)
	}
	m.Gauge("caponier_test", "x", "node", func(emit func(float64, string)) { emit(3, "pve1") })
	get := scrape(t, Options{Meter: m})
	status, body := get("/metrics")
	for _, want := range []string{
		`caponier_decisions_total{kind="call",result="allowed",tier="yellow"} 3`, `caponier_decisions_total{kind="call",result="refused",tier="yellow"} 1`,
		`caponier_decisions_total{kind="call",result="waiting",tier="red"} 1`, `caponier_decisions_total{kind="operation",result="allowed",tier="yellow"} 2`,
		`caponier_refusals_total{kind="call",rule="protected"} 1`, `caponier_refusals_total{kind="call",rule="rate"} 1`, `caponier_refusals_total{kind="operation",rule="bound"} 1`,
		`caponier_operation_seconds_count{op="ssh_exec",outcome="succeeded"} 2`, `caponier_decision_seconds_count{kind="call"} 5`, `caponier_journal_seconds_count 8`,
		`caponier_fail_open_total 0`, `caponier_journal_errors_total 0`, `caponier_test{node="pve1"} 3`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no line %s (%d)", want, status)
		}
	}
	if strings.Contains(body, "secret") || strings.Contains(body, `rule="confirmation"`) {
		t.Errorf("it names an argument, or counts waiting as refused:\n%s", body)
	}
	if t.Failed() {
		t.Log(body)
	}
}

func TestReadinessAndHealth(t *testing.T) {
	var why error
	asked := 0
	o := Options{Ready: func(context.Context) error { asked++; return why },
		Health: func() Health {
			return Health{
				SSHConnected:   true,
				Nodes:          []NodeHealth{{"pve1", true}, {"pve2", false}},
				PolicyRevision: "r1",
				LockChecksum:   "l1",
				Frozen:         2,
			}
		}}
	get := scrape(t, o)
	if status, body := get("/ready"); status != 200 || body != `{"ready":true}`+"\n" {
		t.Errorf("ready: %d %s", status, body)
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	why = nil
	s, err := New(Options{Ready: func(ctx context.Context) error { return ctx.Err() }}, &fakeDoor{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if s.ready(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/ready", nil)); w.Code != 200 {
		t.Errorf("a client that hung up makes it not ready: %d", w.Code)
	}
	why = &NotReady{"journal", errors.New("/secret/path is full")}
	if _, body := get("/ready"); !strings.Contains(body, "true") || asked != 1 {
		t.Errorf("it was looked at %d times within a second: %s", asked, body)
	}
	get = scrape(t, o)
	if status, body := get("/ready"); status != 503 ||
		body != `{"part":"journal","ready":false}`+"\n" {
		t.Errorf("not ready: %d %s", status, body)
	}
	want := `{"status":"healthy","service":"caponier","ssh_connected":true,"nodes_total":2,"nodes_connected":1,"nodes":[{"name":"pve1","connected":true},{"name":"pve2","connected":false}],"policy_revision":"r1","lock_checksum":"l1","read_only":false,"frozen":2}` + "\n"
	if status, body := get("/health"); status != 200 || body != want {
		t.Errorf("health: %d %s", status, body)
	}
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		status int
	}{
		"a rebound name":   {"/metrics", func(r *http.Request) { r.Host = "evil.example" }, 403},
		"a page elsewhere": {"/metrics", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"another path":     {"/mcp", nil, 404},
		"a POST":           {"/ready", func(r *http.Request) { r.Method = "POST" }, 405},
	} {
		if status, body := get(c.path, func(r *http.Request) {
			if c.change != nil {
				c.change(r)
			}
		}); status != c.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if err := (Options{Metrics: "0.0.0.0:9464"}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "front.metrics") {
		t.Errorf("metrics for the whole network: %v", err)
	}
}
