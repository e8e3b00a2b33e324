// Package files reads files of nodes over SFTP.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Parallel is how many packets of one file are under way at once.
const Parallel = 64

// Node is a node with its SFTP session, which operations share.
type Node struct {
	*conn.Node
	made  *Ledger       // what is to be removed again
	stall time.Duration // of a transfer that moves nothing

	mu      sync.Mutex    // guards the following
	session *Session      // or nil
	opening chan struct{} // closed when the attempt to open one is over
	openErr error
}

// NewNode makes a node without a session. stall is how long a transfer may move nothing.
func NewNode(n *conn.Node, l *Ledger, stall time.Duration) *Node {
	return &Node{Node: n, made: l, stall: stall}
}

// Session is the SFTP session of a node. It occupies one session of its connection until either
// ends.
type Session struct {
	*sftp.Client
	Node   *Node
	c      *conn.Conn
	wire   *referee
	active atomic.Int64 // operations under way
	listMu sync.Mutex   // one directory listing at a time
	over   chan struct{}
	// replaces is set while the session opens: its answers to REALPATH have no links.
	replaces bool
}

// begin notes an operation. The time is set first, so that watchStall does not take the idle time
// before it for a stall.
func (f *Session) begin() {
	f.wire.touch()
	f.active.Add(1)
	f.c.Wake()
}

func (f *Session) end() {
	f.active.Add(-1)
	f.c.Rest()
}

func (f *Session) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}

// why is the reason for which the session ended, if it is known.
func (f *Session) why(err error) error {
	if wrong := f.wire.cause.Load(); wrong != nil {
		return *wrong
	}
	return f.c.Why(err)
}

// open returns the SFTP session, opening one when there is none. Callers that come together open
// one together.
func (n *Node) open(ctx context.Context) (*Session, error) {
	for {
		n.mu.Lock()
		if n.session != nil && !n.session.ended() {
			defer n.mu.Unlock()
			return n.session, nil
		}
		if n.opening == nil {
			n.opening = make(chan struct{})
			n.Go(n.openSFTP)
		}
		opening := n.opening
		n.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			code, why := effect.Stopped(ctx)
			return nil, effect.Failed(code, "opening SFTP on %s: %s; nothing was sent", n.Name, why)
		}
		n.mu.Lock()
		f, err := n.session, n.openErr
		n.mu.Unlock()
		if f != nil || err != nil {
			return f, err
		}
	}
}

