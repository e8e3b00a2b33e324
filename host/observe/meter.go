// Package observe serves metrics, health and readiness for operators.
package observe

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
)

// reasons are the values of the label reason of caponier_refused_requests_total.
var reasons = []string{"host", "origin", "header", "path", "method", "body", "size", "memory",
	"message", "version", "session", "sessions", "identity", "grant", "busy", "request", "protocol"}

// Meter counts what passes the gate and the front. Its labels are closed sets, and the names of
// locked tools: nothing that a caller chooses. It is safe for concurrent use.
type Meter struct {
	registry   *prometheus.Registry
	decisions  *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	deciding   *prometheus.HistogramVec
	journaling prometheus.Histogram
	unwritten  prometheus.Counter
	operations *prometheus.HistogramVec
	hits       *prometheus.CounterVec
	undecided  prometheus.Counter
	calls      *prometheus.CounterVec
	calling    *prometheus.HistogramVec
	refused    *prometheus.CounterVec
	panics     prometheus.Counter
	reloads    map[string]*prometheus.CounterVec

	mu      sync.Mutex // guards allowed
	allowed map[string]bool
}

// NewMeter returns a meter with a new registry. The version is the version of the host.
func NewMeter(version string) *Meter {
	quick := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1}
	slow := []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}
	m := &Meter{registry: prometheus.NewRegistry(), allowed: map[string]bool{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	timer := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(v)
		return v
	}
	m.decisions = counter("caponier_decisions_total",
		"Decisions of calls and operations. The result waiting is for a person to confirm.",
		"kind", "tier", "result")
	m.refusals = counter("caponier_refusals_total",
		"Checks that did not hold, in decisions that were refused.", "kind", "rule")
	m.deciding = timer("caponier_decision_duration_seconds",
		"Time that policy takes to decide.", quick, "kind")
	m.journaling = timer("caponier_journal_write_duration_seconds",
		"Time until an intent is in the journal, synced where it must be.", quick).
		WithLabelValues().(prometheus.Histogram)
	m.unwritten = counter("caponier_journal_errors_total",
		"Records that could not be written.").WithLabelValues()
	m.operations = timer("caponier_operation_duration_seconds",
		"Time of operations, nodes included.", slow, "op", "outcome")
	m.hits = counter("caponier_result_hits_total",
		"Secrets that detectors found in what goes back, by what policy made of them.",
		"detector", "action")
	m.undecided = counter("caponier_fail_open_total",
		"Outcomes without an allowed decision in the journal. Anything but 0 is a bug.").
		WithLabelValues()
	m.calls = counter("caponier_calls_total", "Calls by tool and outcome.", "tool", "outcome")
	m.calling = timer("caponier_call_duration_seconds",
		"Time of calls, waiting and nodes included.", slow, "tool")
	m.refused = counter("caponier_refused_requests_total",
		"Requests refused before they reached the gate, by reason.", "reason")
	m.panics = counter("caponier_panics_total",
		"Requests whose handler panicked.").WithLabelValues()
	m.reloads = map[string]*prometheus.CounterVec{
		"policy": counter("caponier_policy_reloads_total",
			"Attempts to load the policy again. A failed one leaves the running policy.", "result"),
		"lock": counter("caponier_lock_reloads_total", "Attempts to load plugins.lock again. A "+
			"failed one withdraws what left the lock, and adds nothing.", "result"),
	}
	m.zeros()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "caponier_build_info",
		Help: "1, with the versions of the host and of Go."}, []string{"version", "goversion"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// zeros shows what has not happened yet as 0.
func (m *Meter) zeros() {
	for _, reason := range reasons {
		m.refused.WithLabelValues(reason)
	}
	for _, result := range []string{"loaded", "failed"} {
		m.reloads["policy"].WithLabelValues(result)
		m.reloads["lock"].WithLabelValues(result)
	}
}

// Handler serves the metrics.
func (m *Meter) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Called counts a call that ended.
func (m *Meter) Called(tool string, how terms.Outcome, took time.Duration) {
	m.calls.WithLabelValues(tool, string(how)).Inc()
	m.calling.WithLabelValues(tool).Observe(took.Seconds())
}

// Refused counts a request that was refused before it reached the gate.
func (m *Meter) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// Panicked counts a request whose handler panicked.
func (m *Meter) Panicked() { m.panics.Inc() }

// Reloaded counts an attempt to load the policy or the lock again.
func (m *Meter) Reloaded(what string, err error) {
	result := "loaded"
	if err != nil {
		result = "failed"
	}
	m.reloads[what].WithLabelValues(result).Inc()
}

// Gauge adds a number, or several that differ in one label. Each scrape calls read. If the name
// ends in _total, the number is a counter.
func (m *Meter) Gauge(name, help, label string, read func(emit func(value float64, label string))) {
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	kind := prometheus.GaugeValue
	if strings.HasSuffix(name, "_total") {
		kind = prometheus.CounterValue
	}
	m.registry.MustRegister(gauge{prometheus.NewDesc(name, help, labels, nil), kind, labels, read})
}

type gauge struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels []string
	read   func(emit func(float64, string))
}

