package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The protocol versions of each era, by name: a version that is in neither is refused, however new.
// A test holds them to the SDK's.
var (
	sessionVersions   = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
	statelessVersions = []string{"2026-07-28"}
)

const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
)

// Handler serves /mcp, /health and /ready, and what Options.Identity publishes about itself. Every
// route is behind the Host and Origin checks, and /mcp behind Options.Identity too. Metrics name
// nodes, tools and principals, which callers may not all be shown: ServeMetrics has them.
func (s *Server) Handler() http.Handler {
	if s.opts.Identity == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no identity is configured for HTTP", http.StatusServiceUnavailable)
		})
	}
	server := func(*http.Request) *mcp.Server { return s.mcp }
	// foreign checks the Host, and unlike the SDK's check knows front.hosts.
	// what it would log is the client's mistakes, which the client is told
	quiet := slog.New(slog.DiscardHandler)
	eras := &eras{
		Server: s,
		sessions: mcp.NewStreamableHTTPHandler(
			server,
			&mcp.StreamableHTTPOptions{
				SessionTimeout:             s.opts.SessionIdle,
				DisableLocalhostProtection: true,
				MaxRequestBodyBytes:        s.opts.MaxBody,
				Logger:                     quiet,
			},
		),
		stateless: mcp.NewStreamableHTTPHandler(
			server,
			&mcp.StreamableHTTPOptions{
				Stateless:                    true,
				PropagateRequestCancellation: true,
				DisableLocalhostProtection:   true,
				MaxRequestBodyBytes:          s.opts.MaxBody,
				Logger:                       quiet,
			},
		),
	}
	private := func(h http.Handler) http.Handler {
		known := s.opts.Identity.Middleware(s.identified(h))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed := false
			ctx := context.WithValue(r.Context(), passedKey{}, &passed)
			known.ServeHTTP(
				w,
				r.WithContext(
					context.WithValue(ctx, againKey{}, func() bool { return s.stillKnown(r) }),
				),
			)
			if !passed {
				blame(w, "identity")
			}
		})
	}
	routes := map[string]http.Handler{
		"/mcp":    private(eras),
		"/health": http.HandlerFunc(s.health),
		"/ready":  http.HandlerFunc(s.ready),
	}
	if public, has := s.opts.Identity.(interface {
		Metadata() (paths []string, h http.Handler)
	}); has {
		paths, h := public.Metadata()
		for _, path := range paths {
			routes[path] = h
		}
	}
	cross := http.NewCrossOriginProtection()
	for _, origin := range s.opts.Origins {
		if err := cross.AddTrustedOrigin(origin); err != nil { // Validate has tried it
			panic(err)
		}
	}
	// foreign should have seen it
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.refuse(w, "origin", http.StatusForbidden, "requests from other sites are not served")
	}))
	routed := cross.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := routes[r.URL.EscapedPath()]
		if h == nil {
			s.refuse(w, "path", http.StatusNotFound, "this server has /mcp, /health and /ready")
			return
		}
		h.ServeHTTP(w, r)
	}))
	return s.judged(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if reason, msg := s.foreign(r); reason != "" {
			s.refuse(w, reason, http.StatusForbidden, msg)
			return
		}
		for _, name := range []string{"Authorization", "Content-Type", versionHeader, sessionHeader, "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
			if len(r.Header[name]) > 1 {
				s.refuse(w, "header", http.StatusBadRequest, name+" is there twice")
				return
			}
		}
		// another reader would see another message
		if e := r.Header["Content-Encoding"]; len(e) > 0 &&
			(len(e) > 1 || !strings.EqualFold(e[0], "identity")) {
			s.refuse(
				w,
				"header",
				http.StatusUnsupportedMediaType,
				"send bodies as they are, without a Content-Encoding",
			)
			return
		}
		routed.ServeHTTP(w, r)
	}))
}

func (s *Server) refuse(w http.ResponseWriter, reason string, status int, msg string) {
	blame(w, reason)
	http.Error(w, msg, status)
}

// foreign says why a request is not for us: a Host that we are not known by (a rebound name), or a
// web page elsewhere that sent it.
func (s *Server) foreign(r *http.Request) (reason, msg string) {
	host := strings.ToLower(r.Host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	if name != "localhost" && !(ip != nil && ip.IsLoopback()) &&
		!slices.Contains(s.opts.Hosts, host) &&
		!slices.Contains(s.opts.Hosts, name) {
		return "host", "this Host is not served; front.hosts lists those that are"
	}
	origins, sites := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	trusted := len(origins) == 1 &&
		(slices.Contains(s.opts.Origins, origins[0]) || origins[0] == "http://"+host || origins[0] == "https://"+host)
	if len(origins) > 0 && !trusted {
		return "origin", "this Origin is not served; front.origins lists those that are"
	}
	for _, site := range sites {
		if site != "same-origin" && site != "none" && !trusted {
			return "origin", "requests from other sites are not served"
		}
	}
	return "", ""
}

func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err == nil &&
		(origin != u.Scheme+"://"+u.Host || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(u.Host, "*")) {
		err = errors.New("is not an origin")
	}
	if err == nil {
		err = http.NewCrossOriginProtection().AddTrustedOrigin(origin)
	}
	return err
}

