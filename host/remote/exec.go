package remote

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"golang.org/x/crypto/ssh"
)

const (
	// maxCommand is what Linux takes as one argument, which the command is for the login shell.
	maxCommand = 128<<10 - 1
	// maxDiscard bounds the output that is thrown away after the cap, so that a flood does not
	// occupy the host until the deadline.
	maxDiscard = 1 << 30
	// leftover is how long output may pause after the command has ended. A process that it left
	// behind can hold the output open for ever.
	leftover = 2 * time.Second

	stillRunning = "the session was closed, and the command may still be running there: look " +
		"before you repeat it"
)

type command struct {
	who   string // the principal whose share it takes
	text  string
	stdin []byte
	max   int64 // bytes of stdout, and of stderr
}

// ended is how a command ended.
type ended struct {
	exit           int
	signal         string
	stdout, stderr []byte
	truncated      bool
}

// pledge settles which came first: the worker that is about to send a request that may write, or
// the caller that gives up. Exactly one of them wins.
type pledge struct{ state atomic.Int32 } // 0, 1 sent, 2 given up

// send reports whether the request may be sent.
func (p *pledge) send() bool { return p.state.CompareAndSwap(0, 1) }

// giveUp reports whether nothing was sent, nor ever will be.
func (p *pledge) giveUp() bool { return p.state.CompareAndSwap(0, 2) }

// sent reports whether the request may have been sent.
func (p *pledge) sent() bool { return p.state.Load() == 1 }

// exec runs a command. It returns at once when ctx ends; the worker then closes the session without
// reading on.
func (n *node) exec(ctx context.Context, cmd command) (ended, error) {
	if len(cmd.text) > maxCommand {
		return ended{}, failed("too_large", "the command is %d bytes long, a node takes %d; "+
			"write it to a staged file and run that", len(cmd.text), maxCommand)
	}
	p, done := &pledge{}, make(chan result[ended], 1)
	n.r.wg.Go(func() {
		n.run(ctx, cmd, p, func(e ended, err error) { done <- result[ended]{e, err} })
	})
	return await(ctx, p, done, "running a command on "+n.opts.Name, "it was not sent", stillRunning)
}

// run does the work of exec and calls report once, before it cleans up.
func (n *node) run(ctx context.Context, cmd command, p *pledge, report func(ended, error)) {
	s, err := n.session(ctx, cmd.who, needs{shell: true, utf8: !ascii(cmd.text)})
	if err != nil {
		report(ended{}, err)
		return
	}
	defer n.release(s.conn, cmd.who)
	defer s.close()
	e, err := guarded(func() (ended, error) { return s.start(ctx, cmd, p) })
	if errors.Is(err, errPanic) {
		err = unknown("internal", "running a command on %s: %v; %s", n.opts.Name, err, lookFirst)
	}
	report(e, err)
}

// start sends the command, unless its caller has given up, and waits for its end.
func (s *session) start(ctx context.Context, cmd command, p *pledge) (ended, error) {
	at := s.n.opts
	if !p.send() {
		return ended{}, failed("cancelled", "the command was not sent to %s", at.Name)
	}
	stop := s.watch("starting a command")
	// A request for the programs' locale (RFC 4254, section 6.4). It needs no answer: whether the
	// node took it is seen by needs.utf8.
	s.ch.SendRequest("env", false, ssh.Marshal(struct{ Name, Value string }{"LC_ALL", "C.UTF-8"}))
	ok, err := s.ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{cmd.text}))
	stop()
	if err != nil {
		return ended{}, unknown("lost", "the connection to %s was lost while the command was "+
			"sent (%v); it may have run: look before you repeat it", at.Name, s.why(err))
	}
	if !ok {
		return ended{}, failed("permission", "%s does not let %s run commands (an SFTP-only "+
			"account?)", at.Name, at.User)
	}
	return s.collect(ctx, cmd)
}

// reading is the output of a command that is running.
type reading struct {
	seen      atomic.Int64 // bytes, of both streams
	out, errs capped
	eof       chan struct{} // closed when both streams have ended
}

// begin gives the command its input and starts to read its output.
func (s *session) begin(cmd command) *reading {
	r := &reading{eof: make(chan struct{})}
	r.out, r.errs = capped{max: cmd.max, seen: &r.seen}, capped{max: cmd.max, seen: &r.seen}
	stderr := make(chan struct{})
	s.n.r.wg.Go(func() { r.errs.fill(s.ch.Stderr()); close(stderr) })
	s.n.r.wg.Go(func() { r.out.fill(s.ch); <-stderr; close(r.eof) })
	if len(cmd.stdin) == 0 {
		stop := s.watch("starting a command")
		s.ch.CloseWrite()
		stop()
		return r
	}
	s.n.r.wg.Go(func() {
		s.ch.Write(cmd.stdin) // a command need not read it all
		s.ch.CloseWrite()
	})
	return r
}

