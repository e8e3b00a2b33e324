// Package http serves MCP over streamable HTTP: listener, identity of callers, protocol versions,
// limits of connections and bodies.
package http

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Identity finds the principal of an HTTP request. Middleware answers unknown callers itself and
// passes the others on with a context for Principal and Current; it must not trust anything that an
// earlier handler or the client put there. Current returns an error once a call that has begun must
// not go on, and Admitted once a new request like this one would be turned away.
type Identity interface {
	Middleware(http.Handler) http.Handler
	Principal(context.Context) (terms.Principal, bool)
	Current(context.Context) error
	Admitted(context.Context) error
	Authenticates() bool // callers prove who they are, so that more than loopback may be served
}

// Options of a Server. Zero means the default that the comment names.
type Options struct {
	// a session of an older protocol version ends after this time without a request: 1h
	SessionIdle time.Duration `koanf:"session_idle"`
	// Host headers accepted besides loopback: name or name:port
	Hosts []string `koanf:"hosts"`
	// Origin headers accepted besides our own: scheme://name[:port]
	Origins []string `koanf:"origins"`
	// PEM files; these or BehindProxy are needed to serve more than loopback
	TLSCert     string `koanf:"tls_cert" path:"true"`
	TLSKey      string `koanf:"tls_key" path:"true"`
	BehindProxy bool   `koanf:"behind_proxy"` // a proxy before the host does TLS

	// sessions of older protocol versions at a time, of which one principal may have half: 100
	MaxSessions int `koanf:"-"`
	// connections at a time: 500. For one more, the oldest without a known caller is closed, or
	// else the one idle for longest. Half may be open streams, and a quarter those of one
	// principal.
	MaxConns int `koanf:"-"`
	// bytes of bodies of requests that are not answered, of which one principal may have a quarter:
	// 64 MiB
	MaxBodies int `koanf:"-"`

	// of the processors, for requests that are decoded; nil for one of its own
	Turns *fair.Shares `koanf:"-"`

	Identity Identity     `koanf:"-"`
	Log      *slog.Logger `koanf:"-"` // nil for slog.Default
}

// Validate reports a field that cannot be used, and what to write instead.
func (o Options) Validate() error {
	if o.SessionIdle < 0 || o.MaxSessions < 0 || o.MaxConns < 0 || o.MaxBodies < 0 {
		return errors.New("front.session_idle: must not be negative; omit it for the default")
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return errors.New("front.tls_cert and front.tls_key: set both or neither")
	}
	for _, h := range o.Hosts {
		if h == "" || strings.ContainsAny(h, "/*@ ") || h != strings.ToLower(h) {
			return fmt.Errorf("front.hosts: %q is not a lower-case host name, with or without port",
				h)
		}
	}
	for _, origin := range o.Origins {
		if err := checkOrigin(origin); err != nil {
			return fmt.Errorf("front.origins: %q: %w; write https://name or https://name:port",
				origin, err)
		}
	}
	return nil
}

func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil {
		return err
	}
	if origin != u.Scheme+"://"+u.Host || u.Host == "" || strings.Contains(u.Host, "*") ||
		u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("is not an origin")
	}
	return http.NewCrossOriginProtection().AddTrustedOrigin(origin)
}

// Server serves an mcp.Server over HTTP. It is safe for concurrent use.
type Server struct {
	opts  Options
	mcp   *mcp.Server
	told  *observe.Server
	meter *observe.Meter

	ioTimeout     time.Duration // for a body to arrive, and for a piece of an answer to be taken
	unauthTimeout time.Duration // for a connection without a known caller
	recheck       time.Duration // between two checks of the caller of an open stream

	sessions *fair.Shares
	streams  *fair.Shares   // each holds a connection
	bodies   *fair.Shares   // in bytes
	ending   sync.WaitGroup // sessions that are counted
	running  atomic.Int64   // tool calls that are not answered
}

