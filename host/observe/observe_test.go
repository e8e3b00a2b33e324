package observe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// parts are all parts of a door: policy answers by the tool's name, the guest does one operation.
type parts struct{ journal error }

func (p parts) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	switch name := q.Call.Tool.Name; {
	case name == "protected":
		return terms.Decision{Tier: terms.Yellow, Failed: []string{"protected", "rate"}}, nil
	case name == "red" && q.Call.Confirmation.State != "approved":
		return terms.Decision{
			Tier:          terms.Red,
			Failed:        []string{"confirmation"},
			NeedsApproval: true,
		}, nil
	case name == "inner" && q.Kind == terms.KindOperation:
		return terms.Decision{Tier: terms.Red, Failed: []string{"bound"}}, nil
	}
	return terms.Decision{Allow: true, Tier: terms.Yellow}, nil
}
func (p parts) Intent(context.Context, terms.Record, bool) error { return p.journal }
func (p parts) Outcome(context.Context, terms.Record) error      { return nil }
func (p parts) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}

func (p parts) Confirm(
	_ context.Context,
	_ *terms.Call,
	_ terms.Decision,
	say func(string),
) (terms.Confirmation, error) {
	say("waiting for a person")
	return terms.Confirmation{}, &terms.Waiting{ApprovalID: "R1"}
}
func (p parts) Script(string) terms.Command                            { return terms.Command{} }
func (p parts) Argv([]string) terms.Command                            { return terms.Command{} }
func (p parts) Ready(context.Context, *terms.Call, func(string)) error { return nil }
func (p parts) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	// what came of it is counted, and not this test's business
	_, _ = r.Operate(
		ctx,
		abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: []string{"secret-argument"}},
	)
	return terms.Output{JSON: json.RawMessage(`{}`)}, nil
}

func (p parts) Lookup(
	context.Context,
	terms.Question,
) (terms.Facts, error) {
	return terms.Facts{}, nil
}
func (p parts) Execute(context.Context, terms.Question, terms.Decision) (terms.Result, error) {
	return terms.Result{}, nil
}
func (p parts) End(context.Context, *terms.Call) {}

func metered(p parts) (*gate.Door, *Meter) {
	m := NewMeter("1.2.3")
	o := gate.Options{
		Throttle:  &fair.Refusals{},
		Nodes:     []terms.Node{{Name: "pve1"}},
		Decider:   p,
		Journal:   p,
		Ledger:    p,
		Confirmer: p,
		Lowerer:   p,
		Executors: map[string]terms.Executor{"ssh_exec": p},
		Mode:      func(context.Context) terms.Mode { return terms.Mode{} },
	}
	m.Watch(&o)
	return gate.New(o, p), m
}

func callFor(name string) terms.Request {
	return terms.Request{
		Source:    "http",
		Principal: terms.Principal{ID: "secret-agent"},
		Arguments: []byte(`{"password":"secret-argument"}`),
		Tool: &terms.Tool{
			Kind:     "tool",
			Name:     name,
			Imports:  []string{"ssh_exec"},
			Budget:   time.Minute,
			Validate: func(map[string]any) error { return nil },
			Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText,
				error) {
				return terms.Targets{Nodes: []string{"pve1"}}, nil, nil
			},
		},
	}
}

