package pvelab

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// options reads short and long options as GNU programs do. spec lists the short letters, one that
// takes a value followed by a colon; long maps a long name to its letter. It stops the program on
// an unknown one.
func (p *proc) options(spec string, long map[string]string) (map[byte]string, []string, error) {
	opts, rest := map[byte]string{}, []string{}
	args := p.args[1:]
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		if a == "--" {
			rest = append(rest, args...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		if name, val, has := strings.Cut(strings.TrimPrefix(a, "--"), "="); strings.HasPrefix(a,
			"--") {
			short := long[name]
			if short == "" {
				return nil, nil, fmt.Errorf("unrecognized option '%s'", a)
			}
			if !has && strings.Contains(spec, short+":") && len(args) > 0 {
				val, args = args[0], args[1:]
			}
			opts[short[0]] = val
			continue
		}
		for i := 1; i < len(a); i++ {
			at := strings.IndexByte(spec, a[i])
			if at < 0 || a[i] == ':' {
				return nil, nil, fmt.Errorf("invalid option -- '%c'", a[i])
			}
			if at+1 >= len(spec) || spec[at+1] != ':' {
				opts[a[i]] = ""
				continue
			}
			val := a[i+1:]
			if val == "" && len(args) > 0 {
				val, args = args[0], args[1:]
			}
			opts[a[i]] = val
			break
		}
	}
	return opts, rest, nil
}

func has(opts map[byte]string, letters string) bool {
	for i := range len(letters) {
		if _, ok := opts[letters[i]]; ok {
			return true
		}
	}
	return false
}

// each opens the named files one after the other, standard input for none or "-", and answers 1 if
// one was bad.
func (p *proc) each(names []string, fn func(name string, r io.Reader) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	code := 0
	for _, n := range names {
		var err error
		if n == "-" {
			err = fn("-", p.read())
		} else {
			err = p.with(n, func(f file) error { return fn(n, f) })
		}
		if err != nil {
			p.complain(0, "%s: %s", n, errText(err))
			code = 1
		}
	}
	return code
}

func (p *proc) with(name string, fn func(file) error) error {
	if fi, err := p.tree.stat(p.abs(name), true); err == nil && fi.IsDir() {
		return &fs.PathError{Op: "read", Path: name, Err: errDir}
	}
	f, err := p.tree.open(p.abs(name), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(f)
}

func cmdCat(_ context.Context, p *proc) int {
	_, names, err := p.options("uvne", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	return p.each(names,
		func(_ string, r io.Reader) error { _, err := io.Copy(p.out, r); return err })
}

func cmdHead(_ context.Context, p *proc) int {
	if len(p.args) > 1 && len(p.args[1]) > 1 && p.args[1][0] == '-' && p.args[1][1] >= '0' &&
		p.args[1][1] <= '9' {
		p.args = append([]string{p.args[0], "-n", p.args[1][1:]}, p.args[2:]...)
	}
	o, names, err := p.options("c:n:q", map[string]string{"bytes": "c", "lines": "n", "quiet": "q"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	if c, ok := o['c']; ok {
		n, err := strconv.ParseInt(c, 10, 64)
		if err != nil {
			return p.complain(1, "invalid number of bytes: '%s'", c)
		}
		return p.each(
			names,
			func(_ string, r io.Reader) error {
				_, err := io.Copy(p.out, io.LimitReader(r, n))
				return err
			},
		)
	}
	n, err := strconv.Atoi(def(o, 'n', "10"))
	if err != nil {
		return p.complain(1, "invalid number of lines: '%s'", o['n'])
	}
	return p.each(names, func(_ string, r io.Reader) error {
		left := n
		return lines(r, func(line []byte) bool {
			if left--; left < 0 {
				return false
			}
			_, err := p.out.Write(line)
			return err == nil
		})
	})
}

func def(o map[byte]string, k byte, v string) string {
	if x, ok := o[k]; ok {
		return x
	}
	return v
}

// lines calls fn with each line, its newline included, until it answers false.
func lines(r io.Reader, fn func([]byte) bool) error {
	var acc []byte
	buf := make([]byte, 8192)
	for {
		n, err := r.Read(buf)
		acc = append(acc, buf[:n]...)
		for {
			i := bytes.IndexByte(acc, '\n')
			if i < 0 {
				break
			}
			if !fn(acc[:i+1]) {
				return nil
			}
			acc = acc[i+1:]
		}
		if err != nil {
			if len(acc) > 0 {
				fn(acc)
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

func cmdTail(ctx context.Context, p *proc) int {
	if len(p.args) > 1 && len(p.args[1]) > 1 && p.args[1][0] == '-' && p.args[1][1] >= '0' &&
		p.args[1][1] <= '9' {
		p.args = append([]string{p.args[0], "-n", p.args[1][1:]}, p.args[2:]...)
	}
	o, names, err := p.options("c:n:qfF",
		map[string]string{"bytes": "c", "lines": "n", "follow": "f"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	code := p.each(names, func(_ string, r io.Reader) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if c, ok := o['c']; ok {
			n, _ := strconv.Atoi(strings.TrimPrefix(c, "+"))
			b = b[max(0, len(b)-n):]
			_, err = p.out.Write(b)
			return err
		}
		want := def(o, 'n', "10")
		n, _ := strconv.Atoi(strings.TrimPrefix(want, "+"))
		all := strings.SplitAfter(string(b), "\n")
		if all[len(all)-1] == "" {
			all = all[:len(all)-1]
		}
		if from := max(0, len(all)-n); !strings.HasPrefix(want, "+") {
			all = all[from:]
		} else {
			all = all[min(len(all), max(0, n-1)):]
		}
		_, err = io.WriteString(p.out, strings.Join(all, ""))
		return err
	})
	if has(o, "fF") { // nothing is ever added
		<-ctx.Done()
		return ended(ctx)
	}
	return code
}

func cmdWc(_ context.Context, p *proc) int {
	o, names, err := p.options("lwc", map[string]string{"lines": "l", "words": "w", "bytes": "c"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	return p.each(names, func(name string, r io.Reader) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		var out []string
		all := len(o) == 0
		for _, n := range []struct {
			k byte
			n int
		}{{'l', bytes.Count(b, []byte("\n"))}, {'w', len(bytes.Fields(b))}, {'c', len(b)}} {
			if all || has(o, string(n.k)) {
				out = append(out, strconv.Itoa(n.n))
			}
		}
		if name != "-" {
			out = append(out, name)
		}
		fmt.Fprintln(p.out, strings.Join(out, " "))
		return nil
	})
}

func cmdSum(newHash func() hash.Hash) builtin {
	return func(_ context.Context, p *proc) int {
		_, names, err := p.options("bt", map[string]string{"binary": "b"})
		if err != nil {
			return p.complain(1, "%v", err)
		}
		return p.each(names, func(name string, r io.Reader) error {
			h := newHash()
			if _, err := io.Copy(h, r); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%x  %s\n", h.Sum(nil), name)
			return nil
		})
	}
}

var (
	cmdSHA256 = cmdSum(sha256.New)
	cmdSHA1   = cmdSum(sha1.New)
	cmdMD5    = cmdSum(md5.New)
)

func cmdMktemp(_ context.Context, p *proc) int {
	o, rest, err := p.options("dp:tqu", map[string]string{"directory": "d", "tmpdir": "p"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	pattern := path.Join(def(o, 'p', "/tmp"), "tmp.XXXXXXXXXX")
	if len(rest) > 0 {
		pattern = rest[0]
		if has(o, "pt") {
			pattern = path.Join(def(o, 'p', "/tmp"), rest[0])
		}
	}
	base := strings.TrimRight(pattern, "X")
	if len(pattern)-len(base) < 3 {
		return p.complain(1, "too few X's in template '%s'", pattern)
	}
	name := base + randomWord(len(pattern)-len(base))
	if has(o, "d") {
		err = p.tree.mkdir(p.abs(name), 0o700)
	} else {
		err = p.tree.writeFile(p.abs(name), nil, 0o600)
	}
	if err != nil {
		kind := "file"
		if has(o, "d") {
			kind = "directory"
		}
		return p.complain(1, "failed to create %s via template '%s': %s", kind, pattern,
			errText(err))
	}
	fmt.Fprintln(p.out, name)
	return 0
}

func cmdRm(_ context.Context, p *proc) int {
	o, names, err := p.options("rRfvid", map[string]string{"recursive": "r", "force": "f"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	if len(names) == 0 && !has(o, "f") {
		return p.complain(1, "missing operand")
	}
	code := 0
	for _, n := range names {
		fi, err := p.tree.stat(p.abs(n), false)
		switch {
		case err == nil && path.Clean(p.abs(n)) == "/":
			code = p.complain(1, "it is dangerous to operate recursively on '/'")
			continue
		case err == nil && fi.IsDir() && !has(o, "rRd"):
			code = p.complain(1, "cannot remove '%s': Is a directory", n)
			continue
		case err == nil:
			err = p.tree.remove(p.abs(n), has(o, "rR"))
		}
		if err != nil && !(has(o, "f") && errText(err) == errText(fs.ErrNotExist)) {
			code = p.complain(1, "cannot remove '%s': %s", n, errText(err))
		}
	}
	return code
}

func cmdMkdir(_ context.Context, p *proc) int {
	o, names, err := p.options("pm:v", map[string]string{"parents": "p", "mode": "m"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	mode := fs.FileMode(0o755)
	if m, ok := o['m']; ok {
		n, err := strconv.ParseUint(m, 8, 12)
		if err != nil {
			return p.complain(1, "invalid mode: '%s'", m)
		}
		mode = unixMode(uint32(n))
	}
	code := 0
	for _, n := range names {
		if has(o, "p") {
			err = p.tree.mkdirAll(p.abs(n), mode)
		} else {
			err = p.tree.mkdir(p.abs(n), mode)
		}
		if err != nil {
			code = p.complain(1, "cannot create directory '%s': %s", n, errText(err))
		}
	}
	return code
}

func cmdRmdir(_ context.Context, p *proc) int {
	code := 0
	for _, n := range p.args[1:] {
		fi, err := p.tree.stat(p.abs(n), false)
		if err == nil && !fi.IsDir() {
			code = p.complain(1, "failed to remove '%s': Not a directory", n)
		} else if err = p.tree.remove(p.abs(n), false); err != nil {
			code = p.complain(1, "failed to remove '%s': %s", n, errText(err))
		}
	}
	return code
}
