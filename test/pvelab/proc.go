package pvelab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// proc is one running program of a node or a container.
type proc struct {
	lab      *Lab
	node     string
	tree     *tree
	args     []string
	env      []string
	dir      string
	in       *os.File // nil: nothing to read
	out, err io.Writer
	sess     *session
	self     *process // what signals reach
	top      bool     // its shell's simple commands are effects
	uid      int
	stub     *os.File // of a program that a shell started: its connection
}

func (p *proc) inCT() bool { return p.tree.vmid != 0 }

// abs makes a name of the program's arguments absolute.
func (p *proc) abs(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(p.dir, name)
	}
	return name
}

func (p *proc) getenv(k string) string {
	for i := len(p.env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.env[i], k+"="); ok {
			return v
		}
	}
	return ""
}

func (p *proc) read() io.Reader {
	if p.in == nil {
		return strings.NewReader("")
	}
	return p.in
}

// complain writes "PROGRAM: text" and answers a failing exit code.
func (p *proc) complain(code int, format string, args ...any) int {
	fmt.Fprintf(p.err, path.Base(p.args[0])+": "+format+"\n", args...)
	return code
}

// session is what one request to a node shares: its text, the locks it holds, and what goes on
// after it.
type session struct {
	text string
	via  string
	// commands inside containers that outlive the request and keep its output open
	left sync.WaitGroup

	mu    sync.Mutex // guards the rest
	ran   bool       // a simple command ran
	locks []string
	gone  bool // the request was answered: nobody waits for left any more
}

// enter counts a command that may outlive its request, unless the request is over already.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	s.left.Add(1)
	return true
}

// process is an entry of a process table.
type process struct {
	pid     int
	where   string // tree key
	argv    []string
	cancel  context.CancelCauseFunc
	mu      sync.Mutex // guards send
	send    func(int)  // passes a signal on to the shell that the process is; nil for none
	started int64
	timed   bool // started by timeout(1), which signals its whole group
}

// deliver makes send pass signals on from now on, and answers what did until now.
func (s *process) deliver(send func(int)) (last func(int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, s.send = s.send, send
	return last
}

// signalled is the cause of a process's end.
type signalled struct{ num int }

func (s signalled) Error() string { return fmt.Sprintf("killed by signal %d", s.num) }

const (
	sigHUP  = 1
	sigINT  = 2
	sigKILL = 9
	sigPIPE = 13
	sigTERM = 15
)

// signal ends the process; a shell may ignore or catch every signal but SIGKILL.
func (s *process) signal(num int) {
	s.mu.Lock()
	send := s.send
	s.mu.Unlock()
	switch {
	case num == 0:
	case send != nil && num != sigKILL:
		send(num)
	default:
		s.cancel(signalled{num})
	}
}

// spawn registers a process; the caller must call the returned function when it has ended.
func (l *Lab) spawn(
	ctx context.Context,
	where string,
	argv []string,
) (context.Context, *process, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.lastPID++
	s := &process{pid: l.lastPID, where: where, argv: argv, cancel: cancel, started: now()}
	l.procs[s.pid] = s
	l.mu.Unlock()
	return ctx, s, func() {
		l.mu.Lock()
		delete(l.procs, s.pid)
		l.mu.Unlock()
		cancel(nil)
	}
}

// processes lists what runs in a tree, by pid.
func (l *Lab) processes(where string) []*process {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*process
	for _, s := range l.procs {
		if s.where == where {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *process) int { return a.pid - b.pid })
	return out
}

// ended is the exit code of a program that its context ended.
func ended(ctx context.Context) int {
	var s signalled
	if errors.As(context.Cause(ctx), &s) {
		return 128 + s.num
	}
	return 128 + sigKILL
}

var binDirs = []string{
	"/bin",
	"/sbin",
	"/usr/bin",
	"/usr/sbin",
	"/usr/local/bin",
	"/usr/local/sbin",
}

type builtin func(context.Context, *proc) int

// lookup finds what a name runs. The error is ENOENT or EACCES as exec(2) would say.
func (p *proc) lookup(name string) (builtin, error) {
	base := path.Base(name)
	if name == base {
		if f := p.lab.program(p, name); f != nil {
			return f, nil
		}
		for _, d := range binDirs {
			if f, err := p.script(path.Join(d, name)); err == nil {
				return f, nil
			}
		}
		return nil, fs.ErrNotExist
	}
	full := path.Clean(p.abs(name))
	if slices.Contains(binDirs, path.Dir(full)) {
		if f := p.lab.program(p, base); f != nil {
			return f, nil
		}
	}
	return p.script(full)
}

// script runs an executable file of the tree as shell text: the trees hold no other programs.
func (p *proc) script(name string) (builtin, error) {
	fi, err := p.tree.stat(name, true)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	if fi.mode&0o111 == 0 || fi.IsDir() {
		return nil, fs.ErrPermission
	}
	return func(ctx context.Context, p *proc) int {
		b, err := p.tree.readFile(name)
		if err != nil {
			return p.complain(126, "%s", errText(err))
		}
		return p.shell(ctx, "sh", string(b), p.args)
	}, nil
}

// exec runs the program that args name and answers its exit code; 127 and 126 are left to the
// caller to explain.
func (p *proc) exec(ctx context.Context) (int, error) {
	f, err := p.lookup(p.args[0])
	if err != nil {
		return 127, err
	}
	// A program that reads or writes without an end must still notice its signal.
	q := *p
	q.out, q.err = guard(ctx, p.out), guard(ctx, p.err)
	if p.in != nil {
		stop := context.AfterFunc(ctx, func() { _ = p.in.SetReadDeadline(time.Unix(1, 0)) })
		defer func() {
			if !stop() {
				// a later program of the same shell may read on
				_ = p.in.SetReadDeadline(time.Time{})
			}
		}()
	}
	return f(ctx, &q), nil
}

// guarded is an output that fails once its program was signalled.
type guarded struct {
	ctx context.Context // of the one program that holds it
	io.Writer
}

func guard(ctx context.Context, w io.Writer) io.Writer {
	if g, ok := w.(guarded); ok && g.ctx == ctx {
		return w
	}
	return guarded{ctx, w}
}

func (g guarded) Write(b []byte) (int, error) {
	if g.ctx.Err() != nil {
		return 0, context.Cause(g.ctx)
	}
	return g.Writer.Write(b)
}

// child is a program that this one starts.
func (p *proc) child(args []string) *proc {
	q := *p
	q.args, q.top = args, false
	return &q
}

// syncWriter lets the goroutines of one request share an output. Once detached it discards; when
// its reader is gone, the writer is killed, as SIGPIPE would.
type syncWriter struct {
	mu     sync.Mutex // guards w
	w      io.Writer
	broken func()
}

func (s *syncWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return len(b), nil
	}
	n, err := s.w.Write(b)
	if err != nil && s.broken != nil {
		s.broken()
	}
	return n, err
}

func (s *syncWriter) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = nil
}
