package pvelab

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var errDir = syscall.EISDIR

func randomWord(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// into answers where a copy of src goes: below dst if that is a directory.
func (p *proc) into(src, dst string) string {
	if fi, err := p.tree.stat(p.abs(dst), true); err == nil && fi.IsDir() {
		return path.Join(p.abs(dst), path.Base(src))
	}
	return p.abs(dst)
}

func cmdMv(_ context.Context, p *proc) int {
	_, names, err := p.options("fnvT", nil)
	if err != nil || len(names) < 2 {
		return p.complain(1, "missing file operand")
	}
	code := 0
	for _, n := range names[:len(names)-1] {
		if err := p.tree.rename(p.abs(n), p.into(n, names[len(names)-1])); err != nil {
			code = p.complain(1, "cannot move '%s': %s", n, errText(err))
		}
	}
	return code
}

func cmdCp(_ context.Context, p *proc) int {
	o, names, err := p.options("rRafpv", nil)
	if err != nil || len(names) < 2 {
		return p.complain(1, "missing file operand")
	}
	code := 0
	for _, n := range names[:len(names)-1] {
		if err := p.tree.copy(p.abs(n), p.into(n, names[len(names)-1]), has(o, "rRa")); err != nil {
			code = p.complain(1, "cannot copy '%s': %s", n, errText(err))
		}
	}
	return code
}

func (t *tree) copy(from, to string, deep bool) error {
	fi, err := t.stat(from, true)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		b, err := t.readFile(from)
		if err != nil {
			return err
		}
		return t.writeFile(to, b, fi.mode)
	}
	if !deep {
		return errDir
	}
	if err := t.mkdirAll(to, fi.mode); err != nil {
		return err
	}
	list, err := t.readDir(from)
	if err != nil {
		return err
	}
	for _, i := range list {
		if err := t.copy(path.Join(from, i.name), path.Join(to, i.name), true); err != nil {
			return err
		}
	}
	return nil
}

func cmdLn(_ context.Context, p *proc) int {
	o, names, err := p.options("sfn", nil)
	if err != nil || len(names) != 2 {
		return p.complain(1, "missing file operand")
	}
	if !has(o, "s") {
		return p.complain(1, "pvelab has symbolic links only")
	}
	to := p.into(names[0], names[1])
	if has(o, "f") {
		_ = p.tree.remove(to, false) // may not exist
	}
	if err := p.tree.symlink(names[0], to); err != nil {
		return p.complain(1, "failed to create symbolic link '%s': %s", names[1], errText(err))
	}
	return 0
}

func cmdReadlink(_ context.Context, p *proc) int {
	o, names, err := p.options("fen", nil)
	if err != nil || len(names) != 1 {
		return p.complain(1, "missing operand")
	}
	if has(o, "fe") || path.Base(p.args[0]) == "realpath" {
		rel, err := p.tree.resolve(p.abs(names[0]), true)
		if err != nil {
			return 1
		}
		fmt.Fprintln(p.out, shown(rel))
		return 0
	}
	to, err := p.tree.readlink(p.abs(names[0]))
	if err != nil {
		return 1
	}
	fmt.Fprintln(p.out, to)
	return 0
}

func cmdStat(_ context.Context, p *proc) int {
	o, names, err := p.options("c:Lt",
		map[string]string{"format": "c", "printf": "c", "dereference": "L"})
	if err != nil || len(names) == 0 {
		return p.complain(1, "missing operand")
	}
	code := 0
	for _, n := range names {
		fi, err := p.tree.stat(p.abs(n), has(o, "L"))
		if err != nil {
			msg := fmt.Sprintf("cannot statx '%s': %s", n, errText(err))
			if p.inCT() {
				msg = fmt.Sprintf("can't stat '%s': %s", n, errText(err))
			}
			code = p.complain(1, "%s", msg)
			continue
		}
		format := def(o, 'c',
			"  File: %n\n  Size: %s\t%F\nAccess: (%04a)  Uid: (%u)   Gid: (%g)\nModify: %y")
		fmt.Fprintln(p.out, statFormat(format, n, fi))
	}
	return code
}

func fileKind(m fs.FileMode, size int64) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeDevice != 0:
		return "character special file"
	case size == 0:
		return "regular empty file"
	}
	return "regular file"
}

func statFormat(format, name string, fi info) string {
	return strings.NewReplacer("%n", name, "%s", strconv.FormatInt(fi.Size(), 10), "%F",
		fileKind(fi.mode, fi.Size()), "%a", strconv.FormatUint(uint64(modeNumber(fi.mode)), 8),
		"%04a", fmt.Sprintf("%04o", modeNumber(fi.mode)), "%A", modeString(fi.mode), "%u",
		strconv.Itoa(fi.uid), "%g", strconv.Itoa(fi.gid), "%U", userName(fi.uid), "%G",
		userName(fi.gid), "%Y", strconv.FormatInt(fi.ModTime().Unix(), 10), "%y",
		fi.ModTime().UTC().Format("2006-01-02 15:04:05.000000000 -0700"), "%h", "1", "%%", "%",
		`\n`, "\n", `\t`, "\t").Replace(format)
}

func userName(id int) string {
	if n, ok := map[int]string{0: "root", 33: "www-data", 65534: "nobody"}[id]; ok {
		return n
	}
	return strconv.Itoa(id)
}

