package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Health is what /health tells. A Problem makes it answer 503.
type Health struct {
	SSHConnected   bool
	Nodes          []NodeHealth
	PolicyRevision string
	LockChecksum   string
	ReadOnly       bool
	Frozen         int // how many freezes there are
	Problem        string
}

// NodeHealth says whether there is a connection to a node now. One that nobody needs has none.
type NodeHealth struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) { s.tellHealth(w, r, false) }

// tellHealth names the nodes only where names says so: who asks on the MCP address need not be
// known.
func (s *Server) tellHealth(w http.ResponseWriter, r *http.Request, names bool) {
	if !s.looks(w, r) {
		return
	}
	var h Health
	if s.opts.Health != nil {
		h = s.opts.Health()
	}
	out := struct {
		Status         string       `json:"status"`
		Service        string       `json:"service"`
		SSHConnected   bool         `json:"ssh_connected"`
		NodesTotal     int          `json:"nodes_total"`
		NodesConnected int          `json:"nodes_connected"`
		Nodes          []NodeHealth `json:"nodes,omitempty"`
		PolicyRevision string       `json:"policy_revision"`
		LockChecksum   string       `json:"lock_checksum"`
		ReadOnly       bool         `json:"read_only"`
		Frozen         int          `json:"frozen"`
		Problem        string       `json:"problem,omitempty"`
	}{"healthy", "caponier", h.SSHConnected, len(h.Nodes), 0, nil, h.PolicyRevision, h.LockChecksum, h.ReadOnly, h.Frozen, h.Problem}
	for _, n := range h.Nodes {
		if n.Connected {
			out.NodesConnected++
		}
	}
	if names {
		out.Nodes = h.Nodes
	}
	status := http.StatusOK
	if h.Problem != "" || s.root.Err() != nil {
		status, out.Status = http.StatusServiceUnavailable, "unhealthy"
	}
	tell(w, status, out)
}

// readiness is asked at most once a second, whoever asks: it looks at the disk.
type readiness struct {
	mu   sync.Mutex // guards the following
	at   time.Time
	last error
}

// ready answers 200 while the host can decide, count and journal a call, and 503 with the part that
// cannot. Why is in the log.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if !s.looks(w, r) {
		return
	}
	err := s.root.Err()
	if err == nil && s.opts.Ready != nil {
		s.readiness.mu.Lock()
		if now := time.Now(); now.Sub(s.readiness.at) >= time.Second {
			// Whoever hangs up must not make the host look broken to the others.
			s.readiness.at, s.readiness.last = now, s.opts.Ready(context.WithoutCancel(r.Context()))
			if s.readiness.last != nil {
				s.log.Error("the host is not ready", "error", s.readiness.last)
			}
		}
		err = s.readiness.last
		s.readiness.mu.Unlock()
	}
	switch part := (*NotReady)(nil); {
	case err == nil:
		tell(w, http.StatusOK, map[string]any{"ready": true})
	case errors.As(err, &part):
		tell(w, http.StatusServiceUnavailable, map[string]any{"ready": false, "part": part.Part})
	default:
		tell(w, http.StatusServiceUnavailable, map[string]any{"ready": false, "part": "server"})
	}
}

// NotReady names the part of the host that cannot do its work. Err is for the log.
type NotReady struct {
	Part string
	Err  error
}

func (e *NotReady) Error() string { return e.Part + ": " + e.Err.Error() }
func (e *NotReady) Unwrap() error { return e.Err }

func (s *Server) looks(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	s.refuse(w, "method", http.StatusMethodNotAllowed, "GET it")
	return false
}

func tell(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// ServeMetrics serves /metrics, /health and /ready on an address of their own, without
// authentication, until ctx ends. That is why it must be loopback.
func (s *Server) ServeMetrics(ctx context.Context, l net.Listener) error {
	if addr, isTCP := l.Addr().(*net.TCPAddr); !isTCP || !addr.IP.IsLoopback() {
		return fmt.Errorf(
			"serving metrics on %s: want loopback; put a proxy before it that knows who asks",
			l.Addr(),
		)
	}
	routes := map[string]http.Handler{
		"/metrics": s.seen.handler(),
		"/ready":   http.HandlerFunc(s.ready),
		"/health": http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { s.tellHealth(w, r, true) },
		),
	}
	web := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			h := routes[r.URL.EscapedPath()]
			reason, msg := s.foreign(r)
			switch {
			case reason != "":
				s.refuse(w, reason, http.StatusForbidden, msg)
			case h == nil:
				s.refuse(
					w,
					"path",
					http.StatusNotFound,
					"this address has /metrics, /health and /ready",
				)
			case s.looks(w, r):
				h.ServeHTTP(w, r)
			}
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving metrics on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	return web.Close()
}
