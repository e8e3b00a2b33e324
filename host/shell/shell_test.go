package shell

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

func TestAllFeaturesAreNamed(t *testing.T) {
	got := Lowerer{}.Script("x=1 f $(a `b`) > ~/c {d,e} * && (g) & ! h <<E\nE")
	want := []string{
		"assignment",
		"background",
		"brace",
		"glob",
		"heredoc",
		"negation",
		"redirection",
		"subshell",
		"substitution",
		"tilde",
	}
	slices.Sort(got.Features)
	if got.Parsed || !slices.Equal(got.Features, want) {
		t.Errorf("features %q, want %q", got.Features, want)
	}
}

// ordinary text, and what is sent for it. Names are not those of builtins, so that the real shells
// can be asked about the text itself.
var ordinary = []struct{ text, rendered, features string }{
	{"hostname", "'hostname'", ""},
	{"free -h", "'free' '-h'", ""},
	{"lsblk -o NAME,SIZE,TYPE,MOUNTPOINT", "'lsblk' '-o' 'NAME,SIZE,TYPE,MOUNTPOINT'", ""},
	{"ip -br addr show", "'ip' '-br' 'addr' 'show'", ""},
	{"ip route show", "'ip' 'route' 'show'", ""},
	{
		"journalctl -u pveproxy.service -n 50 --no-pager",
		"'journalctl' '-u' 'pveproxy.service' '-n' '50' '--no-pager'",
		"",
	},
	{"systemctl is-active pvedaemon", "'systemctl' 'is-active' 'pvedaemon'", ""},
	{"pct list", "'pct' 'list'", ""},
	{"qm list", "'qm' 'list'", ""},
	{"pct config 101", "'pct' 'config' '101'", ""},
	{"qm status 200", "'qm' 'status' '200'", ""},
	{"pvesm status", "'pvesm' 'status'", ""},
	{"pvecm status", "'pvecm' 'status'", ""},
	{"zpool status -x", "'zpool' 'status' '-x'", ""},
	{"zfs list -t snapshot", "'zfs' 'list' '-t' 'snapshot'", ""},
	{"smartctl -a /dev/sda", "'smartctl' '-a' '/dev/sda'", ""},
	{"sensors -j", "'sensors' '-j'", ""},
	{"top -bn1", "'top' '-bn1'", ""},
	{"ps -ef", "'ps' '-ef'", ""},
	{"cat /etc/os-release", "'cat' '/etc/os-release'", ""},
	{"tail -n 100 /var/log/syslog", "'tail' '-n' '100' '/var/log/syslog'", ""},
	{"ss -tulpn", "'ss' '-tulpn'", ""},
	{"findmnt -D", "'findmnt' '-D'", ""},
	{
		"pvesh get /nodes/pve1/status --output-format json",
		"'pvesh' 'get' '/nodes/pve1/status' '--output-format' 'json'",
		"",
	},
	{
		"pct exec 101 --keep-env 0 -- df -h",
		"'pct' 'exec' '101' '--keep-env' '0' '--' 'df' '-h'",
		"",
	},
	{
		"pct snapshot 101 before-upgrade --description text",
		"'pct' 'snapshot' '101' 'before-upgrade' '--description' 'text'",
		"",
	},
	{"wc -l /etc/hosts", "'wc' '-l' '/etc/hosts'", ""},
	{"head -c 100 /etc/hosts", "'head' '-c' '100' '/etc/hosts'", ""},
	{"uname -a", "'uname' '-a'", ""},
	{"nproc --all", "'nproc' '--all'", ""},
	{"pveversion -v", "'pveversion' '-v'", ""},
	{"  ls   -la\t/ ", "'ls' '-la' '/'", ""},
	{"df -h", "'df' '-h'", ""},
	{"free -m # memory", "'free' '-m'", ""},
	{"uptime; free", "'uptime' ; 'free'", "sequence"},
	{"uptime\nfree\n\n", "'uptime' ; 'free'", "sequence"},
	{"uptime;", "'uptime'", ""},
	{"ps aux | grep nginx", "'ps' 'aux' | 'grep' 'nginx'", "pipe"},
	{"ps aux |\n grep nginx", "'ps' 'aux' | 'grep' 'nginx'", "pipe"},
	{"a && b && c", "'a' && 'b' && 'c'", "and"},
	{"a || b", "'a' || 'b'", "or"},
	{"a | b && c || d; e", "'a' | 'b' && 'c' || 'd' ; 'e'", "and or pipe sequence"},
	{"a && b | c", "'a' && 'b' | 'c'", "and pipe"},
	{"grep 'a b' /etc/hosts", "'grep' 'a b' '/etc/hosts'", ""},
	{`grep "a b" /etc/hosts`, "'grep' 'a b' '/etc/hosts'", ""},
	{`grep a\ b /etc/hosts`, "'grep' 'a b' '/etc/hosts'", ""},
	{`grep "it's" x`, `'grep' 'it'\''s' 'x'`, ""},
	{`grep 'it'\''s' x`, `'grep' 'it'\''s' 'x'`, ""},
	{`grep '$HOME' "\$HOME" \$HOME`, `'grep' '$HOME' '$HOME' '$HOME'`, ""},
	{"grep '`id`' \"\\`id\\`\" \\`id\\`", "'grep' '`id`' '`id`' '`id`'", ""},
	{`grep "a\b\\c\"d" x`, `'grep' 'a\b\c"d' 'x'`, ""},
	{`grep '\n' x`, `'grep' '\n' 'x'`, ""},
	{`r\m x`, "'rm' 'x'", ""},
	{`r'm' x`, "'rm' 'x'", ""},
	{`"r"m"" x`, "'rm' 'x'", ""},
	{"grep 'a\\\nb' x", "'grep' 'a\\\nb' 'x'", ""},
	{"grep 'a\nb' x", "'grep' 'a\nb' 'x'", ""},
	{"grep '' \"\" x''", "'grep' '' '' 'x'", ""},
	{"grep '*' \"?\" \\[a] \\{a,b\\} \\~", "'grep' '*' '?' '[a]' '{a,b}' '~'", ""},
	{"grep foo$ x", "'grep' 'foo$' 'x'", ""},
	{`grep -E "a\$b|c$|d$" x`, "'grep' '-E' 'a$b|c$|d$' 'x'", ""},
	{`grep "foo$" x`, "'grep' 'foo$' 'x'", ""},
	{"grep ^a=b% @c +d , x", "'grep' '^a=b%' '@c' '+d' ',' 'x'", ""},
	{"dd if=/dev/null bs=1M count=1", "'dd' 'if=/dev/null' 'bs=1M' 'count=1'", ""},
	{
		"systemctl status pveproxy.service --no-pager",
		"'systemctl' 'status' 'pveproxy.service' '--no-pager'",
		"",
	},
	{
		"pvesh get /cluster/resources --type vm",
		"'pvesh' 'get' '/cluster/resources' '--type' 'vm'",
		"",
	},
	{"cat a#b backup~ x:y a]", "'cat' 'a#b' 'backup~' 'x:y' 'a]'", ""},
	{"grep if then done time ! x", "'grep' 'if' 'then' 'done' 'time' '!' 'x'", ""},
	{`\if x; "time" y`, "'if' 'x' ; 'time' 'y'", "sequence"},
	{"'A=b' x", "'A=b' 'x'", ""},
	{"grep é \\é 日本 x", "'grep' 'é' 'é' '日本' 'x'", ""},
	{"grep a\\\tb x", "'grep' 'a\tb' 'x'", ""},
	{"grep \"!x\" !y a!", "'grep' '!x' '!y' 'a!'", ""},
	{"grep \\# '#' \"#\" x # rest", "'grep' '#' '#' '#' 'x'", ""},
	{"ls x 2>/dev/null", "'ls' 'x' 2>/dev/null", "discard"},
	{"ls x 2> /dev/null | wc -l", "'ls' 'x' 2>/dev/null | 'wc' '-l'", "discard pipe"},
	{"ls x >/dev/null 2>&1 && df", "'ls' 'x' >/dev/null 2>&1 && 'df'", "and discard merge"},
	{"2>&1 >/dev/null ls x", "'ls' 'x' 2>&1 >/dev/null", "discard merge"},
	{"ls x 2>&1", "'ls' 'x' 2>&1", "merge"},
	{"grep x </dev/null", "'grep' 'x' </dev/null", "discard"},
	{"grep \\; \\& \\| \\( \\) \\< \\> x", "'grep' ';' '&' '|' '(' ')' '<' '>' 'x'", ""},
}

