// Package conn keeps authenticated SSH connections to nodes.
package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
)

// forOthers is how many of the open sessions of a node one principal leaves to the others.
const forOthers = 2

// Pool holds the connections to the nodes of an inventory. It is safe for concurrent use.
type Pool struct {
	limits Limits
	nodes  []*Node
	ctx    context.Context // of what outlives a call: connections. Close ends it
	stop   context.CancelFunc
	wg     sync.WaitGroup // everything that was started

	mu     sync.Mutex // guards closed
	closed bool
}

// New prepares the nodes, which have their defaults and are valid. It connects to none of them.
func New(nodes []NodeOptions, knownHosts []string, l Limits) *Pool {
	p := &Pool{limits: l.WithDefaults()}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for _, o := range nodes {
		p.nodes = append(p.nodes, &Node{NodeOptions: o, pool: p, shares: fair.New(0, 0),
			way: way{o, knownHosts, p.limits.DialTimeout, map[string]int{}}})
	}
	return p
}

// Nodes returns the nodes in the order of the inventory.
func (p *Pool) Nodes() []*Node { return p.nodes }

// NodeState is what the pool holds for a node.
type NodeState struct {
	Name                           string
	Connections, Sessions, Waiting int
}

// State reports on every node, in the order of the inventory.
func (p *Pool) State() (all []NodeState) {
	for _, n := range p.nodes {
		s := NodeState{Name: n.Name}
		s.Sessions, s.Waiting = n.shares.Held()
		n.mu.Lock()
		s.Connections = len(n.conns)
		n.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// Enter keeps Close from returning before done is called. An error says that the pool is closed.
func (p *Pool) Enter() (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errShutdown
	}
	p.wg.Add(1) // under mu, so that Close cannot have begun to wait
	return p.wg.Done, nil
}

// Close ends all connections and waits for everything that was started. What is under way ends with
// an error. It may be called more than once.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	for _, n := range p.nodes {
		n.mu.Lock()
		for _, c := range n.conns {
			c.Fail(errShutdown)
		}
		n.mu.Unlock()
	}
	p.wg.Wait()
}

var errShutdown = errors.New("the host is shutting down")

// Node is an entry of the inventory with its connections. Callers wait for one of the sessions of
// the connections that are open; a second connection is opened only when a caller has to wait.
type Node struct {
	NodeOptions
	pool   *Pool
	shares *fair.Shares // of sessions; its size follows from conns
	way    way

	mu      sync.Mutex // guards the following, and the same-named fields of conns
	conns   []*Conn
	dialing bool
	news    context.Context // ends when an attempt to connect, or a connection, ends
	tell    context.CancelFunc
	fails   int
	retryAt time.Time // no dial before this
	lastErr error     // of the last dial
}

// Conn is one authenticated connection.
type Conn struct {
	*dialed
	Node   *Node
	Probed Probed
	done   chan struct{} // closed when it has ended
	cause  atomic.Pointer[error]

	used, limit int       // sessions; guarded by Node.mu
	active      int       // sessions that are not at rest; guarded by Node.mu
	idleSince   time.Time // guarded by Node.mu
}

// Probed is what the login shell at the other end is known to do. The one that probes it holds the
// mutex, so that one probe runs at a time.
type Probed struct {
	sync.Mutex
	Shell bool // it reads quoted words as they are
	UTF8  bool // it lets programs read arguments beyond ASCII as they are
}

// Limits returns those of the pool, with their defaults.
func (n *Node) Limits() Limits { return n.pool.limits }

// Context ends when the pool is closed.
func (n *Node) Context() context.Context { return n.pool.ctx }

// Go starts what Close waits for. Its caller is under [Pool.Enter], or was started by Go.
func (n *Node) Go(f func()) { n.pool.wg.Go(f) }

// Acquire waits for the right to open one session on behalf of a principal; "" is the host itself.
// Every connection that it returns must be released.
func (n *Node) Acquire(ctx context.Context, who string) (*Conn, error) {
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
				c.used, c.active = c.used+1, c.active+1
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

// Connect begins to connect, if there is no connection and the last attempt did not fail. If nobody
// waits for it, its failure leaves no trace. The caller is under [Pool.Enter].
func (n *Node) Connect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.conns) == 0 && !n.dialing && n.lastErr == nil && n.pool.ctx.Err() == nil {
		n.dialing = true
		n.pool.wg.Go(n.dial)
	}
}

func (n *Node) waited(ctx context.Context) error {
	code, why := effect.Stopped(ctx)
	return effect.Failed(code, "waiting for a connection to %s: %s; nothing was sent", n.Name, why)
}

var errNews = errors.New("a connection, or an attempt to connect, has ended")

