package test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// form is a line of form=( … ) in caponier-gate, delivered with or without a #.
type form struct{ group, text string }

// forms reads caponier-gate: its lines, and what the variables in them stand for.
func forms(t *testing.T) (all []form, kinds map[string]string) {
	t.Helper()
	script, err := os.ReadFile("../packaging/node/caponier-gate")
	must(t, err)
	_, list, _ := strings.Cut(string(script), "\nform=(\n")
	list, _, ok := strings.Cut(list, "\n)\n")
	kinds = map[string]string{}
	for _, v := range regexp.MustCompile(`(?m)^(\w+)="(.+?)"(?: +#.*)?$`).FindAllStringSubmatch(
		string(script), -1) {
		kinds[v[1]] = strings.ReplaceAll(v[2], `\\`, `\`)
	}
	group := ""
	for line := range strings.Lines(list) {
		if said, heading := strings.CutPrefix(line, "  # "); heading {
			group = strings.TrimSpace(said)
		} else if m := regexp.MustCompile(`^[# ] "(.+)"\n?$`).FindStringSubmatch(line); m != nil {
			all = append(all, form{group, m[1]})
		} else {
			t.Errorf("caponier-gate: what is the line %q?", line)
		}
	}
	if !ok || len(all) < 15 || kinds["id"] == "" || kinds["word"] == "" {
		t.Fatalf("caponier-gate: %d forms, variables %q", len(all), kinds)
	}
	return all, kinds
}

// with puts values in the place of a form's variables.
func (f form) with(kinds map[string]string) string {
	return regexp.MustCompile(`\$\w+`).
		ReplaceAllStringFunc(f.text, func(v string) string { return kinds[v[1:]] })
}

// every spells an expression out: each alternative of it, what may be missing once with and once
// without it, and no repetition that need not be.
func every(t *testing.T, expr string) []string {
	t.Helper()
	re, err := syntax.Parse(expr, syntax.Perl)
	must(t, err)
	return spelled(re)
}

func spelled(re *syntax.Regexp) (all []string) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCapture, syntax.OpPlus:
		return spelled(re.Sub[0])
	case syntax.OpQuest:
		return append(spelled(re.Sub[0]), "")
	case syntax.OpStar:
		if re.Sub[0].Op == syntax.OpCharClass {
			return []string{""}
		}
		return []string{"", spelled(re.Sub[0])[0]}
	case syntax.OpRepeat:
		return []string{strings.Repeat(spelled(re.Sub[0])[0], re.Min)}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			all = append(all, spelled(sub)...)
		}
		return all
	case syntax.OpConcat:
		all = []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, a := range all {
				for _, b := range spelled(sub) {
					longer = append(longer, a+b)
				}
			}
			all = longer
		}
		return all
	case syntax.OpCharClass: // a|b|c is one, too
		if re.Rune[0] == 0 { // all but a few
			return []string{"x"}
		}
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1] && len(all) < 6; r++ {
				all = append(all, string(r))
			}
		}
		if len(all) == 6 {
			return all[:1]
		}
		return all
	case syntax.OpEmptyMatch:
		return []string{""}
	}
	panic("an expression with " + re.Op.String())
}

