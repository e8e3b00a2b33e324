package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/test/pvelab"
)

// asksPassword is the message of sudo for a command that it does not list.
const asksPassword = "^sudo: a password is required\n$"

// groups returns what a tool needs on a node, according to the lock: the programs in its runs line,
// and its operations.
func groups(runs string, imports []string) (need []string) {
	add := func(group, form string) {
		if regexp.MustCompile(form).MatchString(runs) && !slices.Contains(need, group) {
			need = append(need, group)
		}
	}
	switch {
	case strings.HasPrefix(runs, "nothing"):
		return []string{"nothing on a node"}
	case strings.HasPrefix(runs, "COMMAND"):
		return []string{"the very commands that you want, one form each"}
	}
	if add("lifecycle", `\b(start|stop|shutdown|reboot) VMID`); len(need) == 0 {
		add("read", `\b(pvesh get|pct status|pct config)\b`)
	}
	add("snapshots", `\b(snapshot|delsnapshot|rollback) VMID`)
	add("files of containers", `\bpct (push|pull)\b`)
	add("a shell inside containers", `\bpct exec\b`)
	add("lines of your own", `\b(destroy VMID|systemctl|pvesh create)\b`)
	add("SFTP", `\bSFTP\b`)
	add("`'cat' '--' …`", `\bcat --`)
	if moves := slices.ContainsFunc(imports, func(i string) bool {
		return strings.HasPrefix(i, "sftp_") || i == "stage"
	}); moves != slices.Contains(
		need,
		"SFTP",
	) {
		need = append(need, "SFTP by its imports, but not by its runs line")
	}
	return need
}

// The table of what each tool needs matches the lock. If you add or change a tool, change the page.
func TestFirstNodeSaysWhatEveryToolNeeds(t *testing.T) {
	page, err := os.ReadFile("../docs/first-node.md")
	must(t, err)
	said := map[string][]string{}
	for _, row := range regexp.MustCompile(
		"(?m)^\\| (.+) \\| (`\\w+`.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		head, _, _ := strings.Cut(row[1], ": ")
		for _, tool := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			said[tool[1]] = append(
				said[tool[1]],
				regexp.MustCompile(`, and |, `).Split(head, -1)...)
		}
	}
	var tools []struct {
		Name, Runs string
		Imports    []string
	}
	out, err := exec.Command(bin, "--config", "../config.toml", "tools", "--json").Output()
	must(t, err)
	must(t, json.Unmarshal(out, &tools))
	if len(tools) < 40 {
		t.Fatalf("%d tools", len(tools))
	}
	n := 0
	for _, tool := range tools {
		if !regexp.MustCompile(`^\w+$`).MatchString(tool.Name) {
			continue // prompts and resources, which are texts
		}
		n++
		want, got := groups(tool.Runs, tool.Imports), slices.Clone(said[tool.Name])
		if strings.HasPrefix(got0(got), "the very commands") {
			got = []string{strings.Join(got, ", ")}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf(
				"docs/first-node.md: %s needs %q, and the page says %q (it runs %s)",
				tool.Name,
				want,
				got,
				tool.Runs,
			)
		}
		delete(said, tool.Name)
	}
	if len(said) > 0 || n < 38 {
		t.Errorf("%d tools; the page has others: %v", n, said)
	}
}

func got0(words []string) string { return strings.Join(words[:min(1, len(words))], "") }

