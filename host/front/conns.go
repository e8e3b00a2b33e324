package front

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// limited keeps no more connections than there is room for. For a new one it closes the oldest of
// those on which nobody is known, or else the one that was idle for longest. Where all are at work
// the new one waits, and the others in the kernel's queue.
type limited struct {
	net.Listener
	most     int
	stranger time.Duration // that a connection on which nobody is known waits for its client

	mu     sync.Mutex // guards the following, and the fields of every limitedConn
	room   *sync.Cond // one was closed
	conns  map[*limitedConn]bool
	closed bool
}

type limitedConn struct {
	net.Conn
	of    *limited
	known bool      // whoever sent the latest request is
	idle  bool      // between two requests
	since time.Time // it was accepted, or is idle
}

func newLimited(l net.Listener, most int, stranger time.Duration) *limited {
	n := &limited{Listener: l, most: most, stranger: stranger, conns: map[*limitedConn]bool{}}
	n.room = sync.NewCond(&n.mu)
	return n
}

func (l *limited) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.conns) >= l.most && !l.closed {
		if old := l.dispensable(); old != nil {
			delete(l.conns, old)
			_ = old.Conn.Close() // its server finds out by itself
		} else {
			l.room.Wait()
		}
	}
	if l.closed {
		return nil, errors.Join(net.ErrClosed, raw.Close())
	}
	c := &limitedConn{Conn: raw, of: l, since: time.Now()}
	l.conns[c] = true
	return c, nil
}

// dispensable gives the connection to be closed for a new one, or nil. A connection at work for
// somebody who is known is not.
func (l *limited) dispensable() (worst *limitedConn) {
	for c := range l.conns {
		if (!c.known || c.idle) &&
			(worst == nil || worst.known && !c.known || worst.known == c.known && c.since.Before(worst.since)) {
			worst = c
		}
	}
	return worst
}

func (l *limited) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.room.Broadcast()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// SetReadDeadline gives nobody who is not known more time than a stranger has, whatever is waited
// for: a header, a body, the next request.
func (c *limitedConn) SetReadDeadline(t time.Time) error {
	c.of.mu.Lock()
	known := c.known
	c.of.mu.Unlock()
	if most := time.Now().Add(c.of.stranger); !known && (t.IsZero() || t.After(most)) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}

// limitedOf finds the connection of a request, which TLS may have wrapped.
func limitedOf(c net.Conn) *limitedConn {
	if secure, is := c.(*tls.Conn); is {
		c = secure.NetConn()
	}
	l, _ := c.(*limitedConn)
	return l
}

// is notes who uses the connection. Whoever is not known has little time to send and to take an
// answer, and whoever is has what the handlers give.
func (c *limitedConn) is(known bool) {
	c.of.mu.Lock()
	c.known, c.idle = known, false
	c.of.mu.Unlock()
	deadline := time.Time{}
	if !known {
		deadline = time.Now().Add(c.of.stranger)
	}
	_ = c.Conn.SetDeadline(deadline) // a connection that is closed needs none
}

func (c *limitedConn) rests() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.idle, c.since = true, time.Now()
}

// begun counts requests that net/http turned away itself, or that never arrived whole: it answers
// them, or hangs up, without asking any handler.
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
		case http.StateIdle:
			if l := limitedOf(c); l != nil {
				l.rests()
			}
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
			if l := limitedOf(c); l != nil {
				l.is(false) // until identified says so
			}
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

// whileKnown ends a stream, on which nothing may come for hours, when its caller would not be let
// in any more: its token expired or was revoked.
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
