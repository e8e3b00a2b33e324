package pvelab

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// walk visits a name and everything below it, without following links.
func (t *tree) walk(name string, depth int, fn func(name string, depth int, fi info) error) error {
	fi, err := t.stat(name, false)
	if err != nil {
		return err
	}
	if err := fn(name, depth, fi); err != nil || !fi.IsDir() {
		return err
	}
	list, err := t.readDir(name)
	if err != nil {
		return err
	}
	for _, i := range list {
		if err := t.walk(path.Join(name, i.name), depth+1, fn); err != nil {
			return err
		}
	}
	return nil
}

func cmdFind(ctx context.Context, p *proc) int {
	args, roots := p.args[1:], []string{}
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		roots, args = append(roots, args[0]), args[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	name, typ, most := "*", "", 1<<30
	for len(args) > 1 {
		switch args[0] {
		case "-name":
			name = args[1]
		case "-type":
			typ = args[1]
		case "-maxdepth":
			most, _ = strconv.Atoi(args[1])
		default:
			return p.complain(1, "pvelab's find does not know '%s'", args[0])
		}
		args = args[2:]
	}
	code := 0
	for _, root := range roots {
		err := p.tree.walk(p.abs(root), 0, func(n string, depth int, fi info) error {
			ok, _ := path.Match(name, path.Base(n))
			if depth > most || !ok || (typ == "d" && !fi.IsDir()) ||
				(typ == "f" && !fi.mode.IsRegular()) ||
				(typ == "l" && fi.mode&fs.ModeSymlink == 0) {
				return ctx.Err()
			}
			shown := root + strings.TrimPrefix(n, path.Clean(p.abs(root)))
			_, err := fmt.Fprintln(p.out, shown)
			return err
		})
		if err != nil {
			code = p.complain(1, "'%s': %s", root, errText(err))
		}
	}
	return code
}

func cmdDu(_ context.Context, p *proc) int {
	o, names, err := p.options("shkbcxd:", map[string]string{"max-depth": "d"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	code := 0
	for _, n := range names {
		sum := int64(0)
		err := p.tree.walk(
			p.abs(n),
			0,
			func(_ string, _ int, fi info) error {
				sum += max(4096, (fi.Size()+4095)/4096*4096)
				return nil
			},
		)
		switch {
		case err != nil:
			code = p.complain(1, "cannot access '%s': %s", n, errText(err))
		case has(o, "h"):
			fmt.Fprintf(p.out, "%s\t%s\n", human(sum), n)
		default:
			fmt.Fprintf(p.out, "%d\t%s\n", sum/1024, n)
		}
	}
	return code
}

func cmdBasename(_ context.Context, p *proc) int {
	if len(p.args) < 2 {
		return p.complain(1, "missing operand")
	}
	if path.Base(p.args[0]) == "dirname" {
		fmt.Fprintln(p.out, path.Dir(p.args[1]))
		return 0
	}
	base := path.Base(p.args[1])
	if len(p.args) > 2 {
		base = strings.TrimSuffix(base, p.args[2])
	}
	fmt.Fprintln(p.out, base)
	return 0
}

// cmdXargs runs one command with all words of its input.
func cmdXargs(ctx context.Context, p *proc) int {
	args := p.args[1:]
	for len(args) > 0 && (args[0] == "-r" || args[0] == "-0") {
		args = args[1:]
	}
	if len(args) == 0 {
		args = []string{"echo"}
	}
	var text strings.Builder
	err := lines(p.read(), func(l []byte) bool {
		text.Write(l)
		return text.Len() < 1<<20
	})
	if err != nil {
		return 1
	}
	words := strings.FieldsFunc(text.String(),
		func(r rune) bool { return strings.ContainsRune(" \t\n\x00", r) })
	q := p.child(append(args[:len(args):len(args)], words...))
	q.in = nil
	code, err := q.exec(ctx)
	if err != nil {
		return p.complain(127, "%s: No such file or directory", args[0])
	}
	return code
}
