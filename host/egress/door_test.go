package egress

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// TestMain sets a proxy for all tests, since net/http reads it once: a request through it reaches
// nothing.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		os.Setenv(name, "http://127.0.0.1:1")
	}
	os.Exit(m.Run())
}

// world is a door with an Egress behind it, and a policy that knows a list of hosts and classes.
type world struct {
	t       *testing.T
	e       *Egress
	opts    Options
	names   map[string][]string // what the resolver says, by name
	lookups []string
	listed  []string // hosts that policy lists
	classes []string
	ob      terms.Obligations

	mu       sync.Mutex
	intents  []terms.Record
	counts   map[string]int64
	reserved []int64
	settled  []int64
	noMoney  bool
	kept     map[string]string
}

func lab(t *testing.T, o Options) *world {
	w := &world{t: t, opts: o, names: map[string][]string{},
		classes: []string{"global", "loopback"}, counts: map[string]int64{},
		kept: map[string]string{}}
	w.opts.Ledger, w.opts.Keeper = w, w
	w.opts.Resolve = func(_ context.Context, host string) (ips []netip.Addr, err error) {
		w.lookups = append(w.lookups, host)
		for _, a := range w.names[host] {
			ips = append(ips, netip.MustParseAddr(a))
		}
		if ips == nil {
			err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return ips, err
	}
	var err error
	if w.e, err = New(w.opts); err != nil {
		t.Fatal(err)
	}
	return w
}

// serve starts a server that the name means and policy lists, and returns its origin.
func (w *world) serve(name string, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	w.t.Cleanup(s.Close)
	return w.named(name, s)
}

func (w *world) named(name string, s *httptest.Server) string {
	u, _ := url.Parse(s.URL)
	w.names[name], w.listed = []string{"127.0.0.1"}, append(w.listed, name)
	return u.Scheme + "://" + name + ":" + u.Port()
}

func (w *world) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	no := func(why string) (terms.Decision, error) {
		return terms.Decision{Failed: []string{why}},
			nil
	}
	d := terms.Decision{Allow: true, Tier: terms.Yellow, Obligations: w.ob}
	if q.Kind == terms.KindCall {
		return d, nil
	}
	op := q.Op.(abi.HTTPRequest)
	u, err := url.Parse(op.URL)
	if err != nil || !slices.Contains(w.listed, u.Hostname()) {
		return no("egress")
	}
	for _, a := range q.Facts.Addrs {
		if !slices.Contains(w.classes, a.Class) {
			return no("class " + a.Class)
		}
	}
	return d, nil
}
func (w *world) Intent(_ context.Context, r terms.Record, _ bool) error {
	w.intents = append(w.intents, r)
	return nil
}
func (w *world) Outcome(context.Context, terms.Record) error { return nil }
func (w *world) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}
func (w *world) Script(string) terms.Command                            { return terms.Command{} }
func (w *world) Argv([]string) terms.Command                            { return terms.Command{} }
func (w *world) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func (w *world) Count(
	_ context.Context, keys ...string,
) (counts []Rate, giveBack func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.counts[k]++
		counts = append(counts, Rate{w.counts[k], time.Date(2026, 11, 21, 14, 1, 1, 0, time.UTC)})
	}
	return counts, func() {}, nil
}

func (w *world) Reserve(
	_ context.Context, who string, micros, limit int64,
) (func(context.Context, int64) error, error) {
	if w.noMoney || micros > limit {
		return nil, errors.New("over the day's limit")
	}
	w.reserved = append(w.reserved, micros)
	return func(_ context.Context, spent int64) error {
		w.settled = append(w.settled,
			spent)
		return nil
	}, nil
}

func (w *world) Keep(
	_ context.Context, who, name, mime string, data []byte,
) (string, error) {
	w.kept[who+" "+mime] = string(data)
	return "b1", nil
}

type run func(context.Context, *gate.Running)

func (f run) Ready(context.Context, *terms.Call, func(string)) error { return nil }
func (f run) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	f(ctx, r)
	return terms.Output{JSON: json.RawMessage(`{}`)}, nil
}

// ask takes one request through the door.
func (w *world) ask(op abi.HTTPRequest) (v abi.HTTPResponse, err error) {
	w.t.Helper()
	if op.Method == "" {
		op.Method = "GET"
	}
	tool := &terms.Tool{Kind: "tool", Name: "curl", Imports: []string{"http_request"},
		Budget: time.Minute, Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText,
			error) {
			return terms.Targets{}, nil, nil
		}}
	d := gate.New(
		gate.Options{
			Throttle:  &fair.Refusals{},
			Decider:   w,
			Journal:   w,
			Ledger:    w,
			Lowerer:   w,
			Mode:      func(context.Context) terms.Mode { return terms.Mode{} },
			Executors: map[string]terms.Executor{"http_request": w.e},
		},
		run(func(ctx context.Context, r *gate.Running) {
			var res terms.Result
			if res, err = r.Operate(ctx, op); err == nil {
				v = res.Value.(abi.HTTPResponse)
			}
		}),
	)
	a := d.Call(context.Background(),
		terms.Request{Source: "cli", Principal: terms.Principal{ID: "p"}, Tool: tool})
	if a.Err != nil {
		w.t.Fatal(a.Err)
	}
	return v, err
}

// failedWith says that err is an OpError of this code whose message has the words.
func failedWith(t *testing.T, err error, code, words string, outcome terms.Outcome) {
	t.Helper()
	op := (*terms.OpError)(nil)
	if !errors.As(err, &op) || op.Code != code || !strings.Contains(op.Message, words) ||
		op.Outcome != outcome {
		t.Errorf("error %v, want code %s with %q and outcome %s", err, code, words, outcome)
	}
}

func refusedFor(t *testing.T, err error, check, phase string) {
	t.Helper()
	r := (*terms.Refused)(nil)
	if !errors.As(err, &r) || !slices.Contains(r.Failed, check) || r.Phase != phase {
		t.Errorf("error %v, want a refusal for %s at %s", err, check, phase)
	}
}