// New returns a Server for m, whose health and metrics it tells to o.
func New(o Options, m *mcp.Server, told *observe.Server) (*Server, error) {
	if o.Identity == nil {
		return nil, errors.New("serving HTTP: no identity is configured: set [identity] tokens, " +
			"[identity.oidc] or identity.http")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.MaxSessions, o.MaxConns = cmp.Or(o.MaxSessions, 100), cmp.Or(o.MaxConns, 500)
	o.MaxBodies = cmp.Or(o.MaxBodies, 64<<20)
	o.SessionIdle, o.Log = cmp.Or(o.SessionIdle, time.Hour), cmp.Or(o.Log, slog.Default())
	if o.Turns == nil {
		o.Turns = fair.Processors()
	}
	streams := max(o.MaxConns/2, 1)
	s := &Server{opts: o, mcp: m, told: told, meter: told.Meter(),
		ioTimeout: 30 * time.Second, unauthTimeout: 10 * time.Second, recheck: 10 * time.Second,
		sessions: fair.New(o.MaxSessions, fair.Half(o.MaxSessions)),
		streams:  fair.New(streams, fair.Half(streams)),
		bodies:   fair.New(o.MaxBodies, max(o.MaxBodies/4, 1)),
	}
	s.meter.Gauge("caponier_sessions", "Open HTTP sessions of older protocol versions.", "",
		func(emit func(float64, string)) {
			used, _ := s.sessions.Held()
			emit(float64(used), "")
		})
	return s, nil
}

// Guard refuses requests with a Host that the server is not known by (a rebound name), and those
// that a web page of another site sent.
func Guard(o Options) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			if reason, msg := o.foreign(r); reason != "" {
				refuse(w, reason, http.StatusForbidden, msg)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// foreign returns why a request is refused for its Host or Origin, or "".
func (o Options) foreign(r *http.Request) (reason, msg string) {
	host := strings.ToLower(r.Host)
	u, err := url.Parse("http://" + host) // which checks the port
	name := ""
	if err == nil && u.Host == host {
		name = u.Hostname()
	}
	ip := net.ParseIP(name)
	if name != "localhost" && (ip == nil || !ip.IsLoopback()) && (name == "" ||
		!slices.Contains(o.Hosts, host) && !slices.Contains(o.Hosts, name)) {
		return "host", "this Host is not served; front.hosts lists those that are"
	}
	origins := r.Header["Origin"]
	listed := len(origins) == 1 && slices.Contains(o.Origins, origins[0])
	own := len(origins) == 1 && (origins[0] == "http://"+host || origins[0] == "https://"+host)
	if len(origins) > 0 && !listed && !own {
		return "origin", "this Origin is not served; front.origins lists those that are"
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		// also our own Origin over http, on which anyone between may have written the page
		if site != "same-origin" && site != "none" && !listed {
			return "origin", "requests from other sites are not served"
		}
	}
	return "", ""
}

// of is a context with the values of a request before its own.
type of struct {
	context.Context
	request context.Context
}

func (c of) Value(key any) any {
	if v := c.request.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// caller returns the caller of the request of ctx.
func (s *Server) caller(ctx context.Context) (mcp.Caller, bool) {
	p, ok := s.opts.Identity.Principal(ctx)
	return mcp.Caller{Principal: p, Source: "http", Gone: ctx,
		Current: func(deciding context.Context) error {
			return s.opts.Identity.Current(of{deciding, ctx})
		},
		Begins: turnOf(ctx).end,
	}, ok && p.ID != ""
}

// whileAdmitted ends a stream, on which nothing may come for hours, when its caller would not be
// let in any more: its token expired or was revoked.
func (s *Server) whileAdmitted(r *http.Request) (*http.Request, func()) {
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(s.recheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if s.opts.Identity.Admitted(ctx) != nil {
					cancel()
					return
				}
			}
		}
	}()
	return r.WithContext(ctx), func() { cancel(); <-ended }
}

// statusRecorder is one answer, to be counted once by why it is a refusal.
type statusRecorder struct {
	http.ResponseWriter
	status int
	reason string
}

func (v *statusRecorder) WriteHeader(status int) {
	if v.status == 0 && status >= 200 {
		v.status = status
	}
	v.ResponseWriter.WriteHeader(status)
}

func (v *statusRecorder) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// setReason sets why the request that w answers is refused, if it is.
func setReason(w http.ResponseWriter, reason string) {
	for w != nil {
		if v, is := w.(*statusRecorder); is {
			v.reason = reason
			return
		}
		inner, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return
		}
		w = inner.Unwrap()
	}
}

func refuse(w http.ResponseWriter, reason string, status int, msg string) {
	setReason(w, reason)
	http.Error(w, msg, status)
}
