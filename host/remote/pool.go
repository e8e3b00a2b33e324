package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"golang.org/x/crypto/ssh"
)

// forOthers is how many of the open sessions of a node one principal leaves to the others.
const forOthers = 2

// node is an entry of the inventory with its connections. Callers wait in line for a session, each
// principal in a line of its own, and the lines take turns. A second connection is opened only when
// somebody may have none of the first.
type node struct {
	r    *Remote
	opts NodeOptions
	gate gate.Node

	mu      sync.Mutex // guards the following, and the same-named fields of conns
	conns   []*conn
	lines   []*line        // of those who wait; none is empty, and the first one's turn comes first
	held    map[string]int // sessions, by principal
	dialing bool
	fails   int
	retryAt time.Time // no dial before this
	lastErr error     // of the last dial

	files   *files        // the SFTP session, or nil
	opening chan struct{} // closed when the attempt to open one is over
	openErr error
	swept   bool     // leftovers of dead processes were looked for
	left    []string // directories of ours that a lost connection kept us from removing
}

// line is who waits for a session on behalf of one principal; "" is the host itself.
type line struct {
	who     string
	waiters []chan grant
}

type grant struct {
	c   *conn
	err error
}

// conn is one authenticated connection.
type conn struct {
	*dialed
	n     *node
	done  chan struct{} // closed when it has ended
	cause atomic.Pointer[error]

	used, limit int       // sessions; guarded by n.mu
	idleSince   time.Time // guarded by n.mu

	shellMu sync.Mutex // one probe at a time
	shellOK bool
}

// acquire waits for the right to open one session on behalf of a principal. Every conn it returns
// must be released.
func (n *node) acquire(ctx context.Context, who string) (*conn, error) {
	n.mu.Lock()
	w := make(chan grant, 1)
	i := slices.IndexFunc(n.lines, func(l *line) bool { return l.who == who })
	if i < 0 {
		i, n.lines = len(n.lines), append(n.lines, &line{who: who})
	}
	n.lines[i].waiters = append(n.lines[i].waiters, w)
	n.settle()
	n.mu.Unlock()
	select {
	case g := <-w:
		return g.c, g.err
	case <-ctx.Done():
	}
	n.mu.Lock()
	for i, l := range n.lines {
		if j := slices.Index(l.waiters, w); j >= 0 {
			if l.waiters = slices.Delete(l.waiters, j, j+1); len(l.waiters) == 0 {
				n.lines = slices.Delete(n.lines, i, i+1)
			}
			n.mu.Unlock()
			code, why := stopped(ctx)
			return nil, failed(
				code,
				"waiting for a connection to %s: %s; nothing was sent",
				n.opts.Name,
				why,
			)
		}
	}
	n.mu.Unlock()
	g := <-w // it came at the same moment
	return g.c, g.err
}

func (n *node) release(c *conn, who string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.used--
	if n.held[who]--; n.held[who] == 0 {
		delete(n.held, who)
	}
	c.idleSince = n.r.opts.Now()
	n.settle()
}

// settle gives sessions to those who wait, in their turn, and dials or tells them why not. n.mu
// must be held.
func (n *node) settle() {
	for c := n.free(); c != nil; c = n.free() {
		w := n.next()
		if w == nil {
			break
		}
		c.used++
		w <- grant{c: c}
	}
	if len(n.lines) == 0 || n.dialing || len(n.conns) >= n.r.opts.MaxConns {
		return
	}
	err := n.lastErr
	if n.r.ctx.Err() != nil {
		err = failed("connection", "connecting to %s: the host is shutting down", n.opts.Name)
	} else if wait := n.retryAt.Sub(n.r.opts.Now()); err == nil || wait <= 0 {
		n.dialing = true
		n.r.wg.Go(n.dial)
		return
	} else if op := (*gate.OpError)(nil); errors.As(err, &op) {
		err = failed(op.Code, "%s (that was the last attempt; the next is made in %s at the earliest)", op.Message, wait.Round(10*time.Millisecond))
	}
	if len(n.conns) == 0 {
		for _, l := range n.lines {
			for _, w := range l.waiters {
				w <- grant{err: err}
			}
		}
		n.lines = nil
	}
}

// next takes a waiter out of the first line whose principal may hold one session more; then that
// line is the last. What is left to others counts of the connections that are open: nobody else
// could wait for one that cannot be made.
func (n *node) next() chan grant {
	most := -forOthers
	for _, c := range n.conns {
		most += c.limit
	}
	for i, l := range n.lines {
		if n.held[l.who] >= max(most, 1) {
			continue
		}
		n.held[l.who]++
		n.lines = slices.Delete(n.lines, i, i+1)
		w := l.waiters[0]
		if l.waiters = l.waiters[1:]; len(l.waiters) > 0 {
			n.lines = append(n.lines, l)
		}
		return w
	}
	return nil
}

func (n *node) free() *conn {
	for _, c := range n.conns {
		if c.used < c.limit && c.cause.Load() == nil && !c.firm.dead.Load() {
			return c
		}
	}
	return nil
}

