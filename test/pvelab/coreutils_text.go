package pvelab

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func cmdGrep(_ context.Context, p *proc) int {
	o, rest, err := p.options("ivcqnoEFe:lshH",
		map[string]string{"ignore-case": "i", "invert-match": "v", "count": "c", "quiet": "q"})
	if err != nil {
		return p.complain(2, "%v", err)
	}
	switch p.args[0] {
	case "egrep":
		o['E'] = ""
	case "fgrep":
		o['F'] = ""
	}
	pattern, ok := o['e']
	if !ok {
		if len(rest) == 0 {
			return p.complain(2, "missing pattern")
		}
		pattern, rest = rest[0], rest[1:]
	}
	switch {
	case has(o, "F"):
		pattern = regexp.QuoteMeta(pattern)
	case !has(o, "E"):
		pattern = basicRE(pattern)
	}
	if has(o, "i") {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return p.complain(2, "bad pattern '%s'", pattern)
	}
	found := false
	code := p.each(rest, func(name string, r io.Reader) error {
		n, hits := 0, 0
		err := lines(r, func(line []byte) bool {
			n++
			text := strings.TrimSuffix(string(line), "\n")
			if re.MatchString(text) == has(o, "v") {
				return true
			}
			hits++
			if has(o, "cql") {
				return true
			}
			if has(o, "o") {
				text = strings.Join(re.FindAllString(text, -1), "\n")
			}
			if has(o, "n") {
				text = strconv.Itoa(n) + ":" + text
			}
			if len(rest) > 1 && !has(o, "h") {
				text = name + ":" + text
			}
			_, err := fmt.Fprintln(p.out, text)
			return err == nil
		})
		found = found || hits > 0
		switch {
		case has(o, "c"):
			fmt.Fprintln(p.out, hits)
		case has(o, "l") && hits > 0:
			fmt.Fprintln(p.out, name)
		}
		return err
	})
	switch {
	case code != 0:
		return 2
	case found:
		return 0
	}
	return 1
}

var (
	sedSubst  = regexp.MustCompile(`^s(.)`)
	sedInsert = regexp.MustCompile(`^(\d+)i\\?\s*(.*)$`)
	sedDelete = regexp.MustCompile(`^(?:/(.*)/|(\d+))d$`)
	sedPrint  = regexp.MustCompile(`^(?:/(.*)/|(\d+)(?:,(\d+))?)p$`)
)

func cmdSort(_ context.Context, p *proc) int {
	o, rest, err := p.options("nruk:t:", nil)
	if err != nil {
		return p.complain(2, "%v", err)
	}
	var all []string
	code := p.each(rest, func(_ string, r io.Reader) error {
		return lines(
			r,
			func(l []byte) bool {
				all = append(all, strings.TrimSuffix(string(l), "\n"))
				return true
			},
		)
	})
	num := func(s string) float64 {
		f, _ := strconv.ParseFloat(
			strings.TrimSpace(regexp.MustCompile(`^\s*-?[0-9.]*`).FindString(s)),
			64,
		)
		return f
	}
	slices.SortStableFunc(all, func(a, b string) int {
		c := strings.Compare(a, b)
		if x, y := num(a), num(b); has(o, "n") && x != y {
			c = 1
			if x < y {
				c = -1
			}
		}
		if has(o, "r") {
			c = -c
		}
		return c
	})
	if has(o, "u") {
		all = slices.Compact(all)
	}
	for _, l := range all {
		fmt.Fprintln(p.out, l)
	}
	return code
}