// nodeScripts are packaging/node's files for a machine that is no Proxmox node: pct, qm and pvesh
// are pvelab's, in tools.
func nodeScripts(t *testing.T, s *site) (tools, effects, gate, sudoers string) {
	t.Helper()
	tools, effects = filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "effects.jsonl")
	out, err := exec.Command(filepath.Join(filepath.Dir(bin), "pvelab"), "install", "--state",
		filepath.Join(s.dir, "installed"), "--root", "/", "--effects", effects, tools).
		CombinedOutput()
	if err != nil {
		t.Fatalf("pvelab install: %v\n%s", err, out)
	}
	script, err := os.ReadFile("../packaging/node/caponier-gate")
	must(t, err)
	const path = "export PATH=/usr/sbin:"
	if !strings.Contains(string(script), path) {
		t.Fatal("the gate does not set PATH")
	}
	gate = filepath.Join(s.dir, "gate")
	must(
		t,
		os.WriteFile(
			gate,
			[]byte(strings.Replace(string(script), path, "export PATH="+tools+":/usr/sbin:", 1)),
			0o755,
		),
	)
	list, err := os.ReadFile("../packaging/node/caponier.sudoers")
	must(t, err)
	text := regexp.MustCompile(`/usr/s?bin/(pct|qm|pvesh)\b`).
		ReplaceAllString(string(list), tools+"/$1")
	return tools, effects, gate, "Defaults env_reset, secure_path=\"" + tools +
		":/usr/sbin:/usr/bin:/sbin:/bin\"\n" + text +
		"\ncaponier ALL=(root) NOPASSWD: CAPONIER_SNAPSHOTS\n"
}

// move takes the inventory to an sshd.
func (s *site) move(t *testing.T, sshd *sshtest.OpenSSH) {
	t.Helper()
	host, port := sshd.HostPort()
	head, _, ok := strings.Cut(s.read(t, "config.toml"), "[[remote.nodes]]")
	if !ok {
		t.Fatal("no node in config.toml")
	}
	s.write(
		t,
		"config.toml",
		fmt.Sprintf(
			"%s[[remote.nodes]]\nname = \"pve1\"\ncluster = \"lab\"\nhost = %q\nport = %d\nuser "+
				"= %q\nidentity_file = %q\nhost_key = %q\ndefault = true\n",
			head,
			host,
			port,
			sshd.User,
			sshd.ClientFile,
			sshd.Pin(),
		),
	)
}

// holds calls what the gate lists, which works, and what policy allows but the gate does not list,
// which never starts.
func (s *site) holds(t *testing.T, effects string) {
	t.Helper()
	for _, c := range []struct {
		claim, tool, args string
		want              string
		code              int
	}{
		{"a list is read", "proxmox_list_containers", `{}`, "web01", 0},
		{"a status is read", "proxmox_container_status", `{"vmid":101}`, "running", 0},
		{"a guest is stopped", "proxmox_stop_container", `{"vmid":101}`, "", 0},
		{"a shell in a container is not listed", "proxmox_container_exec_command",
			`{"vmid":101,"command":"id"}`, "not_permitted_on_node", 1},
		{"files are not listed", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/hostname","local_path":"h"}`,
			"not_permitted_on_node", 1},
	} {
		t.Run(c.claim, func(t *testing.T) {
			cmd := s.command("call", c.tool, c.args)
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf(
					"exit code %d: %s\nwant %d %s",
					cmd.ProcessState.ExitCode(),
					out,
					c.code,
					c.want,
				)
			}
		})
	}
	reached, err := os.ReadFile(effects)
	must(t, err)
	if !strings.Contains(string(reached), `"stop","101"`) ||
		strings.Contains(string(reached), `"pct","exec"`) {
		t.Errorf("the node saw\n%s", reached)
	}
	r, code := s.examined(t)
	if code != 0 || r.Failed != 0 || !r.has("sftp", "warn", "", "sftp=yes") ||
		!r.has("pct", "ok", "", "") ||
		!r.has("qm", "ok", "", "") ||
		!r.has("clock", "ok", "", "") ||
		!r.has("quorum", "ok", "", "") {
		t.Errorf("the doctor exits with %d and %+v", code, r)
	}
}

// TestForcedCommandHoldsOnTheNode puts packaging/node/caponier-gate behind a real sshd, as root's
// forced command.
func TestForcedCommandHoldsOnTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, effects, gate, _ := nodeScripts(t, s)
	s.move(t, sshtest.StartOpenSSH(t, "ForceCommand "+gate))
	s.holds(t, effects)
}

