package pvelab

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
)

// What a guest runs is what a shell makes of a text, also where a parser reads another command in
// it. The first two are decided as ls and cat by mvdan.cc/sh.
func TestAGuestRunsWhatARealShellRuns(t *testing.T) {
	l := newLab(t, Options{})
	if _, err := findShell("sh in a container"); err != nil {
		needs.Skip(t, err.Error())
	}
	for _, tt := range []struct {
		text string
		want []string // the programs, in any order
	}{
		{"ls \"/x$\\\n(id -un > /tmp/pwned)\"", []string{"id -un", "ls /x"}},
		{"cat -- /etc/hostname #\\\nrm /tmp/pwned",
			[]string{"cat -- /etc/hostname", "rm /tmp/pwned"}},
		{"hostname; (uname); x=$(whoami); echo $x | cat",
			[]string{"cat", "hostname", "uname", "whoami"}},
		{"f() { id; }; f; eval 'una''me -s'; /usr/bin/df",
			[]string{"/usr/bin/df", "id", "uname -s"}},
		{"for i in 1 2; do stat /no$i; done; nosuch", []string{"stat /no1", "stat /no2"}},
	} {
		before := len(l.Effects())
		r := l.try([]string{"pct", "exec", "105", "--", "sh", "-c", tt.text}, "")
		var got []string
		for _, e := range l.Effects()[before:] {
			if e.Kind == "guest" {
				got = append(got, strings.Join(e.Argv, " "))
			}
		}
		slices.Sort(got)
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%q ran %q, want %q (%+v)", tt.text, got, tt.want, r)
		}
	}
}

// Builtins of a shell meet nothing of the machine: no file, no process, no network.
func TestAShellIsAlone(t *testing.T) {
	l := startLab(t, Options{})
	if _, err := findShell("bash"); err != nil {
		needs.Skip(t, err.Error())
	}
	c := dial(t, l, l.Addr)
	own := fmt.Sprint(os.Getpid())
	for text, want := range map[string]string{
		"kill -0 " + own + " 2>&1":                                 "No such process",
		"kill -9 -1; hostname":                                     "pve1",
		"exec 3<>/dev/tcp/" + strings.Replace(l.Addr, ":", "/", 1): "unreachable",
		"echo x > /dev/null; cat /dev/null; echo y > /dev/stderr":  "y",
		": > /var/empty-file; ls /var/empty-file":                  "/var/empty-file",
		"kill -9 $$": "",
	} {
		r := ask(t, c, text, "")
		if !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("%s: %+v, want %q", text, r, want)
		}
	}
}

// Where the lab may start no shell, plain commands run and everything else is refused.
func TestPlainWords(t *testing.T) {
	for text, want := range map[string][]string{
		"pct status 101":             {"pct", "status", "101"},
		`'pct' 'exec' 'a b' it\''s'`: {"pct", "exec", "a b", "it's"},
		"a '' b":                     {"a", "", "b"},
	} {
		if got, ok := plainWords(text); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, ok)
		}
	}
	for _, text := range []string{"a; b", "a $b", "a | b", "a > b", "a 'b", "a=b c", "~", "a *",
		"a\nb", `a "b"`, "a #b", `a \b`, "a & b"} {
		if got, ok := plainWords(text); ok {
			t.Errorf("%s: %q", text, got)
		}
	}
}
