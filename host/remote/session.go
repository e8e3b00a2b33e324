package remote

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"golang.org/x/crypto/ssh"
)

// session opens a channel, on a connection that does what is needed. It is tried again, elsewhere
// if need be, while the node refuses or the connection turns out dead: nothing was asked yet.
func (n *node) session(
	ctx context.Context, who string, want needs,
) (*conn, ssh.Channel, <-chan exit, error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		c, err := n.acquire(ctx, who)
		if err != nil {
			return nil, nil, nil, err
		}
		var ch ssh.Channel
		var exits <-chan exit
		if err = c.ready(ctx, want); err == nil {
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
			n.resize()
			n.mu.Unlock()
		}
		n.release(c, who)
		if ctx.Err() != nil || time.Since(began) > n.r.opts.StepTimeout ||
			!refused && attempt >= 3 {
			hint := ""
			if refused {
				hint = "; MaxSessions in the node's sshd_config may be lower than " +
					"remote.max_sessions"
			}
			return nil, nil, nil, failed("connection",
				"opening a session on %s: %v%s; nothing was sent", n.opts.Name, c.why(err), hint)
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
// ends; against a peer that ends it by breaking the protocol, firm does not help, and the library's
// call is left behind.
//
// The returned channel delivers the exit of a command, and is closed with the session. Requests of
// the node are read from the start, whatever else goes on: the library stops reading from a
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

// listen reads the requests of the node on a channel until it is closed. The first exit is passed
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
