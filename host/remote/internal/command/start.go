package command

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"golang.org/x/crypto/ssh"
)

const (
	// maxDiscard bounds the output that is thrown away after the cap, so that a flood does not
	// occupy the host until the deadline.
	maxDiscard = 1 << 30
	// leftover is how long output may pause after the command has ended. A process that it left
	// behind can hold the output open for ever.
	leftover = 2 * time.Second

	stillRunning = "the session was closed, and the command may still be running there: look " +
		"before you repeat it"
)

// start sends the command, unless its caller has given up, and waits for its end.
func start(ctx context.Context, s *conn.Session, cmd Command, p *effect.Pledge) (Ended, error) {
	at := s.Node
	if !p.Send() {
		return Ended{}, effect.Failed("cancelled", "the command was not sent to %s", at.Name)
	}
	stop := s.Watch("starting a command")
	// A request for the programs' locale (RFC 4254, section 6.4). It needs no answer: whether the
	// node took it is seen by probeLocale.
	s.Channel.SendRequest("env", false,
		ssh.Marshal(struct{ Name, Value string }{"LC_ALL", "C.UTF-8"}))
	ok, err := s.Channel.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{cmd.Text}))
	stop()
	if err != nil {
		return Ended{}, effect.Unknown("lost",
			"the connection to %s was lost while the command was "+
				"sent (%v); it may have run: look before you repeat it", at.Name, s.Why(err))
	}
	if !ok {
		return Ended{}, effect.Failed("permission",
			"%s does not let %s run commands (an SFTP-only "+
				"account?)", at.Name, at.User)
	}
	return collect(ctx, s, cmd)
}

// reading is the output of a command that is running.
type reading struct {
	seen      atomic.Int64 // bytes, of both streams
	out, errs Output
	eof       chan struct{} // closed when both streams have ended
}

// begin gives the command its input and starts to read its output.
func begin(s *conn.Session, cmd Command) *reading {
	r := &reading{eof: make(chan struct{})}
	r.out, r.errs = Output{Max: cmd.Max, Seen: &r.seen}, Output{Max: cmd.Max, Seen: &r.seen}
	stderr := make(chan struct{})
	s.Node.Go(func() { r.errs.Fill(s.Channel.Stderr()); close(stderr) })
	s.Node.Go(func() { r.out.Fill(s.Channel); <-stderr; close(r.eof) })
	if len(cmd.Stdin) == 0 {
		stop := s.Watch("starting a command")
		s.Channel.CloseWrite()
		stop()
		return r
	}
	s.Node.Go(func() {
		s.Channel.Write(cmd.Stdin) // a command need not read it all
		s.Channel.CloseWrite()
	})
	return r
}

// collect reads what a command says until it has ended: it has told its exit and both streams have
// ended, or the channel is closed, or a process that it left behind keeps silent.
func collect(ctx context.Context, s *conn.Session, cmd Command) (e Ended, err error) {
	r := begin(s, cmd)
	name, exits, eof := s.Node.Name, s.Exits, r.eof
	flood := time.NewTicker(leftover)
	defer flood.Stop()
	exited, last := false, int64(0)
	for !exited || eof != nil {
		select {
		case x, open := <-exits:
			switch {
			case !open && !exited:
				return Ended{}, effect.Unknown("lost",
					"%s ended the session without an exit status "+
						"(%v); the command may have run: look before you repeat it", name,
					s.Why(errClosed))
			case !open:
				<-r.eof
				exits, eof = nil, nil
			case !exited:
				exited, e.Exit, e.Signal, last = true, x.Status, x.Signal, r.seen.Load()
				flood.Reset(leftover)
			}
		case <-eof:
			eof = nil
		case <-ctx.Done():
			interrupt(s)
			code, why := effect.Stopped(ctx)
			return Ended{}, effect.Unknown(code, "running a command on %s: %s; %s", name, why,
				stillRunning)
		case <-flood.C:
			now := r.seen.Load()
			if now > 2*cmd.Max+maxDiscard {
				interrupt(s)
				return Ended{}, effect.Unknown("too_large",
					"the command on %s printed more than %d "+
						"bytes; %s", name, now, stillRunning)
			}
			if exited && now == last {
				e.Truncated, eof = true, nil
			}
			last = now
		}
	}
	e.Stdout, e.Stderr = r.out.Take(), r.errs.Take()
	e.Truncated = e.Truncated || r.out.over.Load() || r.errs.over.Load()
	return e, nil
}

// interrupt asks the node to end the command and closes the session, and waits for neither. OpenSSH
// passes the signal on to the login shell's process group, but not for root; a process that writes
// ends when its pipe is closed, others may go on.
func interrupt(s *conn.Session) {
	stop := s.Watch("stopping a command")
	defer stop()
	s.Channel.SendRequest("signal", false, ssh.Marshal(struct{ Signal string }{"TERM"}))
	s.Channel.Close()
}

// errClosed stands for the cause when only the channel was closed.
var errClosed = errors.New("the session was closed")
