package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
)

// forOthers is how many of the open sessions of a node one principal leaves to the others.
const forOthers = 2

// node is an entry of the inventory with its connections. Callers wait for one of the sessions of
// the connections that are open; a second connection is opened only when a caller has to wait.
type node struct {
	r      *Remote
	opts   NodeOptions
	shares *fair.Shares   // of sessions; its size follows from conns
	kinds  map[string]int // of host keys by pin, an index of kinds; for the one dial at a time
	units  units

	mu      sync.Mutex // guards the following, and the same-named fields of conns
	conns   []*conn
	dialing bool
	news    context.Context // ends when an attempt to connect, or a connection, ends
	tell    context.CancelFunc
	fails   int
	retryAt time.Time // no dial before this
	lastErr error     // of the last dial

	files   *files        // the SFTP session, or nil
	opening chan struct{} // closed when the attempt to open one is over
	openErr error
}

// conn is one authenticated connection.
type conn struct {
	*dialed
	n      *node
	done   chan struct{} // closed when it has ended
	cause  atomic.Pointer[error]
	probed probed

	used, limit int       // sessions; guarded by n.mu
	idleSince   time.Time // guarded by n.mu
}

// acquire waits for the right to open one session on behalf of a principal; "" is the host itself.
// Every conn it returns must be released.
func (n *node) acquire(ctx context.Context, who string) (*conn, error) {
	for {
		if !n.shares.TryAcquire(who) {
			news, err := n.grow()
			if err != nil {
				return nil, err
			}
			waiting, cancel := context.WithCancelCause(ctx)
			stop := context.AfterFunc(news, func() { cancel(errNews) })
			err = n.shares.Acquire(waiting, who)
			stop()
			cancel(nil)
			if errors.Is(err, errNews) && ctx.Err() == nil {
				continue
			} else if err != nil {
				return nil, n.waited(ctx)
			}
		}
		n.mu.Lock()
		for _, c := range n.conns {
			if c.used < c.limit && c.alive() {
				c.used++
				n.mu.Unlock()
				return c, nil
			}
		}
		n.resize() // a connection has just ended
		n.mu.Unlock()
		n.shares.Release(who)
		if ctx.Err() != nil {
			return nil, n.waited(ctx)
		}
	}
}

func (n *node) waited(ctx context.Context) error {
	code, why := stopped(ctx)
	return failed(code, "waiting for a connection to %s: %s; nothing was sent", n.opts.Name, why)
}

var errNews = errors.New("a connection, or an attempt to connect, has ended")

// grow starts to connect, unless there are enough connections. The context ends when it is worth
// asking again. It returns the error of the last attempt when there is no connection to wait for
// and none may be tried yet.
func (n *node) grow() (context.Context, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.r.ctx.Err() != nil:
		return nil, failed("connection", "connecting to %s: %v", n.opts.Name, errShutdown)
	case n.dialing || len(n.conns) >= n.r.opts.MaxConns:
	case n.lastErr == nil || !time.Now().Before(n.retryAt):
		n.dialing = true
		n.r.wg.Go(n.dial)
	case len(n.conns) == 0:
		return nil, n.lastErr
	}
	if n.news == nil {
		n.news, n.tell = context.WithCancel(context.Background())
	}
	return n.news, nil
}

// changed makes the shares follow the connections, and lets those who wait ask again. n.mu must be
// held.
func (n *node) changed() {
	n.resize()
	if n.news != nil {
		n.tell()
		n.news, n.tell = nil, nil
	}
}

func (n *node) release(c *conn, who string) {
	n.mu.Lock()
	c.used--
	c.idleSince = time.Now()
	n.mu.Unlock()
	n.shares.Release(who)
}

// shrink notes that the node allows fewer sessions than are in use: a second connection may help.
func (c *conn) shrink() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.limit = max(1, min(c.limit, c.used-1))
	c.n.resize()
}

// resize makes the shares follow the connections. What is left to others counts of those that are
// open: nobody could wait for one that cannot be made. n.mu must be held.
func (n *node) resize() {
	all := 0
	for _, c := range n.conns {
		if c.alive() {
			all += c.limit
		}
	}
	n.shares.Resize(all, max(all-forOthers, min(all, 1)))
}

func (c *conn) alive() bool { return c.cause.Load() == nil && !c.firm.dead.Load() }

// dial adds a connection. After a failure the next attempt waits 250 ms, doubled up to 4 s, with
// jitter; until then callers get the last error at once.
func (n *node) dial() {
	d, err := guarded(func() (*dialed, error) { return n.connect(n.r.ctx) })
	if op := (*gate.OpError)(nil); errors.As(err, &op) {
		err = failed(op.Code, "node %s: %s", n.opts.Name, op.Message)
	} else if err != nil {
		err = failed("internal", "node %s: %v", n.opts.Name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.changed()
	n.dialing = false
	if n.lastErr = err; err != nil {
		n.retryAt = time.Now().Add(jitter(250 * time.Millisecond << min(n.fails, 4)))
		n.fails++
		return
	}
	n.fails = 0
	c := &conn{dialed: d, n: n, done: make(chan struct{}), limit: n.r.opts.MaxSessions,
		idleSince: time.Now()}
	n.conns = append(n.conns, c)
	n.r.wg.Go(c.wait)
	n.r.wg.Go(c.keepAlive)
}

// wait takes the connection out of the pool when it ends.
func (c *conn) wait() {
	err := c.client.Wait()
	c.fail(fmt.Errorf("the connection ended: %w", err))
	n := c.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = slices.DeleteFunc(n.conns, func(other *conn) bool { return other == c })
	close(c.done)
	n.changed()
}

// fail closes the connection; whatever waits on it gets an error. The first cause is kept.
func (c *conn) fail(cause error) {
	c.cause.CompareAndSwap(nil, &cause)
	c.raw.Close()
}

func (c *conn) why(err error) error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return err
}

// watch closes the connection unless the returned function is called within StepTimeout.
func (c *conn) watch(step string) (stop func() bool) {
	limit := c.n.r.opts.StepTimeout
	return time.AfterFunc(limit, func() {
		c.fail(fmt.Errorf("%s got no answer within %s", step, limit))
	}).Stop
}

// keepAlive closes a connection whose peer is silent for three intervals, and one that was not used
// for IdleClose.
func (c *conn) keepAlive() {
	o := c.n.r.opts
	tick := time.NewTicker(o.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.n.r.ctx.Done():
			c.fail(errShutdown)
			return
		case <-tick.C:
		}
		if c.idle(time.Now().Add(-o.IdleClose)) {
			c.fail(fmt.Errorf("closed after %s without use", o.IdleClose))
			return
		}
		dead := time.AfterFunc(2*o.KeepAlive, func() {
			c.fail(fmt.Errorf("no sign of life for %s", 3*o.KeepAlive))
		})
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		dead.Stop()
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// idle reports whether the connection has served nothing since the given time. An SFTP session that
// nothing uses does not count.
func (c *conn) idle(since time.Time) bool {
	n := c.n
	n.mu.Lock()
	defer n.mu.Unlock()
	used := c.used
	if n.files != nil && n.files.c == c && !n.files.ended() {
		if n.files.active.Load() > 0 {
			return false
		}
		used--
	}
	return used == 0 && c.idleSince.Before(since)
}
