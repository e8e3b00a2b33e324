package pvelab

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// selfKill added to a signal's number tells the shell that its own process was meant.
const selfKill = 1 << 10

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func cmdPs(_ context.Context, p *proc) int {
	fmt.Fprintf(p.out, "%5s %-8s %5s %s\n", "PID", "USER", "TIME", "COMMAND")
	fmt.Fprintf(p.out, "%5d %-8s %5s %s\n", 1, "root", "0:00", "/sbin/init")
	for _, s := range p.lab.processes(p.tree.key) {
		age := now() - s.started
		fmt.Fprintf(p.out, "%5d %-8s %2d:%02d %s\n", s.pid, "root", age/60, age%60,
			strings.Join(s.argv, " "))
	}
	return 0
}

func cmdSleep(ctx context.Context, p *proc) int {
	total := time.Duration(0)
	if len(p.args) < 2 {
		return p.complain(1, "missing operand")
	}
	for _, a := range p.args[1:] {
		unit := time.Second
		if u, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour,
			'd': 24 * time.Hour}[a[len(a)-1]]; ok &&
			a != "" {
			a, unit = a[:len(a)-1], u
		}
		f, err := strconv.ParseFloat(a, 64)
		if err != nil || f < 0 {
			return p.complain(1, "invalid time interval '%s'", a)
		}
		total += time.Duration(f * float64(unit))
	}
	if sleep(ctx, total) != nil {
		return ended(ctx)
	}
	return 0
}

func cmdEnv(ctx context.Context, p *proc) int {
	args := p.args[1:]
	q := p.child(nil)
	q.env = append([]string(nil), p.env...)
	for len(args) > 0 {
		switch {
		case args[0] == "-i" || args[0] == "-":
			q.env = nil
		case strings.Contains(args[0], "=") && args[0][0] != '-':
			q.env = append(q.env, args[0])
		case args[0] == "-u" && len(args) > 1:
			args = args[1:]
			var keep []string
			for _, kv := range q.env {
				if !strings.HasPrefix(kv, args[0]+"=") {
					keep = append(keep, kv)
				}
			}
			q.env = keep
		case path.Base(p.args[0]) == "printenv":
			v := p.getenv(args[0])
			if v == "" {
				return 1
			}
			fmt.Fprintln(p.out, v)
			return 0
		default:
			q.args = args
			code, err := q.exec(ctx)
			if err != nil {
				return p.complain(127, "'%s': No such file or directory", args[0])
			}
			return code
		}
		args = args[1:]
	}
	for _, kv := range q.env {
		fmt.Fprintln(p.out, kv)
	}
	return 0
}

// cmdTimeout signals its command as timeout(1) does, with its whole process group: a command inside
// a container that does not ignore SIGTERM ends too. coreutils answers 124, busybox the signal's
// 143.
func cmdTimeout(ctx context.Context, p *proc) int {
	o, rest, err := scanOptions(p, "k:s:", map[string]string{"kill-after": "k", "signal": "s"})
	if err != nil || len(rest) < 2 {
		return p.complain(125, "missing operand")
	}
	dur := func(s string) (time.Duration, bool) {
		f, err := strconv.ParseFloat(strings.TrimRight(s, "smhd"), 64)
		unit := map[string]time.Duration{"m": time.Minute, "h": time.Hour,
			"d": 24 * time.Hour}[strings.TrimLeft(s, "0123456789.")]
		return time.Duration(f * float64(max(unit, time.Second))), err == nil
	}
	limit, ok := dur(rest[0])
	if !ok {
		return p.complain(125, "invalid time interval '%s'", rest[0])
	}
	num := sigTERM
	if s, ok := o['s']; ok {
		num = signalNumber(s)
	}
	q := p.child(rest[1:])
	ctx, self, end := p.lab.spawn(ctx, p.tree.key, rest[1:])
	defer end()
	q.self, self.timed = self, true
	expired := false
	timer := time.AfterFunc(limit, func() { self.signal(num) })
	defer timer.Stop()
	if k, ok := o['k']; ok {
		if grace, ok := dur(k); ok {
			kill := time.AfterFunc(limit+grace, func() { self.signal(sigKILL) })
			defer kill.Stop()
		}
	}
	code, err := q.exec(ctx)
	if err != nil {
		return p.complain(127, "failed to run command '%s': No such file or directory", rest[1])
	}
	var s signalled
	expired = errors.As(context.Cause(ctx), &s)
	switch {
	case !expired:
		return code
	case s.num == sigKILL:
		return 128 + sigKILL
	case p.inCT():
		return 128 + s.num
	}
	return 124
}

// scanOptions reads options up to the first operand.
func scanOptions(p *proc, spec string, long map[string]string) (map[byte]string, []string, error) {
	q := p.child(p.args)
	for i := 1; i < len(p.args); i++ {
		a := p.args[i]
		if a == "--" || len(a) < 2 || a[0] != '-' {
			skip := bit(a == "--")
			q.args = p.args[:i]
			o, _, err := q.options(spec, long)
			return o, p.args[i+skip:], err
		}
		if len(a) == 2 && strings.Contains(spec, a[1:]+":") {
			i++
		}
	}
	o, _, err := q.options(spec, long)
	return o, nil, err
}

func signalNumber(s string) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return map[string]int{"HUP": sigHUP, "INT": sigINT, "KILL": sigKILL,
		"TERM": sigTERM}[strings.TrimPrefix(strings.ToUpper(s), "SIG")]
}

// cmdShell is sh, bash and ash.
func cmdShell(ctx context.Context, p *proc) int {
	kind := path.Base(p.args[0])
	if kind == "ash" {
		kind = "sh"
	}
	args := p.args[1:]
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if strings.Contains(a, "c") && a != "--norc" && a != "--noprofile" {
			if len(args) == 0 {
				return p.complain(2, "-c: option requires an argument")
			}
			pre := ""
			if strings.Contains(a, "e") {
				pre = "set -e; "
			}
			return p.child(p.args).shell(ctx, kind, pre+args[0], args[1:])
		}
	}
	if len(args) > 0 {
		b, err := p.tree.readFile(p.abs(args[0]))
		if err != nil {
			return p.complain(127, "%s: %s", args[0], errText(err))
		}
		return p.child(p.args).shell(ctx, kind, string(b), args)
	}
	var b strings.Builder
	err := lines(p.read(), func(l []byte) bool {
		b.Write(l)
		return b.Len() < 1<<20
	})
	if err != nil {
		return 1
	}
	q := p.child(p.args)
	q.in = nil
	return q.shell(ctx, kind, b.String(), nil)
}

func cmdKill(_ context.Context, p *proc) int {
	num, args := sigTERM, p.args[1:]
	if len(args) > 1 && args[0] == "-s" {
		num, args = signalNumber(args[1]), args[2:]
	} else if len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		num, args = signalNumber(args[0][1:]), args[1:]
	}
	code := 0
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		if err == nil && pid > 1 && pid < firstPID { // of a shell's own namespace
			return selfKill + num
		}
		found := false
		for _, s := range p.lab.processes(p.tree.key) {
			if s.pid == pid {
				s.signal(num)
				found = true
			}
		}
		if !found {
			code = p.complain(1, "(%s) - No such process", a)
		}
	}
	return code
}