// grow starts to connect, unless there are enough connections. The context ends when it is worth
// asking again. It returns the error of the last attempt when there is no connection to wait for
// and none may be tried yet.
func (n *Node) grow() (context.Context, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.pool.ctx.Err() != nil:
		return nil, effect.Failed("connection", "connecting to %s: %v", n.Name, errShutdown)
	case n.dialing || len(n.conns) >= n.pool.limits.MaxConns:
	case n.lastErr == nil || !time.Now().Before(n.retryAt):
		n.dialing = true
		n.pool.wg.Go(n.dial)
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
func (n *Node) changed() {
	n.resize()
	if n.news != nil {
		n.tell()
		n.news, n.tell = nil, nil
	}
}

// Release returns a session to the pool.
func (n *Node) Release(c *Conn, who string) {
	c.Rest()
	n.mu.Lock()
	c.used--
	n.mu.Unlock()
	n.shares.Release(who)
}

// Rest notes that a session is kept for later. One at rest does not keep its connection from being
// closed after IdleClose.
func (c *Conn) Rest() {
	c.Node.mu.Lock()
	defer c.Node.mu.Unlock()
	c.active--
	c.idleSince = time.Now()
}

// Wake notes that a session at rest is used.
func (c *Conn) Wake() {
	c.Node.mu.Lock()
	defer c.Node.mu.Unlock()
	c.active++
}

// shrink notes that the node allows fewer sessions than are in use: a second connection may help.
func (c *Conn) shrink() {
	c.Node.mu.Lock()
	defer c.Node.mu.Unlock()
	c.limit = max(1, min(c.limit, c.used-1))
	c.Node.resize()
}

// resize makes the shares follow the connections. What is left to others counts of those that are
// open: nobody could wait for one that cannot be made. n.mu must be held.
func (n *Node) resize() {
	all := 0
	for _, c := range n.conns {
		if c.alive() {
			all += c.limit
		}
	}
	n.shares.Resize(all, max(all-forOthers, min(all, 1)))
}

func (c *Conn) alive() bool { return c.cause.Load() == nil && !c.firm.dead.Load() }

// dial adds a connection. After a failure the next attempt waits 250 ms, doubled up to 4 s, with
// jitter; until then callers get the last error at once.
func (n *Node) dial() {
	d, err := effect.Guarded(func() (*dialed, error) { return n.way.connect(n.pool.ctx) })
	if op := (*terms.OpError)(nil); errors.As(err, &op) {
		err = effect.Failed(op.Code, "node %s: %s", n.Name, op.Message)
	} else if err != nil {
		err = effect.Failed("internal", "node %s: %v", n.Name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.changed()
	n.dialing = false
	if err != nil && n.news == nil {
		return // nobody waits: the next one tries for itself
	}
	if n.lastErr = err; err != nil {
		n.retryAt = time.Now().Add(jitter(250 * time.Millisecond << min(n.fails, 4)))
		n.fails++
		return
	}
	n.fails = 0
	c := &Conn{dialed: d, Node: n, done: make(chan struct{}), limit: n.pool.limits.MaxSessions,
		idleSince: time.Now()}
	n.conns = append(n.conns, c)
	n.pool.wg.Go(c.wait)
	n.pool.wg.Go(c.keepAlive)
}

// wait takes the connection out of the pool when it ends.
func (c *Conn) wait() {
	err := c.client.Wait()
	c.Fail(fmt.Errorf("the connection ended: %w", err))
	n := c.Node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = slices.DeleteFunc(n.conns, func(other *Conn) bool { return other == c })
	close(c.done)
	n.changed()
}

// Fail closes the connection; all that wait on it get an error. The first cause is kept.
func (c *Conn) Fail(cause error) {
	c.cause.CompareAndSwap(nil, &cause)
	c.raw.Close()
}

// Why returns the cause of the end of the connection, or else err.
func (c *Conn) Why(err error) error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return err
}

// Watch closes the connection unless the returned function is called within StepTimeout.
func (c *Conn) Watch(step string) (stop func() bool) {
	limit := c.Node.pool.limits.StepTimeout
	return time.AfterFunc(limit, func() {
		c.Fail(fmt.Errorf("%s got no answer within %s", step, limit))
	}).Stop
}

// keepAlive closes a connection whose peer is silent for three intervals, and one that was not used
// for IdleClose.
func (c *Conn) keepAlive() {
	o := c.Node.pool.limits
	tick := time.NewTicker(o.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.Node.pool.ctx.Done():
			c.Fail(errShutdown)
			return
		case <-tick.C:
		}
		if c.idle(time.Now().Add(-o.IdleClose)) {
			c.Fail(fmt.Errorf("closed after %s without use", o.IdleClose))
			return
		}
		dead := time.AfterFunc(2*o.KeepAlive, func() {
			c.Fail(fmt.Errorf("no sign of life for %s", 3*o.KeepAlive))
		})
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		dead.Stop()
		if err != nil {
			c.Fail(err)
			return
		}
	}
}

// idle reports whether the connection has served nothing since the given time.
func (c *Conn) idle(since time.Time) bool {
	c.Node.mu.Lock()
	defer c.Node.mu.Unlock()
	return c.active == 0 && c.idleSince.Before(since)
}
