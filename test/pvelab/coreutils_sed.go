package pvelab

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// basicRE turns a POSIX basic expression into Go's syntax: there the backslash makes + ? | ( ) { }
// special.
func basicRE(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && strings.IndexByte("+?|(){}", s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		case strings.IndexByte("+?|(){}", c) >= 0:
			b.WriteString(`\` + string(c))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// sedScript compiles the four forms that the lab knows: s#a#b#[g], 1iTEXT, /re/d or Nd, /re/p or
// N[,M]p.
func sedScript(s string,
	ext bool) (func(n int, line string) (out []string, printed []string), error) {
	comp := func(re string) (*regexp.Regexp, error) {
		if !ext {
			re = basicRE(re)
		}
		return regexp.Compile(re)
	}
	if m := sedSubst.FindStringSubmatch(s); m != nil {
		part := strings.Split(s[2:], m[1])
		if len(part) != 3 {
			return nil, fmt.Errorf("unterminated `s' command")
		}
		re, err := comp(part[0])
		if err != nil {
			return nil, err
		}
		to := strings.ReplaceAll(strings.ReplaceAll(part[1], "$", "$$"), "&", "${0}")
		for i := '1'; i <= '9'; i++ {
			to = strings.ReplaceAll(to, `\`+string(i), "${"+string(i)+"}")
		}
		all := strings.Contains(part[2], "g")
		return func(_ int, line string) ([]string, []string) {
			done := false
			return []string{re.ReplaceAllStringFunc(line, func(hit string) string {
				if done && !all {
					return hit
				}
				done = true
				return re.ReplaceAllString(hit, to)
			})}, nil
		}, nil
	}
	at := func(m []string) (func(int, string) bool, error) {
		if m[1] != "" {
			re, err := comp(m[1])
			return func(_ int, line string) bool { return re.MatchString(line) }, err
		}
		from, _ := strconv.Atoi(m[2])
		to := from
		if len(m) > 3 && m[3] != "" {
			to, _ = strconv.Atoi(m[3])
		}
		return func(n int, _ string) bool { return n >= from && n <= to }, nil
	}
	if m := sedInsert.FindStringSubmatch(s); m != nil {
		want, _ := strconv.Atoi(m[1])
		return func(n int, line string) ([]string, []string) {
			if n == want {
				return []string{m[2], line}, nil
			}
			return []string{line}, nil
		}, nil
	}
	if m := sedDelete.FindStringSubmatch(s); m != nil {
		hit, err := at(m)
		return func(n int, line string) ([]string, []string) {
			if hit(n, line) {
				return nil, nil
			}
			return []string{line}, nil
		}, err
	}
	if m := sedPrint.FindStringSubmatch(s); m != nil {
		hit, err := at(m)
		return func(n int, line string) ([]string, []string) {
			if hit(n, line) {
				return []string{line}, []string{line}
			}
			return []string{line}, nil
		}, err
	}
	return nil, fmt.Errorf("pvelab's sed does not know '%s'", s)
}

func cmdSed(_ context.Context, p *proc) int {
	o, rest, err := p.options("inEre:", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	script, ok := o['e']
	if !ok {
		if len(rest) == 0 {
			return p.complain(1, "no script")
		}
		script, rest = rest[0], rest[1:]
	}
	run, err := sedScript(script, has(o, "Er"))
	if err != nil {
		return p.complain(1, "-e expression #1, char 1: %v", err)
	}
	edit := func(text string) string {
		var out []string
		for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			keep, printed := run(n+1, line)
			if has(o, "n") {
				keep = nil
			}
			out = append(append(out, keep...), printed...)
		}
		if len(out) == 0 {
			return ""
		}
		return strings.Join(out, "\n") + "\n"
	}
	if !has(o, "i") {
		return p.each(rest, func(_ string, r io.Reader) error {
			b, err := io.ReadAll(r)
			if err == nil {
				_, err = io.WriteString(p.out, edit(string(b)))
			}
			return err
		})
	}
	code := 0
	for _, n := range rest {
		b, err := p.tree.readFile(p.abs(n))
		if err == nil {
			err = p.tree.writeFile(p.abs(n), []byte(edit(string(b))), 0o644)
		}
		if err != nil {
			code = p.complain(2, "can't read %s: %s", n, errText(err))
		}
	}
	return code
}
