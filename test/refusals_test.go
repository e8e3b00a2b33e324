package test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var update = flag.Bool("update", false, "write golden files anew")

// The complete text that a model reads after a refusal. A reader of testdata/refusals.golden must
// understand it without other information. With -update, the test writes the file again: review the
// difference.
func TestRefusalsAsAModelReadsThem(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "guests.wasm"), filepath.Join(plugins, "hostops.wasm"),
		filepath.Join(plugins, "cluster.wasm"))
	s.append(t, "\n[approval]\nwait = \"100ms\"\napprovers = [\"ann\"]\n")
	session := s.stdio(t)
	var b strings.Builder
	for _, c := range [][2]string{
		{"proxmox_container_exec_command", `{"vmid":103,"command":"true"}`},
		{"proxmox_container_status", `{"vmid":103}`},
		{"proxmox_stop_container", `{"vmid":103}`},
		{"delete_guest", `{"guest_id":103}`},
		{"proxmox_container_exec_command", `{"vmid":102,"command":"true"}`},
		{"delete_guest", `{"guest_id":102}`},
		{"proxmox_container_status", `{"vmid":101,"node":"pve9"}`},
		{"proxmox_container_status", `{"vmid":99}`},
		{"proxmox_container_status", `{"vmid":101,"nodes":"pve1"}`},
		{"proxmox_container_status", `{"vmid":"0101"}`},
		{"proxmox_container_status", `{}`},
		{"execute_ssh", `{"node":"pve1","command":"ls \"/x$\\\n(id)\""}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":""}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":"true","timeout":4000}`},
		{"execute_ssh", `{"node":"pve1","command":"rm -rf /"}`},
		{"execute_ssh", `{"node":"pve1","command":"docker ps"}`},
		{"execute_ssh", `{"node":"pve1","command":"zpool status -q"}`},
		{"execute_ssh", `{"node":"pve1","command":"uptime > /tmp/x"}`},
		{"execute_ssh", `{"node":"pve1","command":"uptime; for i in 1; do id; done"}`},
		{"execute_ssh", `{"node":"pve1","command":"echo $(id)"}`},
		{"execute_ssh", `{"node":"pve1","command":"cat /etc/shadow"}`},
		{"execute_ssh", `{"node":"pve1","command":"awk 1"}`},
		{"execute_ssh", `{"node":"pve1","command":"pct start 103"}`},
		{"execute_ssh", `{"node":"pve1","command":"systemctl restart ssh"}`},
		{"execute_ssh", `{"node":"pve7","command":"uptime"}`},
		{"restart_service", `{"node":"pve1","service":"ssh"}`},
		{"restart_service", `{"node":"pve1","service":"nope;id"}`},
		{"reboot_node", `{"node":"pve1"}`},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"x","container_path":"root/x"}`},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"../x","container_path":"/root/x"}`},
		{"proxmox_upload_file_to_host",
			`{"node":"pve1","local_path":"nothing","host_path":"/etc/passwd"}`},
		{"proxmox_download_file_from_host",
			`{"node":"pve1","host_path":"/etc/shadow","local_path":"x"}`},
	} {
		b.WriteString("# " + c[0] + " " + c[1] + "\n")
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: c[0],
			Arguments: json.RawMessage(c[1])})
		if err != nil {
			b.WriteString(err.Error() + "\n\n")
			continue
		}
		if !r.IsError {
			t.Errorf("%s %s is not refused: %+v", c[0], c[1], r)
		}
		for _, part := range r.Content {
			if text, ok := part.(*mcp.TextContent); ok {
				b.WriteString(text.Text + "\n")
				if len(text.Text) > 600 {
					t.Errorf("%s %s: %d bytes", c[0], c[1], len(text.Text))
				}
			}
		}
		b.WriteByte('\n')
	}
	text := regexp.MustCompile(`\b[0-9A-V]{26}\b`).ReplaceAllString(b.String(), "ID")
	text = regexp.MustCompile(`(approve|show) [a-z0-9]{16}\b`).ReplaceAllString(text, "$1 ID")
	text = regexp.MustCompile(`\d\d:\d\d:\d\d UTC`).ReplaceAllString(text, "HH:MM:SS UTC")
	file := "testdata/refusals.golden"
	if *update {
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if text != string(want) {
		t.Errorf("refusals have changed; -update writes %s:\n%s", file, text)
	}
}
