package front

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// limited accepts no more connections than there is room for; the others wait in the kernel's queue.
type limited struct {
	net.Listener
	room chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.room <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &limitedConn{Conn: c, room: l.room}, nil
}

type limitedConn struct {
	net.Conn
	once sync.Once
	room chan struct{}
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.room })
	return err
}

// begun counts requests that net/http turned away itself, or that never arrived whole: it answers them, or hangs up, without asking any handler.
type begun struct {
	refused prometheus.Counter

	mu   sync.Mutex        // guards open
	open map[net.Conn]bool // true while a request is arriving
}

type connKey struct{}

func (b *begun) watch(web *http.Server) {
	b.open = map[net.Conn]bool{}
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	web.ConnState = func(c net.Conn, state http.ConnState) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch state {
		case http.StateActive:
			b.open[c] = true
		case http.StateClosed:
			if b.open[c] {
				b.refused.Inc()
			}
			delete(b.open, c)
		}
	}
	next := web.Handler
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			b.mu.Lock()
			b.open[c] = false
			b.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// verdict is one answer of ours, to be counted by why it is a refusal: once, whoever gives it.
type verdict struct {
	http.ResponseWriter
	status int
	reason string
}

func (v *verdict) WriteHeader(status int) {
	if v.status == 0 && status >= 200 {
		v.status = status
	}
	v.ResponseWriter.WriteHeader(status)
}

func (v *verdict) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// blame says why the request that w answers is refused.
func blame(w http.ResponseWriter, reason string) {
	for w != nil {
		if v, is := w.(*verdict); is {
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

// judged counts refusals. What nobody gave a reason for is the SDK's: it was HTTP, and no MCP.
func (s *Server) judged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &verdict{ResponseWriter: w, reason: "protocol"}
		defer func() {
			if v.status >= 400 {
				s.seen.refused.WithLabelValues(v.reason).Inc()
			}
		}()
		next.ServeHTTP(v, r)
	})
}

// againKey finds the question whether a request's caller would still be let in.
type againKey struct{}

// stillKnown asks the identity about a request once more.
func (s *Server) stillKnown(r *http.Request) (known bool) {
	s.opts.Identity.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, again *http.Request) {
		p, ok := s.opts.Identity.Principal(again.Context())
		known = ok && p.ID != ""
	})).ServeHTTP(nowhere{}, r)
	return known
}

// nowhere takes an answer that nobody is to get.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) WriteHeader(int)             {}
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// whileKnown ends a stream, on which nothing may come for hours, when its caller would not be let in any more: its token expired or was revoked.
func (s *Server) whileKnown(r *http.Request) (*http.Request, func()) {
	again, ok := r.Context().Value(againKey{}).(func() bool)
	if !ok {
		return r, func() {}
	}
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
				if !again() {
					cancel()
					return
				}
			}
		}
	}()
	return r.WithContext(ctx), func() { cancel(); <-ended }
}
