package pvelab

import (
	"context"
	"embed"
	"io"
	"slices"
	"strings"
)

// What programs print that the lab does not simulate: said/network.txt says how it is written.
//
//go:embed said
var saidFiles embed.FS

// pvePrograms are simulated by tables of their own, which come after what is written.
var pvePrograms = []string{"pct", "qm", "pvesm", "pvecm", "pvenode"}

// saying is one text and what it answers.
type saying struct {
	words []string // of the program's arguments, from the first on
	more  bool     // further words may follow
	ran   bool     // Debian's program printed it
	text  string
}

// sayings reads the texts by program, those with the most words first.
func sayings() map[string][]saying {
	all := map[string][]saying{}
	files, err := saidFiles.ReadDir("said")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, f := range files {
		data, err := saidFiles.ReadFile("said/" + f.Name())
		if err != nil {
			panic(err)
		}
		var heads [][]string
		var text strings.Builder
		flush := func() {
			for _, h := range heads {
				s := saying{words: h[3:], ran: h[1] == "ran", text: text.String()}
				if n := len(s.words); n > 0 && s.words[n-1] == "*" {
					s.words, s.more = s.words[:n-1], true
				}
				all[h[2]] = append(all[h[2]], s)
			}
			heads = nil
			text.Reset()
		}
		for line := range strings.Lines(string(data)) {
			switch {
			case strings.HasPrefix(line, "== "):
				if text.Len() > 0 {
					flush()
				}
				heads = append(heads, strings.Fields(line))
			case len(heads) > 0:
				text.WriteString(line)
			}
		}
		flush()
	}
	for _, list := range all {
		slices.SortStableFunc(list, func(a, b saying) int { return len(b.words) - len(a.words) })
	}
	return all
}

// answers reports whether the text is for these arguments: its words stand first among them, or are
// options anywhere.
func (s saying) answers(args []string) bool {
	var plain, options []string
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			options = append(options, a)
		} else {
			plain = append(plain, a)
		}
	}
	for _, w := range s.words {
		if strings.HasPrefix(w, "-") {
			if !slices.Contains(options, w) {
				return false
			}
			continue
		}
		if len(plain) == 0 || plain[0] != w {
			return false
		}
		plain = plain[1:]
	}
	return s.more || len(plain) == 0
}

// talks returns a program that prints what is written for its arguments, and is next for others.
func talks(texts []saying, next builtin) builtin {
	return func(ctx context.Context, p *proc) int {
		for _, s := range texts {
			if s.answers(p.args[1:]) {
				_, _ = io.WriteString(p.out, s.text)
				return 0
			}
		}
		if next != nil {
			return next(ctx, p)
		}
		return p.complain(2, "pvelab has no text for %q", p.args)
	}
}
