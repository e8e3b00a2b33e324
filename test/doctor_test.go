package test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
)

// seen is what `caponier check --json` prints.
type seen struct {
	Failed, Warned int
	Findings       []struct{ Check, Node, Level, Note, Fix string }
}

// String has the findings that are not OK.
func (r seen) String() (text string) {
	for _, f := range r.Findings {
		if f.Level != "ok" {
			text += fmt.Sprintf("%q\n", f)
		}
	}
	return text
}

// examined runs the doctor and answers its exit code, too.
func (s *site) examined(t *testing.T, args ...string) (r seen, code int) {
	t.Helper()
	cmd := s.command(append([]string{"check", "--json"}, args...)...)
	out, err := cmd.Output()
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	failed, warned := 0, 0
	for _, f := range r.Findings {
		switch f.Level {
		case "fail":
			failed++
		case "warn":
			warned++
		}
		if (f.Level == "ok") != (f.Fix == "") || f.Check == "" || f.Note == "" {
			t.Errorf("a finding without its fix, or a fix without a finding: %+v", f)
		}
	}
	if failed != r.Failed || warned != r.Warned {
		t.Errorf(
			"%d failed and %d warned, but it says %d and %d",
			failed,
			warned,
			r.Failed,
			r.Warned,
		)
	}
	return r, cmd.ProcessState.ExitCode()
}

// has reports whether there is such a finding, whose note and fix contain the words.
func (r seen) has(check, level, note, fix string) bool {
	for _, f := range r.Findings {
		if f.Check == check && f.Level == level && strings.Contains(f.Note, note) &&
			strings.Contains(f.Fix, fix) {
			return true
		}
	}
	return false
}

