package front

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Meter counts what passes the parts of a door. Its labels are kinds, tiers, checks and imports,
// which are closed sets: nothing that a caller chooses.
type Meter struct {
	registry   *prometheus.Registry
	decisions  *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	deciding   *prometheus.HistogramVec
	journaling prometheus.Histogram
	lost       prometheus.Counter
	operations *prometheus.HistogramVec
	failOpen   prometheus.Counter

	mu      sync.Mutex // guards allowed
	allowed map[string]bool
}

// NewMeter makes a meter with a registry of its own, which a Server then serves.
func NewMeter() *Meter {
	quick := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1}
	slow := []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}
	m := &Meter{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "caponier_decisions_total",
				Help: "Decisions of calls and operations; waiting is a call refused for now, until a person confirms it.",
			},
			[]string{"kind", "tier", "result"},
		),
		refusals: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "caponier_refusals_total",
				Help: "Checks that did not hold, in decisions that were refused.",
			},
			[]string{"kind", "rule"},
		),
		deciding: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name:    "caponier_decision_seconds",
				Help:    "Time that policy takes to decide.",
				Buckets: quick,
			},
			[]string{"kind"},
		),
		journaling: prometheus.NewHistogram(
			prometheus.HistogramOpts{
				Name:    "caponier_journal_seconds",
				Help:    "Time until an intent is in the journal, on the disk where it must be.",
				Buckets: quick,
			},
		),
		lost: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "caponier_journal_errors_total",
				Help: "Records that could not be written when they should have been.",
			},
		),
		operations: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name:    "caponier_operation_seconds",
				Help:    "Time of operations, machines included.",
				Buckets: slow,
			},
			[]string{"op", "outcome"},
		),
		failOpen: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "caponier_fail_open_total",
				Help: "Effects that were asked for without an allowed decision in the journal. They are refused; anything but 0 is a bug of the host.",
			},
		),
		allowed: map[string]bool{},
	}
	m.registry.MustRegister(
		m.decisions,
		m.refusals,
		m.deciding,
		m.journaling,
		m.lost,
		m.operations,
		m.failOpen,
	)
	return m
}

// Watch puts the meter before the parts of a door that is to be made.
func (m *Meter) Watch(o *gate.Options) {
	o.Decider, o.Journal, o.Runner = meteredDecider{
		o.Decider,
		m,
	}, m.Journal(
		o.Journal,
	), meteredRunner{
		o.Runner,
		m,
	}
	for name, e := range o.Executors {
		o.Executors[name] = meteredExecutor{e, m}
	}
}

// Journal counts what is written to a journal.
func (m *Meter) Journal(j gate.Journal) gate.Journal { return meteredJournal{j, m} }

// Gauge adds a number, or several that differ in one label, which read gives when somebody looks.
func (m *Meter) Gauge(name, help, label string, read func(emit func(value float64, label string))) {
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	m.registry.MustRegister(gauge{prometheus.NewDesc(name, help, labels, nil), label != "", read})
}

type gauge struct {
	desc    *prometheus.Desc
	labeled bool
	read    func(emit func(float64, string))
}

func (g gauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }
func (g gauge) Collect(to chan<- prometheus.Metric) {
	g.read(func(v float64, label string) {
		if !g.labeled {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v)
			return
		}
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, label)
	})
}

var errFailOpen = &gate.OpError{
	Code:    "not_decided",
	Message: "the host was about to do this without an allowed decision, which is a bug: nothing was done",
	Outcome: gate.Failed,
}

// has says whether a decision was allowed and its intent written.
func (m *Meter) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allowed[id]
}

type meteredDecider struct {
	gate.Decider
	m *Meter
}

func (d meteredDecider) Decide(ctx context.Context, q gate.Question) (gate.Decision, error) {
	began := time.Now()
	defer func() { d.m.deciding.WithLabelValues(kindOf(q.Kind)).Observe(time.Since(began).Seconds()) }()
	return d.Decider.Decide(ctx, q)
}

func kindOf(k gate.Kind) string {
	switch k {
	case gate.KindCall:
		return "call"
	case gate.KindOperation:
		return "operation"
	}
	return "visible"
}

type meteredJournal struct {
	gate.Journal
	m *Meter
}

func (j meteredJournal) Intent(ctx context.Context, r gate.Record, durable bool) error {
	began := time.Now()
	err := j.Journal.Intent(ctx, r, durable)
	j.m.journaling.Observe(time.Since(began).Seconds())
	result := "allowed"
	switch {
	case err != nil:
		j.m.lost.Inc()
		result = "unwritten"
	case r.Type == "intent":
		j.m.mu.Lock()
		j.m.allowed[r.ID] = true
		j.m.mu.Unlock()
	case r.Outcome == gate.Waits:
		result = "waiting"
	default:
		result = "refused"
	}
	j.m.decisions.WithLabelValues(r.Kind, r.Tier, result).Inc()
	if result == "refused" {
		for _, rule := range r.Failed {
			j.m.refusals.WithLabelValues(r.Kind, rule).Inc()
		}
	}
	return err
}

func (j meteredJournal) Outcome(ctx context.Context, r gate.Record) error {
	j.m.mu.Lock()
	if !j.m.allowed[r.ID] {
		j.m.failOpen.Inc()
	}
	delete(j.m.allowed, r.ID)
	j.m.mu.Unlock()
	if r.Kind == "operation" {
		j.m.operations.WithLabelValues(r.Op, string(r.Outcome)).Observe(float64(r.DurationUS) / 1e6)
	}
	err := j.Journal.Outcome(ctx, r)
	if err != nil {
		j.m.lost.Inc()
	}
	return err
}

type meteredRunner struct {
	gate.Runner
	m *Meter
}

func (r meteredRunner) Run(ctx context.Context, running *gate.Running) (gate.Output, error) {
	if !running.Call.Decided.Allow {
		r.m.failOpen.Inc()
		return gate.Output{}, errFailOpen
	}
	return r.Runner.Run(ctx, running)
}

type meteredExecutor struct {
	gate.Executor
	m *Meter
}

func (e meteredExecutor) Lookup(ctx context.Context, q gate.Question) (gate.Facts, error) {
	if !e.m.has(q.ID) {
		e.m.failOpen.Inc()
		return gate.Facts{}, errFailOpen
	}
	return e.Executor.Lookup(ctx, q)
}

func (e meteredExecutor) Execute(
	ctx context.Context,
	q gate.Question,
	d gate.Decision,
) (gate.Result, error) {
	if !d.Allow || !e.m.has(q.ID) {
		e.m.failOpen.Inc()
		return gate.Result{}, errFailOpen
	}
	return e.Executor.Execute(ctx, q, d)
}