// scrape serves the metrics on an address of their own and returns what a path answers there.
func scrape(t *testing.T, o Options) func(method, path string) (int, string) {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(method, path string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
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
	m.Reloaded("policy", nil)
	m.Reloaded("policy", errors.New("bad rules"))
	_, body := scrape(t, Options{Meter: m})("GET", "/metrics")
	for _, want := range []string{
		`caponier_decisions_total{kind="call",result="allowed",tier="yellow"} 3`,
		`caponier_decisions_total{kind="call",result="refused",tier="yellow"} 1`,
		`caponier_decisions_total{kind="call",result="waiting",tier="red"} 1`,
		`caponier_decisions_total{kind="operation",result="allowed",tier="yellow"} 2`,
		`caponier_refusals_total{kind="call",rule="protected"} 1`,
		`caponier_refusals_total{kind="call",rule="rate"} 1`,
		`caponier_refusals_total{kind="operation",rule="bound"} 1`,
		`caponier_operation_duration_seconds_count{op="ssh_exec",outcome="succeeded"} 2`,
		`caponier_decision_duration_seconds_count{kind="call"} 5`,
		`caponier_journal_write_duration_seconds_count 8`,
		`caponier_fail_open_total 0`, `caponier_journal_errors_total 0`,
		`caponier_test{node="pve1"} 3`, `caponier_policy_reloads_total{result="failed"} 1`,
		`caponier_policy_reloads_total{result="loaded"} 1`,
		`caponier_lock_reloads_total{result="failed"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	for _, want := range []string{`caponier_build_info{goversion="go`, `version="1.2.3"} 1`,
		"go_goroutines ", "process_resident_memory_bytes ", "process_open_fds "} {
		if !strings.Contains(body, want) {
			t.Errorf("nothing of %s", want)
		}
	}
	if strings.Contains(body, "secret") || strings.Contains(body, `rule="confirmation"`) {
		t.Errorf("it names an argument, or counts waiting as refused:\n%s", body)
	}
}

// An outcome without an allowed intent would be an effect that nothing decided.
func TestAnOutcomeWithoutAnIntentIsCounted(t *testing.T) {
	m := NewMeter("")
	j := m.Journal(parts{})
	for _, r := range []terms.Record{{Type: "intent", ID: "1"}, {Type: "refused", ID: "2"}} {
		if err := j.Intent(t.Context(), r, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"1", "1", "2", "3"} {
		if err := j.Outcome(t.Context(), terms.Record{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	_, body := scrape(t, Options{Meter: m})("GET", "/metrics")
	if !strings.Contains(body, "caponier_fail_open_total 3\n") {
		t.Error("three outcomes without an allowed intent of their own were not counted")
	}
}

// Prometheus' conventions: a prefix, base units, _total for counters alone, and help for each.
func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	d, m := metered(parts{})
	d.Call(t.Context(), callFor("fine"))
	m.Called("fine", terms.Succeeded, time.Second)
	_, body := scrape(t, Options{Meter: m, Parts: []Part{{"journal",
		func(context.Context) error { return nil }}}})("GET", "/metrics")
	types := regexp.MustCompile(`(?m)^# TYPE (caponier_\S+) (\S+)$`).FindAllStringSubmatch(body, -1)
	if len(types) < 10 {
		t.Fatalf("%d metrics", len(types))
	}
	for _, m := range types {
		name, kind := m[1], m[2]
		if strings.HasSuffix(name, "_total") != (kind == "counter") ||
			strings.HasSuffix(name, "_duration_seconds") != (kind == "histogram") ||
			strings.HasSuffix(name, "_info") && kind != "gauge" ||
			!strings.Contains(body, "# HELP "+name+" ") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
}

func TestReadyNamesEveryPartThatCannotWork(t *testing.T) {
	why := map[string]error{}
	part := func(name string) Part {
		return Part{name, func(context.Context) error { return why[name] }}
	}
	o := Options{Parts: []Part{part("policy"), part("journal"), part("store"), part("plugins")}}
	for _, c := range []struct {
		failing []string
		want    string
	}{
		{nil, `{"ready":true}`},
		{[]string{"journal"}, `{"part":"journal","parts":["journal"],"ready":false}`},
		{[]string{"store", "plugins"},
			`{"part":"store","parts":["store","plugins"],"ready":false}`},
	} {
		clear(why)
		for _, name := range c.failing {
			why[name] = errors.New("/secret/path is full")
		}
		o.Meter = NewMeter("")
		get := scrape(t, o)
		code, body := get("GET", "/ready")
		if strings.TrimSpace(body) != c.want || (code == 200) != (c.failing == nil) {
			t.Errorf("%v: %d %s", c.failing, code, body)
		}
		status, health := get("GET", "/health")
		if status != 200 || strings.Contains(health, `"degraded"`) != (c.failing != nil) {
			t.Errorf("%v: /health answers %d %s", c.failing, status, health)
		}
		_, metrics := get("GET", "/metrics")
		for _, p := range o.Parts {
			fails := why[p.Name] != nil
			if strings.Contains(health, `"`+p.Name+`"`) != fails ||
				strings.Contains(metrics, `caponier_ready{part="`+p.Name+`"} 0`) != fails {
				t.Errorf("%v: /health or the metrics are wrong about %s: %s", c.failing, p.Name,
					health)
			}
		}
		if strings.Contains(body+health, "secret") {
			t.Errorf("it tells the error, which is for the log: %s", body+health)
		}
	}
}

func TestPartsAreAskedAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s, err := New(Options{Log: slog.New(slog.DiscardHandler), Parts: []Part{{"journal",
			func(ctx context.Context) error { asked++; return ctx.Err() }}}})
		if err != nil {
			t.Fatal(err)
		}
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		ask := func(ctx context.Context) int {
			w := httptest.NewRecorder()
			s.ServeReady(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/ready", nil))
			return w.Code
		}
		if code := ask(gone); code != 200 {
			t.Errorf("a client that hung up makes it not ready: %d", code)
		}
		if ask(t.Context()); asked != 1 {
			t.Errorf("asked %d times within a second", asked)
		}
		time.Sleep(time.Second)
		if ask(t.Context()); asked != 2 {
			t.Errorf("asked %d times after a second", asked)
		}
		s.Stopping()
		if code := ask(t.Context()); code != 503 {
			t.Errorf("a host that stops is ready: %d", code)
		}
	})
}

func TestHealthNamesNodesOnItsOwnAddressAlone(t *testing.T) {
	o := Options{Health: func() Health {
		return Health{SSHConnected: true, PolicyRevision: "r1", LockChecksum: "l1", Frozen: 2,
			Nodes:         []NodeHealth{{"pve1", true}, {"pve2", false}},
			Export:        []SinkHealth{{Sink: "siem", Error: "it answered 500", BehindBytes: 7}},
			ExportFailing: 1}
	}}
	want := `{"status":"degraded","service":"caponier","ssh_connected":true,` +
		`"nodes":[{"name":"pve1","connected":true},{"name":"pve2","connected":false}],` +
		`"policy_revision":"r1","lock_checksum":"l1","read_only":false,"frozen":2,` +
		`"export":[{"sink":"siem","error":"it answered 500","behind_bytes":7}],` +
		`"export_failing":1,` +
		`"nodes_total":2,"nodes_connected":1}` + "\n"
	get := scrape(t, o)
	if status, body := get("GET", "/health"); status != 200 || body != want {
		t.Errorf("health: %d %s", status, body)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.ServeHealth(w, httptest.NewRequest("GET", "/health", nil))
	if body := w.Body.String(); strings.Contains(body, "pve1") ||
		strings.Contains(body, "it answered") ||
		!strings.Contains(body, `"status":"degraded"`) ||
		!strings.Contains(body, `"export_failing":1`) {
		t.Errorf("beside /mcp: %s", body)
	}
	for path, want := range map[string]int{"/mcp": 404, "/ready": 405, "/metrics": 404} {
		if status, _ := get("POST", path); status != want {
			t.Errorf("POST %s: %d, want %d", path, status, want)
		}
	}
}

func TestMetricsStayOnLoopback(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:9464", "192.0.2.1:9464", "example.org:1", "9464", ":1"} {
		if err := (Options{Metrics: addr}).Validate(); err == nil ||
			!strings.Contains(err.Error(), "front.metrics") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", "127.0.0.1:9464", "[::1]:9464"} {
		if err := (Options{Metrics: addr}).Validate(); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