func (g gauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

func (g gauge) Collect(to chan<- prometheus.Metric) {
	g.read(func(v float64, label string) {
		values := []string{label}[:len(g.labels)]
		to <- prometheus.MustNewConstMetric(g.desc, g.kind, v, values...)
	})
}

// Watch counts what passes the parts of a gate that is to be made.
func (m *Meter) Watch(o *gate.Options) {
	o.Decider, o.Journal = meteredDecider{o.Decider, m}, m.Journal(o.Journal)
}

type meteredDecider struct {
	terms.Decider
	m *Meter
}

func (d meteredDecider) Decide(ctx context.Context, q terms.Question) (terms.Decision, error) {
	kind := "visible"
	switch q.Kind {
	case terms.KindCall:
		kind = "call"
	case terms.KindOperation:
		kind = "operation"
	}
	began := time.Now()
	defer func() { d.m.deciding.WithLabelValues(kind).Observe(time.Since(began).Seconds()) }()
	return d.Decider.Decide(ctx, q)
}

// Journal counts the records written to a journal.
func (m *Meter) Journal(j terms.Journal) terms.Journal { return meteredJournal{j, m} }

type meteredJournal struct {
	terms.Journal
	m *Meter
}

func (j meteredJournal) Intent(ctx context.Context, r terms.Record, durable bool) error {
	began := time.Now()
	err := j.Journal.Intent(ctx, r, durable)
	j.m.journaling.Observe(time.Since(began).Seconds())
	result := "refused"
	switch {
	case err != nil:
		j.m.unwritten.Inc()
		result = "unwritten"
	case r.Type == "intent":
		result = "allowed"
		j.m.mu.Lock()
		j.m.allowed[r.ID] = true
		j.m.mu.Unlock()
	case r.Outcome == terms.Waits:
		result = "waiting"
	}
	j.m.decisions.WithLabelValues(r.Kind, r.Tier, result).Inc()
	if result == "refused" {
		for _, rule := range r.Failed {
			j.m.refusals.WithLabelValues(r.Kind, rule).Inc()
		}
	}
	return err
}

func (j meteredJournal) Outcome(ctx context.Context, r terms.Record) error {
	j.m.mu.Lock()
	if !j.m.allowed[r.ID] {
		j.m.undecided.Inc()
	}
	delete(j.m.allowed, r.ID)
	j.m.mu.Unlock()
	for _, h := range r.Hits {
		j.m.hits.WithLabelValues(h.Detector, h.Action).Add(float64(h.Count))
	}
	if r.Kind == "operation" {
		j.m.operations.WithLabelValues(r.Op, string(r.Outcome)).Observe(float64(r.DurationUS) / 1e6)
	}
	err := j.Journal.Outcome(ctx, r)
	if err != nil {
		j.m.unwritten.Inc()
	}
	return err
}