// The doctor finds mistakes outside the nodes without contacting a node, and leaves nothing behind.
func TestDoctorFindsWhatIsWrongHere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim  string
		spoil  func(t *testing.T, s *site)
		online bool
		want   [][4]string // check, level, words of note and fix
		code   int
		// notes of findings whose fixes are a decision, or need what is not here
		unmended string
	}{
		{claim: "nothing", want: [][4]string{
			{"principal", "ok", "may see 7 of 7 tools", ""}, {"journal", "ok", "none yet", ""},
			{"freeze", "ok", "0 freezes", ""}, {"plugin", "ok", "containers", ""},
			{"state", "ok", "audit.dir: ", ""}, {"risks", "ok", "", ""}}},
		{claim: "a key that is unknown", code: 2,
			spoil: func(t *testing.T, s *site) {
				s.replace(t, s.config, "(?m)^user = .*$", "usr = \"root\"")
			},
			want: [][4]string{{"configuration", "fail", "unknown key remote.nodes[0].usr",
				"sed -i '"}}},
		{claim: "a file that others can write", code: 2,
			spoil: func(t *testing.T, s *site) { must(t, os.Chmod(s.config, 0o666)) },
			want:  [][4]string{{"configuration", "fail", "(mode 0666)", "chmod go-w "}}},
		{claim: "TOML that is broken", code: 2,
			spoil: func(t *testing.T, s *site) {
				s.replace(t, s.config, "(?m)^user = .*$", "user = root")
			},
			want: [][4]string{{"configuration", "fail", "config.toml:", "s/^/# /' "}}},
		{claim: "a value out of range", code: 2,
			spoil: func(t *testing.T, s *site) {
				s.swap(t, "config.toml", "", "\n[blob]\nttl = \"1ms\"\n")
			},
			want: [][4]string{{"configuration", "fail", "blob.ttl: ", "s/^/# /' "}}},
		{claim: "what only warns", spoil: func(t *testing.T, s *site) {
			s.write(t, "plugins/extra.wasm", "x")
			s.swap(t, "plugins.lock", `"pct start"`, `"pct strat"`)
			s.replace(t, filepath.Join(s.dir, "plugins.lock"),
				`"commands": \[\s*"pct exec",\s*"pvesh get /cluster/resources"\s*\],`, "")
			s.mkdir(t, "lab/journal", 0o755)
			s.replace(t, s.config, `(?m)^site = .*$`, "$0\nshadow = \"none\"")
			must(t, s.command("freeze", "--reason", "x").Run())
			must(t, s.command("freeze", "--node", "pve2").Run())
		}, unmended: "extra.wasm|pct strat|declares no command|shadow", want: [][4]string{
			{"candidate", "warn", "[policy] shadow decides nothing: ", "caponier policy check "},
			{"plugin", "warn", "extra.wasm is not in the lock", "plugins extra   # then review"},
			{"commands", "warn",
				`proxmox_start_container of plugin containers declares "pct strat"`,
				"binaries"},
			{"commands", "warn",
				"proxmox_container_exec_command of plugin containers declares no command",
				"caponier plugin lock"},
			{"state", "warn", "audit.dir: others can look", "chmod 0700 /"},
			{"freeze", "warn", "everything is frozen by", "caponier thaw"},
			{"freeze", "warn", `node "pve2" is frozen by`, "caponier thaw --node pve2"}}},
		{claim: "a caller without any right", code: 1,
			spoil: func(t *testing.T, s *site) {
				s.configure(t, `principal = "demo"`, `principal = "nobody"`)
			}, want: [][4]string{{"principal", "fail", "nobody (", "roles: ["}}},
		{claim: "what was not accepted, reviewed or written", code: 1,
			spoil: func(t *testing.T, s *site) {
				must(t, s.command("call", "proxmox_list_containers").Run())
				files, err := filepath.Glob(filepath.Join(s.dir, "lab/journal/*.jsonl"))
				must(t, err)
				s.replace(t, files[0], "proxmox_list_containers", "proxmox_list_c0ntainers")
				s.configure(t, "accept_risks = true", "accept_risks = false")
				s.configure(t, `principal = "demo"`, "")
				s.swap(t, "plugins/containers.wasm", "", "x")
			}, unmended: "digest", want: [][4]string{
				{"risks", "fail", "accept_risks is not true", "|accept_risks = true|"},
				{"principal", "fail", "principal is not set", "a principal = \"local\""},
				{"plugin", "fail", "digest", "plugins containers   # then review"},
				{"journal", "fail", "was changed: ", ".changed"}}},
		{claim: "a lock that is missing, and a policy that does not load", code: 1,
			spoil: func(t *testing.T, s *site) {
				must(t, os.Remove(filepath.Join(s.dir, "plugins.lock")))
				s.write(t, "site/rules.rego", "package caponier.site.x\nfoo {")
				s.mkdir(t, "lab/journal", 0o777)
			}, want: [][4]string{{"lock", "fail", "plugins.lock", "caponier plugin lock --lock /"},
				{"policy", "fail", "rules.rego", "${EDITOR:-vi} +"},
				{"state", "fail", "audit.dir: others can use", "chmod 0700 /"}}},
		{claim: "a site that is not there", code: 1,
			spoil: func(t *testing.T, s *site) {
				s.replace(t, s.config, `(?m)^site = .*$`, `site = "none"`)
			},
			want: [][4]string{{"policy", "fail", "none", "|site = "}}},
		{claim: "a lock that was edited, and a directory that is a file", code: 1,
			spoil: func(t *testing.T, s *site) {
				s.swap(t, "plugins.lock", `"ssh_exec"`, `"ssh_exec", "http_request"`)
				s.write(t, "lab/journal", "x")
			}, want: [][4]string{{"lock", "fail", "plugins.lock", "caponier plugin lock --lock /"},
				{"policy", "ok", "revision", ""},
				{"state", "fail", "is not a directory", "install -d -m 0700 -o "}}},
		{claim: "a directory that cannot hold files", code: 1, spoil: func(t *testing.T, s *site) {
			s.replace(t, s.config, `(?m)^dir = .*journal"$`, `dir = "/proc/journal"`)
		}, want: [][4]string{{"state", "fail", "audit.dir: /proc/journal cannot hold files",
			"sed -i "}}},
		{claim: "a module that is missing, and no nodes", online: true, code: 1, unmended: "",
			spoil: func(t *testing.T, s *site) {
				must(t, os.Remove(filepath.Join(s.dir, "plugins/containers.wasm")))
				head, _, _ := strings.Cut(s.read(t, "config.toml"), "[[remote.nodes]]")
				s.write(t, "config.toml", head)
			}, want: [][4]string{{"plugin", "fail", "containers", "caponier plugin build -o /"},
				{"inventory", "fail", "there are no nodes", "[[remote.nodes]]"}}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			s := newSite(t)
			if c.spoil != nil {
				c.spoil(t, s)
			}
			before := tree(t, s.dir)
			r, code := s.examined(
				t,
				slices.Repeat([]string{"--offline"}, map[bool]int{false: 1}[c.online])...)
			for _, w := range c.want {
				if !r.has(w[0], w[1], w[2], w[3]) || code != c.code ||
					code == 0 != (r.Failed == 0) {
					t.Errorf("exit code %d, want %d and %q in\n%s", code, c.code, w, r)
				}
			}
			if after := tree(t, s.dir); !slices.Equal(before, after) {
				t.Errorf("the doctor left\n%q, there was\n%q", after, before)
			}
			if !c.online {
				s.mend(t, r, c.unmended)
			}
		})
	}
}

