package front

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// metrics are the front's own. No label holds anything that a client chooses.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	broken   prometheus.Counter
}

func newMetrics(door *Meter, sessions func() float64) metrics {
	if door == nil {
		door = NewMeter()
	}
	m := metrics{
		registry: door.registry,
		calls: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "caponier_calls_total",
				Help: "Tool calls by how they ended.",
			},
			[]string{"tool", "outcome"},
		),
		seconds: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name: "caponier_call_seconds",
				Help: "Time of tool calls, waiting and machines included.",
				Buckets: []float64{
					.001,
					.0025,
					.005,
					.01,
					.025,
					.05,
					.1,
					.25,
					.5,
					1,
					2.5,
					5,
					10,
					30,
					60,
					300,
				},
			},
			[]string{"tool"},
		),
		refused: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "caponier_refused_requests_total",
				Help: "Requests refused before they reached the door, by reason.",
			},
			[]string{"reason"},
		),
		broken: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "caponier_panics_total",
				Help: "Requests that broke a handler of the host.",
			},
		),
	}
	for _, reason := range []string{"host", "origin", "header", "path", "method", "body", "size", "message", "version", "session", "sessions", "identity", "busy", "request", "protocol"} {
		m.refused.WithLabelValues(reason)
	}
	m.registry.MustRegister(
		m.calls,
		m.seconds,
		m.refused,
		m.broken,
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "caponier_sessions",
				Help: "Open HTTP sessions of older protocol versions.",
			},
			sessions,
		),
	)
	return m
}

func (m metrics) call(tool string, how gate.Outcome, took time.Duration) {
	m.calls.WithLabelValues(tool, string(how)).Inc()
	m.seconds.WithLabelValues(tool).Observe(took.Seconds())
}

func (m metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
