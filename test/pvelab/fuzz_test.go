package pvelab

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// getopt invents nothing: every value and operand that it returns is one of the words or the
// part behind a "=".
func FuzzGetoptInventsNothing(f *testing.F) {
	for _, s := range []string{"101\x00--pu\x001", "--purge\x00--force", "--desc\x00-x",
		"--timeout=5\x00--\x00--x", "-verbose\x00101", "--=\x00-"} {
		f.Add(s)
	}
	ps := join(bools("purge force verbose"), strs("description"), ints("timeout"))
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "\x00")
		opts, rest, err := getopt(slices.Clone(words), ps)
		if err != nil {
			return
		}
		for name, vals := range opts {
			if !slices.ContainsFunc(ps, func(p param) bool { return p.Name == name }) {
				t.Errorf("%q gave the unknown option %q", words, name)
			}
			for _, v := range vals {
				if v != "" && !slices.Contains(words, v) &&
					!slices.ContainsFunc(
						words,
						func(w string) bool { return strings.HasSuffix(w, "="+v) },
					) {
					t.Errorf("%q gave the value %q", words, v)
				}
			}
		}
		at := 0
		for _, r := range rest { // in the order of the words
			for at < len(words) && words[at] != r {
				at++
			}
			if at++; at > len(words) {
				t.Errorf("%q gave the operands %q", words, rest)
			}
		}
	})
}

// A guest's configuration survives being written and read.
func FuzzConfigurationSurvivesItsFile(f *testing.F) {
	f.Add("hostname: a\nmemory: 512\n#line one\n#line two\n")
	f.Add("lock: backup\n[snap]\nmemory: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\r") {
			return
		}
		a, b := &Guest{Type: "lxc"}, &Guest{Type: "lxc"}
		a.parseConf(text)
		b.parseConf(a.conf())
		if !maps.Equal(a.Config, b.Config) {
			t.Errorf("%q became %q", a.Config, b.Config)
		}
	})
}

// A resolved path is local and free of links.
func FuzzResolvedPathsStayInTheTree(f *testing.F) {
	for _, s := range []string{"/loop/x", "/up/etc/passwd", "../../etc", "/abs/passwd",
		"/etc/../..", "/self/self/etc/hostname", "/rel/hostname", "//"} {
		f.Add(s)
	}
	l, err := open(f.Context(), Options{State: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	tr := l.nodeTree("pve1")
	if err := l.fill(tr, map[string]string{"/loop": "-> /loop", "/up": "-> ../../../..",
		"/abs": "-> /etc", "/self": "-> /", "/rel": "-> etc/../etc", "/out": "-> " +
			l.dir}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		rel, err := tr.resolve(name, true)
		if err != nil {
			return
		}
		if !filepath.IsLocal(rel) {
			t.Errorf("%q became %q", name, rel)
		}
		if again, err := tr.resolve(shown(rel), true); err != nil || again != rel {
			t.Errorf("%q became %q, and that %q (%v)", name, rel, again, err)
		}
		if real, err := filepath.EvalSymlinks(filepath.Join(l.dir, tr.key, rel)); err == nil &&
			!strings.HasPrefix(real, l.dir) {
			t.Errorf("%q is %q on the machine", name, real)
		}
	})
}

// A quoted word is the same word again for a shell.
func FuzzQuotedWordsSurviveAShell(f *testing.F) {
	for _, s := range []string{"", "a b", "it's", "$(id)", "~", "-x", "a=b", "{a,b}", "!x", "\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsAny(word, "\x00") {
			return // no argument can hold it
		}
		out, err := exec.Command("sh", "-c", "printf '%s' "+shellQuote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q quoted as %s is %q, %v", word, shellQuote(word), out, err)
		}
	})
}

// With any command line of pvesh, the path is one of its words and the method gets no word
// that was not there.
func FuzzPveshInventsNothing(f *testing.F) {
	for _, s := range []string{"get\x00/nodes\x00--output-format\x00json",
		"--noproxy\x00ge\x00/x\x00--vmid\x00101", "create\x00--a=b\x00/p\x00--\x00--q",
		"get\x00--quiet\x00/x", "ls\x00-\x00--out=yaml"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "\x00")
		x, why, err := parsePvesh(words)
		if err != nil || why != "" {
			return
		}
		if !slices.Contains(pveshVerbs, x.verb) {
			t.Errorf("%q gave the verb %q", words, x.verb)
		}
		if !slices.Contains(words, x.path) && x.path != "" {
			t.Errorf("%q gave the path %q", words, x.path)
		}
		for _, a := range x.args {
			if !slices.Contains(words, a) {
				t.Errorf("%q gave the argument %q", words, a)
			}
		}
		if !slices.Contains(
			strings.Fields("text json json-pretty yaml"),
			x.format["output-format"],
		) {
			t.Errorf("%q gave the format %q", words, x.format["output-format"])
		}
	})
}

// A literal substitution does what strings.Replace does.
func FuzzSedReplacesWords(f *testing.F) {
	f.Add("local:102/subvol", "a", "b")
	f.Add("x.y$1&z", ".y", "$0&")
	f.Fuzz(func(t *testing.T, line, from, to string) {
		if strings.ContainsAny(from+to, "#\n") || from == "" || !utf8.ValidString(line) ||
			!utf8.ValidString(from) ||
			!utf8.ValidString(to) ||
			strings.ContainsAny(to, `\&`) {
			return
		}
		run, err := sedScript(
			"s#"+strings.NewReplacer(`\`, `\\`, ".", `\.`, "*", `\*`, "[", `\[`, "]", `\]`, "^",
				`\^`, "$", `\$`).
				Replace(from)+
				"#"+to+"#g",
			false,
		)
		if err != nil {
			t.Fatalf("%q: %v", from, err)
		}
		got, _ := run(1, line)
		if want := strings.ReplaceAll(line, from, to); len(got) != 1 || got[0] != want {
			t.Errorf("s#%s#%s#g of %q gave %q, want %q", from, to, line, got, want)
		}
	})
}
