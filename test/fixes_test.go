package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

// nodeFixes are the fixes that `caponier check` prints for a node, by how they begin: the case that
// executes it, or after "not: " why none does.
var nodeFixes = map[string]string{
	"AcceptEnv LANG LC_*": "locale", "Subsystem sftp ": "sftp", "SetEnv PATH=": "PATH",
	"install -o root -g root -m 0755 caponier-gate": "gate, old gate", `"%s"   # one more`: "form",
	"case $- in": "quiet, slow", "usermod -s /bin/bash": "shell",
	"caponier hosts scan ":     "host key",
	"name = %q   # instead of": "name",

	"timedatectl set-ntp": "not: it would set the clock of the machine that tests",
	"pvecm status":        "not: another node has to come back, which no command does",
	"%s   # on %s: what":  "not: it shows a person what hangs",
	"ssh -v -p":           "not: it shows a person where the way to the node ends",
	"ssh-copy-id": "not: it needs another way in, such as a password, which a person " +
		"has",
	"caponier check   # aga": "not: it is the test itself, once the connection holds",
	"ssh -p %d":              "not: it shows a person what the command says by hand",
	"visudo -cf": "not: it shows the mistake; TestSudoHoldsOnTheNode has the file in " +
		"place",
	"locale charmap":         "not: it shows a person what the node says",
	"printf '\\n[[remote":    "not: it is the beginning of an inventory, which a person completes",
	"%s   # cluster =":       "not: it opens an editor; which name is right is a decision",
	"name = %q   # in [[rem": "not: the node is one that the command line names, not a finding's",
	"date +%s":               "not: it shows a person what the node says",
	"   # on ":               "not: it shows a person what pvesh answers",
	"mend identity_file, ":   "not: which key, agent or jump host is the right one is for a person",
}

// Every fix for a node is executed by a case below, or the list above gives the reason why not. The
// list contains only fixes that are still printed.
func TestEveryFixForANodeIsExecutedOrSaysWhyNot(t *testing.T) {
	printed := map[string]bool{}
	for _, name := range []string{"node.go", "visit.go", "checks.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), "../host/doctor/"+name, nil, 0)
		must(t, err)
		for _, text := range fixesIn(file) {
			printed[text] = true
		}
	}
	used := map[string]bool{}
	for text := range printed {
		known := false
		for begin := range nodeFixes {
			if strings.HasPrefix(text, begin) {
				known, used[begin] = true, true
			}
		}
		if !known {
			t.Errorf("no case executes this fix, and no reason is given: %q", text)
		}
	}
	for begin, by := range nodeFixes {
		if !used[begin] {
			t.Errorf("%q is in the list, and the doctor prints it no more", begin)
		}
		if strings.HasPrefix(by, "not: ") {
			continue
		}
		for name := range strings.SplitSeq(by, ", ") {
			if _, has := mendings[name]; !has {
				t.Errorf("%q: there is no case %q", begin, name)
			}
		}
	}
	if len(printed) < 15 {
		t.Errorf("only %d fixes were found in the code", len(printed))
	}
}

// fixesIn returns the beginning of each fix: the first text of what is assigned to fix, or given to
// found and try as one.
func fixesIn(file *ast.File) (all []string) {
	first := func(e ast.Node) {
		done := false
		ast.Inspect(e, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == "quietLine" && !done {
				all, done = append(all, "case $- in"), true
			}
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !done {
				text, _ := strconv.Unquote(lit.Value)
				if done = text != " "; done && text != "" {
					all = append(all, text)
				}
			}
			return !done
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == "fix" {
					first(n.Rhs[min(i, len(n.Rhs)-1)])
				}
			}
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "found" &&
				len(n.Args) > 2 {
				if _, variable := n.Args[2].(*ast.Ident); !variable {
					first(n.Args[2])
				}
			}
		}
		return true
	})
	return all
}

// mended is a node with something wrong: sshd in a mount namespace with /etc, /root and
// /usr/local/sbin of its own, so that fixes can be executed there as they are printed.
type mended struct {
	*site
	sshd             *sshtest.OpenSSH
	dir, tools, gate string
	lines            []string // of sshd's configuration
}