func (n *Node) openSFTP() {
	ctx, cancel := context.WithTimeout(n.Context(), n.Limits().DialTimeout+n.Limits().StepTimeout)
	defer cancel()
	f, err := effect.Guarded(func() (*Session, error) { return n.newSession(ctx) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session, n.openErr = f, err
	close(n.opening)
	n.opening = nil
}

func (n *Node) newSession(ctx context.Context) (*Session, error) {
	s, err := n.Node.Session(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	// what a guard, or a start-up file, says
	words := &command.Output{Max: 4096, Seen: new(atomic.Int64)}
	said := make(chan struct{})
	n.Go(func() { words.Fill(s.Channel.Stderr()); close(said) })
	leave := func() {
		defer n.Release(s.Conn, "")
		s.Close()
	}
	stop := s.Watch("opening SFTP")
	defer stop()
	ok, err := s.Channel.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"}))
	if err != nil || !ok {
		n.Go(leave)
		return nil, effect.Failed("connection",
			"%s offers no SFTP (%v); its sshd_config needs `Subsystem sftp …`",
			n.Name, s.Why(cmp.Or(err, errors.New("refused"))))
	}
	w := &referee{Channel: s.Channel, requests: map[uint32]request{}}
	w.touch()
	f := &Session{Node: n, c: s.Conn, wire: w, over: make(chan struct{})}
	f.Client, err = sftp.NewClientPipe(w, w, sftp.UseConcurrentReads(true),
		sftp.UseConcurrentWrites(true), sftp.UseFstat(true),
		sftp.MaxConcurrentRequestsPerFile(Parallel))
	if err != nil {
		x := conn.Exit{Status: -1}
		wait := time.After(2 * time.Second) // a node may keep its channel open
		select {
		case x = <-s.Exits:
		case <-wait:
		}
		select {
		case <-said: // all that the node says
		case <-wait:
		}
		s.Channel.Close()
		n.Go(leave)
		return nil, n.noSFTP(x.Status, words.Take(), f.why(err))
	}
	// OpenSSH, which takes 255 KiB at once: fewer packets, the same bytes under way
	if _, has := f.HasExtension("limits@openssh.com"); has {
		sftp.MaxPacketUnchecked(255 << 10)(f.Client)
		sftp.MaxConcurrentRequestsPerFile(Parallel / 4)(f.Client)
	}
	f.replaces = f.replacesLinks()
	f.c.Rest()
	n.Go(func() {
		f.watchStall()
		f.c.Wake()
		leave()
	})
	return f, nil
}

// replacesLinks reports whether the server replaces symbolic links in its answer to REALPATH: it
// does so with one in the middle of a path, and with one at its end after one in the middle. A node
// without /proc shows nothing.
func (f *Session) replacesLinks() bool {
	var paths [2]string
	var both sync.WaitGroup
	for i, link := range []string{"/proc/self/status", "/proc/self/exe"} {
		both.Go(func() {
			p, err := effect.Guarded(func() (string, error) { return f.RealPath(link) })
			if err == nil && path.IsAbs(p) && path.Clean(p) == p {
				paths[i] = p
			}
		})
	}
	both.Wait()
	return realStatus.MatchString(paths[0]) && paths[1] != "" &&
		!strings.HasPrefix(paths[1], "/proc/")
}

var realStatus = regexp.MustCompile(`^/proc/[1-9][0-9]{0,9}/status$`)

// noSFTP explains why a session that a node opened does not speak SFTP. OpenSSH drops what a forced
// command writes to stderr in place of a subsystem, so that the exit code must do: 126 and 127 are
// those of the gate and of a shell that cannot run it, and of no SFTP server.
func (n *Node) noSFTP(code int, stderr []byte, err error) error {
	guard := command.GuardOf(command.Ended{Exit: code, Stderr: stderr})
	switch silent := len(stderr) == 0; {
	case silent && code == 126:
		guard = "the forced command of this key refuses it"
	case silent && code == 127:
		guard = "the node cannot run the forced command of this key. " + command.InstallGate
	}
	if guard != "" {
		return effect.Failed(command.NotPermitted, "%s does not let %s use SFTP: %s. %s", n.Name,
			n.User, guard, "A tool that moves files needs sftp=yes in "+
				"/usr/local/sbin/caponier-gate on the node")
	}
	hint := ""
	if errors.Is(err, errProtocol) {
		hint = "; a start-up file that prints something (~/.bashrc) breaks SFTP"
	}
	if s := strings.TrimSpace(string(command.Clip(stderr))); s != "" {
		hint += fmt.Sprintf("; the node said %q", s)
	}
	return effect.Failed("connection", "SFTP on %s did not start: %v%s", n.Name, err, hint)
}

// watchStall closes the connection when an operation waits and nothing moves for StallTimeout. It
// ends with the session.
func (f *Session) watchStall() {
	broken := make(chan struct{})
	f.Node.Go(func() {
		f.Wait()
		close(broken)
	})
	limit := f.Node.stall
	tick := time.NewTicker(max(limit/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-broken:
			close(f.over)
			return
		case <-tick.C:
			if f.active.Load() > 0 && time.Since(time.Unix(0, f.wire.moved.Load())) > limit {
				f.c.Fail(fmt.Errorf("SFTP moved nothing for %s", limit))
			}
		}
	}
}

// With runs fn against the SFTP session of n. It returns at once when ctx ends; fn ends soon after,
// since every step of it has a watchdog. An fn that changes a file asks p before the request that
// shows, and must not send it when p refuses. A session that is lost before that is opened again
// once, for all of fn. The error is a *terms.OpError.
func With[T any](
	ctx context.Context, n *Node, what, name string,
	fn func(ctx context.Context, f *Session, p *effect.Pledge) (T, error),
) (T, error) {
	p, done := &effect.Pledge{}, make(chan effect.Result[T], 1)
	n.Go(func() {
		for again := true; ; again = false {
			f, err := n.open(ctx)
			if err != nil {
				done <- effect.Result[T]{Err: err}
				return
			}
			v, err := use(ctx, f, func() (T, error) { return fn(ctx, f, p) })
			if !again || !Lost(err) || !p.Open() || ctx.Err() != nil {
				done <- effect.Result[T]{Value: v, Err: f.explain(ctx, p, what, name, err)}
				return
			}
			stop := f.c.Watch("closing SFTP")
			<-f.over
			stop()
		}
	})
	at := fmt.Sprintf("%s %q on %s", what, name, n.Name)
	return effect.Await(ctx, p, done, at, "nothing was changed", effect.LookFirst)
}

// use runs fn, and closes the connection when fn does not end soon after ctx: others may keep the
// session busy, so that watchStall does not see that this one hangs.
func use[T any](ctx context.Context, f *Session, fn func() (T, error)) (T, error) {
	f.begin()
	defer f.end()
	var ended atomic.Bool
	defer ended.Store(true)
	limit := f.Node.stall
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(limit, func() {
			if !ended.Load() {
				f.c.Fail(fmt.Errorf("an operation was given up and did not end within %s", limit))
			}
		})
	})()
	return effect.Guarded(fn)
}

// explain is the error of an operation as its caller gets it. An operation that was lost, or that
// failed in this program, after its request was sent may have been done.
func (f *Session) explain(
	ctx context.Context, p *effect.Pledge, what, name string, err error,
) error {
	op, cause := (*terms.OpError)(nil), f.why(err)
	code, why := "", ""
	switch {
	case err == nil:
		return nil
	case errors.As(err, &op):
		return op
	case ctx.Err() != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		code, why = effect.Stopped(ctx)
	case errors.Is(err, effect.ErrPanic):
		code, why = "internal", err.Error()
	case errors.Is(cause, errProtocol):
		code, why = "protocol", cause.Error()
	case Lost(err):
		code, why = "lost", fmt.Sprintf("the connection was lost (%v)", cause)
	default:
		return Error(what, name, err)
	}
	if p.Sent() {
		return effect.Unknown(code,
			"%s %q on %s: %s; %s", what, name, f.Node.Name, why, effect.LookFirst)
	}
	return effect.Failed(code, "%s %q on %s: %s; nothing was changed", what, name, f.Node.Name, why)
}
