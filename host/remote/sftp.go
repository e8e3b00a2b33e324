package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// parallel is how many packets of one file are under way at once.
const parallel = 64

// files is the SFTP session of a node. It occupies one session of its connection until either ends.
type files struct {
	*sftp.Client
	c      *conn
	wire   *referee
	active atomic.Int64 // operations under way
	listMu sync.Mutex   // one directory listing at a time
	over   chan struct{}
}

// begin notes an operation. The time is set first, so that watchStall does not take the idle time
// before it for a stall.
func (f *files) begin() {
	f.wire.touch()
	f.active.Add(1)
}

func (f *files) end() {
	n := f.c.n
	n.mu.Lock()
	defer n.mu.Unlock()
	f.active.Add(-1)
	f.c.idleSince = time.Now()
}

func (f *files) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}

// why is the reason for which the session ended, if it is known.
func (f *files) why(err error) error {
	if wrong := f.wire.cause.Load(); wrong != nil {
		return *wrong
	}
	return f.c.why(err)
}

// sftp returns the SFTP session, opening one when there is none. Callers that come together open
// one together.
func (n *node) sftp(ctx context.Context) (*files, error) {
	for {
		n.mu.Lock()
		if n.files != nil && !n.files.ended() {
			defer n.mu.Unlock()
			return n.files, nil
		}
		if n.opening == nil {
			n.opening = make(chan struct{})
			n.r.wg.Go(n.openSFTP)
		}
		opening := n.opening
		n.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			code, why := stopped(ctx)
			return nil, failed(code, "opening SFTP on %s: %s; nothing was sent", n.opts.Name, why)
		}
		n.mu.Lock()
		f, err := n.files, n.openErr
		n.mu.Unlock()
		if f != nil || err != nil {
			return f, err
		}
	}
}

func (n *node) openSFTP() {
	ctx, cancel := context.WithTimeout(n.r.ctx, n.r.opts.DialTimeout+n.r.opts.StepTimeout)
	defer cancel()
	f, err := guarded(func() (*files, error) { return n.newFiles(ctx) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files, n.openErr = f, err
	close(n.opening)
	n.opening = nil
}

func (n *node) newFiles(ctx context.Context) (*files, error) {
	s, err := n.session(ctx, "", needs{})
	if err != nil {
		return nil, err
	}
	words := &capped{max: 4096, seen: new(atomic.Int64)} // of a guard, or of a start-up file
	said := make(chan struct{})
	n.r.wg.Go(func() { words.fill(s.ch.Stderr()); close(said) })
	over := make(chan struct{})
	n.r.wg.Go(func() {
		defer n.release(s.conn, "")
		<-over
		s.close()
	})
	stop := s.watch("opening SFTP")
	defer stop()
	ok, err := s.ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"}))
	if err != nil || !ok {
		close(over)
		return nil, failed("connection",
			"%s offers no SFTP (%v); its sshd_config needs `Subsystem sftp …`",
			n.opts.Name, s.why(cmp.Or(err, errors.New("refused"))))
	}
	w := &referee{Channel: s.ch, requests: map[uint32]request{}}
	w.touch()
	f := &files{c: s.conn, wire: w, over: over}
	f.Client, err = sftp.NewClientPipe(w, w, sftp.UseConcurrentReads(true),
		sftp.UseConcurrentWrites(true), sftp.UseFstat(true),
		sftp.MaxConcurrentRequestsPerFile(parallel))
	if err != nil {
		x, wait := exit{status: -1}, time.After(2*time.Second) // a node may keep its channel open
		select {
		case x = <-s.exits:
		case <-wait:
		}
		select {
		case <-said: // all that the node says
		case <-wait:
		}
		s.ch.Close()
		close(over)
		return nil, n.noSFTP(x.status, words.take(), f.why(err))
	}
	// OpenSSH, which takes 255 KiB at once: fewer packets, the same bytes under way
	if _, has := f.HasExtension("limits@openssh.com"); has {
		sftp.MaxPacketUnchecked(255 << 10)(f.Client)
		sftp.MaxConcurrentRequestsPerFile(parallel / 4)(f.Client)
	}
	n.r.wg.Go(f.watchStall)
	return f, nil
}

// noSFTP explains why a session that a node opened does not speak SFTP. OpenSSH drops what a forced
// command writes to stderr in place of a subsystem, so that the exit code must do: 126 and 127 are
// those of the gate and of a shell that cannot run it, and of no SFTP server.
func (n *node) noSFTP(code int, stderr []byte, err error) error {
	guard := guardOf(ended{exit: code, stderr: stderr})
	switch silent := len(stderr) == 0; {
	case silent && code == 126:
		guard = "the forced command of this key refuses it"
	case silent && code == 127:
		guard = "the node cannot run the forced command of this key. " + installGate
	}
	if guard != "" {
		return failed(notPermitted, "%s does not let %s use SFTP: %s. %s", n.opts.Name,
			n.opts.User, guard, "A tool that moves files needs sftp=yes in "+
				"/usr/local/sbin/caponier-gate on the node")
	}
	hint := ""
	if errors.Is(err, errProtocol) {
		hint = "; a start-up file that prints something (~/.bashrc) breaks SFTP"
	}
	if s := strings.TrimSpace(string(clip(stderr))); s != "" {
		hint += fmt.Sprintf("; the node said %q", s)
	}
	return failed("connection", "SFTP on %s did not start: %v%s", n.opts.Name, err, hint)
}

// watchStall closes the connection when an operation waits and nothing moves for StallTimeout. It
// ends with the session.
func (f *files) watchStall() {
	broken := make(chan struct{})
	f.c.n.r.wg.Go(func() {
		f.Wait()
		close(broken)
	})
	limit := f.c.n.r.opts.StallTimeout
	tick := time.NewTicker(max(limit/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-broken:
			close(f.over)
			return
		case <-tick.C:
			if f.active.Load() > 0 && time.Since(time.Unix(0, f.wire.moved.Load())) > limit {
				f.c.fail(fmt.Errorf("SFTP moved nothing for %s", limit))
			}
		}
	}
}

// errPanic is a defect of this program, or of a library, that data of a node brought out.
var errPanic = errors.New("internal error")

// guarded runs do, and returns a panic of it as an error. Every goroutine that handles data of a
// node runs under it, so that a node cannot end the process.
func guarded[T any](do func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic in an operation on a node", "panic", p,
				"stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v; the log has the details", errPanic, p)
		}
	}()
	return do()
}

