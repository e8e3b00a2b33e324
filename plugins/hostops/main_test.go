package main

import (
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
)

func TestExamplesSayWhenTheNodeIsDown(t *testing.T) { pvetest.CheckExamples(t) }

func TestCommand(t *testing.T) {
	n := pvetest.New(t, nil)
	var got sdk.ExecOptions
	n.SSHScript = func(node, script string, o sdk.ExecOptions) (sdk.ExecResult, error) {
		got = o
		return sdk.ExecResult{Stdout: []byte(node + " " + script)}, nil
	}
	if out, m := n.Do("proxmox_host_exec_command",
		`{"command":"pct list","timeout":7,"node":"pve2"}`); out.Text != "pve2 pct list" ||
		m["success"] != true ||
		got.Timeout != 7*time.Second {
		t.Errorf("%v %q %v", m, out.Text, got.Timeout)
	}
	n.SSHScript = func(string, string, sdk.ExecOptions) (sdk.ExecResult, error) {
		return sdk.ExecResult{}, &sdk.OpError{
			Code:    "timeout",
			Message: "the time for it was over",
			Unknown: true,
		}
	}
	if out, _ := n.Do("proxmox_host_exec_command", `{"command":"pct list"}`); out.Error == nil ||
		out.Error.Code != "timeout" ||
		!strings.Contains(out.Error.Suggestion, "may still be running") {
		t.Errorf("%+v", out.Error)
	}
	n.SSHScript = func(string, string, sdk.ExecOptions) (sdk.ExecResult,
		error) {
		return sdk.ExecResult{}, nil
	}
	if out, _ := n.Do("proxmox_host_exec_command",
		`{"command":"true"}`); out.Text != "[no output, exit code 0]" {
		t.Errorf("%q", out.Text)
	}
}

func TestTransfers(t *testing.T) {
	n := pvetest.New(t, nil)
	file, failure := sdk.FileInfo{Type: "file", Size: 5}, error(nil)
	var options sdk.FileOptions
	n.SFTPStat = func(string, string) (sdk.FileInfo, error) { return file, nil }
	n.SFTPGet = func(_, p, local string, o sdk.FileOptions) (sdk.Written, error) {
		options = o
		return sdk.Written{Bytes: 5, SHA256: "ab", Local: local}, failure
	}
	n.SFTPPut = func(_, local, p string, o sdk.FileOptions) (sdk.Written, error) {
		options = o
		return sdk.Written{Bytes: 5, SHA256: "ab"}, failure
	}
	down, up := `{"host_path":"/var/log/x","local_path":"x"}`, `{"host_path":"/var/tmp/x",`+
		`"local_path":"x","permissions":"600"}`
	if _, m := n.Do("proxmox_download_file_from_host", down); m["bytes"] != 5.0 ||
		m["sha256"] != "ab" ||
		options.MaxBytes != 10<<20 ||
		options.Overwrite {
		t.Errorf("%v %+v", m, options)
	}
	if _, m := n.Do("proxmox_upload_file_to_host", up); m["permissions"] != "0600" ||
		options.Mode != "0600" ||
		options.Overwrite {
		t.Errorf("%v %+v", m, options)
	}
	for _, c := range []struct {
		name, tool, args, code, suggestion string
		file                               sdk.FileInfo
		failure                            error
	}{
		{"a directory", "proxmox_download_file_from_host", down, "bad_parameter", "regular file",
			sdk.FileInfo{Type: "dir"}, nil},
		{"a FIFO", "proxmox_download_file_from_host", down, "bad_parameter", "regular file",
			sdk.FileInfo{Type: "fifo"}, nil},
		{"too large", "proxmox_download_file_from_host", down, "too_large", "max_bytes",
			sdk.FileInfo{Type: "file", Size: 10<<20 + 1}, nil},
		{"larger than it said", "proxmox_download_file_from_host", down, "too_large", "max_bytes",
			sdk.FileInfo{Type: "file"}, &sdk.OpError{Code: "too_large", Message: "x"}},
		{"a local file that is there", "proxmox_download_file_from_host", down, "exists",
			"in your workspace", file, &sdk.OpError{Code: "exists", Message: "x"}},
		{"a host file that is there", "proxmox_upload_file_to_host", up, "exists", "on the host",
			file, &sdk.OpError{Code: "exists", Message: "x"}},
		{"no local file", "proxmox_upload_file_to_host", up, "not_found", "in your workspace", file,
			&sdk.OpError{Code: "not_found", Message: "x"}},
		{"a connection that breaks", "proxmox_upload_file_to_host", up, "unknown_outcome",
			"look at the status", file, &sdk.OpError{Code: "lost", Message: "x", Unknown: true}},
	} {
		file, failure = c.file, c.failure
		if out, _ := n.Do(c.tool, c.args); out.Error == nil || out.Error.Code != c.code ||
			!strings.Contains(out.Error.Suggestion, c.suggestion) {
			t.Errorf("%s: %+v", c.name, out.Error)
		}
	}
}