// The commented lines of the gate also work once their # is removed.
func TestEveryGroupOfTheGateIsWhatItsToolsNeed(t *testing.T) {
	t.Parallel()
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	_, effects, gate, _ := nodeScripts(t, s)
	must(t, exec.Command("sed", "-i", `s/^# "/  "/; s/^sftp=no/sftp=yes/`, gate).Run())
	s.move(t, sshtest.StartOpenSSH(t, "ForceCommand "+gate))
	must(t, os.MkdirAll(filepath.Join(s.dir, "lab/workspace/demo"), 0o700))
	s.write(t, "lab/workspace/demo/up", "text\n")
	for _, c := range [][3]string{
		{"proxmox_container_exec_command", `{"vmid":101,"command":"hostname"}`, `"exec","101"`},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"up","container_path":"/root/up"}`, `"push","101"`},
		{"proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/root/up","local_path":"down"}`, `"pull","101"`},
		{"create_snapshot", `{"guest_id":104,"name":"before"}`, `"snapshot","104"`},
		{"get_guest_status", `{"guest_id":101}`, `/nodes/pve1/lxc/101/`},
	} {
		if out, err := s.command("call", c[0], c[1]).CombinedOutput(); err != nil ||
			strings.Contains(string(out), "caponier-gate") {
			t.Errorf("%s: %v %s", c[0], err, out)
		}
		if reached, err := os.ReadFile(effects); err != nil ||
			!strings.Contains(string(reached), c[2]) {
			t.Errorf("%s: %s did not reach the node: %v", c[0], c[2], err)
		}
	}
	if s.read(t, "lab/workspace/demo/down") != "text\n" {
		t.Error("the file that came down is not the one that went up")
	}
	if r, code := s.examined(t); code != 0 || r.Failed+r.Warned != 0 {
		t.Errorf("the doctor exits with %d and %+v", code, r)
	}
}

