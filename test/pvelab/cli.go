package pvelab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// method is one API method: what pvesh reaches by a path, and what most commands of pct and qm
// call.
type method struct {
	Class, Name string // as the real Perl names it
	Desc        string
	Params      []param
	Proxy       bool // runs on the node that its path names
	Run         func(context.Context, *call) (any, error)
}

// command is one verb of a program. Verb may have two words.
type command struct {
	Verb  string
	Group int // usage prints an empty line between groups
	Args  []string
	M     *method
	Print func(*call, any) // how the result is shown; nil shows nothing
}

// call is one running method.
type call struct {
	lab  *Lab
	p    *proc
	node string // where it runs
	vals map[string]string
	more []string // what stands after the command's own arguments
}

func (c *call) vmid() int {
	n, _ := strconv.Atoi(strings.TrimSuffix(c.vals["vmid"], "\n"))
	return n
}
func (c *call) on(k string) bool { return c.vals[k] == "1" }
func (c *call) num(k string, def int) int {
	if n, err := strconv.Atoi(strings.TrimSpace(c.vals[k])); err == nil {
		return n
	}
	return def
}

// fail ends a command with its own exit code, as Perl's die does; the codes carry no meaning (facts
// 1.5).
type fail struct {
	code int
	msg  string
}

func (e *fail) Error() string { return e.msg }

func die(code int, format string, args ...any) error {
	return &fail{code, fmt.Sprintf(format, args...)}
}

// taskFailed is a worker that ended badly. pct and qm exit 255 for it, pvesh exits 0.
type taskFailed struct {
	code int
	upid string
	msg  string
}

func (e *taskFailed) Error() string { return e.msg }

// program is the command line of pct, qm, pvesm, pvecm or pvenode.
type program struct {
	Name     string
	Commands []command
}

// resolve finds the command that the first words name, each exactly or by a unique prefix.
func (pr *program) resolve(args []string) (c *command, rest []string, words string, why string) {
	words = pr.Name
	if len(args) == 0 {
		return nil, nil, words, "no command specified"
	}
	prefix := ""
	for len(args) > 0 {
		seen := map[string]bool{}
		var hits []string
		for _, have := range pr.Commands {
			tail, ok := strings.CutPrefix(have.Verb, prefix)
			if !ok {
				continue
			}
			word, _, _ := strings.Cut(tail, " ")
			if word == args[0] {
				hits = []string{word}
				break
			}
			if strings.HasPrefix(word, args[0]) && !seen[word] {
				seen[word] = true
				hits = append(hits, word)
			}
		}
		words += " " + args[0]
		switch len(hits) {
		case 0:
			return nil, nil, words, "unknown command '" + words + "'"
		case 1:
		default:
			return nil, nil, words, "incomplete command '" + words + "'"
		}
		prefix, args = prefix+hits[0], args[1:]
		for i := range pr.Commands {
			if pr.Commands[i].Verb == prefix {
				return &pr.Commands[i], args, pr.Name + " " + prefix, ""
			}
		}
		prefix += " "
	}
	return nil, nil, words, "incomplete command '" + words + "'"
}

// usage is the one line that follows an error. fixed parameters are no options.
func (pr *program) usage(words string, c *command, fixed map[string]string) string {
	isArg := map[string]bool{}
	line, args := words, []string{}
	byName := map[string]param{}
	for _, p := range c.M.Params {
		byName[p.Name] = p
	}
	for _, a := range c.Args {
		isArg[a] = true
		if a == "extra-args" || byName[a].Optional {
			args = append(args, "[<"+a+">]")
		} else {
			args = append(args, "<"+a+">")
		}
	}
	options := false
	for _, p := range c.M.Params {
		if _, ok := fixed[p.Name]; ok || isArg[p.Name] {
			continue
		}
		if p.Optional {
			options = true
		} else {
			args = append(args, "--"+p.Name+" <"+p.Type+">")
		}
	}
	line += " " + strings.Join(args, " ")
	if options {
		line += " [OPTIONS]"
	}
	return line
}