// dial adds a connection. After a failure the next attempt waits 250 ms, doubled up to 4 s, with
// jitter; until then callers get the last error at once.
func (n *node) dial() {
	d, err := n.r.dial(n.r.ctx, n.opts)
	if op := (*gate.OpError)(nil); errors.As(err, &op) {
		err = failed(op.Code, "node %s: %s", n.opts.Name, op.Message)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialing, n.lastErr = false, err
	if err != nil {
		n.retryAt = n.r.opts.Now().Add(jitter(250 * time.Millisecond << min(n.fails, 4)))
		n.fails++
		n.settle()
		return
	}
	n.fails = 0
	c := &conn{
		dialed:    d,
		n:         n,
		done:      make(chan struct{}),
		limit:     n.r.opts.MaxSessions,
		idleSince: n.r.opts.Now(),
	}
	n.conns = append(n.conns, c)
	n.r.wg.Go(c.wait)
	n.r.wg.Go(c.keepAlive)
	n.settle()
}

// wait takes the connection out of the pool when it ends.
func (c *conn) wait() {
	err := c.client.Wait()
	c.fail(fmt.Errorf("the connection ended: %w", err))
	n := c.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, other := range n.conns {
		if other == c {
			n.conns = append(n.conns[:i], n.conns[i+1:]...)
			break
		}
	}
	close(c.done)
	n.settle()
}

// fail closes the connection; whoever waits on it gets an error. The first cause is kept.
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
	return time.AfterFunc(
		limit,
		func() { c.fail(fmt.Errorf("%s got no answer within %s", step, limit)) },
	).Stop
}

// keepAlive closes a connection whose peer is silent for three intervals, and one that nobody has
// used for IdleClose.
func (c *conn) keepAlive() {
	o := c.n.r.opts
	tick := time.NewTicker(o.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.n.r.ctx.Done():
			c.fail(errors.New("the host is shutting down"))
			return
		case <-tick.C:
		}
		if c.idle(o.Now().Add(-o.IdleClose)) {
			c.fail(fmt.Errorf("closed after %s without use", o.IdleClose))
			return
		}
		dead := time.AfterFunc(
			2*o.KeepAlive,
			func() { c.fail(fmt.Errorf("no sign of life for %s", 3*o.KeepAlive)) },
		)
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		dead.Stop()
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// idle reports whether the connection serves nobody and has not since the given time. The SFTP
// session, when nothing uses it, is nobody.
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

// session opens a channel, for commands only after the login shell of its connection is known to be
// good. It is tried again, elsewhere if need be, while the node refuses or the connection turns out
// dead: nothing was asked yet.
func (n *node) session(
	ctx context.Context,
	who string,
	commands bool,
) (*conn, ssh.Channel, <-chan exit, error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		c, err := n.acquire(ctx, who)
		if err != nil {
			return nil, nil, nil, err
		}
		var ch ssh.Channel
		var exits <-chan exit
		if commands {
			err = c.posix(ctx)
		}
		if err == nil {
			ch, exits, err = c.open()
		}
		if op := (*gate.OpError)(nil); err == nil || errors.As(err, &op) {
			if err != nil {
				n.release(c, who)
			}
			return c, ch, exits, err
		}
		refused := refusedChannel(err)
		if refused && attempt >= 3 {
			n.mu.Lock()
			// the node allows fewer sessions than we thought; a second connection may help
			c.limit = max(1, min(c.limit, c.used-1))
			n.mu.Unlock()
		}
		n.release(c, who)
		if ctx.Err() != nil || time.Since(began) > n.r.opts.StepTimeout ||
			!refused && attempt >= 3 {
			hint := ""
			if refused {
				hint = "; MaxSessions in the node's sshd_config may be lower than remote.max_sessions"
			}
			return nil, nil, nil, failed(
				"connection",
				"opening a session on %s: %v%s; nothing was sent",
				n.opts.Name,
				c.why(err),
				hint,
			)
		}
		if !refused {
			c.fail(err)
			<-c.done // its pool entry is gone before we ask again
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(jitter(2 * time.Millisecond << min(attempt, 6))):
		}
	}
}

// open opens a channel. See [firm] for why the library may never return from it when the connection
// ends; against a peer that ends it by breaking the protocol, firm does not help, and the call is
// left behind.
//
// The returned channel gives the exit of a command, and is closed with the session. Requests of the
// node are taken from the start, whatever else goes on: the library stops reading from a
// connection, and cannot even be closed, while some of them wait.
func (c *conn) open() (ssh.Channel, <-chan exit, error) {
	type opened struct {
		ch    ssh.Channel
		exits <-chan exit
		err   error
	}
	if !c.firm.open() {
		return nil, nil, c.why(io.EOF)
	}
	got := make(chan opened, 1)
	stop := c.watch("opening a session")
	defer stop()
	go func() {
		ch, reqs, err := c.client.OpenChannel("session", nil)
		exits := make(chan exit, 1)
		if err == nil {
			go listen(reqs, exits)
		}
		got <- opened{ch, exits, err}
	}()
	select {
	case o := <-got:
		return o.ch, o.exits, o.err
	case <-c.done:
	}
	select {
	case o := <-got:
		return o.ch, o.exits, o.err
	case <-time.After(10 * time.Millisecond):
		return nil, nil, c.why(io.EOF)
	}
}

// listen takes the requests of the node on a channel until it is closed. The first exit is passed
// on, all else is declined.
func listen(reqs <-chan *ssh.Request, exits chan<- exit) {
	defer close(exits)
	for req := range reqs {
		if e, is := exitOf(req); is {
			select {
			case exits <- e:
			default:
			}
		}
		if req.WantReply {
			req.Reply(false, nil)
		}
	}
}

// shut closes a channel, and the connection when the node does not close it too.
func (c *conn) shut(ch ssh.Channel, exits <-chan exit) {
	stop := c.watch("closing a session")
	defer stop()
	ch.Close()
	for range exits {
	}
}