// TestAFormOfTheGateRunsExactlyItsCommand has every form of the gate, and two of a site's own with
// | in them: it
// runs, and nothing more than it does.
func TestAFormOfTheGateRunsExactlyItsCommand(t *testing.T) {
	t.Parallel()
	all, kinds := forms(t)
	own := []form{
		{"a site's", "'uptime'|'hostname' '-f'"},
		{"a site's", "'pct' 'df' '$id'|'qm' 'pending' '$id'"},
	}
	kinds["word"] = `'any word; \| &'`
	script, err := os.ReadFile("../packaging/node/caponier-gate")
	must(t, err)
	dir := t.TempDir()
	bin, gate := filepath.Join(dir, "bin"), filepath.Join(dir, "gate")
	must(t, os.Mkdir(bin, 0o755))
	for name, text := range map[string]string{"sudo": `shift 2; exec "$@"`, "logger": ":"} {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	for _, name := range strings.Fields(
		"pct qm pvesh date locale systemctl sha256sum uptime hostname id bash echo") {
		must(
			t,
			os.WriteFile(
				filepath.Join(bin, name),
				[]byte(
					"#!/bin/sh\nprintf \"'%s'\" \"${0##*/}\"\n[ $# = 0 ] || printf \" '%s'\" "+
						"\"$@\"\n",
				),
				0o755,
			),
		)
	}
	text := strings.NewReplacer("export PATH=", "export PATH="+bin+":", "\n# \"", "\n  \"",
		"form=(\n", "form=(\n\""+own[0].text+"\"\n\""+own[1].text+"\"\n").
		Replace(string(script))
	must(t, os.WriteFile(gate, []byte(text), 0o755))
	run := func(asked string) (string, int) {
		cmd := exec.Command(gate)
		cmd.Env = []string{"SSH_ORIGINAL_COMMAND=" + asked}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	refused := func(claim, asked string) {
		if out, code := run(asked); code != 126 || !strings.Contains(out, "may not run that") {
			t.Errorf("%s: %q: exit code %d, %s", claim, asked, code, out)
		}
	}
	for _, f := range append(own, all...) {
		for _, asked := range every(t, f.with(kinds)) {
			if out, code := run(asked); code != 0 || out != asked {
				t.Errorf("%q of %s: exit code %d, ran %s", asked, f.text, code, out)
			}
			refused("a word before it", "'echo' "+asked)
			refused("words before and after it", "'bash' '-c' 'id' "+asked+" 'x'")
			refused("another command after it", asked+"\n'id'")
			refused("a newline after it", asked+"\n")
			if !strings.HasSuffix(f.text, "( $word)+") { // the words of a command in a container
				refused("a word after it", asked+" 'x'")
			}
		}
	}
	for _, asked := range []string{
		"'bash' '-c' 'id' 'date' '+%s'", "'pct' 'list' 'x'", "'date' '+%s' '--set' 'x'",
		"'qm' 'list'\n'id'",
		"'pct' 'start' '101' '--skiplock' '1'", "'qm' 'start' '101' '--machine' 'x'",
		"'qm' 'stop' '101' '--skiplock' '1'", "'pct' 'shutdown' '101' '--timeout' '5' 'x'",
		"'pct' 'reboot' '101' '--forceStop' '1'",
		"'pvesh' 'get' '/nodes/pve1/qemu/100/agent/file-read' '--file' '/etc/shadow'", "'pvesh' 'get' '/nodes/pve1/query-url-metadata' '--url' 'http://x/'", "'pvesh' 'get' '/nodes/pve1/qemu/100/agent/get-users'",
		"'pvesh' 'get' '/access/users'", "'pvesh' 'get' '/'",
		"'pvesh' 'get' '/nodes/../access/users'", "'pvesh' 'get' '/nodes/pve1/journal'",
		"'pvesh' 'get' '/nodes/pve1/storage/local/file-restore/download'",
		"'pvesh' 'get' '/nodes/pve1/status' '--noproxy' '1'",
		"'pvesh' 'get' '/version' '--output-format' '/x'",
		"'pvesh' 'get' '/nodes/pve1/lxc/101/config' '--snapshot' 'x'", "'pvesh' 'get' '/version/x'",
		"'pvesh' 'get' 'x/version'",
		"'pct' 'snapshot' '101' 'a' '--description' 'x'\\''' '--force' '1'",
		"'pct' 'snapshot' '101' '-a'",
		"'pct' 'exec' '101' '--keep-env' '1' '--' 'timeout' '-k' '2' '9' 'id'",
		"'pct' 'exec' '101' '--keep-env' '0' '--' 'id'",
		"'pct' 'push' '101' '--perms' '0644' '--user' '0' '--group' '0' '--' '/etc/shadow' '/x'",
		"'pct' 'pull' '101' '--' '/x' '/etc/cron.d/x'", "'sha256sum' '--' '/etc/shadow'",
		"'sha256sum' '--' '/run/caponier-" + strings.Repeat("0", 32) + "/../../etc/shadow/file'",
	} {
		refused("more than a form", asked)
	}
}

// The gate allows the same paths of pvesh as the grammar.
func TestGateAndGrammarListTheSamePaths(t *testing.T) {
	grammar, err := os.ReadFile("../policies/core/grammar/pvesh.yaml")
	must(t, err)
	_, gets, _ := strings.Cut(string(grammar), "\n    get:\n")
	gets, _, ok := strings.Cut(gets, "\n    create:\n")
	want, options := map[string]bool{}, map[string]bool{"": true}
	for _, m := range regexp.MustCompile(
		`(?m)^ +(/\S+): .*options: \{(.*)\}\}$`).FindAllStringSubmatch(gets, -1) {
		want[regexp.MustCompile(`\{(node|storage|snapname|pveservice)\}`).ReplaceAllString(
			strings.ReplaceAll(m[1], "{vmid}", "{id}"), "{name}")] = true
		for _, o := range regexp.MustCompile(`--[\w-]+`).FindAllString(m[2], -1) {
			options[o] = true
		}
	}
	if !ok || len(want) < 30 || len(want) != strings.Count(gets, "tier: green") ||
		strings.Contains(gets, "tier: yellow") ||
		strings.Contains(gets, "tier: red") {
		t.Fatalf("pvesh.yaml: %d paths to get: %v", len(want), want)
	}
	all, kinds := forms(t)
	got := map[string]bool{}
	for _, f := range all {
		if !strings.HasPrefix(f.text, "'pvesh'") {
			continue
		}
		path, isGet := strings.CutPrefix(
			f.with(map[string]string{"name": `\{name\}`, "id": `\{id\}`, "upid": `\{upid\}`}),
			"'pvesh' 'get' '",
		)
		if path, closed := strings.CutSuffix(path, "'"); isGet && closed &&
			strings.HasSuffix(f.text, "'$options") {
			for _, p := range every(t, path) {
				got[p] = true
			}
		} else {
			t.Errorf("caponier-gate: %s is no path with the options that all have", f.text)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf(
			"caponier-gate lists\n%q, policies/core/grammar/pvesh.yaml\n%q",
			slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)),
		)
	}
	for _, o := range every(t, regexp.MustCompile(`^\( '(.+?)'`).FindStringSubmatch(
		kinds["options"])[1]) {
		if !options[o] {
			t.Errorf("caponier-gate: no path of policies/core/grammar/pvesh.yaml takes %s", o)
		}
	}
	if nodes, err := os.ReadFile("../policies/core/grammar/base.yaml"); err != nil ||
		!strings.Contains(string(nodes), "\n  vmid: ^"+kinds["id"]+"$\n") {
		t.Errorf("caponier-gate: $id is not the vmid of policies/core/grammar/base.yaml: %v", err)
	}
}

// caponier.sudoers has the gate's groups, and each group has the gate's lines, compared by the text
// between their quotes. Files are not for that user.
func TestSudoersListsWhatTheGateLists(t *testing.T) {
	all, kinds := forms(t)
	kinds["word"] = ".*"
	want := map[string][]string{}
	for _, f := range all {
		program, rest, _ := strings.Cut(strings.ReplaceAll(f.with(kinds), "'", ""), " ")
		for _, p := range strings.Split(strings.Trim(program, "()"), "|") {
			if dir := map[string]string{"pct": "/usr/sbin/", "qm": "/usr/sbin/",
				"pvesh": "/usr/bin/", "locale": "/usr/bin/"}[p]; dir != "" &&
				!strings.HasPrefix(f.group, "files") {
				want[f.group] = append(want[f.group], dir+p+" ^"+rest+"$")
			}
		}
	}
	text, err := os.ReadFile("../packaging/node/caponier.sudoers")
	must(t, err)
	got := map[string][]string{}
	for _, m := range regexp.MustCompile(
		`(?m)^# (.+)\nCmnd_Alias \w+ = (.+)$`).FindAllStringSubmatch(
		strings.ReplaceAll(string(text), " \\\n  ", " "), -1) {
		got[m[1]] = strings.Split(m[2], "$, /")
		for i := range got[m[1]] {
			got[m[1]][i] = "/" + strings.Trim(got[m[1]][i], "/$") + "$"
		}
	}
	if len(want) != 4 || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("caponier.sudoers has\n%q\nand caponier-gate\n%q", got, want)
	}
	if n := strings.Count(string(text), "/usr/"); n != len(
		slices.Concat(slices.Collect(maps.Values(got))...),
	) {
		t.Errorf("caponier.sudoers has %d commands, of which its groups hold others", n)
	}
}

// gated compares the commands that reached a node with the gate: each matches a form, or one of
// those that docs/first-node.md tells sites to write.
func (s *site) gated(t *testing.T, own string) {
	t.Helper()
	all, kinds := forms(t)
	expr := own
	for _, f := range all {
		expr += "|" + f.with(kinds)
	}
	listed, n := regexp.MustCompile("(?s)^(?:"+expr+")$"), 0
	for _, e := range s.lab.Effects() {
		if e.Kind == "exec" && e.Via == "" && e.Text != "" {
			if n++; !listed.MatchString(e.Text) {
				t.Errorf("caponier-gate lists no form for %s", e.Text)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d commands reached a node", n)
	}
}
