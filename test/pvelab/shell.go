package pvelab

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// shellDirs hold the stubs when a shell runs, and the files that the tree has there.
var shellDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}

// shells are the machine's programs that can be each kind of shell, the best first.
var shells = map[string][]string{
	"bash": {"bash"},
	"sh":   {"dash", "sh"},
	// what many containers have, and what reads text in its own way
	"sh in a container": {"busybox", "dash", "sh"},
}

// realShell is a shell of the machine.
type realShell struct {
	path      string
	busybox   bool
	libraries bool
}

// findShell looks for each kind once.
var findShell = func() func(kind string) (realShell, error) {
	found := map[string]func() (realShell, error){}
	for kind, names := range shells {
		found[kind] = sync.OnceValues(func() (realShell, error) {
			if err := shellsWork(); err != nil {
				return realShell{}, err
			}
			for _, name := range names {
				path, err := exec.LookPath(name)
				if err == nil {
					path, err = filepath.EvalSymlinks(path)
				}
				if err != nil {
					continue
				}
				self, err := ownProgram()
				if err != nil {
					return realShell{}, err
				}
				s := realShell{path: path, busybox: filepath.Base(path) == "busybox"}
				s.libraries = linked(path) || linked(self)
				return s, nil
			}
			return realShell{}, fmt.Errorf("there is no %s", strings.Join(names, " or "))
		})
	}
	return func(kind string) (realShell, error) { return found[kind]() }
}()

// Program is pvelab's own binary, which sets shells up. By default it is the running program, which
// takes longer to start the more it holds. It must be set before the first lab starts.
var Program string

func ownProgram() (string, error) {
	if Program != "" {
		return Program, nil
	}
	return os.Executable()
}

// linked reports whether a program needs libraries.
func linked(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// nodeRC makes builtins of bash programs, so that the lab sees them run.
const nodeRC = "unset BASH_ENV; enable -n echo printf test [ true false pwd type\n"

// native are programs that a shell has itself.
var native = []string{"echo", "printf", "test", "[", "true", "false", "pwd"}

// shell runs text in a real shell: kind is bash, sh (dash on a node, busybox in a container) or
// raw, which is sh with its own builtins. The shell sees nothing of the machine but the lab's tree;
// each program that it starts is run by the lab.
func (p *proc) shell(ctx context.Context, kind, text string, params []string) int {
	name := kind
	if kind == "raw" {
		name = "sh"
	}
	if len(params) > 0 {
		name, params = params[0], params[1:]
	}
	which := map[string]string{"raw": "sh"}[kind]
	if which == "" {
		which = kind
	}
	if which == "sh" && p.inCT() {
		which += " in a container"
	}
	real, err := findShell(which)
	if err != nil {
		return p.plain(ctx, text, params, err)
	}
	j := p.jail(kind, real)
	j.Argv = append([]string{strings.Fields(which)[0], "-c", text, name}, params...)
	if real.busybox && kind != "raw" {
		j.Argv[2] = ". " + inside + "/rc\n" + text
	}
	r, err := j.start(p.in, p.out, p.err)
	if err != nil {
		fmt.Fprintf(p.err, "pvelab: starting a shell: %v\n", err)
		return brokenCode
	}
	stop := context.AfterFunc(ctx, r.kill)
	defer stop()
	var sent atomic.Int64
	last := p.self.deliver(func(num int) { sent.Store(int64(num)); _ = r.order(num) })
	defer func() { p.self.deliver(last) }()
	var work sync.WaitGroup
	work.Go(func() { p.stubs(ctx, r, &work) })
	code := r.wait()
	work.Wait()
	if num := int(sent.Load()); num != 0 && code == 128+num {
		p.self.cancel(signalled{num})
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return code
}

// jail prepares the tree and lists what the shell finds there.
func (p *proc) jail(kind string, real realShell) *jail {
	j := &jail{Root: p.tree.root.Name(), Dir: p.dir, Host: p.host(), Shell: real.path,
		Libraries: real.libraries}
	dirs := append([]string{"/dev"}, shellDirs...)
	if j.Libraries {
		dirs = append(dirs, "/lib", "/lib64", "/usr/lib")
	}
	names := map[string]bool{}
	for _, d := range dirs {
		_ = p.tree.mkdirAll(d, 0o755)
	}
	for _, d := range shellDirs {
		own, _ := p.tree.readDir(d)
		for _, i := range own {
			names[i.name] = true
		}
	}
	for name := range p.lab.names {
		if p.lab.program(p, name) != nil {
			names[name] = true
		}
	}
	for name := range names {
		j.Names = append(j.Names, name)
	}
	slices.Sort(j.Names)
	j.Env = slices.Clone(p.env)
	switch {
	case kind == "bash":
		j.RC = nodeRC
		j.Env = append(j.Env, "BASH_ENV="+inside+"/rc")
	case real.busybox && kind != "raw": // it would take its own applets for programs
		var rc strings.Builder
		for _, name := range j.Names {
			if isName(name) && name != "kill" && !slices.Contains(native, name) {
				fmt.Fprintf(&rc, "%s() { %s/bin/%s \"$@\"; }\n", name, inside, name)
			}
		}
		j.RC = rc.String()
	}
	return j
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" &&
		(s[0] < '0' || s[0] > '9')
}

// stubs runs the programs that a shell starts.
func (p *proc) stubs(ctx context.Context, r *running, work *sync.WaitGroup) {
	for {
		conn, files, err := r.next()
		if err != nil {
			return // the shell and all that it left have ended
		}
		if conn == nil {
			continue
		}
		work.Go(func() {
			defer conn.Close()
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			var c stubCall
			dec := json.NewDecoder(conn)
			err := dec.Decode(&c)
			if err == nil {
				work.Go(func() { // ends when conn is closed, on either side
					var more any
					_ = dec.Decode(&more)
					cancel(signalled{sigKILL})
				})
			}
			code := 128 + sigKILL
			if err == nil && len(c.Argv) > 0 {
				code = p.started(ctx, c, conn, files)
			}
			for _, f := range files {
				f.Close()
			}
			_ = json.NewEncoder(conn).Encode(code)
		})
	}
}

// started is one program of a shell, as the shell started it: this is what is recorded.
func (p *proc) started(ctx context.Context, c stubCall, conn *os.File, files [3]*os.File) int {
	q := *p
	q.args, q.dir, q.top = c.Argv, c.Dir, false
	q.in, q.out, q.err = files[0], files[1], files[2]
	q.env = slices.DeleteFunc(slices.Clone(c.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"_", "SHLVL", "OLDPWD", "BASH_ENV"}, name)
	})
	e := Effect{Node: p.node, Kind: "exec", Via: p.sess.via, Text: p.sess.text, Argv: c.Argv}
	if p.inCT() {
		e.Kind, e.Target = "guest", strconv.Itoa(p.tree.vmid)
	}
	if p.top || p.inCT() {
		p.lab.effects.add(e)
	}
	p.sess.mu.Lock()
	p.sess.ran = true
	p.sess.mu.Unlock()
	q.stub = conn
	code, err := q.exec(ctx)
	switch {
	case errors.Is(err, fs.ErrPermission):
		fmt.Fprintf(q.err, "%s: Permission denied\n", c.Argv[0])
		return 126
	case err != nil:
		fmt.Fprintf(q.err, "%s: not found\n", c.Argv[0])
	}
	return code
}