// passedKey finds the flag that identified sets, so that whom Identity turned away can be counted.
type passedKey struct{}

// identified hands the caller that the identity middleware found to the SDK. The SDK takes callers
// only from a bearer token, so it gets one that says nothing; the client's own goes no further than
// this.
func (s *Server) identified(next http.Handler) http.Handler {
	verify := func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		p, ok := s.opts.Identity.Principal(ctx)
		if !ok || p.ID == "" {
			return nil, auth.ErrInvalidToken
		}
		return caller{p, "http", ctx}.asToken(), nil
	}
	bound := auth.RequireBearerToken(
		verify,
		&auth.RequireBearerTokenOptions{AllowMissingExpiration: true},
	)(
		next,
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passed, ok := r.Context().Value(passedKey{}).(*bool); ok {
			*passed = true
		}
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			if l := limitedOf(c); l != nil {
				l.is(true)
			}
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer -")
		r.Header.Del("Cookie")
		bound.ServeHTTP(w, r)
	})
}

// eras reads a message's envelope and sends it to the handler of its protocol era.
type eras struct {
	*Server
	sessions, stateless http.Handler
}

func (e *eras) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := r.Header.Get(versionHeader)
	modern := slices.Contains(statelessVersions, version)
	known := modern || version == "" || slices.Contains(sessionVersions, version)
	var env envelope
	if r.Method == http.MethodPost {
		var ok bool
		if env, ok = e.read(w, r); !ok {
			return
		}
	}
	if !known {
		blame(w, "version")
		data, err := json.Marshal(
			mcp.UnsupportedProtocolVersionData{
				Supported: mcp.SupportedProtocolVersions(),
				Requested: version,
			},
		)
		if err != nil { // it is made of strings
			panic(err)
		}
		reply(
			w,
			http.StatusBadRequest,
			env.ID,
			&jsonrpc.Error{
				Code:    mcp.CodeUnsupportedProtocolVersion,
				Message: "unsupported protocol version",
				Data:    data,
			},
		)
		return
	}
	w = patient{w, http.NewResponseController(w), e.patience}
	if r.Method == http.MethodGet || env.Method == "subscriptions/listen" {
		p, _ := e.opts.Identity.Principal(r.Context())
		if who := (caller{Principal: p}); e.streams.begin(who, max(e.opts.MaxConns/2, 1)) {
			defer e.streams.end(who)
		} else {
			w.Header().Set("Retry-After", "30")
			e.refuse(w, "sessions", http.StatusServiceUnavailable, fmt.Sprintf("half of the %d connections are open streams, or you have half of these; close one", e.opts.MaxConns))
			return
		}
		var stop func()
		r, stop = e.whileKnown(r)
		defer stop()
	}
	if env.Method == "tools/call" {
		e.answering.Add(1)
		defer e.answering.Add(-1)
	}
	switch {
	case modern:
		e.stateless.ServeHTTP(w, r)
	case r.Method == http.MethodPost && r.Header.Get(sessionHeader) == "" && env.Method == "initialize":
		e.begin(w, r)
	case r.Method == http.MethodPost && r.Header.Get(sessionHeader) == "" && env.Version == "" && env.Method != "ping" && env.Method != "server/discover":
		blame(w, "session")
		reply(
			w,
			http.StatusBadRequest,
			env.ID,
			&jsonrpc.Error{
				Code:    jsonrpc.CodeInvalidRequest,
				Message: "there is no session: send initialize first, then its " + sessionHeader + " with every request",
			},
		)
	default:
		e.sessions.ServeHTTP(w, r)
	}
}

// patient gives up on a client that does not read what it asked for. Streams may be silent for as
// long as they like.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
	most    time.Duration
}

func (p patient) within() (done func()) {
	// Test recorders have no deadlines; every connection of ours has.
	_ = p.control.SetWriteDeadline(time.Now().Add(p.most))
	return func() { _ = p.control.SetWriteDeadline(time.Time{}) }
}

func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p patient) Write(b []byte) (int, error) {
	defer p.within()()
	return p.ResponseWriter.Write(b)
}

// FlushError sends what has been written.
func (p patient) FlushError() error {
	defer p.within()()
	return p.control.Flush()
}

