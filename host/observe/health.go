package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// readyTime is how long an answer about readiness is cached, because the parts use the disk.
const readyTime = time.Second

// Options of a Server.
type Options struct {
	// loopback host:port that serves /metrics, /health and /ready without a token; empty for none
	Metrics string `koanf:"metrics"`

	Meter  *Meter        `koanf:"-"` // nil for one of its own
	Health func() Health `koanf:"-"` // nil for the zero Health
	Parts  []Part        `koanf:"-"` // without which calls fail
	// checks the Host and Origin of requests to Serve; nil for none
	Guard func(http.Handler) http.Handler `koanf:"-"`
	Log   *slog.Logger                    `koanf:"-"` // nil for slog.Default
}

// Validate reports a field that cannot be used, and what to write instead.
func (o Options) Validate() error {
	host, _, err := net.SplitHostPort(o.Metrics)
	if ip := net.ParseIP(host); o.Metrics != "" && (err != nil || ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("front.metrics: %q is not a loopback host:port such as 127.0.0.1:9464; "+
			"to be scraped from elsewhere, put a proxy before it that authenticates", o.Metrics)
	}
	return nil
}

// Part is a part of the host without which calls fail. Ready returns nil while the part can do its
// work; its error is for the log.
type Part struct {
	Name  string
	Ready func(context.Context) error
}

// Health is what /health reports.
type Health struct {
	SSHConnected   bool         `json:"ssh_connected"`
	Nodes          []NodeHealth `json:"nodes,omitempty"`
	PolicyRevision string       `json:"policy_revision"`
	LockChecksum   string       `json:"lock_checksum"`
	ReadOnly       bool         `json:"read_only"`
	Frozen         int          `json:"frozen"` // number of freezes in force
	// where the journal is sent; texts of errors are only for this machine
	Export        []SinkHealth `json:"export,omitempty"`
	ExportFailing int          `json:"export_failing"`
}

// SinkHealth reports whether a place that gets the journal takes it.
type SinkHealth struct {
	Sink        string    `json:"sink"`
	Error       string    `json:"error,omitempty"`
	Since       time.Time `json:"failing_since,omitzero"`
	Delivered   time.Time `json:"delivered,omitzero"` // the last batch
	BehindBytes int64     `json:"behind_bytes"`       // of the journal
}

// NodeHealth reports whether there is a connection to a node now. An idle node has none.
type NodeHealth struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
}

// Server answers /metrics, /health and /ready. It is safe for concurrent use.
type Server struct {
	opts Options

	mu       sync.Mutex // guards the following
	stopping bool
	asked    time.Time
	failing  []string // names of the parts that cannot do their work
}

// New returns a Server, and adds caponier_ready to the meter.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Meter == nil {
		o.Meter = NewMeter("")
	}
	if o.Health == nil {
		o.Health = func() Health { return Health{} }
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	s := &Server{opts: o}
	o.Meter.Gauge("caponier_ready", "1 while this part of the host can do its work.", "part",
		func(emit func(float64, string)) {
			failing := s.notReady(context.Background())
			for _, p := range o.Parts {
				ready := 1.0
				if slices.Contains(failing, p.Name) {
					ready = 0
				}
				emit(ready, p.Name)
			}
		})
	return s, nil
}

// Meter returns the meter whose metrics the server serves.
func (s *Server) Meter() *Meter { return s.opts.Meter }

// Stopping makes /health and /ready answer 503 from now on.
func (s *Server) Stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

// notReady returns the names of the parts that cannot do their work. It asks them at most once a
// second, however many requests there are.
func (s *Server) notReady(ctx context.Context) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return []string{"server"}
	}
	if now := time.Now(); now.Sub(s.asked) >= readyTime {
		// A client that hangs up must not make the host look broken to others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		s.asked, s.failing = now, nil
		for _, p := range s.opts.Parts {
			if err := p.Ready(ctx); err != nil {
				s.failing = append(s.failing, p.Name)
				s.opts.Log.Error("the host is not ready", "part", p.Name, "error", err)
			}
		}
	}
	return s.failing
}

// ServeReady answers 200 while all parts can do their work, and 503 with the names of those that
// cannot. The log has the errors.
func (s *Server) ServeReady(w http.ResponseWriter, r *http.Request) {
	if !isGet(w, r) {
		return
	}
	if failing := s.notReady(r.Context()); len(failing) > 0 {
		answer(w, http.StatusServiceUnavailable,
			map[string]any{"ready": false, "part": failing[0], "parts": failing})
		return
	}
	answer(w, http.StatusOK, map[string]any{"ready": true})
}

// ServeHealth answers 503 while the host stops, and otherwise 200, even while parts are not ready.
// It needs no token, so its answer contains no names of nodes.
func (s *Server) ServeHealth(w http.ResponseWriter, r *http.Request) { s.health(w, r, false) }

func (s *Server) health(w http.ResponseWriter, r *http.Request, names bool) {
	if !isGet(w, r) {
		return
	}
	out := struct {
		Status  string `json:"status"`
		Service string `json:"service"`
		Health
		NodesTotal     int      `json:"nodes_total"`
		NodesConnected int      `json:"nodes_connected"`
		NotReady       []string `json:"not_ready,omitempty"`
	}{Status: "healthy", Service: "caponier", Health: s.opts.Health(),
		NotReady: s.notReady(r.Context())}
	out.NodesTotal = len(out.Nodes)
	for _, n := range out.Nodes {
		if n.Connected {
			out.NodesConnected++
		}
	}
	if !names {
		out.Nodes, out.Export = nil, nil
	}
	status := http.StatusOK
	switch {
	case slices.Contains(out.NotReady, "server"):
		status, out.Status = http.StatusServiceUnavailable, "unhealthy"
	case len(out.NotReady) > 0, out.ExportFailing > 0: // restarting the process would not help
		out.Status = "degraded"
	}
	answer(w, status, out)
}

func isGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "GET it", http.StatusMethodNotAllowed)
	return false
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// Serve serves /metrics, /health and /ready on an address of their own, without authentication,
// until ctx ends. It refuses an address that is not loopback.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if addr, isTCP := l.Addr().(*net.TCPAddr); !isTCP || !addr.IP.IsLoopback() {
		return fmt.Errorf("serving metrics on %s: want loopback; put a proxy before it that "+
			"authenticates", l.Addr())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.opts.Meter.Handler())
	mux.HandleFunc("/ready", s.ServeReady)
	mux.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) { s.health(w, r, true) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this address has /metrics, /health and /ready", http.StatusNotFound)
	})
	var handler http.Handler = mux
	if s.opts.Guard != nil {
		handler = s.opts.Guard(mux)
	}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving metrics on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	return web.Close()
}