func cmdCut(_ context.Context, p *proc) int {
	o, rest, err := p.options("d:f:c:", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	want := map[int]bool{}
	for _, f := range strings.Split(def(o, 'f', def(o, 'c', "1")), ",") {
		from, to, ranged := strings.Cut(f, "-")
		a, _ := strconv.Atoi(from)
		b := a
		if ranged {
			if b, _ = strconv.Atoi(to); to == "" {
				b = 1000
			}
		}
		for i := max(a, 1); i <= min(b, 1000); i++ {
			want[i] = true
		}
	}
	sep := def(o, 'd', "\t")
	if has(o, "c") {
		sep = ""
	}
	return p.each(rest, func(_ string, r io.Reader) error {
		return lines(r, func(l []byte) bool {
			part := strings.Split(strings.TrimSuffix(string(l), "\n"), sep)
			var keep []string
			for i, f := range part {
				if want[i+1] || (len(part) == 1 && sep != "") {
					keep = append(keep, f)
				}
			}
			_, err := fmt.Fprintln(p.out, strings.Join(keep, sep))
			return err == nil
		})
	})
}

func cmdTr(_ context.Context, p *proc) int {
	o, rest, err := p.options("d", nil)
	if err != nil || len(rest) == 0 || (!has(o, "d") && len(rest) < 2) {
		return p.complain(1, "missing operand")
	}
	set := func(s string) []rune {
		s = strings.NewReplacer(`\n`, "\n", `\t`, "\t", "[:upper:]", "A-Z",
			"[:lower:]", "a-z", "[:digit:]", "0-9").
			Replace(s)
		in, out := []rune(s), []rune{}
		for i := 0; i < len(in); i++ {
			out = append(out, in[i])
			if i+2 < len(in) && in[i+1] == '-' {
				for c := in[i] + 1; c <= in[i+2]; c++ {
					out = append(out, c)
				}
				i += 2
			}
		}
		return out
	}
	from, to := set(rest[0]), []rune{}
	if len(rest) > 1 {
		to = set(rest[1])
	}
	b, err := io.ReadAll(p.read())
	if err != nil {
		return 1
	}
	_, err = io.WriteString(p.out, strings.Map(func(c rune) rune {
		i := slices.Index(from, c)
		switch {
		case i < 0:
			return c
		case has(o, "d"):
			return -1
		}
		return to[min(i, len(to)-1)]
	}, string(b)))
	return bit(err != nil)
}

func cmdUniq(_ context.Context, p *proc) int {
	o, rest, err := p.options("cd", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	last, n := "", 0
	flush := func() {
		if n > 0 && has(o, "c") {
			fmt.Fprintf(p.out, "%7d %s\n", n, last)
		} else if n > 0 {
			fmt.Fprintln(p.out, last)
		}
	}
	code := p.each(rest, func(_ string, r io.Reader) error {
		return lines(r, func(l []byte) bool {
			s := strings.TrimSuffix(string(l), "\n")
			if n > 0 && s == last {
				n++
				return true
			}
			flush()
			last, n = s, 1
			return true
		})
	})
	flush()
	return code
}

func cmdSeq(_ context.Context, p *proc) int {
	var n []int
	for _, a := range p.args[1:] {
		i, err := strconv.Atoi(a)
		if err != nil {
			return p.complain(1, "invalid argument: '%s'", a)
		}
		n = append(n, i)
	}
	from, step, to := 1, 1, 0
	switch len(n) {
	case 1:
		to = n[0]
	case 2:
		from, to = n[0], n[1]
	case 3:
		from, step, to = n[0], max(1, n[1]), n[2]
	default:
		return p.complain(1, "missing operand")
	}
	for i := from; i <= to; i += step {
		if _, err := fmt.Fprintln(p.out, i); err != nil {
			return 128 + sigPIPE
		}
	}
	return 0
}

// cmdYes ends when nobody reads it any more, or when it is killed.
func cmdYes(ctx context.Context, p *proc) int {
	word := "y"
	if len(p.args) > 1 {
		word = strings.Join(p.args[1:], " ")
	}
	block := strings.Repeat(word+"\n", 1+4096/(len(word)+1))
	for ctx.Err() == nil {
		if _, err := io.WriteString(p.out, block); err != nil {
			return 128 + sigPIPE
		}
	}
	return ended(ctx)
}

func cmdDd(_ context.Context, p *proc) int {
	opt := map[string]string{"bs": "512"}
	for _, a := range p.args[1:] {
		k, v, _ := strings.Cut(a, "=")
		opt[k] = v
	}
	bs, count := size(opt["bs"]), size(opt["count"])
	var src io.Reader = p.read()
	if in := opt["if"]; in != "" {
		f, err := p.tree.open(p.abs(in), os.O_RDONLY, 0)
		if err != nil {
			return p.complain(1, "failed to open '%s': %s", in, errText(err))
		}
		defer f.Close()
		src = f
	}
	if opt["count"] != "" {
		src = io.LimitReader(src, bs*count)
	}
	var dst io.Writer = p.out
	if of := opt["of"]; of != "" {
		f, err := p.tree.open(p.abs(of), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
		if err != nil {
			return p.complain(1, "failed to open '%s': %s", of, errText(err))
		}
		defer f.Close()
		dst = f
	}
	n, err := io.Copy(dst, src)
	if err != nil {
		return p.complain(1, "error writing '%s': %s", opt["of"], errText(err))
	}
	fmt.Fprintf(p.err, "%d+0 records in\n%d+0 records out\n%d bytes copied\n", n/max(bs, 1),
		n/max(bs, 1), n)
	return 0
}

// size reads a number with the suffixes k, M and G.
func size(s string) int64 {
	mul := int64(1)
	if s != "" {
		units := map[byte]int64{'k': 1 << 10, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}
		if m, ok := units[s[len(s)-1]]; ok {
			mul, s = m, s[:len(s)-1]
		}
	}
	n, _ := strconv.ParseInt(s, 10, 64)
	return n * mul
}
