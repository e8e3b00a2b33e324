package remote

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"golang.org/x/crypto/ssh"
)

// session is a channel for one command, or for SFTP.
type session struct {
	*conn
	ch    ssh.Channel
	exits <-chan exit // delivers the exit of a command, and is closed with the channel
}

// session opens a session, on a connection that does what is needed. It is tried again, elsewhere
// if need be, while the node refuses or the connection turns out dead: nothing was asked yet. The
// session must be closed, and its connection released.
func (n *node) session(ctx context.Context, who string, want needs) (*session, error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		c, err := n.acquire(ctx, who)
		if err != nil {
			return nil, err
		}
		var s *session
		if err = c.ready(ctx, want); err == nil {
			s, err = c.open()
		}
		if err == nil {
			return s, nil
		}
		op, full := (*gate.OpError)(nil), (*ssh.OpenChannelError)(nil)
		refused := errors.As(err, &full) // to open one more channel; nothing was sent on it
		if refused && attempt >= 3 {
			c.shrink()
		}
		n.release(c, who)
		switch {
		case errors.As(err, &op):
			return nil, op
		case ctx.Err() != nil || time.Since(began) > n.r.opts.StepTimeout ||
			!refused && attempt >= 3:
			hint := ""
			if refused {
				hint = "; MaxSessions in the node's sshd_config may be too low"
			}
			return nil, failed("connection", "opening a session on %s: %v%s; nothing was sent",
				n.opts.Name, c.why(err), hint)
		case !refused:
			c.fail(err)
			<-c.done // its pool entry is gone before we ask again
		default:
			select {
			case <-ctx.Done():
			case <-time.After(jitter(2 * time.Millisecond << min(attempt, 6))):
			}
		}
	}
}

// open opens a channel. See [firm] for why the library may never return from it when the connection
// ends; against a peer that ends it by breaking the protocol, firm does not help, and the library's
// call is left behind.
//
// Requests of the node are read from the start, whatever else goes on: the library stops reading
// from a connection, and cannot even be closed, while some of them wait.
func (c *conn) open() (*session, error) {
	if !c.firm.open() {
		return nil, c.why(io.EOF)
	}
	got := make(chan result[*session], 1)
	stop := c.watch("opening a session")
	defer stop()
	go func() {
		ch, reqs, err := c.client.OpenChannel("session", nil)
		exits := make(chan exit, 1)
		if err == nil {
			go listen(reqs, exits)
		}
		got <- result[*session]{&session{c, ch, exits}, err}
	}()
	select {
	case o := <-got:
		return o.v, o.err
	case <-c.done:
	}
	select {
	case o := <-got:
		return o.v, o.err
	case <-time.After(10 * time.Millisecond):
		return nil, c.why(io.EOF)
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

// close closes the channel, and the connection when the node does not close it too.
func (s *session) close() {
	stop := s.watch("closing a session")
	defer stop()
	s.ch.Close()
	for range s.exits {
	}
}