// read takes the whole body, within its size and time, and puts it back for the SDK.
func (e *eras) read(w http.ResponseWriter, r *http.Request) (envelope, bool) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(e.patience)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		e.refuse(
			w,
			"body",
			http.StatusInternalServerError,
			"the connection cannot be given a deadline",
		)
		return envelope{}, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.opts.MaxBody))
	if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
		e.refuse(
			w,
			"size",
			http.StatusRequestEntityTooLarge,
			fmt.Sprintf(
				"the body is over the limit of %d bytes; move large data with the upload and download tools",
				big.Limit,
			),
		)
		return envelope{}, false
	}
	if err != nil {
		e.refuse(w, "body", http.StatusBadRequest, "the body did not arrive whole")
		return envelope{}, false
	}
	_ = control.SetReadDeadline(time.Time{}) // it worked before
	r.Body = io.NopCloser(bytes.NewReader(body))
	env, err := readEnvelope(body)
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		blame(w, "message")
		reply(w, http.StatusBadRequest, env.ID, wire)
		return envelope{}, false
	}
	return env, true
}

func reply(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorReply(id, e)) // a client that is gone needs no answer
}

// sessions counts those of the older versions, which live from initialize to their end.
type sessions struct {
	running
	wg sync.WaitGroup
}

// begin lets the SDK make a session if there is room for one, and counts it until it ends.
func (e *eras) begin(w http.ResponseWriter, r *http.Request) {
	p, _ := e.opts.Identity.Principal(r.Context()) // identified has seen that there is one
	who, count := caller{Principal: p}, &e.Server.sessions
	if e.root.Err() != nil || !count.begin(who, e.opts.MaxSessions) {
		w.Header().Set("Retry-After", "30")
		e.refuse(
			w,
			"sessions",
			http.StatusServiceUnavailable,
			fmt.Sprintf(
				"all %d sessions are taken, or you have half of them; end one with DELETE; protocol version %s needs none",
				e.opts.MaxSessions,
				statelessVersions[0],
			),
		)
		return
	}
	defer func() {
		for session := range e.mcp.Sessions() {
			if id := w.Header().Get(sessionHeader); id != "" && session.ID() == id {
				count.wg.Go(func() {
					defer count.end(who)
					_ = session.Wait() // how it ended does not matter
				})
				return
			}
		}
		count.end(who)
	}()
	e.sessions.ServeHTTP(w, r)
}

// Serve serves HTTP on the listener until ctx ends, and then cancels running calls, waits for their
// answers and closes every stream, all within Options.StopTimeout. It refuses to serve more than
// loopback without authentication and TLS.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.opts.Identity == nil {
		return errors.New("front: no identity is configured for HTTP: set identity.http")
	}
	addr, isTCP := l.Addr().(*net.TCPAddr)
	if remote := !isTCP || !addr.IP.IsLoopback(); remote {
		switch {
		case !s.opts.Identity.Authenticates():
			return fmt.Errorf(
				"serving HTTP on %s: more than loopback needs callers who prove who they are: configure tokens or OIDC in [identity]",
				l.Addr(),
			)
		case s.opts.TLSCert == "" && !s.opts.BehindProxy:
			return fmt.Errorf(
				"serving HTTP on %s: more than loopback needs TLS: set front.tls_cert and front.tls_key, or front.behind_proxy if a proxy does it",
				l.Addr(),
			)
		}
	}
	l = newLimited(l, s.opts.MaxConns, s.stranger)
	if s.opts.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(s.opts.TLSCert, s.opts.TLSKey)
		if err != nil {
			return fmt.Errorf("front.tls_cert and front.tls_key: %w", err)
		}
		l = tls.NewListener(
			l,
			&tls.Config{
				Certificates: []tls.Certificate{cert},
				MinVersion:   tls.VersionTLS12,
				NextProtos:   []string{"http/1.1"},
			},
		)
	}
	// a log that nobody reads any more must not end the host in the middle of a call
	signal.Ignore(syscall.SIGPIPE)
	web := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	(&begun{refused: s.seen.refused.WithLabelValues("request")}).watch(web)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	return errors.Join(s.hangUp(web), ignoreCancelled(ctx))
}

// hangUp closes sessions before the server, whose Shutdown would wait for their open streams for
// ever.
func (s *Server) hangUp(web *http.Server) error {
	s.stop(errStopping)
	end, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
	defer cancel()
	var late error
	if !waitFor(func() bool { return s.answering.Load() == 0 }, s.opts.StopTimeout*9/10) {
		late = fmt.Errorf(
			"stopping: %d calls did not end after they were cancelled",
			s.answering.Load(),
		)
	}
	var closing sync.WaitGroup
	for session := range s.mcp.Sessions() {
		closing.Go(func() { _ = session.Close() })
	}
	if err := web.Shutdown(end); err != nil {
		return errors.Join(late, fmt.Errorf("stopping: %w", err), web.Close())
	}
	if late == nil { // otherwise they may wait for a call that never ends
		closing.Wait()
		s.sessions.wg.Wait()
	}
	return late
}
