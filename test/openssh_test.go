package test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestBehindRealOpenSSH does the main job through a real sshd: login shell, exec, SFTP server and
// files are the machine's, only pct is simulated.
func TestBehindRealOpenSSH(t *testing.T) {
	s := newSite(t)
	lab := filepath.Join(filepath.Dir(bin), "pvelab")
	tools, effects := filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "effects.jsonl")
	out, err := exec.Command(lab, "install", "--state", filepath.Join(s.dir, "installed"), "--root",
		"/", "--effects", effects, tools).
		CombinedOutput()
	if err != nil {
		t.Fatalf("pvelab install: %v\n%s", err, out)
	}
	sshd := sshtest.StartOpenSSH(t, "SetEnv SHLVL=3 PATH="+tools+":/usr/bin:/bin SECRET_ON_HOST=1")
	host, port := sshd.HostPort()
	workspace := filepath.Join(s.dir, "workspace")
	config := fmt.Sprintf(`accept_risks = true
[cli]
principal = "demo"
[policy]
site = %q
[plugin]
lock = %q
dir = %q
[audit]
dir = %q
[remote]
workspace = %q
[[remote.nodes]]
name = "pve1"
cluster = "lab"
host = %q
port = %d
user = %q
identity_file = %q
host_key = %q
default = true
`, filepath.Join(s.dir, "site"), filepath.Join(s.dir, "plugins.lock"),
		filepath.Join(s.dir, "plugins"), filepath.Join(s.dir, "lab/journal"), workspace, host, port,
		sshd.User, sshd.ClientFile, sshd.Pin())
	must(t, os.WriteFile(s.config, []byte(config), 0o600))
	must(t, os.MkdirAll(filepath.Join(workspace, "demo"), 0o700))
	body := strings.Repeat("real bytes \x00\xff", 50_000)
	must(t, os.WriteFile(filepath.Join(workspace, "demo/up.bin"), []byte(body), 0o600))

	session := s.stdio(t)
	call := func(tool string, args map[string]any, want string) {
		t.Helper()
		how, _, text := outcome(t, session, tool, args)
		if how != "succeeded" || !strings.Contains(text, want) {
			t.Fatalf("%s: %s %s; want %q", tool, how, text, want)
		}
	}
	call("proxmox_list_containers", map[string]any{}, "web01")
	call(
		"proxmox_container_exec_command",
		map[string]any{"vmid": 101, "command": "printf '<%s>' 'a b' \"$SECRET_ON_HOST\""},
		"<a b><>",
	)
	call(
		"proxmox_upload_file_to_container",
		map[string]any{
			"vmid":           101,
			"local_path":     "up.bin",
			"container_path": "/root/up.bin",
			"permissions":    "0600",
		},
		"Uploaded",
	)
	call(
		"proxmox_download_file_from_container",
		map[string]any{"vmid": 101, "container_path": "/root/up.bin", "local_path": "down.bin"},
		"Downloaded",
	)
	back, err := os.ReadFile(filepath.Join(workspace, "demo/down.bin"))
	must(t, err)
	if sha256.Sum256(back) != sha256.Sum256([]byte(body)) {
		t.Error("the file that came back is another one")
	}
	reached, err := os.ReadFile(effects)
	must(t, err)
	for _, want := range []string{`"pct","push","101","--perms","0600"`,
		`"pct","pull","101","--"`} {
		if !strings.Contains(string(reached), want) {
			t.Errorf("the node saw no %s:\n%s", want, reached)
		}
	}
	if left, _ := filepath.Glob("/tmp/caponier-*/.caponier-stage"); len(left) > 0 {
		for _, l := range left {
			if strings.Contains(string(reached), filepath.Dir(l)) {
				t.Errorf("%s stays on the node", l)
			}
		}
	}
	must(t, os.Truncate(effects, 0))
	res, err := session.CallTool(
		t.Context(),
		&mcp.CallToolParams{
			Name:      "proxmox_container_exec_command",
			Arguments: map[string]any{"vmid": 103, "command": "true"},
		},
	)
	must(t, err)
	if reached, err := os.ReadFile(effects); err != nil || len(reached) > 0 || !res.IsError {
		t.Errorf("a refused call reached the node: %s %v", reached, err)
	}
}
