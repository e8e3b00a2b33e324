package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// seen returns the words that the shell reads in the renderings of calls, one after the other.
func seen(t *testing.T, sh []string, calls [][]string) []string {
	t.Helper()
	var script strings.Builder
	for _, argv := range calls {
		script.WriteString(`printf '%s\0' ` + Quote(argv) + "\n")
	}
	cmd := exec.Command(sh[0], sh[1:]...)
	cmd.Stdin = strings.NewReader(script.String())
	if len(script.String()) < maxRendered {
		cmd = exec.Command(sh[0], append(slices.Clone(sh[1:]), "-c", script.String())...)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", sh, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func check(t *testing.T, calls [][]string) {
	t.Helper()
	want := slices.Concat(calls...)
	for _, sh := range shells(t) {
		if got := seen(t, sh, calls); !slices.Equal(got, want) {
			t.Errorf("%s saw %q\ndecided %q", sh, got, want)
		}
	}
}

// FuzzScript checks that real shells start the same programs with the same words for the text, for
// its rendering, and for the calls that policy decides on, and that lowering the rendering again
// changes nothing.
func FuzzScript(f *testing.F) {
	for _, c := range ordinary {
		f.Add(c.text)
	}
	for _, text := range append(slices.Clone(differing), "hostname\rrm", "{rm,-rf,/}",
		"printf -v 'a[$(id)]' x", "a | b && c || d; e", `bash -c "sh -c 'ls'"`, "x=1 y",
		"~ $x `y` $(z)", "echo \\\n\\\n", "a 2>/dev/null >&2 | b &>/dev/null", "a 2>&1 >x") {
		f.Add(text)
	}
	b := newBench(f)
	f.Fuzz(b.script)
}

// tokens are what FuzzTokens makes texts of: what shells read in more than one way.
var tokens = []string{
	"a", "b", "cd", " ", " ", " ", "\t", "\n", "'", "'", `"`, `"`, `\`, "\\\n", "#", " #", "|",
	" | ",
	"||", " && ", ";", "; ", "&", ">", "<", ">/dev/null", "2>/dev/null", "2>&1", ">&2",
	"</dev/null",
	"$", "$'", `$"`, "$(", "${", "`", ")", "(", "}", "{", "=", "x=", "~", ":", "%", "^", "!", "[",
	"]",
	"*", "?", "-", "+", "@", ",", "1", "2", "é", `\'`, `\"`, `\$`, `\#`, `\ `, "''", `""`, "if",
	"then",
	"fi", "do", "done", "time", "case", "esac", "in", "for", "while", "until", "function", "select",
	"[[", "]]", "!", "coproc", "repeat", "end", "test", "exec",
}

// FuzzTokens is FuzzScript on texts that are made of tokens: each byte of the seed is one of them.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"\x00\x03\x01", "\x00\x03\x08\x01\x08",
		"\x00\x03\x0a\x1e\x0d\x01\x0a"} {
		f.Add([]byte(s))
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, seed []byte) {
		var text strings.Builder
		for _, c := range seed[:min(len(seed), 40)] {
			text.WriteString(tokens[int(c)%len(tokens)])
		}
		b.script(t, text.String())
	})
}

func (b *bench) script(t *testing.T, text string) {
	got := Lowerer{}.Script(text)
	if !got.Parsed {
		if got.Error == "" || got.Rendered != "" || len(got.Calls)+len(got.Nested) > 0 ||
			got.Features == nil || got.Calls == nil || got.Nested == nil {
			t.Fatalf("a refusal that is half a command: %+v", got)
		}
		return
	}
	var calls [][]string
	for _, c := range got.Calls {
		if len(c.Argv) == 0 || c.Argv[0] == "" || !c.Static {
			t.Fatalf("call %q", c.Argv)
		}
		calls = append(calls, c.Argv)
	}
	if len(got.Rendered) <= maxScript {
		again := Lowerer{}.Script(got.Rendered)
		if again.Rendered != got.Rendered || len(again.Nested) != len(got.Nested) ||
			!slices.EqualFunc(again.Calls, got.Calls, sameCall) ||
			!slices.Equal(again.Features, got.Features) {
			t.Fatalf("%q lowers to %q, and that to %q: %s",
				text, got.Rendered, again.Rendered, again.Error)
		}
	}
	// A text that is read in another way than expected must not reach a program by its path.
	if strings.Contains(strings.ReplaceAll(text, "/dev/null", ""), "/") || !b.agrees(t, text) {
		check(t, calls)
	}
}

// FuzzArgv checks that words without NUL arrive as they are.
func FuzzArgv(f *testing.F) {
	for _, s := range []string{
		"ls\x00-la", "a\x00'\x00\"\x00\\\x00\n\x00$(id)\x00`id`\x00*\x00~\x00!\x00#", "x\x00",
		"é\x00\xff\xfe\x00\r\x00\x1b[2J", "a\x00''\x00'\\''",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		argv := strings.Split(s, "\x00")
		got := Lowerer{}.Argv(argv)
		if !got.Parsed {
			if got.Error == "" || got.Rendered != "" || len(got.Calls) > 0 {
				t.Fatalf("a refusal that is half a command: %+v", got)
			}
			return
		}
		if !slices.Equal(got.Calls[0].Argv, argv) || got.Rendered != Quote(argv) {
			t.Fatalf("%q became %v, sent as %q", argv, got.Calls, got.Rendered)
		}
		check(t, [][]string{argv})
	})
}
