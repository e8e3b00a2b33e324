package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every tool that acts on nodes, through the real binary, as a real client calls it, on the
// simulated cluster. A want that begins with ! is an error.
func TestEveryToolOnTheCluster(t *testing.T) {
	withSchemas(t)
	s := newSite(
		t,
		filepath.Join(plugins, "guests.wasm"),
		filepath.Join(plugins, "cluster.wasm"),
		filepath.Join(plugins, "hostops.wasm"),
	)
	s.rewrite(
		t,
		"argument: false",
		"argument: true",
		"target_calls_per_minute: 60",
		"target_calls_per_minute: 600",
		"  write: []",
		"  write: [/opt]",
		"# \"tool:proxmox_host_exec_command",
		"\"tool:proxmox_host_exec_command",
		"# \"tool:proxmox_download_file_from_host",
		"\"tool:proxmox_download_file_from_host",
		"# \"tool:proxmox_download_directory_from_host",
		"\"tool:proxmox_download_directory_from_host",
		"# \"tool:proxmox_upload_file_to_host",
		"\"tool:proxmox_upload_file_to_host",
		"# \"tool:proxmox_upload_directory_to_host",
		"\"tool:proxmox_upload_directory_to_host",
	)
	work := filepath.Join(s.dir, "lab/workspace/demo")
	must(t, os.MkdirAll(work, 0o700))
	must(t, os.WriteFile(filepath.Join(work, "app.conf"), []byte("port = 1\n"), 0o600))
	must(t, os.MkdirAll(filepath.Join(work, "site", "css"), 0o700))
	must(t, os.WriteFile(filepath.Join(work, "site", "index"), []byte("one\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(work, "site", "css", "a"), []byte("b\n"), 0o600))
	session := s.stdio(t)
	type args = map[string]any
	called, least := map[string]bool{}, floors{}
	for _, c := range []struct {
		tool string
		args args
		want string
	}{
		{"list_nodes", nil, "pve2"},
		{"list_guests", args{"type": "qemu"}, "vm-app"},
		{"get_guest_status", args{"guest_id": 101}, "container 101 on pve1 (web01) is running."},
		{"get_guest_status", args{"guest_id": 999}, "!not_found"},
		{"get_storage_pools", args{"node": "pve1"}, "btrfs"},
		{"get_cluster_status", nil, "Cluster lab has quorum."},
		{"get_node_status", args{"node": "pve2"}, "pve2: up"},
		{"get_vms", nil, "vm-db"},
		{"get_containers", nil, "mail01"},
		{"get_storage", nil, "local"},
		{"get_cluster_resources", args{"type": "container"}, "lxc/110"},
		{"get_node_temperature", args{"node": "pve1"}, "47.0"},
		{"get_recent_tasks", args{"limit": 5, "errors": true}, "CT is locked (backup)"},
		{"get_recent_tasks", args{"node": "pve1", "limit": 1}, "vzsnapshot"},
		{"get_backups", args{"node": "pve1"}, "vzdump-qemu-200"},
		{"get_backups", args{"node": "pve1", "storage": "nope"}, "!not_found"},
		{"proxmox_list_containers", nil, "snapct"},
		{"proxmox_container_status", args{"vmid": 105}, "running"},
		{"proxmox_container_exec_command", args{"vmid": 101, "command": "hostname"}, "web01"},
		{"proxmox_upload_file_to_container", args{"vmid": 101, "local_path": "app.conf",
			"container_path": "/root/app.conf"}, "9 bytes"},
		{"proxmox_download_file_from_container",
			args{"vmid": 101, "container_path": "/root/app.conf", "local_path": "back.conf"},
			"9 bytes"},
		{"proxmox_start_container", args{"vmid": 104}, "is now running"},
		{"proxmox_stop_container", args{"vmid": 104, "graceful": true, "timeout": 5},
			"is now stopped"},
		// by the site, before Proxmox is asked
		{"proxmox_start_container", args{"vmid": 103}, "!protected"},
		{"start_vm", args{"node": "pve1", "vmid": 200}, "is now running"},
		{"start_vm", args{"node": "pve1", "vmid": 200}, "is running already; nothing was done"},
		{"restart_vm", args{"node": "pve1", "vmid": 200}, "is running again"},
		{"stop_vm", args{"node": "pve1", "vmid": 200}, "is now stopped"},
		{"start_vm", args{"node": "pve1", "vmid": 201}, "!template"},
		{"start_container", args{"node": "pve1", "vmid": 104}, "is now running"},
		{"restart_container", args{"node": "pve1", "vmid": 104}, "is running again"},
		{"stop_container", args{"node": "pve1", "vmid": 104}, "is now stopped"},
		{"stop_container", args{"node": "pve1", "vmid": 110}, "!on_other_node"},
		{"start_guest", args{"guest_id": 104}, "is now running"},
		{"restart_guest", args{"guest_id": 104}, "is running again"},
		{"stop_guest", args{"guest_id": 104, "timeout": 5}, "is now stopped"},
		{"restart_guest", args{"guest_id": 104}, "!not_running"},
		{"stop_guest", args{"guest_id": 110, "force": true},
			"container 110 on pve2 is now stopped"},
		{"create_snapshot", args{"guest_id": 104, "name": "before", "description": "by a test"},
			"is made"},
		{"create_snapshot", args{"guest_id": 104, "name": "before"}, "!exists"},
		{"create_snapshot", args{"guest_id": 101, "name": "before"}, "!unsupported"},
		{"rollback_snapshot", args{"guest_id": 104, "name": "none"}, "!not_found"},
		{"rollback_snapshot", args{"guest_id": 104, "name": "before"}, "is restored"},
		{"delete_snapshot", args{"guest_id": 104, "name": "before"}, "is deleted"},
		// the rest is in undocall_test.go
		{"undo_call", args{"call": "06H0A6GOHA5FO7RMRKRL5E16US"}, "!has no record of a call"},
		{"list_snapshots", args{}, "There are none."},
		{"list_allowed_commands", args{"word": "pct start"}, "pct start"},
		{"delete_guest", args{"guest_id": 105}, "!running"},
		{"delete_guest", args{"guest_id": 102}, "!protected"}, // by Proxmox
		{"stop_guest", args{"guest_id": 105, "force": true}, "is now stopped"},
		{"delete_guest", args{"guest_id": 105}, "is deleted, with its disks"},
		{"execute_ssh", args{"node": "pve1", "command": "uptime && hostname"}, "pve1"},
		{"execute_ssh", args{"node": "pve1", "command": "pct des 101"}, "!command"},
		{"restart_service", args{"node": "pve1", "service": "pveproxy"}, "is active"},
		{"restart_service", args{"node": "pve1", "service": "nosuch"}, "!not_found"},
		{"wake_node", args{"node": "pve2"}, "AA:BB:CC:DD:EE:FF"},
		{"wake_node", args{"node": "pve1"}, "!no_mac"},
		{"proxmox_host_exec_command", args{"command": "pvecm status"}, "Quorate"},
		{"proxmox_upload_file_to_host", args{"local_path": "app.conf",
			"host_path": "/opt/app.conf"}, "9 bytes"},
		{"proxmox_download_file_from_host", args{"host_path": "/etc/hostname",
			"local_path": "hostname"}, "Downloaded /etc/hostname"},
		{"proxmox_download_directory_from_host", args{"host_dir": "/var/log",
			"local_dir": "logs"}, "Downloaded /var/log"},
		{"proxmox_upload_directory_to_host", args{"local_dir": "site", "host_dir": "/opt/site"},
			"Uploaded site to /opt/site on pve1: 2 files, 6 bytes"},
	} {
		called[c.tool] = true
		if promised["tool:"+c.tool].tier == "red" || promised["tool:"+c.tool].tier == "black" {
			c.args["confirmed"] = true
		}
		before := len(s.lab.Effects())
		how, _, text := outcome(t, session, c.tool, c.args)
		if how == "succeeded" {
			least.note(c.tool, s.lab.Effects()[before:])
		}
		code, fails := strings.CutPrefix(c.want, "!")
		if fails && (how == "succeeded" || !strings.Contains(text, code)) ||
			!fails && (how != "succeeded" || !strings.Contains(text, c.want)) {
			t.Errorf("%s %v: %s %.600s\nwant %s", c.tool, c.args, how, text, c.want)
		}
	}
	least.documented(t)
	called["reboot_node"] = true // black, which no call may do and no list shows
	s.isMissing(t, session, "reboot_node", args{"node": "pve1", "confirmed": true},
		refusal{"tier", "black"})
	for key, want := range promised {
		// those are in TestOutside
		if name, _ := strings.CutPrefix(key, "tool:"); want.plugin != "web" &&
			want.plugin != "jq" &&
			want.plugin != "llm" &&
			!called[name] {
			t.Errorf("%s is not called", name)
		}
	}
	if data, err := os.ReadFile(filepath.Join(work, "back.conf")); string(data) != "port = 1\n" {
		t.Errorf("what came back is %q, %v", data, err)
	}
	s.gated(
		t,
		`printf .*|'cat' '--' .*|'(pct|qm)' 'destroy' .*|'systemctl' .*|'pvesh' 'create' `+
			`'/nodes/\w+/wakeonlan' .*|'pvecm' 'status'|'uptime' && 'hostname'`,
	)
}