// mend executes the fix of each finding as a shell would, and expects that no finding is left then.
// The editor deletes the line that it is opened at.
func (s *site) mend(t *testing.T, r seen, except string) {
	t.Helper()
	tools := t.TempDir()
	must(t, os.WriteFile(filepath.Join(tools, "ed"), []byte("#!/bin/sh\nsed -i ${1#+}d $2\n"),
		0o755))
	must(t, os.WriteFile(filepath.Join(tools, "caponier"),
		fmt.Appendf(nil, "#!/bin/sh\nexec %s --config %s \"$@\"\n", bin, s.config), 0o755))
	for _, f := range r.Findings {
		if f.Level == "ok" || except != "" && regexp.MustCompile(except).MatchString(f.Note) {
			continue
		}
		cmd := exec.Command("sh", "-c", f.Fix)
		cmd.Env = append(s.command().Env, "PATH="+tools+":"+os.Getenv("PATH"),
			"EDITOR="+filepath.Join(tools, "ed"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", f.Fix, err, out)
		}
	}
	again, _ := s.examined(t, "--offline")
	for _, f := range r.Findings {
		if f.Level != "ok" && !(except != "" && regexp.MustCompile(except).MatchString(f.Note)) &&
			slices.Contains(again.Findings, f) {
			t.Errorf("after all fixes there is still %+v", f)
		}
	}
}

// Root can write everywhere, but the user of the server cannot. The doctor reports this if that
// user runs it.
func TestDoctorFindsDirectoriesThatItsUserCannotWriteTo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mkdir(t, "lab/journal", 0o500)
	cmd := s.command("check", "--offline")
	want := "cannot write to"
	if os.Getuid() == 0 {
		must(t, os.Chmod(s.config, 0o644))
		for dir := s.dir; dir != os.TempDir(); dir = filepath.Dir(dir) {
			must(t, os.Chmod(dir, 0o755))
		}
		must(t, os.Chmod(filepath.Join(s.dir, "lab"), 0o755))
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
		}
		want = "nobody cannot write to"
	}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 ||
		!regexp.MustCompile(`(?m)^FAIL  state +audit.dir: \S* ?`+want+
			`.*\n +→ install -d -m 0700 -o \S+ /\S*lab/journal   # as root$`).
			Match(out) {
		t.Errorf("%s", out)
	}
	// root examines another user's directory: the doctor must not report that it is fine
	if os.Getuid() == 0 {
		must(t, os.Chown(filepath.Join(s.dir, "lab/journal"), 65534, 65534))
		must(t, os.Chmod(filepath.Join(s.dir, "lab/journal"), 0o700))
		if r, _ := s.examined(t, "--offline"); !r.has(
			"state",
			"warn",
			"belongs to nobody, and this is root",
			"sudo -u nobody caponier check",
		) {
			t.Errorf("%+v", r)
		}
	}
}

// The faults that pvelab can begin with, several at once where they do not hide each other.
func TestDoctorFindsWhatIsWrongOnTheLab(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		claim, faults string
		config        [2]string
		want          [][4]string // check, level, words of note and fix
		code          int
	}{
		{claim: "what can be wrong at once", faults: "slow-startup,no-pct,clock,no-sftp,no-quorum",
			code: 1, want: [][4]string{
				{"start-up", "warn", "start-up file", "~/.bashrc"},
				{"pct", "fail", "pct is not found", "SetEnv PATH="},
				{"clock", "fail", "ahead", "set-ntp"},
				{"sftp", "warn", "no SFTP", "Subsystem sftp"},
				{"quorum", "fail", "no quorum", "pvecm status"}, {"qm", "ok", "", ""},
				{"login-shell", "ok", "", ""}}},
		{claim: "a start-up file that speaks", faults: "noisy-startup", code: 1,
			want: [][4]string{{"login-shell", "fail", "Welcome", "case $- in"}}},
		{claim: "another shell", faults: "fish", code: 1,
			want: [][4]string{{"login-shell", "fail", "quoted words", "usermod"}}},
		{claim: "a node that is down, and no pvesh", faults: "node-down,no-pvesh", code: 1,
			want: [][4]string{{"connection", "fail", "pve2", "ssh -v"},
				{"pvesh", "fail", "pvesh is not found", "SetEnv PATH="}}},
		{claim: "another name", config: [2]string{`name = "pve1"`, `name = "pve-one"`}, code: 1,
			want: [][4]string{{"name", "fail", `calls itself "pve1"`, `name = "pve1"`}}},
		{claim: "another cluster", config: [2]string{"name = \"pve2\"\ncluster = \"lab\"",
			"name = \"pve2\"\ncluster = \"other\""}, code: 1,
			want: [][4]string{{"inventory", "fail", "pve1 and pve2 are in one cluster",
				`cluster = "lab"`}}},
		{claim: "nothing but a poorer SFTP server",
			want: [][4]string{{"sftp", "warn", "fsync@openssh.com", "Subsystem sftp"},
				{"quorum", "ok", "2 nodes online", ""}, {"name", "ok", "", ""},
				{"clock", "ok", "", ""}}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			s.lab.Close()
			dir := t.TempDir()
			var err error
			s.lab, err = pvelab.Start(
				t.Context(),
				pvelab.Options{
					State:   filepath.Join(dir, "lab"),
					Config:  s.config,
					Plugins: filepath.Join(s.dir, "plugins"),
					Lock:    filepath.Join(s.dir, "plugins.lock"),
					Site:    filepath.Join(s.dir, "site"),
					Faults:  c.faults,
				},
			)
			must(t, err)
			if c.config[0] != "" {
				s.configure(t, c.config[0], c.config[1])
			}
			r, code := s.examined(t)
			for _, w := range c.want {
				if !r.has(w[0], w[1], w[2], w[3]) || code != c.code {
					t.Errorf("exit code %d, want %d and %q in\n%+v", code, c.code, w, r)
				}
			}
		})
	}
}