// with runs fn against the SFTP session of n. It returns at once when ctx ends; fn ends soon after,
// since every step of it has a watchdog. An fn that changes a file asks p before the request that
// shows, and must not send it when p refuses. A session that is lost before that is opened again
// once, for all of fn. The error is a *gate.OpError.
func with[T any](
	ctx context.Context, n *node, what, name string,
	fn func(ctx context.Context, f *files, p *pledge) (T, error),
) (T, error) {
	p, done := &pledge{}, make(chan result[T], 1)
	n.r.wg.Go(func() {
		for again := true; ; again = false {
			f, err := n.sftp(ctx)
			if err != nil {
				done <- result[T]{err: err}
				return
			}
			v, err := use(ctx, f, func() (T, error) { return fn(ctx, f, p) })
			if !again || !lostConnection(err) || p.state.Load() != 0 || ctx.Err() != nil {
				done <- result[T]{v, f.explain(ctx, p, what, name, err)}
				return
			}
			stop := f.c.watch("closing SFTP")
			<-f.over
			stop()
		}
	})
	at := fmt.Sprintf("%s %q on %s", what, name, n.opts.Name)
	return await(ctx, p, done, at, "nothing was changed", lookFirst)
}

// use runs fn, and closes the connection when fn does not end soon after ctx: others may keep the
// session busy, so that watchStall does not see that this one hangs.
func use[T any](ctx context.Context, f *files, fn func() (T, error)) (T, error) {
	f.begin()
	defer f.end()
	var ended atomic.Bool
	defer ended.Store(true)
	limit := f.c.n.r.opts.StallTimeout
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(limit, func() {
			if !ended.Load() {
				f.c.fail(fmt.Errorf("an operation was given up and did not end within %s", limit))
			}
		})
	})()
	return guarded(fn)
}

// explain is the error of an operation as its caller gets it. An operation that was lost, or that
// failed in this program, after its request was sent may have been done.
func (f *files) explain(ctx context.Context, p *pledge, what, name string, err error) error {
	op, cause := (*gate.OpError)(nil), f.why(err)
	code, why := "", ""
	switch {
	case err == nil:
		return nil
	case errors.As(err, &op):
		return op
	case ctx.Err() != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		code, why = stopped(ctx)
	case errors.Is(err, errPanic):
		code, why = "internal", err.Error()
	case errors.Is(cause, errProtocol):
		code, why = "protocol", cause.Error()
	case lostConnection(err):
		code, why = "lost", fmt.Sprintf("the connection was lost (%v)", cause)
	default:
		return fileError(what, name, err)
	}
	if p.sent() {
		return unknown(code, "%s %q on %s: %s; %s", what, name, f.c.n.opts.Name, why, lookFirst)
	}
	return failed(code, "%s %q on %s: %s; nothing was changed", what, name, f.c.n.opts.Name, why)
}