func modeString(m fs.FileMode) string {
	b := []byte("----------")
	switch {
	case m.IsDir():
		b[0] = 'd'
	case m&fs.ModeSymlink != 0:
		b[0] = 'l'
	case m&fs.ModeNamedPipe != 0:
		b[0] = 'p'
	}
	for i, c := range "rwxrwxrwx" {
		if m&(1<<(8-i)) != 0 {
			b[1+i] = byte(c)
		}
	}
	for _, s := range []struct {
		bit fs.FileMode
		at  int
		c   byte
	}{{fs.ModeSetuid, 3, 's'}, {fs.ModeSetgid, 6, 's'}, {fs.ModeSticky, 9, 't'}} {
		if m&s.bit != 0 {
			if b[s.at] == 'x' {
				b[s.at] = s.c
			} else {
				b[s.at] = s.c - 'a' + 'A'
			}
		}
	}
	return string(b)
}

type row struct {
	name, link string
	fi         info
}

func cmdLs(_ context.Context, p *proc) int {
	o, names, err := p.options("lanAdh1trSRFi", map[string]string{"all": "a", "color": "1"})
	if err != nil {
		return p.complain(2, "%v", err)
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	code := 0
	var files []row
	var dirs []string
	for _, n := range names {
		fi, err := p.tree.stat(p.abs(n), !has(o, "lnd"))
		if err != nil {
			msg := fmt.Sprintf("cannot access '%s': %s", n, errText(err))
			if p.inCT() {
				msg = n + ": " + errText(err)
			}
			code = p.complain(2-bit(p.inCT()), "%s", msg)
			continue
		}
		if fi.IsDir() && !has(o, "d") {
			dirs = append(dirs, n)
		} else {
			files = append(files, p.row(n, p.abs(n), fi))
		}
	}
	slices.SortFunc(files, func(a, b row) int { return strings.Compare(a.name, b.name) })
	p.list(files, has(o, "ln"))
	for i, d := range dirs {
		list, err := p.tree.readDir(p.abs(d))
		if err != nil {
			code = p.complain(2-bit(p.inCT()), "cannot open directory '%s': %s", d, errText(err))
			continue
		}
		if len(dirs)+len(files) > 1 {
			if i > 0 || len(files) > 0 {
				fmt.Fprintln(p.out)
			}
			fmt.Fprintf(p.out, "%s:\n", d)
		}
		var rows []row
		if has(o, "a") {
			for _, dot := range []string{".", ".."} {
				if fi, err := p.tree.stat(path.Join(p.abs(d), dot), true); err == nil {
					rows = append(rows, row{name: dot, fi: fi})
				}
			}
		}
		blocks := int64(0)
		for _, fi := range list {
			if fi.name[0] == '.' && !has(o, "aA") {
				continue
			}
			rows = append(rows, p.row(fi.name, path.Join(p.abs(d), fi.name), fi))
		}
		for _, r := range rows {
			if r.fi.mode&fs.ModeSymlink == 0 {
				blocks += (r.fi.Size() + 4095) / 4096 * 4
			}
		}
		if has(o, "ln") {
			fmt.Fprintf(p.out, "total %d\n", blocks)
		}
		p.list(rows, has(o, "ln"))
	}
	return code
}

func (p *proc) row(name, abs string, fi info) row {
	r := row{name: name, fi: fi}
	if fi.mode&fs.ModeSymlink != 0 {
		r.link, _ = p.tree.readlink(abs)
	}
	return r
}

// list prints as busybox does in a container and as coreutils does on a node: the columns' widths
// differ.
func (p *proc) list(rows []row, long bool) {
	if !long {
		for _, r := range rows {
			fmt.Fprintln(p.out, r.name)
		}
		return
	}
	uid, gid, size := 1, 1, 1
	size64 := func(fi info) int64 {
		if fi.IsDir() {
			return 4096
		}
		return fi.Size()
	}
	for _, r := range rows {
		uid, gid = max(uid, len(strconv.Itoa(r.fi.uid))), max(gid, len(strconv.Itoa(r.fi.gid)))
		size = max(size, len(strconv.FormatInt(size64(r.fi), 10)))
	}
	for _, r := range rows {
		links, name, at := 1, r.name, r.fi.ModTime().UTC().Format("Jan _2 15:04")
		if r.fi.IsDir() {
			links = 2
		}
		if time.Since(r.fi.ModTime()) > 180*24*time.Hour {
			at = r.fi.ModTime().UTC().Format("Jan _2  2006")
		}
		if r.link != "" {
			name += " -> " + r.link
		}
		if p.inCT() {
			fmt.Fprintf(p.out, "%s %4d %-8d %-8d %9d %s %s\n", modeString(r.fi.mode), links,
				r.fi.uid, r.fi.gid, size64(r.fi), at, name)
		} else {
			fmt.Fprintf(p.out, "%s %d %*d %*d %*d %s %s\n", modeString(r.fi.mode), links, uid,
				r.fi.uid, gid, r.fi.gid, size, size64(r.fi), at, name)
		}
	}
}

func cmdTee(_ context.Context, p *proc) int {
	o, names, err := p.options("a", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	b, _ := io.ReadAll(p.read())
	_, _ = p.out.Write(b) // a reader that is gone has already ended this program
	for _, n := range names {
		old := []byte(nil)
		if has(o, "a") {
			old, _ = p.tree.readFile(p.abs(n))
		}
		if err := p.tree.writeFile(p.abs(n), append(old, b...), 0o644); err != nil {
			return p.complain(1, "%s: %s", n, errText(err))
		}
	}
	return 0
}