// TestSudoHoldsOnTheNode is the same for a user without rights, with real sudo and
// packaging/node/caponier.sudoers. The user, and what sudo reads, are in a mount namespace of the
// sshd: this machine has neither.
func TestSudoHoldsOnTheNode(t *testing.T) {
	if os.Getuid() != 0 {
		sshtest.Missing(t, "root")
	}
	t.Parallel()
	if out, err := exec.Command("visudo", "-cf",
		"../packaging/node/caponier.sudoers").CombinedOutput(); err != nil {
		t.Fatalf("visudo: %v %s", err, out)
	}
	s := newSite(t)
	tools, effects, gate, sudoers := nodeScripts(t, s)
	for _, dir := range []string{s.dir, filepath.Dir(s.dir)} {
		must(t, os.Chmod(dir, 0o755)) // the user passes through, to what it may start
	}
	binds := ""
	name, err := os.Hostname()
	must(t, err)
	for file, added := range map[string]string{"hosts": "127.0.0.1 " + name + "\n",
		"passwd": "caponier:x:64123:64123::/:/bin/bash\n", "group": "caponier:x:64123:\n",
		"shadow": "caponier:*:19000:0:99999:7:::\n", "sudoers": sudoers} {
		var text []byte
		if file != "sudoers" {
			text, err = os.ReadFile("/etc/" + file)
			must(t, err)
		}
		mode := map[string]os.FileMode{"shadow": 0o600, "sudoers": 0o440}[file]
		s.write(t, file, string(text)+added)
		must(
			t,
			os.Chmod(
				filepath.Join(s.dir, file),
				max(mode, map[bool]os.FileMode{true: 0o644}[mode == 0]),
			),
		)
		binds += "mount --bind " + filepath.Join(s.dir, file) + " /etc/" + file + " && "
	}
	sshd := sshtest.StartOpenSSHFor(
		t,
		"caponier",
		[]string{"unshare", "-m", "sh", "-c", binds + `exec "$@"`, "sh"},
	)
	s.move(t, sshd)
	keys := filepath.Join(sshd.Dir, "authorized_keys")
	plain, err := os.ReadFile(keys)
	must(t, err)

	ssh := func(command string) string {
		host, port := sshd.HostPort()
		out, _ := exec.Command("ssh", "-F", "none", "-o", "BatchMode=yes", "-o",
			"StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
			"LogLevel=ERROR", "-i", sshd.ClientFile, "-p", fmt.Sprint(port), "caponier@"+host,
			command).
			CombinedOutput()
		return string(out)
	}
	const upid = "UPID:pve1:00000000:00000000:00000000:vzstart:101:root@pam!x:"
	// Without the gate, sudo's own list still restricts the commands.
	for command, want := range map[string]string{
		"id -un": "^caponier\n$",
		// pvelab's state is root's, as a node's is
		tools + "/pct list":          "permission denied",
		"sudo -n pct status 101":     "^status: running\n$",
		"sudo -n pct status 101 102": asksPassword,
		// the locale crosses sudo, so that pct reads what was decided; what the state holds is
		// below
		"LC_ALL=C.UTF-8 sudo -n locale charmap":                                     "^UTF-8\n$",
		"LC_ALL=C.UTF-8 sudo -n pct snapshot 104 s1 --description 'café ✓'":         "",
		"sudo -n pct destroy 101":                                                   asksPassword,
		"sudo -n pct 'status 101\nx'":                                               asksPassword,
		"sudo -n pct exec 101 --keep-env 0 -- timeout 5 id":                         asksPassword,
		"sudo -n pvesh create /nodes/pve1/status --command reboot":                  asksPassword,
		"sudo -n pvesh get '/nodes/pve2/storage/x;hostname:/content'":               asksPassword,
		"sudo -n pvesh get /nodes/pve1/status --output-format json":                 "^{",
		"sudo -n pvesh get /nodes/pve1/tasks/" + upid + "/status":                   "no such task",
		"sudo -n pvesh get /nodes/pve1/qemu/200/agent/file-read --file /etc/shadow": asksPassword,
		"sudo -n pvesh get /nodes/pve1/query-url-metadata --url http://x/":          asksPassword,
		"sudo -n pvesh get /version --noproxy 1":                                    asksPassword,
		"sudo -n pct start 101 --skiplock 1":                                        asksPassword,
		"sudo -n pct list x":                                                        asksPassword,
		"sudo -n sh -c id":                                                          asksPassword,
		"sudo -n -u nobody id":                                                      asksPassword,
	} {
		if got := ssh(command); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s answers %q, want %s", command, got, want)
		}
	}
	if got := s.read(t, "installed/state.json"); !strings.Contains(got, "café ✓") {
		t.Error("the snapshot's description is not what was sent through sudo")
	}
	must(t, os.WriteFile(keys, append([]byte(`command="`+gate+`",restrict `), plain...), 0o644))
	if got := ssh("id -un"); !strings.Contains(got, "this key may not run that") {
		t.Errorf("behind the gate, id answers %q", got)
	}
	s.holds(t, effects)
}

// TestTextBeyondASCIIArrives sends it in every kind of operand that a tool has, straight to a root
// shell and through the gate. TestSudoHoldsOnTheNode has the third way in.
func TestTextBeyondASCIIArrives(t *testing.T) {
	t.Parallel()
	t.Run("root's key", func(t *testing.T) {
		s := newSite(t, filepath.Join(plugins, "guests.wasm"))
		s.arrives(t, func() string { return effectsOf(t, s.lab.Effects()) })
	})
	t.Run("the gate", func(t *testing.T) {
		s := newSite(t, filepath.Join(plugins, "guests.wasm"))
		_, effects, gate, _ := nodeScripts(t, s)
		must(t, exec.Command("sed", "-i", `s/^# "/  "/; s/^sftp=no/sftp=yes/`, gate).Run())
		s.move(t, sshtest.StartOpenSSH(t, "ForceCommand "+gate))
		s.arrives(t, func() string {
			reached, err := os.ReadFile(effects)
			must(t, err)
			return string(reached)
		})
	})
	t.Run("a node that would change it", func(t *testing.T) {
		s := newSite(t, filepath.Join(plugins, "guests.wasm"))
		s.move(t, sshtest.StartOpenSSH(t, "SetEnv LC_ALL=C"))
		out, err := s.command("call", "proxmox_container_exec_command",
			`{"vmid":101,"command":"echo é"}`).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "AcceptEnv LANG LC_*") {
			t.Errorf("%v %s", err, out)
		}
	})
}

