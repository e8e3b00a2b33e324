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
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// killed stops an interpreter whose own shell was sent a signal.
type killed struct{ num int }

func (k killed) Error() string { return "killed by signal " + strconv.Itoa(k.num) }

// openFD is the word that stands in for a redirection of a descriptor above 2, which the
// interpreter lacks.
const openFD = "/proc/self/openfd"

// shell runs text in the in-process interpreter: kind is bash, sh (dash on a node, busybox in a
// container). Every handler is ours, so that neither a file nor a program of the machine is within
// reach (facts 9).
func (p *proc) shell(ctx context.Context, kind, text string, params []string) int {
	name := kind
	if len(params) > 0 {
		name, params = params[0], params[1:]
	}
	file, err := parse(text, name)
	if err != nil {
		fmt.Fprintf(p.err, "%s: %v\n", p.at(kind), err)
		return 2
	}
	sh := &shell{proc: p, kind: kind}
	r, err := interp.New(interp.Env(expand.ListEnviron(p.env...)), interp.Dir("/"),
		interp.Params(append([]string{"--"}, params...)...),
		interp.StdIO(stdin(p.in), p.out, p.err), interp.CallHandler(sh.call),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return sh.exec }),
		interp.OpenHandler(sh.open), interp.ReadDirHandler2(sh.readDir),
		interp.StatHandler(sh.stat), interp.AccessHandler(sh.access))
	if err != nil {
		fmt.Fprintf(p.err, "%s: %v\n", p.at(kind), err)
		return 2
	}
	r.Dir = p.dir
	err = r.Run(ctx, file)
	var status interp.ExitStatus
	var k killed
	switch {
	case err == nil:
		return 0
	case errors.As(err, &k):
		return 128 + k.num
	case errors.As(err, &status):
		if status == 1 && kind == "sh" && !p.inCT() && p.sess.failedRedirect() {
			return 2 // dash
		}
		return int(status)
	case ctx.Err() != nil:
		return ended(ctx)
	}
	fmt.Fprintf(p.err, "%s: %v\n", p.at(kind), err)
	return 1
}

// stdin keeps a nil *os.File from becoming a non-nil reader.
func stdin(f *os.File) io.Reader {
	if f == nil {
		return nil
	}
	return f
}

// at is how a shell begins its messages.
func (p *proc) at(kind string) string {
	switch {
	case kind == "bash":
		return "bash: line 1"
	case p.inCT():
		return "sh"
	}
	return "sh: 1"
}

// parse refuses process substitution, for which the interpreter makes a FIFO in the machine's own
// temporary directory.
func parse(text, name string) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).
		Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, fmt.Errorf("syntax error: %w", err)
	}
	var bad error
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ProcSubst:
			bad = errors.New("syntax error: pvelab does not simulate process substitution")
		case *syntax.ParamExp:
			// $0 would be the machine's.
			if n.Param != nil && n.Param.Value == "0" && n.Short {
				n.Param.Value = "__name0"
			}
		case *syntax.Stmt:
			highFDs(n)
		}
		return true
	})
	if bad != nil {
		return nil, bad
	}
	set := &syntax.Stmt{Cmd: &syntax.CallExpr{Assigns: []*syntax.Assign{{
		Name:  &syntax.Lit{Value: "__name0"},
		Value: &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: name}}},
	}}}}
	file.Stmts = append([]*syntax.Stmt{set}, file.Stmts...)
	return file, nil
}

// highFDs turns `( … ) 9>FILE` into `( openfd 9 FILE; … )`: enough for flock.
func highFDs(st *syntax.Stmt) {
	var keep []*syntax.Redirect
	var add []*syntax.Stmt
	for _, rd := range st.Redirs {
		if rd.N == nil || len(rd.N.Value) != 1 || rd.N.Value < "3" || rd.Word == nil ||
			!slices.Contains([]syntax.RedirOperator{syntax.RdrOut, syntax.AppOut, syntax.RdrIn},
				rd.Op) {
			keep = append(keep, rd)
			continue
		}
		lit := func(s string) *syntax.Word {
			return &syntax.Word{Parts: []syntax.WordPart{&syntax.Lit{Value: s}}}
		}
		add = append(add, &syntax.Stmt{
			Cmd: &syntax.CallExpr{Args: []*syntax.Word{lit(openFD), lit(rd.N.Value), rd.Word}},
		})
	}
	switch c := st.Cmd.(type) {
	case *syntax.Subshell:
		c.Stmts, st.Redirs = append(add, c.Stmts...), keep
	case *syntax.Block:
		c.Stmts, st.Redirs = append(add, c.Stmts...), keep
	}
}

func (s *session) failedRedirect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redirected
}

func (s *session) mark(ran, redirected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran, s.redirected = s.ran || ran, redirected
}

// shell is the handlers of one interpreter.
type shell struct {
	proc *proc
	kind string
}

func (s *shell) at(ctx context.Context) *proc {
	hc := interp.HandlerCtx(ctx)
	q := *s.proc
	q.top = false
	q.dir, q.out, q.err, q.in = hc.Dir, hc.Stdout, hc.Stderr, nil
	if f, ok := hc.Stdin.(*os.File); ok {
		q.in = f
	}
	q.env = nil
	hc.Env.Each(func(name string, v expand.Variable) bool {
		if v.Exported && v.Kind == expand.String {
			q.env = append(q.env, name+"="+v.String())
		}
		return true
	})
	return &q
}

