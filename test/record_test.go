package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordedAnswersAreReplayed calls tools on the simulated cluster and records their operations.
// With only the recording, each tool has the same output.
func TestRecordedAnswersAreReplayed(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "guests.wasm"), filepath.Join(plugins, "cluster.wasm"),
		filepath.Join(plugins, "hostops.wasm"))
	for i, c := range []struct{ module, tool, args string }{
		{"guests", "list_nodes", `{}`},
		{"guests", "get_guest_status", `{"guest_id":999}`},
		{"guests", "get_storage_pools", `{"node":"pve1"}`},
		{"cluster", "get_node_status", `{"node":"pve2"}`},
		{"cluster", "get_recent_tasks", `{"limit":5,"errors":true}`},
		{"containers", "proxmox_container_status", `{"vmid":105}`},
		{"cluster", "stop_vm", `{"node":"pve1","vmid":200}`},
		{"guests", "create_snapshot", `{"guest_id":104,"name":"before"}`},
		{"cluster", "restart_service", `{"node":"pve1","service":"pveproxy"}`},
		{"cluster", "execute_ssh", `{"node":"pve1","command":"uptime && hostname"}`},
	} {
		file := filepath.Join(t.TempDir(), "ran.yaml")
		cmd, say := s.command("call", "--record", file, c.tool, c.args), &strings.Builder{}
		cmd.Stderr = say
		out, _ := cmd.Output()
		said, note, code := string(out), say.String(), cmd.ProcessState.ExitCode()
		if strings.Contains(note, "not recorded") {
			t.Errorf("%d %s: %s", i, c.tool, note)
		}
		answers, err := os.ReadFile(file)
		must(t, err)
		again, note, codeAgain := try(t, "plugin", "run", "--answers", file,
			filepath.Join(plugins, c.module+".wasm"), c.tool, c.args)
		if again != said || code != codeAgain || said == "" && note == "" {
			t.Errorf("%d %s: exit %d, recorded exit %d:\n%s\n%s\nrecorded:\n%s\nfrom:\n%s", i,
				c.tool, codeAgain, code, again, note, said, answers)
		}
	}
}