type mending struct {
	lines []string // of sshd's configuration; TOOLS is the directory of pct and the like
	spoil func(*testing.T, *mended)
	check string
	apply func(*testing.T, *mended, string)
}

const seesTools = "SetEnv SHLVL=3 PATH=TOOLS:/usr/sbin:/usr/bin:/sbin:/bin"

// mendings are what can be wrong with a node, each with the way to execute the fix.
var mendings = map[string]mending{
	"locale": {lines: []string{seesTools + " LANG=C"}, check: "locale", apply: inSSHD},
	"sftp": {lines: []string{seesTools}, check: "sftp", apply: inSSHD,
		spoil: func(t *testing.T, m *mended) { inSSHD(t, m, "Subsystem sftp /bin/false") }},
	"PATH": {lines: []string{"SetEnv SHLVL=3 PATH=/usr/bin:/bin"}, check: "pct",
		apply: inSSHD},
	"gate": {lines: []string{"ForceCommand /usr/local/sbin/caponier-gate"}, check: "gate",
		apply: onNode},
	"old gate": {lines: []string{"ForceCommand /usr/local/sbin/caponier-gate"}, check: "locale",
		spoil: func(t *testing.T, m *mended) { m.install(t, "\"'locale' 'charmap'\"") },
		apply: onNode},
	"form": {lines: []string{"ForceCommand /usr/local/sbin/caponier-gate"}, check: "pct",
		spoil: func(t *testing.T, m *mended) { m.install(t, "\"'(pct|qm)' 'list'\"") },
		apply: inGate},
	"quiet": {lines: []string{strings.Replace(seesTools, "SHLVL=3", "SHLVL=0", 1)},
		check: "login-shell", apply: inStartUp,
		spoil: func(t *testing.T, m *mended) { m.put(t, "root/.bashrc", "echo Welcome\n") }},
	"slow": {lines: []string{strings.Replace(seesTools, "SHLVL=3", "SHLVL=0", 1)},
		check: "start-up", apply: inStartUp,
		spoil: func(t *testing.T, m *mended) { m.put(t, "root/.bashrc", "sleep 1\n") }},
	"shell": {lines: []string{seesTools}, check: "login-shell", apply: onNode,
		spoil: func(t *testing.T, m *mended) {
			passwd := regexp.MustCompile(`(?m)^(root:.*:)[^:]*$`)
			data, err := os.ReadFile(filepath.Join(m.dir, "etc/passwd"))
			must(t, err)
			m.put(t, "etc/passwd", passwd.ReplaceAllString(string(data), "$1/usr/sbin/nologin"))
		}},
	"host key": {lines: []string{seesTools}, check: "host-key",
		spoil: func(t *testing.T, m *mended) {
			m.sshd.Kill()
			m.sshd.NewHostKey()
			m.sshd.Start()
		},
		apply: func(t *testing.T, m *mended, fix string) {
			args := strings.Fields(fix)[1:]
			out, err := m.command(args...).CombinedOutput()
			pin := regexp.MustCompile(`SHA256:[A-Za-z0-9+/]+`).FindString(string(out))
			if err != nil || pin != m.sshd.Pin() {
				t.Fatalf("%v %s", err, out)
			}
			m.replace(t, m.config, `(?m)^host_key = .*$`, `host_key = "`+pin+`"`)
		}},
	"name": {lines: []string{seesTools}, check: "name",
		spoil: func(t *testing.T, m *mended) {
			m.replace(t, m.config, `name = "pve1"`, `name = "pve-one"`)
		},
		apply: func(t *testing.T, m *mended, fix string) {
			m.replace(t, m.config, `name = "pve-one"`, fix)
		}},
}

// Every fix that is printed for a node, executed there, changes its finding.
func TestFixesForANodeChangeTheirFindings(t *testing.T) {
	if os.Getuid() != 0 {
		sshtest.Missing(t, "root")
	}
	for name, x := range mendings {
		t.Run(name, func(t *testing.T) {
			m := newMended(t, x.lines)
			if x.spoil != nil {
				x.spoil(t, m)
			}
			fix, note := m.finding(t, x.check)
			if fix == "" {
				r, _ := m.examined(t)
				t.Fatalf("nothing is found: %s", r)
			}
			by := ""
			for begin, cases := range nodeFixes {
				if strings.Contains(", "+cases+", ", ", "+name+", ") {
					by, _, _ = strings.Cut(begin, "%")
				}
			}
			if !strings.HasPrefix(fix, by) {
				t.Fatalf("another fix: %q (%s)", fix, note)
			}
			command, _, _ := strings.Cut(fix, "   #")
			x.apply(t, m, command)
			if again, still := m.finding(t, x.check); again != "" {
				t.Errorf("after %q there is still: %s", command, still)
			}
		})
	}
}