// A node, or a server in its place, can influence the text of an error, but must not control the
// terminal.
func TestDoctorAndScanShowNoControlCharactersOfANode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			said := "\x1b]0;owned\x07\x1b[2Jbye\n\rok    all is well"
			// a disconnect, before any key is agreed on
			payload := append(
				[]byte{1, 0, 0, 0, 2},
				binary.BigEndian.AppendUint32(nil, uint32(len(said)))...)
			payload = append(append(payload, said...), 0, 0, 0, 0)
			pad := 16 - (len(payload)+5)%8
			packet := append(
				binary.BigEndian.AppendUint32(nil, uint32(len(payload)+1+pad)),
				byte(pad),
			)
			_, _ = c.Write(
				append(
					append(append([]byte("SSH-2.0-evil\r\n"), packet...), payload...),
					make([]byte, pad)...),
			)
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	s := newSite(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	s.replace(t, s.config, `(?m)^port = .*$`, "port = "+port)
	for _, args := range [][]string{{"check"}, {"hosts", "scan", l.Addr().String()}} {
		out, err := s.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "bye") ||
			strings.ContainsAny(string(out), "\x1b\x07\r") ||
			strings.Contains(string(out), "\nok    all") {
			t.Errorf("%v: %v %q", args, err, out)
		}
	}
}

// Every check that the program can name is explained on the page for operators, and what runs on a
// node is listed there.
func TestFirstNodeListsEveryCheck(t *testing.T) {
	page, err := os.ReadFile("../docs/first-node.md")
	must(t, err)
	checks := map[string]bool{}
	for _, file := range []string{"node", "visit", "local", "mend", "directory"} {
		code, err := os.ReadFile("../host/doctor/" + file + ".go")
		must(t, err)
		named := regexp.MustCompile(`\b(?:found|try|read)\((?:ctx, )?"([a-z-]+)"|` +
			`check(?:, fix)? :?= "([a-z-]+)"|check, fix = "([a-z-]+)"`)
		for _, m := range named.FindAllStringSubmatch(string(code), -1) {
			checks[m[1]+m[2]+m[3]] = true
		}
		if reads := regexp.MustCompile(
			`(?s)var reads = \[\]\[\]string\{(.*?)\n\}`).FindStringSubmatch(
			string(code)); reads != nil {
			for _, m := range regexp.MustCompile(`\{(.*)\}`).FindAllStringSubmatch(reads[1], -1) {
				var words []string
				must(t, json.Unmarshal([]byte("["+m[1]+"]"), &words))
				if line := strings.Join(words, " "); !strings.Contains(string(page), "`"+line+"`") {
					t.Errorf("docs/first-node.md does not say that the doctor runs `%s`", line)
				}
				checks[words[0]] = len(words) == 2 && words[1] == "list" || checks[words[0]]
			}
		}
	}
	n := 0
	for c, named := range checks {
		if n++; named && !strings.Contains(string(page), "| `"+c+"` |") {
			t.Errorf("docs/first-node.md does not explain the check %s", c)
		}
	}
	if n < 20 {
		t.Errorf("only %d checks were found in the code", n)
	}
}

func (s *site) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	must(t, err)
	return string(data)
}

func (s *site) write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// swap changes text of a file, once; of nothing, it appends.
func (s *site) swap(t *testing.T, name, old, text string) {
	t.Helper()
	data := s.read(t, name)
	if !strings.Contains(data, old) {
		t.Fatalf("%s has no %q", name, old)
	}
	if old == "" {
		s.write(t, name, data+text)
		return
	}
	s.write(t, name, strings.Replace(data, old, text, 1))
}

func (s *site) configure(t *testing.T, old, text string) {
	t.Helper()
	s.swap(t, "config.toml", old, text)
}

func (s *site) mkdir(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	dir := filepath.Join(s.dir, name)
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Chmod(dir, mode))
}

// tree lists everything below a directory.
func tree(t *testing.T, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		names = append(names, name)
		return err
	}))
	return names
}