// usageAll is the long list. After an incomplete command the real one prints the words so far and
// no groups.
func (pr *program) usageAll(words string, fixed map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "USAGE: %s <COMMAND> [ARGS] [OPTIONS]\n\n", pr.Name)
	for i := range pr.Commands {
		c := &pr.Commands[i]
		if i > 0 && c.Group != pr.Commands[i-1].Group && words == pr.Name {
			b.WriteByte('\n')
		}
		b.WriteString("       " + pr.usage(words+" "+c.Verb, c, fixed) + "\n")
	}
	return b.String()
}

// run is one whole invocation; it answers the exit code.
func (pr *program) run(ctx context.Context, p *proc) int {
	fixed := map[string]string{"node": p.node}
	c, rest, words, why := pr.resolve(p.args[1:])
	if why != "" {
		at := pr.Name
		if strings.HasPrefix(why, "incomplete") {
			at = words
		}
		fmt.Fprintf(p.err, "ERROR: %s\n%s", why, pr.usageAll(at, fixed))
		return 255
	}
	if c.Verb == "help" {
		fmt.Fprint(p.out, pr.usageAll(pr.Name, fixed))
		return 0
	}
	cl := &call{lab: p.lab, p: p, node: p.node}
	v, err := pr.invoke(ctx, c, cl, rest, fixed)
	if err == nil {
		if c.Print != nil {
			c.Print(cl, v)
		}
		return 0
	}
	return report(p.err, err, pr.usage(words, c, fixed))
}

// parse binds and checks the words of one command without running it.
func (pr *program) parse(c *command, rest []string,
	fixed map[string]string) (map[string]string, []string, error) {
	use := map[string]string{}
	// only what the method has, so that "node" is no option where there is none
	for _, q := range c.M.Params {
		if v, ok := fixed[q.Name]; ok && !slices.Contains(c.Args, q.Name) {
			use[q.Name] = v
		}
	}
	vals, extra, err := bind(rest, c.M.Params, c.Args, use)
	if err != nil {
		return nil, nil, err
	}
	if bad := validate(c.M.Params, vals); len(bad) > 0 {
		return nil, nil, verification(bad)
	}
	return vals, extra, nil
}

func (pr *program) invoke(ctx context.Context, c *command, cl *call, rest []string,
	fixed map[string]string) (any, error) {
	vals, extra, err := pr.parse(c, rest, fixed)
	if err != nil {
		return nil, err
	}
	cl.vals, cl.more = vals, extra
	if typ := map[string]string{"pct": "lxc", "qm": "qemu"}[pr.Name]; typ != "" &&
		strings.HasSuffix(vals["vmid"], "\n") {
		return nil, die(255, "unknown file type 'nodes/%s/%s/%s.conf'", cl.node, confDir(typ),
			vals["vmid"])
	}
	if c.M.Run == nil {
		return nil, die(255, "pvelab does not simulate '%s %s'", pr.Name, c.Verb)
	}
	return c.M.Run(ctx, cl)
}

// report writes an error as the real programs do and answers the exit code.
func report(w io.Writer, err error, usage string) int {
	var bad *badRequest
	var f *fail
	var t *taskFailed
	var x *exit
	switch {
	case errors.As(err, &x):
		return x.code
	case errors.As(err, &bad):
		fmt.Fprintf(w, "%s%s\n", bad.Error(), usage)
		if bad.code != 0 {
			return bad.code
		}
		return 255
	case errors.As(err, &f):
		fmt.Fprintln(w, f.msg)
		return f.code
	case errors.As(err, &t):
		fmt.Fprintln(w, t.msg)
		return t.code
	}
	fmt.Fprintln(w, err)
	return 255
}

// exit ends a command with a code and no message (a command inside a container).
type exit struct{ code int }

func (e *exit) Error() string { return "exit status " + strconv.Itoa(e.code) }