// plain runs one command of plain and single-quoted words, on a machine where the lab may not start
// a shell. Everything else is refused: nothing but a real shell says what a shell makes of a text.
func (p *proc) plain(ctx context.Context, text string, params []string, why error) int {
	words := params
	if text != `"$@"` {
		var ok bool
		if words, ok = plainWords(text); !ok {
			fmt.Fprintf(p.err, "pvelab: this machine runs no shells for the lab (%v), and the "+
				"text is more than one plain command: %s\n", why, text)
			return brokenCode
		}
	}
	if len(words) == 0 {
		return 0
	}
	if text == `"$@"` {
		return p.pure(ctx, words)
	}
	q := p.child(words)
	if p.top {
		p.lab.effects.add(Effect{Node: p.node, Kind: "exec", Via: p.sess.via, Text: p.sess.text,
			Argv: words})
	}
	p.sess.mu.Lock()
	p.sess.ran = true
	p.sess.mu.Unlock()
	code, err := q.exec(ctx)
	if err != nil {
		fmt.Fprintf(p.err, "bash: line 1: %s: command not found\n", words[0])
	}
	return code & 0xff
}

// pure runs one of the programs that a shell has itself and that look at nothing: the machine's.
func (p *proc) pure(ctx context.Context, words []string) int {
	name, err := exec.LookPath(words[0])
	if err != nil || !slices.Contains([]string{"echo", "printf"}, words[0]) {
		return p.complain(brokenCode, "not without a shell")
	}
	cmd := exec.CommandContext(ctx, name, words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, p.out, p.err
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// Shells reports why this machine runs no shells for a lab, or nil.
func Shells() error {
	_, err := findShell("bash")
	return err
}

// plainWords splits a text of words that are bare or in single quotes; it reports false for any
// other.
func plainWords(text string) (words []string, ok bool) {
	const bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@%"
	word, open := "", false
	for text != "" {
		c := text[0]
		text = text[1:]
		switch {
		case c == ' ':
			if open {
				words = append(words, word)
			}
			word, open = "", false
		case c == '\'':
			in, rest, closed := strings.Cut(text, "'")
			if !closed {
				return nil, false
			}
			word, open, text = word+in, true, rest
		case c == '\\' && strings.HasPrefix(text, "'"):
			word, open, text = word+"'", true, text[1:]
		case strings.IndexByte(bare, c) >= 0:
			word, open = word+string(c), true
		default:
			return nil, false
		}
	}
	if open {
		words = append(words, word)
	}
	return words, true
}
