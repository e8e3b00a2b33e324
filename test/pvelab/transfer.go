package pvelab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// ctExec is pct exec: it passes the caller's environment on unless told not to, and its command
// outlives it.
func ctExec(ctx context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 2)
	if err != nil {
		return nil, err
	}
	if !g.Running {
		return nil, die(255, "container '%d' not running!", g.VMID)
	}
	if len(c.more) == 0 {
		return nil, die(255, "missing command at /usr/share/perl5/PVE/CLI/pct.pm line 246.")
	}
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"container=lxc",
		"TERM=linux",
	}
	if c.vals["keep-env"] != "0" {
		env = append(append([]string(nil), c.p.env...), "container=lxc")
	}
	code := c.lab.inside(ctx, c.p, g, c.more, env)
	if code == 0 {
		return nil, nil
	}
	return nil, &exit{code}
}

// inside runs argv in a container. The command belongs to the container: when the request's process
// is signalled or its channel closes, only pct ends, and the command goes on with the request's
// output open (facts 1.10). timeout(1) signals the whole group, so there a command that does not
// ignore SIGTERM ends too.
func (l *Lab) inside(ctx context.Context, p *proc, g *Guest, argv, env []string) int {
	t := l.ctTree(g.VMID, g.Node)
	if t == nil || !p.sess.enter() {
		return 255
	}
	run, self, end := l.spawn(l.ctx, t.key, argv)
	q := &proc{
		lab:  l,
		node: p.node,
		tree: t,
		args: argv,
		env:  env,
		dir:  "/",
		in:   p.in,
		out:  p.out,
		err:  p.err,
		sess: p.sess,
		self: self,
	}
	if f, err := dup(p.in); err == nil { // the caller's end is closed when the request is over
		q.in = f
	}
	done := make(chan int, 1)
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		defer p.sess.left.Done()
		defer end()
		if q.in != p.in {
			defer q.in.Close()
		}
		code, err := q.exec(run)
		if err != nil {
			why := "No such file or directory"
			if code = 127; errors.Is(err, fs.ErrPermission) {
				code, why = 126, "Permission denied"
			}
			fmt.Fprintf(
				q.err,
				"lxc-attach: %d: ../src/lxc/attach.c: lxc_attach_run_command: 1841 %s - Failed "+
					"to exec \"%s\"\n",
				g.VMID,
				why,
				argv[0],
			)
		}
		if run.Err() != nil {
			code = ended(run)
		}
		done <- code & 0xff
	}()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
	}
	var s signalled
	if errors.As(context.Cause(ctx), &s) && p.self != nil && p.self.group() {
		self.signal(s.num)
	}
	return ended(ctx)
}

// group says whether the process was started by timeout(1), which signals all that it started.
func (s *process) group() bool { return s.timed }

// dup gives a program of a container its own handle on what it reads.
func dup(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	fd, err := dupFD(f)
	if err != nil {
		return nil, err
	}
	return os.NewFile(fd, f.Name()), nil
}

var permsRE = regexp.MustCompile(`^0(x[0-9a-fA-F]+|[0-7]*)$`)

// perms reads --perms: octal with or without a leading zero, or hexadecimal.
func perms(s string) (fs.FileMode, error) {
	if !strings.HasPrefix(s, "0") {
		s = "0" + s
	}
	if !permsRE.MatchString(s) {
		return 0, die(255, "invalid mode: '%s'", s)
	}
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, die(255, "invalid mode: '%s'", s)
	}
	return unixMode(uint32(n)), nil
}

// attrs are the options that push and pull share.
type attrs struct {
	mode     fs.FileMode
	set      bool
	uid, gid int
}

func (c *call) attrs(who *tree) (a attrs, err error) {
	a = attrs{mode: 0o644, uid: -1, gid: -1}
	if p, ok := c.vals["perms"]; ok {
		if a.mode, err = perms(p); err != nil {
			return a, err
		}
		a.set = true
	}
	if u, ok := c.vals["user"]; ok {
		if a.uid = who.lookupID("/etc/passwd", u); a.uid < 0 {
			return a, die(255, "failed to get uid for: %s", u)
		}
	}
	if g, ok := c.vals["group"]; ok {
		if a.gid = who.lookupID("/etc/group", g); a.gid < 0 {
			return a, die(255, "failed to get gid for: %s", g)
		}
	}
	return a, nil
}

// ctPush and ctPull exit 0 even when they failed; only their task knows (facts 1.1).
func ctPush(ctx context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 255)
	if err != nil || !g.Running {
		return nil, die(255, "can only push files to a running CT")
	}
	ct := c.lab.ctTree(g.VMID, g.Node)
	_, err = c.worker(ctx, "push_file", g.id(), func(io.Writer) error {
		src := c.p.abs(c.vals["file"])
		in, err := c.p.tree.open(src, os.O_RDONLY, 0)
		if err != nil {
			return die(255, "failed to open %s for reading", c.vals["file"])
		}
		defer in.Close()
		a, err := c.attrs(ct)
		if err != nil {
			return err
		}
		return transfer(ctx, in, isFIFO(c.p.tree, src), ct, path.Join("/", c.vals["destination"]),
			c.vals["destination"], a)
	})
	return nil, forgive(c, err)
}

func ctPull(ctx context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 255)
	if err != nil || !g.Running {
		return nil, die(255,
			"can only pull files from a running VM at /usr/share/perl5/PVE/CLI/pct.pm line 664.")
	}
	ct := c.lab.ctTree(g.VMID, g.Node)
	_, err = c.worker(ctx, "pull_file", g.id(), func(io.Writer) error {
		a, err := c.attrs(c.p.tree)
		if err != nil {
			return err
		}
		// The destination is opened, and so emptied, before the source: a missing source costs the
		// old file.
		src, dst := path.Join("/", c.vals["path"]), c.p.abs(c.vals["destination"])
		out, err := c.p.tree.open(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, a.mode)
		if err != nil {
			return die(255, "failed to create file: %s: %s", c.vals["destination"], errText(err))
		}
		out.Close()
		in, err := ct.open(src, os.O_RDONLY, 0)
		if err != nil {
			return die(255, "failed to open %s: %s", c.vals["path"], errText(err))
		}
		defer in.Close()
		return transfer(ctx, in, isFIFO(ct, src), c.p.tree, dst, c.vals["destination"], a)
	})
	return nil, forgive(c, err)
}

func isFIFO(t *tree, name string) bool {
	fi, err := t.stat(name, true)
	return err == nil && fi.mode&fs.ModeNamedPipe != 0
}

// transfer copies until the first error, which it keeps to itself: a full disk and a directory as
// source are silent.
func transfer(ctx context.Context, in io.Reader, fifo bool, to *tree, name, shown string,
	a attrs) error {
	_, err := to.stat(name, true)
	fresh := errors.Is(err, fs.ErrNotExist)
	out, err := to.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, a.mode)
	if err != nil {
		return die(255, "failed to create file: %s: %s", shown, errText(err))
	}
	defer out.Close()
	if fifo { // nobody ever writes to it
		<-ctx.Done()
		return die(255, "received interrupt")
	}
	_, _ = io.Copy(out, in)
	if a.set && !fresh {
		if err := to.chmod(name, a.mode); err != nil {
			return err
		}
	}
	return to.chown(name, a.uid, a.gid)
}

func forgive(c *call, err error) error {
	var t *taskFailed
	if errors.As(err, &t) {
		fmt.Fprintln(c.p.err, t.msg)
		return nil
	}
	return err
}