// collect reads what a command says until it has ended: it has told its exit and both streams have
// ended, or the channel is closed, or a process that it left behind keeps silent.
func (s *session) collect(ctx context.Context, cmd command) (e ended, err error) {
	r := s.begin(cmd)
	name, exits, eof := s.n.opts.Name, s.exits, r.eof
	flood := time.NewTicker(leftover)
	defer flood.Stop()
	exited, last := false, int64(0)
	for !exited || eof != nil {
		select {
		case x, open := <-exits:
			switch {
			case !open && !exited:
				return ended{}, unknown("lost", "%s ended the session without an exit status "+
					"(%v); the command may have run: look before you repeat it", name,
					s.why(errClosed))
			case !open:
				<-r.eof
				exits, eof = nil, nil
			case !exited:
				exited, e.exit, e.signal, last = true, x.status, x.signal, r.seen.Load()
				flood.Reset(leftover)
			}
		case <-eof:
			eof = nil
		case <-ctx.Done():
			s.interrupt()
			code, why := stopped(ctx)
			return ended{}, unknown(code, "running a command on %s: %s; %s", name, why,
				stillRunning)
		case <-flood.C:
			now := r.seen.Load()
			if now > 2*cmd.max+maxDiscard {
				s.interrupt()
				return ended{}, unknown("too_large", "the command on %s printed more than %d "+
					"bytes; %s", name, now, stillRunning)
			}
			if exited && now == last {
				e.truncated, eof = true, nil
			}
			last = now
		}
	}
	e.stdout, e.stderr = r.out.take(), r.errs.take()
	e.truncated = e.truncated || r.out.over.Load() || r.errs.over.Load()
	return e, nil
}

// interrupt asks the node to end the command and closes the session, and waits for neither. OpenSSH
// passes the signal on to the login shell's process group, but not for root; a process that writes
// ends when its pipe is closed, others may go on.
func (s *session) interrupt() {
	stop := s.watch("stopping a command")
	defer stop()
	s.ch.SendRequest("signal", false, ssh.Marshal(struct{ Signal string }{"TERM"}))
	s.ch.Close()
}

// exit is how a command ended, as the node reports it (RFC 4254, section 6.10).
type exit struct {
	status int
	signal string
}

func exitOf(req *ssh.Request) (e exit, is bool) {
	switch {
	case req.Type == "exit-status" && len(req.Payload) >= 4:
		return exit{status: int(int32(binary.BigEndian.Uint32(req.Payload)))}, true
	case req.Type == "exit-signal":
		var s struct {
			Name       string
			CoreDumped bool
			Message    string
			Lang       string
		}
		if ssh.Unmarshal(req.Payload, &s) == nil {
			return exit{128 + signals[s.Name], s.Name}, true
		}
	}
	return e, false
}

// errClosed stands for the cause when only the channel was closed.
var errClosed = errors.New("the session was closed")

var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6,
	"BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14,
	"TERM": 15}

// chunks are buffers to read into: a command that says little should not cost two large ones.
var chunks = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// capped keeps the first max bytes of a stream and counts the rest. The reader never stops: a full
// pipe would stop the command.
type capped struct {
	max  int64
	seen *atomic.Int64
	over atomic.Bool

	mu  sync.Mutex // guards buf, which is still written to when a leftover process holds the stream
	buf []byte
}

func (b *capped) fill(r interface{ Read([]byte) (int, error) }) {
	pooled := chunks.Get().(*[]byte)
	defer chunks.Put(pooled)
	chunk := *pooled
	for {
		k, err := r.Read(chunk)
		if k > 0 {
			b.seen.Add(int64(k))
			b.mu.Lock()
			room := int(min(b.max-int64(len(b.buf)), int64(k)))
			b.buf = append(b.buf, chunk[:room]...)
			b.mu.Unlock()
			if room < k {
				b.over.Store(true)
			}
		}
		if err != nil {
			return
		}
	}
}

func (b *capped) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf[:len(b.buf):len(b.buf)]
}

func (e ended) result(rendered string) gate.Result {
	v := abi.ExecResponse{Exit: e.exit, Signal: e.signal, Truncated: e.truncated,
		Rendered: rendered}
	v.Stdout, v.StdoutB64 = textOr64(e.stdout, e.truncated)
	v.Stderr, v.StderrB64 = textOr64(e.stderr, e.truncated)
	return gate.Result{Value: v, Bytes: int64(len(e.stdout) + len(e.stderr)), Exit: &v.Exit}
}

// textOr64 returns bytes as text, or as base64 when they are not UTF-8. A cut in the middle of a
// character does not make text binary.
func textOr64(b []byte, cut bool) (text, b64 string) {
	if cut {
		for i := 1; i <= 3 && i <= len(b) && !utf8.Valid(b); i++ {
			if c := b[len(b)-i]; c >= 0xC0 { // the first byte of the last character
				if utf8.Valid(b[:len(b)-i]) && !utf8.FullRune(b[len(b)-i:]) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	if utf8.Valid(b) {
		return string(b), ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}
