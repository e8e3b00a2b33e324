package pvelab

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func cmdChmod(_ context.Context, p *proc) int {
	args := slices.Clone(p.args[1:])
	if len(args) > 0 && args[0] == "-R" {
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) < 2 {
		return p.complain(1, "missing operand")
	}
	code := 0
	for _, n := range args[1:] {
		fi, err := p.tree.stat(p.abs(n), true)
		if err != nil {
			code = p.complain(1, "cannot access '%s': %s", n, errText(err))
			continue
		}
		mode, ok := applyMode(fi.mode, args[0])
		if !ok {
			return p.complain(1, "invalid mode: '%s'", args[0])
		}
		if err := p.tree.chmod(p.abs(n), mode); err != nil {
			code = p.complain(1, "changing permissions of '%s': %s", n, errText(err))
		}
	}
	return code
}

// applyMode understands octal modes and simple symbolic ones: u+x, go-w, a=r.
func applyMode(old fs.FileMode, spec string) (fs.FileMode, bool) {
	if n, err := strconv.ParseUint(spec, 8, 12); err == nil {
		return unixMode(uint32(n)), true
	}
	mode := old.Perm()
	for _, part := range strings.Split(spec, ",") {
		at := strings.IndexAny(part, "+-=")
		if at < 0 {
			return 0, false
		}
		var who, what fs.FileMode
		for _, c := range part[:at] {
			switch c {
			case 'u':
				who |= 0o700
			case 'g':
				who |= 0o070
			case 'o':
				who |= 0o007
			case 'a':
				who |= 0o777
			default:
				return 0, false
			}
		}
		if at == 0 {
			who = 0o777
		}
		for _, c := range part[at+1:] {
			bit, ok := map[rune]fs.FileMode{'r': 0o444, 'w': 0o222, 'x': 0o111}[c]
			if !ok {
				return 0, false
			}
			what |= bit
		}
		switch part[at] {
		case '+':
			mode |= what & who
		case '-':
			mode &^= what & who
		default:
			mode = mode&^who | what&who
		}
	}
	return mode, true
}

func cmdChown(_ context.Context, p *proc) int {
	args := p.args[1:]
	if len(args) < 2 {
		return p.complain(1, "missing operand")
	}
	user, group, _ := strings.Cut(args[0], ":")
	uid, gid := p.tree.lookupID("/etc/passwd", user), -1
	if group != "" {
		gid = p.tree.lookupID("/etc/group", group)
	}
	if (user != "" && uid < 0) || (group != "" && gid < 0) {
		return p.complain(1, "invalid user: '%s'", args[0])
	}
	code := 0
	for _, n := range args[1:] {
		if err := p.tree.chown(p.abs(n), uid, gid); err != nil {
			code = p.complain(1, "cannot access '%s': %s", n, errText(err))
		}
	}
	return code
}

// lookupID finds a number, or a name of a passwd or group file; -1 when there is none.
func (t *tree) lookupID(db, name string) int {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n
	}
	b, _ := t.readFile(db)
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Split(line, ":"); len(f) > 2 && f[0] == name && name != "" {
			if n, err := strconv.Atoi(f[2]); err == nil {
				return n
			}
		}
	}
	return -1
}

func cmdTouch(_ context.Context, p *proc) int {
	_, names, err := p.options("camd:r:", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	code := 0
	for _, n := range names {
		f, err := p.tree.open(p.abs(n), os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			f.Close()
			err = p.tree.touch(p.abs(n), time.Now())
		}
		if err != nil {
			code = p.complain(1, "cannot touch '%s': %s", n, errText(err))
		}
	}
	return code
}

func cmdMkfifo(_ context.Context, p *proc) int {
	code := 0
	for _, n := range p.args[1:] {
		f, err := p.tree.open(p.abs(n), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			f.Close()
			rel, _ := p.tree.resolve(p.abs(n), false)
			err = p.tree.setMeta(rel, func(m *Meta) { m.FIFO = true })
		}
		if err != nil {
			code = p.complain(1, "%s: %s", n, errText(err))
		}
	}
	return code
}