// call sees every simple command before it runs, builtins included: it logs those of a node's own
// shell and sends builtins that would look at the machine, or that the interpreter lacks, to our
// programs.
func (s *shell) call(ctx context.Context, args []string) ([]string, error) {
	if s.proc.top && args[0] != openFD {
		s.proc.lab.effects.add(Effect{
			Node: s.proc.node,
			Kind: "exec",
			Via:  s.proc.sess.via,
			Text: s.proc.sess.text,
			Argv: args,
		})
	}
	s.proc.sess.mark(true, false)
	switch args[0] {
	case "kill":
		return append([]string{"/bin/kill"}, args[1:]...), nil
	case "type", "which":
		return append([]string{"/usr/bin/which"}, args[1:]...), nil
	case "command":
		if len(args) > 1 && (args[1] == "-v" || args[1] == "-V") {
			return append([]string{"/usr/bin/which"}, args[2:]...), nil
		}
	case "ulimit", "umask", "hash":
		return []string{"true"}, nil
	case ".", "source":
		if len(args) > 1 {
			q := s.at(ctx)
			b, err := q.tree.readFile(q.abs(args[1]))
			if err != nil {
				fmt.Fprintf(q.err, "%s: %s: %s\n", q.at(s.kind), args[1], errText(err))
				return []string{"false"}, nil
			}
			return []string{"eval", string(b)}, nil
		}
	case "trap":
		if len(args) > 2 && args[2] != "EXIT" && args[2] != "ERR" && args[2] != "0" {
			if slices.Contains(args[2:], "TERM") || slices.Contains(args[2:], "15") {
				s.proc.self.ignore()
			}
			return []string{"true"}, nil
		}
	}
	return args, nil
}

func (s *shell) exec(ctx context.Context, args []string) error {
	q := s.at(ctx)
	q.args = args
	if ctx.Err() != nil {
		return interp.ExitStatus(ended(ctx))
	}
	if args[0] == openFD {
		return q.openfd()
	}
	code, err := q.exec(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(args[0], "/"):
		fmt.Fprintf(q.err, "%s: %s: No such file or directory\n", q.at(s.kind), args[0])
	case errors.Is(err, fs.ErrPermission):
		fmt.Fprintf(q.err, "%s: %s: Permission denied\n", q.at(s.kind), args[0])
		code = 126
	case err != nil && s.kind == "bash":
		fmt.Fprintf(q.err, "%s: %s: command not found\n", q.at(s.kind), args[0])
	case err != nil:
		fmt.Fprintf(q.err, "%s: %s: not found\n", q.at(s.kind), args[0])
	}
	if code >= selfKill {
		return killed{code - selfKill}
	}
	if code != 0 {
		return interp.ExitStatus(uint8(code))
	}
	return nil
}

func (p *proc) openfd() error {
	p.sess.mu.Lock()
	if p.sess.fds == nil {
		p.sess.fds = map[string]string{}
	}
	p.sess.fds[p.args[1]] = p.abs(p.args[2])
	p.sess.mu.Unlock()
	f, err := p.tree.open(p.abs(p.args[2]), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		fmt.Fprintf(p.err, "%s: %s\n", p.args[2], errText(err))
		return interp.ExitStatus(1)
	}
	return f.Close()
}

func (s *shell) open(ctx context.Context, name string, flag int,
	perm fs.FileMode) (io.ReadWriteCloser, error) {
	q := s.at(ctx)
	if name == "/dev/stdout" || name == "/dev/stderr" {
		return std{map[string]io.Writer{"/dev/stdout": q.out, "/dev/stderr": q.err}[name]}, nil
	}
	f, err := q.tree.open(q.abs(name), flag, perm)
	if err == nil {
		return f, nil
	}
	q.sess.mark(false, true)
	verb := "open"
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		verb = "create"
	}
	op := q.at(s.kind) + ": cannot " + verb + " " + name
	if s.kind == "bash" {
		op = q.at(s.kind) + ": " + name
	} else if q.inCT() {
		op = q.at(s.kind) + ": can't " + verb + " " + name
	}
	return nil, &fs.PathError{
		Op:   op[:len(op)-len(name)-1],
		Path: name,
		Err:  errors.New(errText(err)),
	}
}

type std struct{ io.Writer }

func (std) Read([]byte) (int, error) { return 0, io.EOF }
func (std) Close() error             { return nil }

func (s *shell) readDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	q := s.at(ctx)
	list, err := q.tree.readDir(q.abs(name))
	if err != nil {
		return nil, err
	}
	var out []fs.DirEntry
	for _, i := range list {
		out = append(out, fs.FileInfoToDirEntry(i))
	}
	return out, nil
}

func (s *shell) stat(ctx context.Context, name string, follow bool) (fs.FileInfo, error) {
	q := s.at(ctx)
	return q.tree.stat(path.Clean(q.abs(name)), follow)
}

// access lets root do everything but run a file without an executable bit.
func (s *shell) access(ctx context.Context, name string, mode interp.AccessMode) error {
	q := s.at(ctx)
	fi, err := q.tree.stat(q.abs(name), true)
	if err != nil {
		return err
	}
	if mode&interp.AccessExec != 0 && fi.mode&0o111 == 0 && !fi.IsDir() {
		return fs.ErrPermission
	}
	return nil
}