func TestOrdinaryTextIsLowered(t *testing.T) {
	for _, c := range ordinary {
		got := Lowerer{}.Script(c.text)
		if !got.Parsed || got.Rendered != c.rendered ||
			strings.Join(got.Features, " ") != c.features {
			t.Errorf(
				"%q:\n got %q %q %s\nwant %q %q",
				c.text,
				got.Rendered,
				got.Features,
				got.Error,
				c.rendered,
				c.features,
			)
		}
		again := Lowerer{}.Script(got.Rendered)
		if again.Rendered != got.Rendered || !slices.EqualFunc(again.Calls, got.Calls, sameCall) ||
			!slices.Equal(again.Features, got.Features) {
			t.Errorf(
				"%q: lowering the rendering gives %q %q",
				c.text,
				again.Rendered,
				again.Features,
			)
		}
	}
	for _, text := range []string{"[ -f x ]", "test -d /etc", "printf '%s\\n' a", "echo a", "pwd",
		"true", "kill -TERM 1234"} {
		if got := (Lowerer{}).Script(text); !got.Parsed {
			t.Errorf("%q: %s", text, got.Error)
		}
	}
}

func sameCall(
	a, b terms.Simple,
) bool {
	return a.Static == b.Static && slices.Equal(a.Argv, b.Argv)
}

