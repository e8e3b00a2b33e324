package pvelab

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Programs for text that pipes on a node end in: their usual options alone.

func cmdZcat(_ context.Context, p *proc) int {
	_, names, err := p.options("f", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	return p.each(names, func(_ string, r io.Reader) error {
		z, err := gzip.NewReader(r)
		if err == nil {
			_, err = io.Copy(p.out, z)
		}
		return err
	})
}

// eachLine runs fn over the lines of the named files, without their newlines.
func (p *proc) eachLine(names []string, fn func(line string)) int {
	return p.each(names, func(_ string, r io.Reader) error {
		return lines(r, func(line []byte) bool {
			fn(strings.TrimSuffix(string(line), "\n"))
			return true
		})
	})
}

func cmdNl(_ context.Context, p *proc) int {
	o, names, err := p.options("b:w:s:n:", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	n := 0
	return p.eachLine(names, func(line string) {
		if line == "" && o['b'] != "a" {
			fmt.Fprintln(p.out)
			return
		}
		n++
		fmt.Fprintf(p.out, "%6d\t%s\n", n, line)
	})
}

func cmdRev(_ context.Context, p *proc) int {
	return p.eachLine(p.args[1:], func(line string) {
		r := []rune(line)
		slices.Reverse(r)
		fmt.Fprintln(p.out, string(r))
	})
}

func cmdFold(_ context.Context, p *proc) int {
	o, names, err := p.options("w:sb", map[string]string{"width": "w"})
	width, wrong := strconv.Atoi(def(o, 'w', "80"))
	if err != nil || wrong != nil || width < 1 {
		return p.complain(1, "invalid number of columns: '%s'", o['w'])
	}
	return p.eachLine(names, func(line string) {
		for utf8.RuneCountInString(line) > width {
			r := []rune(line)
			fmt.Fprintln(p.out, string(r[:width]))
			line = string(r[width:])
		}
		fmt.Fprintln(p.out, line)
	})
}

func cmdColumn(_ context.Context, p *proc) int {
	o, names, err := p.options("ts:o:n", map[string]string{"table": "t", "separator": "s"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	var rows [][]string
	var width []int
	code := p.eachLine(names, func(line string) {
		row := strings.Fields(line)
		if s, ok := o['s']; ok {
			row = strings.Split(line, s)
		}
		if !has(o, "t") {
			row = []string{line}
		}
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
		rows = append(rows, row)
	})
	for _, row := range rows {
		text := ""
		for i, cell := range row {
			text += cell + strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2)
		}
		fmt.Fprintln(p.out, strings.TrimRight(text, " "))
	}
	return code
}

// cmdCmp is cmp, and diff, of which all lines differ where the files do.
func cmdCmp(_ context.Context, p *proc) int {
	o, names, err := p.options("squbrwB", map[string]string{"brief": "q", "quiet": "s"})
	if err != nil || len(names) != 2 {
		return p.complain(2, "want two files")
	}
	var data [2][]byte
	for i, name := range names {
		if data[i], err = p.tree.readFile(p.abs(name)); err != nil {
			return p.complain(2, "%s: %s", name, errText(err))
		}
	}
	switch same := bytes.Equal(data[0], data[1]); {
	case same:
		return 0
	case has(o, "s"):
	case p.args[0] == "cmp" || has(o, "q"):
		fmt.Fprintf(p.out, "%s %s differ\n", names[0], names[1])
	default:
		for i, mark := range []string{"< ", "> "} {
			for line := range strings.Lines(string(data[i])) {
				fmt.Fprint(p.out, mark, line)
			}
		}
	}
	return 1
}

func cmdFile(_ context.Context, p *proc) int {
	_, names, err := p.options("bikLz", map[string]string{"brief": "b", "mime": "i"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	for _, name := range names {
		data, err := p.tree.readFile(p.abs(name))
		what := "data"
		switch {
		case err != nil:
			what = "cannot open `" + name + "' (" + errText(err) + ")"
		case len(data) == 0:
			what = "empty"
		case utf8.Valid(data):
			what = "ASCII text"
		}
		fmt.Fprintf(p.out, "%s: %s\n", name, what)
	}
	return 0
}

func cmdGetfacl(_ context.Context, p *proc) int {
	_, names, err := p.options("acpentR", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	for _, name := range names {
		fi, err := p.tree.stat(p.abs(name), true)
		if err != nil {
			return p.complain(1, "%s: %s", name, errText(err))
		}
		fmt.Fprintf(p.out, "# file: %s\n# owner: root\n# group: root\nuser::rw-\n",
			strings.TrimPrefix(name, "/"))
		fmt.Fprintf(p.out, "group::r--\nother::%s\n\n",
			map[bool]string{true: "r--", false: "---"}[fi.mode&0o004 != 0])
	}
	return 0
}