func effectsOf(t *testing.T, all []pvelab.Effect) string {
	t.Helper()
	text, err := json.Marshal(all)
	must(t, err)
	return string(text)
}

// arrives makes calls with text beyond ASCII and looks for it on the node.
func (s *site) arrives(t *testing.T, reached func() string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(s.dir, "lab/workspace/demo"), 0o700))
	s.write(t, "lab/workspace/demo/hinauf ✓", "é\n")
	for _, c := range [][3]string{
		{"proxmox_container_exec_command", `{"vmid":101,"command":"printf '%s' 'ünï ✓'"}`, "ünï ✓"},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"hinauf ✓","container_path":"/root/ünï ✓ 1.txt"}`, ""},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"hinauf ✓","container_path":"/root/ünì ✓ 1.txt"}`, ""},
		{"proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/root/ünï ✓ 1.txt","local_path":"hinunter ✓"}`, ""},
		{"create_snapshot", `{"guest_id":104,"name":"before","description":"café ✓"}`, ""},
	} {
		out, err := s.command("call", c[0], c[1]).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c[2]) {
			t.Errorf("%s %s: %v %s", c[0], c[1], err, out)
		}
	}
	if s.read(t, "lab/workspace/demo/hinunter ✓") != "é\n" {
		t.Error("the file that came down is not the one that went up")
	}
	if all := reached(); !strings.Contains(all, "/root/ünï ✓ 1.txt") ||
		strings.Contains(all, `\ufffd`) || strings.Contains(all, "\uFFFD") {
		t.Errorf("the node saw\n%s", all)
	}
	out, err := s.command("call", "proxmox_container_exec_command",
		`{"vmid":101,"command":"ls /root"}`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ünï ✓ 1.txt") ||
		!strings.Contains(string(out), "ünì ✓ 1.txt") {
		t.Errorf("in the container: %v %s", err, out)
	}
}

// What looks like an allowed command and is more than that.
func TestGateLetsNothingElseThrough(t *testing.T) {
	rc := filepath.Join(t.TempDir(), "rc") // what a client could set if sshd let it (AcceptEnv *)
	must(t, os.WriteFile(rc, []byte("id\n"), 0o644))
	hostile := []string{
		"BASH_ENV=" + rc,
		"ENV=" + rc,
		"SHELLOPTS=xtrace",
		"PS4=$(id)",
		"BASH_FUNC_eval%%=() { id; }",
		"BASH_FUNC_logger%%=() { id; }",
		"BASH_FUNC_echo%%=() { id; }",
		"EUID=1",
		"PATH=" + filepath.Dir(rc),
	}
	for _, asked := range []string{"", "id", "'id'", "'pct' 'status' '101'; id",
		"'pct' 'status' '101'\nid", "'pct' 'status' '101' && id", "'pct' 'status' '$(id)'",
		"'pct' 'status' $(id)", "'pct' 'status' '101' '102'",
		"'pct status 101'", "'pct' 'destroy' '101'", "'pct' 'exec' '101' '--' 'sh'",
		"'pvesh' 'create' '/nodes/pve1/status'", "'pvesh' 'get' '/a' `id`",
		"'pvesh' 'get' '/a' 'x'\\''y' \"$(id)\"", "printf '-v' 'PATH' '/x'",
		"printf '<%s>' $(id)", "printf '<%s>' 'a'; id", "'exec' 'id'", "'eval' 'id'",
		"internal-sftp", "/usr/lib/openssh/sftp-server", "'pct' 'status' '101' > '/x'", "bash",
		"scp -t /"} {
		cmd := exec.Command("../packaging/node/caponier-gate")
		cmd.Env = append([]string{"SSH_ORIGINAL_COMMAND=" + asked}, hostile...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 126 ||
			!strings.Contains(string(out), "may not run that") ||
			strings.Contains(string(out), "uid=") {
			t.Errorf("%q: exit code %d, %s", asked, cmd.ProcessState.ExitCode(), out)
		}
	}
}