func TestOperatorsKeepTheirMeaning(t *testing.T) {
	for text, want := range map[string]string{
		"false && echo a || echo b": "b\n", "true || echo a && echo b": "b\n",
		"echo a | cat && echo b": "a\nb\n",
		"false | true && echo a": "a\n", "false; echo a": "a\n", "true && false\necho c": "c\n",
		"false || false | cat; echo d":        "d\n",
		"ls /nonexistent 2>/dev/null; echo a": "a\n", "echo a >/dev/null || echo b; echo c": "c\n",
		"echo a 1>&2 2>/dev/null; echo b": "b\n",
	} {
		got := Lowerer{}.Script(text)
		for _, sh := range shells(t) {
			out, _ := exec.Command(sh[0], append(slices.Clone(sh[1:]), "-c", got.Rendered)...).
				Output()
			if string(out) != want {
				t.Errorf("%s: %q printed %q, want %q", sh, got.Rendered, out, want)
			}
		}
	}
}

func TestArgv(t *testing.T) {
	for _, c := range []struct {
		name string
		argv []string
		sent string
		why  string
	}{
		{"words are data", []string{"ls", "a b", "$(id)", "*", "it's", "", "a\nb", "-x"},
			`'ls' 'a b' '$(id)' '*' 'it'\''s' '' 'a` + "\n" + `b' '-x'`, ""},
		{"a path that is no builtin", []string{"/usr/bin/printf", "-v", "a[$(id)]"},
			`'/usr/bin/printf' '-v' 'a[$(id)]'`, ""},
		{"empty list", nil, "", "names no program"},
		{"empty program", []string{"", "x"}, "", "names no program"},
		{"NUL", []string{"ls", "a\x00b"}, "", "NUL"},
		{"eval reads code", []string{"eval", "id"}, "", "the shell's own eval"},
		{"printf -v reads code", []string{"printf", "-v", "a[$(id)]"}, "",
			"printf with the word -v"},
		{"too long for one argument", []string{"echo", strings.Repeat("x", maxRendered)}, "",
			"over the limit of 120000"},
		{"too many words", slices.Repeat([]string{"x"}, maxWords+1), "",
			"513 words in the command"},
		{"quotes count when they are rendered",
			[]string{"echo", strings.Repeat("'", maxRendered/3)}, "", "over the limit of 120000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Lowerer{}.Argv(c.argv)
			if got.Rendered != c.sent || got.Parsed != (c.sent != "") ||
				!strings.Contains(got.Error, c.why) ||
				(got.Error == "") != got.Parsed {
				t.Errorf("got %q, %q", got.Rendered, got.Error)
			}
			if got.Parsed && !slices.Equal(got.Calls[0].Argv, c.argv) {
				t.Errorf("calls %v", got.Calls)
			}
		})
	}
}