func (m *mended) finding(t *testing.T, check string) (fix, note string) {
	t.Helper()
	r, _ := m.examined(t)
	for _, f := range r.Findings {
		if f.Check == check && f.Level != "ok" {
			return f.Fix, f.Note
		}
	}
	return "", ""
}

func newMended(t *testing.T, lines []string) *mended {
	t.Helper()
	m := &mended{site: newSite(t), dir: t.TempDir()}
	m.tools, _, m.gate, _ = nodeScripts(t, m.site)
	if out, err := exec.Command("cp", "-a", "/etc",
		filepath.Join(m.dir, "etc")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, os.Mkdir(filepath.Join(m.dir, "root"), 0o700))
	for _, l := range lines {
		m.lines = append(m.lines, strings.ReplaceAll(l, "TOOLS", m.tools))
	}
	m.sshd = sshtest.StartOpenSSHFor(t, "root", m.inside(), m.lines...)
	m.move(t, m.sshd)
	return m
}

// inside are the words that run a command on the node.
func (m *mended) inside() []string {
	return []string{"unshare", "-m", "sh", "-c", `mount --bind "$1/etc" /etc &&
mount --bind "$1/root" /root && mount --bind "$2" /usr/local/sbin && shift 2 && exec "$@"`,
		"sh", m.dir, m.tools}
}

func (m *mended) put(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644))
}

// install puts a gate on the node that lacks a form.
func (m *mended) install(t *testing.T, form string) {
	t.Helper()
	data, err := os.ReadFile(m.gate)
	must(t, err)
	text := regexp.MustCompile(`(?m)^ *`+regexp.QuoteMeta(form)+
		`.*\n`).ReplaceAllString(string(data), "")
	if text == string(data) {
		text = strings.Replace(text, form, "", 1)
	}
	if text == string(data) {
		t.Fatalf("the gate has no form %s", form)
	}
	must(t, os.WriteFile(filepath.Join(m.tools, "caponier-gate"), []byte(text), 0o755))
}

// onNode executes a fix in a shell on the node, beside the file of packaging/node.
func onNode(t *testing.T, m *mended, fix string) {
	t.Helper()
	data, err := os.ReadFile(m.gate)
	must(t, err)
	m.put(t, "caponier-gate", string(data))
	words := append(m.inside(), "sh", "-c", fix)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = m.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v %s", fix, err, out)
	}
}

// inSSHD makes the fix a line of sshd's configuration, in place of those of its keyword, and has
// sshd read it.
func inSSHD(t *testing.T, m *mended, fix string) {
	t.Helper()
	file := filepath.Join(m.sshd.Dir, "config")
	data, err := os.ReadFile(file)
	must(t, err)
	word, _, _ := strings.Cut(fix, " ")
	rest := regexp.MustCompile(`(?m)^`+word+` .*\n`).ReplaceAllString(string(data), "")
	must(t, os.WriteFile(file, []byte(fix+"\n"+rest), 0o600))
	m.sshd.Kill()
	m.sshd.Start()
}

// inStartUp makes the fix the first line of ~/.bashrc.
func inStartUp(t *testing.T, m *mended, fix string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(m.dir, "root/.bashrc"))
	must(t, err)
	m.put(t, "root/.bashrc", fix+"\n"+string(data))
}

// inGate makes the fix one more form of the gate.
func inGate(t *testing.T, m *mended, fix string) {
	t.Helper()
	file := filepath.Join(m.tools, "caponier-gate")
	data, err := os.ReadFile(file)
	must(t, err)
	text := strings.Replace(string(data), "form=(\n", "form=(\n  "+fix+"\n", 1)
	if text == string(data) {
		t.Fatal("the gate has no form=(")
	}
	must(t, os.WriteFile(file, []byte(text), 0o755))
}
