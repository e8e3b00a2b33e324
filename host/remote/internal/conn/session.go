package conn

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
	"golang.org/x/crypto/ssh"
)

// Session is a channel for one command, or for a subsystem.
type Session struct {
	*Conn
	Channel ssh.Channel
	Exits   <-chan Exit // delivers the exit of a command, and is closed with the channel
}

// Session opens a session, on a connection that is ready for it; ready may be nil. It is tried
// again, elsewhere if need be, while the node refuses or the connection turns out dead: nothing was
// asked yet. The session must be closed, and its connection released.
func (n *Node) Session(
	ctx context.Context, who string, ready func(context.Context, *Conn) error,
) (*Session, error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		c, err := n.Acquire(ctx, who)
		if err != nil {
			return nil, err
		}
		if ready != nil {
			err = ready(ctx, c)
		}
		var s *Session
		if err == nil {
			s, err = c.Open()
		}
		if err == nil {
			return s, nil
		}
		op, full := (*terms.OpError)(nil), (*ssh.OpenChannelError)(nil)
		refused := errors.As(err, &full) // to open one more channel; nothing was sent on it
		if refused && attempt >= 3 {
			c.shrink()
		}
		n.Release(c, who)
		switch {
		case errors.As(err, &op):
			return nil, op
		case ctx.Err() != nil || time.Since(began) > n.pool.limits.StepTimeout ||
			!refused && attempt >= 3:
			hint := ""
			if refused {
				hint = "; MaxSessions in the node's sshd_config may be too low"
			}
			return nil, effect.Failed("connection",
				"opening a session on %s: %v%s; nothing was sent",
				n.Name, c.Why(err), hint)
		case !refused:
			c.Fail(err)
			<-c.done // its pool entry is gone before we ask again
		default:
			select {
			case <-ctx.Done():
			case <-time.After(jitter(2 * time.Millisecond << min(attempt, 6))):
			}
		}
	}
}

// Open opens a channel. See [firm] for why the library may never return from it when the connection
// ends; against a peer that ends it by breaking the protocol, firm does not help, and the library's
// call is left behind.
//
// Requests of the node are read from the start, whatever else goes on: the library stops reading
// from a connection, and cannot even be closed, while some of them wait.
func (c *Conn) Open() (*Session, error) {
	if !c.firm.open() {
		return nil, c.Why(io.EOF)
	}
	got := make(chan effect.Result[*Session], 1)
	stop := c.Watch("opening a session")
	defer stop()
	go func() {
		ch, reqs, err := c.client.OpenChannel("session", nil)
		exits := make(chan Exit, 1)
		if err == nil {
			go listen(reqs, exits)
		}
		got <- effect.Result[*Session]{Value: &Session{c, ch, exits}, Err: err}
	}()
	select {
	case o := <-got:
		return o.Value, o.Err
	case <-c.done:
	}
	select {
	case o := <-got:
		return o.Value, o.Err
	case <-time.After(10 * time.Millisecond):
		return nil, c.Why(io.EOF)
	}
}

// listen reads the requests of the node on a channel until it is closed. The first exit is passed
// on, all else is declined.
func listen(reqs <-chan *ssh.Request, exits chan<- Exit) {
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

// Close closes the channel, and the connection when the node does not close it too.
func (s *Session) Close() {
	stop := s.Watch("closing a session")
	defer stop()
	s.Channel.Close()
	for range s.Exits {
	}
}

// Exit is how a command ended, as the node reports it (RFC 4254, section 6.10).
type Exit struct {
	Status int
	Signal string
}

func exitOf(req *ssh.Request) (e Exit, is bool) {
	switch {
	case req.Type == "exit-status" && len(req.Payload) >= 4:
		return Exit{Status: int(int32(binary.BigEndian.Uint32(req.Payload)))}, true
	case req.Type == "exit-signal":
		var s struct {
			Name       string
			CoreDumped bool
			Message    string
			Lang       string
		}
		if ssh.Unmarshal(req.Payload, &s) == nil {
			return Exit{128 + signals[s.Name], s.Name}, true
		}
	}
	return e, false
}

var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6,
	"BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14,
	"TERM": 15}
