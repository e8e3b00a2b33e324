package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs are what a good node answers to Reads, as scripts in a directory of their own; change
// replaces some, and takes away those that are empty.
func programs(t *testing.T, change map[string]string) (dir string) {
	t.Helper()
	all := map[string]string{
		"pvesh": `[ "$*" = "get /cluster/status --output-format json" ] && echo ` +
			`'[{"type":"cluster","name":"c","quorate":1},{"type":"node","name":"n1","local":1,` +
			`"online":1},{"type":"node","name":"n2","online":1}]'`,
		"pct": `[ "$*" = list ]`, "qm": `[ "$*" = list ]`, "date": `exec /bin/date "$@"`,
		"locale": "echo UTF-8",
	}
	dir = t.TempDir()
	for name, text := range all {
		if other, has := change[name]; has {
			text = other
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// finding picks the one finding of a check, and holds all of them to what a person can rely on.
func finding(t *testing.T, rep nodeReport, check string) (f Finding) {
	t.Helper()
	for _, g := range rep.Findings {
		if g.Level == OK && g.Fix != "" || g.Level != OK && g.Fix == "" || g.Node != rep.Node ||
			g.Check == "" || strings.ContainsFunc(g.Note+g.Fix, unicode.IsControl) {
			t.Errorf("no finding that can be relied on: %+v", g)
		}
		if g.Check == check {
			if f.Check != "" {
				t.Errorf("%s is there twice: %+v", check, rep.Findings)
			}
			f = g
		}
	}
	return f
}

var nodeChecks = []string{
	"connection",
	"host-key",
	"login",
	"login-shell",
	"start-up",
	"clock",
	"pvesh",
	"name",
	"quorum",
	"pct",
	"qm",
	"locale",
	"sftp",
}

func TestCheckFindsNothingOnAGoodNodeBehindOpenSSH(t *testing.T) {
	_, o := openSSH(t, "SetEnv SHLVL=3 PATH="+programs(t, nil)+":/usr/bin:/bin")
	rep := doctorFor(t, o).check(t.Context(), "n1")
	for _, check := range nodeChecks {
		if f := finding(t, rep, check); f.Level != OK {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if len(rep.Findings) != len(nodeChecks) || rep.Cluster != "c" || rep.Exec <= 0 {
		t.Errorf("%+v", rep)
	}
}

func TestCheckFinds(t *testing.T) {
	at := func(d time.Duration) string {
		return fmt.Sprintf("echo $(($(/bin/date +%%s) + %d))",
			int(d.Seconds()))
	}
	status := func(rows string) string { return "cat <<'END'\n[" + rows + "]\nEND" }
	for _, c := range []struct {
		claim    string
		programs map[string]string
		shell    string // around the command $1
		faults   sshtest.Faults
		options  func(*remote.Options)
		check    string
		level    Level
		note     []string
		fix      string
		last     bool // nothing is looked at after it
	}{
		{claim: "a slow start-up file", shell: `[ "$1" != true ] || sleep 1; eval "$1"`,
			check: "start-up", level: Warn,
			note: []string{"~/.bashrc", "although the network needs"}, fix: quietLine},
		{claim: "no start-up file on a node that is slow at first", shell: `f=${PATH%%:*}/ran
			if [ "$1" = true ]; then printf x >> "$f"; x=$(cat "$f")
			[ ${#x} -gt 4 ] || sleep 0.3; fi; eval "$1"`, check: "start-up", level: OK,
			note: []string{"takes"}},
		{claim: "a start-up file that speaks", shell: `echo Hello; eval "$1"`, check: "login-shell",
			level: Fail, note: []string{"prints", "Hello"}, fix: quietLine, last: true},
		{claim: "a shell that is not POSIX", shell: `eval "$(printf %s "$1" | sed 's/\\\\/\\/g')"`,
			check: "login-shell", level: Fail, note: []string{"does not read quoted words"},
			fix: "usermod -s /bin/bash", last: true},
		{claim: "an account without a shell",
			shell: `echo This account is currently not available.; exit 1`, check: "login-shell",
			level: Fail, note: []string{"not available"}, fix: "usermod", last: true},
		{claim: "a clock that is a little ahead",
			programs: map[string]string{"date": at(10 * time.Second)}, check: "clock", level: Warn,
			note: []string{"ahead"}, fix: "set-ntp"},
		{claim: "a clock that is a little behind",
			programs: map[string]string{"date": at(-10 * time.Second)}, check: "clock", level: Warn,
			note: []string{"behind"}, fix: "set-ntp"},
		{claim: "a clock an hour behind", programs: map[string]string{"date": at(-time.Hour)},
			check: "clock", level: Fail, note: []string{"behind",
				"logs cannot be laid side by side"}, fix: "set-ntp"},
		{claim: "a clock that is none", programs: map[string]string{"date": "echo noon"},
			check: "clock", level: Fail, note: []string{"noon"}, fix: "date +%s"},
		{claim: "no pct in PATH", programs: map[string]string{"pct": ""}, check: "pct", level: Fail,
			note: []string{"pct is not found", `"`}, fix: "SetEnv PATH="},
		{claim: "no qm in PATH", programs: map[string]string{"qm": ""}, check: "qm", level: Fail,
			note: []string{"qm is not found"}, fix: "SetEnv PATH="},
		{claim: "no pvesh in PATH", programs: map[string]string{"pvesh": ""}, check: "pvesh",
			level: Fail, note: []string{"pvesh is not found"}, fix: "SetEnv PATH="},
		{claim: "a user who may not", programs: map[string]string{
			"pct": "echo 'ipcc_send_rec[1] failed: Unknown error -1' >&2; exit 255"}, check: "pct",
			level: Fail, note: []string{"exit code 255", "ipcc_send_rec"},
			fix: "want root, or sudo"},
		{claim: "sudo that asks for a password",
			programs: map[string]string{"qm": "echo 'sudo: a password is required' >&2; exit 1"},
			check:    "qm", level: Fail, note: []string{"sudo does not let"}, fix: "sudo -l -U"},
		{claim: "a forced command that lists less",
			programs: map[string]string{
				"qm": "echo 'caponier-gate: this key may not run that' >&2; exit 126"}, check: "qm",
			level: Warn, note: []string{"forced command"}, fix: `"'qm' 'list'"`},
		{claim: "a forced command that lists no date",
			programs: map[string]string{
				"date": "echo 'caponier-gate: this key may not run that' >&2; exit 126"},
			check: "clock", level: Warn, note: []string{"forced command"}, fix: `"'date' '[+]%s'"`},
		{claim: "a cluster without quorum", programs: map[string]string{
			"pvesh": status(`{"type":"cluster","name":"c","quorate":0},{"type":"node",` +
				`"name":"n1","local":1,"online":1},{"type":"node","name":"n2","online":0}`)},
			check: "quorum", level: Fail, note: []string{"no quorum (1 of 2"},
			fix: `bring back "n2"`},
		{claim: "a node that is away", programs: map[string]string{
			"pvesh": status(`{"type":"cluster","name":"c","quorate":1},{"type":"node",` +
				`"name":"n1","local":1,"online":1},{"type":"node","name":"n2","online":0}`)},
			check: "quorum", level: Warn, note: []string{"does not hear", "n2"},
			fix: "pvecm status"},
		{claim: "another name", programs: map[string]string{
			"pvesh": status(`{"type":"node","name":"pve7","local":1,"online":1}`)}, check: "name",
			level: Fail, note: []string{`calls itself "pve7"`}, fix: `name = "pve7"`},
		{claim: "a node that writes to the terminal",
			programs: map[string]string{"pvesh": status(`{"type":"cluster","name":"c\u001b[2J",` +
				`"quorate":0},{"type":"node","name":"n1\u001b]0;x\u0007","local":1,"online":1},` +
				`{"type":"node","name":"\u001b[31m\nok","online":0}`)},
			check: "name", level: Fail, note: []string{`\x1b`}, fix: `\x1b`},
		{claim: "an error that writes to the terminal",
			programs: map[string]string{"pct": `printf '\033[2J\r' >&2; exit 3`}, check: "pct",
			level: Fail, note: []string{`\x1b`}, fix: "by hand"},
		{claim: "pvesh that prints no JSON", programs: map[string]string{
			"pvesh": "echo perl: warning"}, check: "pvesh", level: Fail, note: []string{"no JSON"},
			fix: "pvesh get /cluster/status"},
		{claim: "a node that cannot run the gate", shell: `/nowhere/caponier-gate`, check: "gate",
			level: Fail, note: []string{"Install it"}, fix: "install -o root", last: true},
		{claim: "a node without a locale", programs: map[string]string{
			"locale": "echo ANSI_X3.4-1968"}, check: "locale", level: Warn,
			note: []string{"ANSI_X3", "refused"}, fix: "AcceptEnv"},
		{claim: "an older gate", programs: map[string]string{
			"locale": "echo 'caponier-gate: this key may not run that' >&2; exit 126"},
			check: "locale", level: Warn, note: []string{"older"}, fix: "install -o root"},
		{claim: "no SFTP", faults: sshtest.Faults{NoSFTP: true}, check: "sftp", level: Warn,
			note: []string{"Subsystem sftp"}, fix: "Subsystem sftp"},
		{claim: "a key that is not pinned", options: func(o *remote.Options) {
			o.Nodes[0].HostKey = "SHA256:" + strings.Repeat("A", 43)
		}, check: "host-key", level: Fail, note: []string{
			"pins SHA256:AAA"}, fix: "caponier hosts scan 127.0.0.1:", last: true},
		{claim: "a key that is not known", options: func(o *remote.Options) {
			o.KnownHosts, o.Nodes[0].HostKey = []string{filepath.Join(o.Workspace, "..",
				"known")}, ""
			_ = os.WriteFile(o.KnownHosts[0], nil, 0o600)
		}, check: "host-key", level: Fail, note: []string{
			"is not in known_hosts", "SHA256:"}, fix: "caponier hosts scan 127.0.0.1:", last: true},
		{claim: "a login that is refused", options: func(o *remote.Options) {
			o.Nodes[0].IdentityFile, _ = sshtest.NewKeyFile(t)
		}, check: "login", level: Fail, note: []string{
			"accepts none"}, fix: "ssh-copy-id -i /", last: true},
		{claim: "a certificate that is missing", options: func(o *remote.Options) {
			o.Nodes[0].CertificateFile = "/nonexistent/cert"
		}, check: "credentials", level: Fail, note: []string{
			"reading certificate_file"}, fix: "mend identity_file", last: true},
		{claim: "nobody there", options: func(o *remote.Options) {
			o.Nodes[0].Port, o.DialTimeout = 1, 300*time.Millisecond
		}, check: "connection", level: Fail, note: []string{
			"is the host up"}, fix: "ssh -v -p 1", last: true},
	} {
		t.Run(c.claim, func(t *testing.T) {
			path := programs(t, c.programs) + ":" + onlyPrograms(t, "sh", "cat", "sleep", "sed",
				"printf", "echo")
			shell := c.shell
			if shell == "" {
				shell = `eval "$1"`
			}
			s := sshtest.New(
				t,
				sshtest.Options{Faults: c.faults,
					Shell: []string{"/bin/sh", "-c", "PATH=" + path + "; " + shell, "sh"}},
			)
			o := optionsFor(t, s)
			if c.options != nil {
				c.options(&o)
			}
			r := doctorFor(t, o)
			rep := r.check(t.Context(), "n1")
			f := finding(t, rep, c.check)
			for _, n := range c.note {
				if f.Level != c.level || !strings.Contains(f.Note, n) ||
					!strings.Contains(f.Fix, c.fix) {
					t.Errorf("%+v, want %s with %q and %q in\n%+v", f, c.level, n, c.fix,
						rep.Findings)
				}
			}
			if last := rep.Findings[len(rep.Findings)-1]; c.last != (last.Check == c.check) &&
				c.check != "sftp" {
				t.Errorf("the last thing that was looked at is %+v", last)
			}
			for _, ran := range s.Commands() {
				if ran != "true" && !strings.HasPrefix(ran, "printf '<%s>'") &&
					!slices.Contains(
						[]string{`'date' '+%s'`,
							`'pvesh' 'get' '/cluster/status' '--output-format' 'json'`,
							`'pct' 'list'`,
							`'qm' 'list'`,
							`'locale' 'charmap'`,
						},
						ran,
					) {
					t.Errorf("the doctor ran %s", ran)
				}
			}
		})
	}
	t.Run("a node that is not in the inventory", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{})
		f := finding(t, doctorFor(t, optionsFor(t, s)).check(t.Context(), "n2"), "connection")
		if f.Level != Fail || !strings.Contains(f.Note, "inventory") ||
			!strings.Contains(f.Fix, "[[remote.nodes]]") || s.Conns.Load() != 0 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("a command that hangs, in time", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{
			Shell: []string{
				"/bin/sh",
				"-c",
				"PATH=" + programs(t,
					map[string]string{"pvesh": "exec sleep 60"}) + `:$PATH; eval "$1"`,
				"sh",
			},
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { // the time is over when pvesh runs
			defer cancel(&terms.BudgetError{})
			for t.Context().Err() == nil && !slices.ContainsFunc(s.Commands(), func(c string) bool {
				return strings.Contains(c, "pvesh")
			}) {
				time.Sleep(5 * time.Millisecond)
			}
		}()
		if f := finding(t, doctorFor(t, optionsFor(t, s)).check(ctx, "n1"),
			"pvesh"); f.Level != Fail ||
			!strings.Contains(f.Note, "timed out") {
			t.Errorf("%+v", f)
		}
	})
}

// onlyPrograms is a directory of links to these programs and no others: a machine that runs tests
// may be a Proxmox node.
func onlyPrograms(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, n := range names {
		for _, from := range []string{"/bin", "/usr/bin"} {
			if _, err := os.Stat(filepath.Join(from, n)); err == nil {
				if err := os.Symlink(filepath.Join(from, n), filepath.Join(dir, n)); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	return dir
}

func optionsFor(t *testing.T, s *sshtest.Server) remote.Options {
	host, port := s.HostPort()
	return remote.Options{
		Workspace: filepath.Join(t.TempDir(), "workspace"),
		Limits:    remote.Limits{DialTimeout: 30 * time.Second, StepTimeout: 10 * time.Second},
		Nodes: []remote.NodeOptions{{Name: "n1", Cluster: "c1", Login: remote.Login{Host: host,
			Port: port, User: "root", IdentityFile: s.ClientFile, HostKey: s.Pin()}}},
	}
}

func openSSH(t *testing.T, lines ...string) (*sshtest.OpenSSH, remote.Options) {
	s := sshtest.StartOpenSSH(t, lines...)
	host, port := s.HostPort()
	return s, remote.Options{Workspace: filepath.Join(t.TempDir(), "workspace"),
		Nodes: []remote.NodeOptions{{Name: "n1", Cluster: "c1", Login: remote.Login{Host: host,
			Port: port, User: s.User, IdentityFile: s.ClientFile, HostKey: s.Pin()}}}}
}

func doctorFor(t *testing.T, o remote.Options) *examiner {
	t.Helper()
	d, err := newExaminer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// What a node says of its cluster does not reach the terminal as it is; and of what is
// written as pvesh writes it, name and quorum are read back.
func FuzzClusterStatus(f *testing.F) {
	f.Add([]byte(`[{"type":"cluster","name":"\u001b[2J","quorate":0}]`), "n1", "c", 1, 1)
	f.Add([]byte(`[{"type":"node","name":"\ud800","online":0}]`), "pve\n7", "", 0, 0)
	f.Add([]byte("perl: warning\n[]"), "", "c", 0, 1)
	f.Fuzz(func(t *testing.T, raw []byte, node, cluster string, quorate, online int) {
		look := func(out []byte) map[string]Level {
			d, level := &visit{rep: &nodeReport{Node: "n1"}}, map[string]Level{}
			d.status(out, "n1")
			for _, g := range d.rep.Findings {
				if level[g.Check] = g.Level; strings.ContainsFunc(g.Note+g.Fix,
					unicode.IsControl) || (g.Level == OK) != (g.Fix == "") {
					t.Fatalf("%q: %+v", out, g)
				}
			}
			return level
		}
		if level := look(raw); level["pvesh"] == OK && !json.Valid(raw) {
			t.Fatalf("%q: %v", raw, level)
		}
		out, err := json.Marshal([]map[string]any{
			{"type": "cluster", "name": cluster, "quorate": quorate},
			{"type": "node", "name": node, "local": 1, "online": 1},
			{"type": "node", "name": "n2", "online": online},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]Level{"pvesh": OK, "name": Fail, "quorum": Fail}
		if node == "n1" {
			want["name"] = OK
		}
		if quorate == 1 && (online == 1 || cluster == "") {
			want["quorum"] = OK
		} else if quorate == 1 {
			want["quorum"] = Warn
		}
		if got := look(out); !maps.Equal(got, want) {
			t.Fatalf("%s: %v, want %v", out, got, want)
		}
	})
}