func TestNestedTextIsFound(t *testing.T) {
	argv := func(w ...string) []string { return w }
	for _, c := range []struct {
		name string
		argv []string
		want string // depth position calls-or-error, …
	}{
		{"bash -c", argv("bash", "-c", "ls | wc"), "1 [0 2] ls|wc"},
		{"with a folder", argv("/bin/sh", "-c", "ls"), "1 [0 2] ls"},
		{"in a cluster of options", argv("sh", "-xec", "ls"), "1 [0 2] ls"},
		{"options after -c", argv("bash", "-c", "-e", "--norc", "ls"), "1 [0 4] ls"},
		{"options that take a word", argv("bash", "-o", "pipefail", "-O", "extglob", "--rcfile",
			"x", "-c", "ls"), "1 [0 8] ls"},
		{"an option that takes a word, clustered with -c", argv("bash", "-ceo", "pipefail", "ls"),
			"1 [0 3] ls"},
		{"plus options", argv("bash", "+x", "-c", "+o", "history", "ls"), "1 [0 5] ls"},
		{"after --", argv("bash", "-c", "--", "-ls"), "1 [0 3] -ls"},
		{"in the middle of another program", argv("pct", "exec", "101", "--keep-env", "0", "--",
			"timeout", "-k", "2", "30", "sh", "-c", "df -h"), "1 [0 12] df"},
		{"busybox sh", argv("busybox", "sh", "-c", "ls"), "1 [0 3] ls"},
		{"through env and xargs", argv("env", "A=1", "xargs", "dash", "-c", "ls"), "1 [0 5] ls"},
		{"text in text", argv("sh", "-c", `bash -c "sh -c ls"`),
			"1 [0 2] bash, 2 [0 2] sh, 3 [0 2] ls"},
		{"two of them", argv("sh", "-c", `sh -c a; sh -c b`),
			"1 [0 2] sh|sh, 2 [0 2] a, 2 [1 2] b"},
		{"what cannot be lowered says so", argv("sh", "-c", "ls > x"), "1 [0 2] !a redirection"},
		{"deeper than three", argv("sh", "-c", `sh -c "sh -c 'sh -c ls'"`),
			"1 [0 2] sh, 2 [0 2] sh, 3 [0 2] !command text is nested deeper than 3"},
		{"a script file is no text", argv("sh", "x", "-c", "ls"), ""},
		{"-c without text", argv("sh", "-c"), ""},
		{"after -- there are no options", argv("sh", "--", "-c", "ls"), ""},
		{"not a shell", argv("grep", "-c", "ls"), ""},
		{"a name that only ends like one", argv("zzsh", "-c", "ls"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Lowerer{}.Argv(c.argv)
			if !got.Parsed {
				t.Fatal(got.Error)
			}
			if s := describe(got.Nested); !strings.HasPrefix(s, c.want) || c.want == "" && s != "" {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
	if got := (Lowerer{}).Script(`ls && bash -c 'df'`); describe(got.Nested) != "1 [1 2] df" {
		t.Errorf("in a script: %s", describe(got.Nested))
	}
	many := slices.Repeat(argv("sh", "-c", "ls"), maxNested+1)
	if got := (Lowerer{}).Argv(many); got.Parsed ||
		!strings.Contains(got.Error, "over the limit of 64") {
		t.Errorf("65 texts: parsed %v, %q", got.Parsed, got.Error)
	}
	if got := (Lowerer{}).Argv(append(argv("sh"), slices.Repeat(argv("-x"), 40)...)); got.Parsed ||
		!strings.Contains(got.Error, "more than 32 options") {
		t.Errorf("40 options: parsed %v, %q", got.Parsed, got.Error)
	}
}

func describe(nested []terms.Nested) string {
	var all []string
	for _, n := range nested {
		var names []string
		for _, c := range n.Calls {
			names = append(names, c.Argv[0])
		}
		what := strings.Join(names, "|")
		if !n.Parsed {
			what = "!" + n.Error
		}
		all = append(all, fmt.Sprint(n.Depth, " ", n.Position, " ", what))
	}
	return strings.Join(all, ", ")
}

// Deeply nested text within the size limit is refused quickly and does not overflow the parser's
// stack (facts: ten times as much would).
func TestDeepNestingIsRefusedQuickly(t *testing.T) {
	for _, unit := range []string{"(", "((", "$(", "{ ", "if ", "${a:-", "`", `"$(`, "<(", "$((",
		"@(", "a&&", "sh -c ", "[[ ", "f()"} {
		began := time.Now()
		if got := (Lowerer{}).Script(strings.Repeat(unit, maxScript/len(unit))); got.Parsed &&
			unit != "sh -c " {
			t.Errorf("%q repeated was lowered", unit)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("%q repeated took %s", unit, d)
		}
	}
}

func TestManyCommandsInOneTextAreRefused(t *testing.T) {
	if c := (Lowerer{}).Script(strings.Repeat("a;", maxCalls)); !c.Parsed {
		t.Errorf("%d commands: %s", maxCalls, c.Error)
	}
	if c := (Lowerer{}).Script(strings.Repeat("a;", maxCalls+1)); c.Parsed ||
		!strings.Contains(c.Error, "over the limit of 64") ||
		c.Rendered != "" {
		t.Errorf("%d commands: %+v", maxCalls+1, c)
	}
}
