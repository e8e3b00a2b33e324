package http

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// limitListener keeps at most a number of connections. For a new one it closes the oldest of those
// without a known caller, or else the one that was idle for longest. While all of them work, the
// new one waits, and further ones wait in the kernel's queue.
type limitListener struct {
	net.Listener
	most          int
	unauthTimeout time.Duration

	mu     sync.Mutex // guards the following, and the fields of every limitConn
	room   *sync.Cond // a connection was closed
	conns  map[*limitConn]bool
	closed bool
}

type limitConn struct {
	net.Conn
	of    *limitListener
	known bool      // the caller of the latest request is
	idle  bool      // between two requests
	since time.Time // accepted, or idle
}

func newLimitListener(l net.Listener, most int, unauthTimeout time.Duration) *limitListener {
	n := &limitListener{Listener: l, most: most, unauthTimeout: unauthTimeout,
		conns: map[*limitConn]bool{}}
	n.room = sync.NewCond(&n.mu)
	return n
}

func (l *limitListener) Accept() (net.Conn, error) {
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
	c := &limitConn{Conn: raw, of: l, since: time.Now()}
	l.conns[c] = true
	return c, nil
}

// dispensable returns the connection to close for a new one, or nil. A connection that works for a
// known caller is none.
func (l *limitListener) dispensable() (worst *limitConn) {
	for c := range l.conns {
		if (!c.known || c.idle) && (worst == nil || worst.known && !c.known ||
			worst.known == c.known && c.since.Before(worst.since)) {
			worst = c
		}
	}
	return worst
}

func (l *limitListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

func (c *limitConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.room.Broadcast()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// SetReadDeadline allows an unknown caller at most unauthTimeout, whatever is awaited: a header, a
// body, the next request.
func (c *limitConn) SetReadDeadline(t time.Time) error {
	c.of.mu.Lock()
	known := c.known
	c.of.mu.Unlock()
	if most := time.Now().Add(c.of.unauthTimeout); !known && (t.IsZero() || t.After(most)) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}

// setKnown notes whether the caller of the request is known. While it is not, the request has
// little time: unauthTimeout to be identified, and as long again to take the answer. An identity
// provider that does not answer ends in the middle of that, with an answer.
func (c *limitConn) setKnown(known bool) {
	c.of.mu.Lock()
	c.known, c.idle = known, false
	c.of.mu.Unlock()
	deadline := time.Time{}
	if !known {
		deadline = time.Now().Add(2 * c.of.unauthTimeout)
	}
	_ = c.Conn.SetDeadline(deadline) // a closed connection needs none
}

func (c *limitConn) setIdle() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.idle, c.since = true, time.Now()
}

type connKey struct{}

// connOf returns the connection of a request, or nil in tests without one.
func connOf(ctx context.Context) *limitConn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return limited(c)
}

func limited(c net.Conn) *limitConn {
	if secure, is := c.(*tls.Conn); is {
		c = secure.NetConn()
	}
	l, _ := c.(*limitConn)
	return l
}

// watchConns notes the state of connections, and calls refused for each request that net/http
// turned away itself or that never arrived whole: it asks no handler about these.
func watchConns(web *http.Server, refused func()) {
	var mu sync.Mutex
	arriving := map[net.Conn]bool{} // by open connection: a request is arriving
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	web.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateIdle:
			if l := limited(c); l != nil {
				l.setIdle()
			}
		case http.StateActive:
			arriving[c] = true
		case http.StateClosed:
			if arriving[c] {
				refused()
			}
			delete(arriving, c)
		}
	}
	next := web.Handler
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			mu.Lock()
			arriving[c] = false
			mu.Unlock()
			if l := limited(c); l != nil {
				l.setKnown(false) // until private says so
			}
		}
		next.ServeHTTP(w, r)
	})
}
