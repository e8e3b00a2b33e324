package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
)

func TestFilesArriveWholeThroughAStage(t *testing.T) {
	n := lab(t)
	_, m := n.call(t, "proxmox_upload_file_to_container",
		`{"vmid":101,"local_path":"app.conf","container_path":"/etc/app.conf","permissions":"755"}`)
	if n.inside["/etc/app.conf"] != "hello" || m["sha256"] != sum("hello") || m["bytes"] != 5.0 ||
		m["permissions"] != "0755" {
		t.Errorf("upload: %v", m)
	}
	push := []string{
		"pct",
		"push",
		"101",
		"--perms",
		"0755",
		"--user",
		"0",
		"--group",
		"0",
		"--",
		"/run/caponier/s1/file",
		"/etc/app.conf",
	}
	if !slices.ContainsFunc(n.ran, func(a []string) bool { return slices.Equal(a, push) }) {
		t.Errorf("ran %q", n.ran)
	}
	n = lab(t)
	if _, m = n.call(t, "proxmox_upload_file_to_container",
		`{"vmid":101,"local_path":"app.conf","container_path":"/etc/os-release","overwrite":true,`+
			`"permissions":"4755"}`); m["replaced"] != true ||
		m["permissions"] != "4755" {
		t.Errorf("overwrite: %v", m)
	}
	n.inside["/empty"] = ""
	n.cut, n.local["copy"] = 3, "good"
	if out, _ := n.call(t, "proxmox_download_file_from_container",
		`{"vmid":101,"container_path":"/etc/os-release","local_path":"copy",`+
			`"overwrite":true}`); out.Error == nil ||
		n.local["copy"] != "good" {
		t.Errorf("a bad copy replaced a good file: %+v", out.Error)
	}
	n.cut = 0
	delete(n.local, "copy")
	for from, to := range map[string]string{"/etc/os-release": "copy", "/empty": "empty"} {
		_, m = n.call(t, "proxmox_download_file_from_container",
			fmt.Sprintf(`{"vmid":101,"container_path":%q,"local_path":%q}`, from, to))
		if n.local[to] != n.inside[from] || m["sha256"] != sum(n.inside[from]) {
			t.Errorf("download of %s: %v", from, m)
		}
	}
	pull := []string{"pct", "pull", "101", "--", "/etc/os-release", "/run/caponier/s1/file"}
	if !slices.ContainsFunc(n.ran, func(a []string) bool { return slices.Equal(a, pull) }) {
		t.Errorf("ran %q", n.ran)
	}
	for _, argv := range n.ran {
		if argv[1] == "pull" && path.Dir(argv[5]) != "/run/caponier/s1" {
			t.Errorf("pulled to %s, outside the stage", argv[5])
		}
	}
}

func TestSizeLimitHoldsBeforeAndAfterThePull(t *testing.T) {
	for name, grows := range map[string]bool{"too large at the look": false, "grown since " +
		"the look": true} {
		n := lab(t)
		if grows {
			exec := n.SSHExec
			n.SSHExec = func(on string, argv []string, o sdk.ExecOptions) (sdk.ExecResult, error) {
				if argv[1] == "pull" {
					n.inside["/etc/os-release"] = strings.Repeat("x", 50)
				}
				return exec(on, argv, o)
			}
		}
		limit := map[bool]int{false: 6, true: 20}[grows]
		out, _ := n.call(
			t,
			"proxmox_download_file_from_container",
			fmt.Sprintf(
				`{"vmid":101,"container_path":"/etc/os-release","local_path":"x","max_bytes":%d}`,
				limit,
			),
		)
		pulled := slices.ContainsFunc(n.ran, func(a []string) bool { return a[1] == "pull" })
		if _, there := n.local["x"]; out.Error == nil || out.Error.Code != "too_large" ||
			pulled != grows ||
			there {
			t.Errorf("%s: pulled %v, kept %v, error %+v", name, pulled, there, out.Error)
		}
	}
}

// The output of stat is read for a file of any type.
func FuzzStat(f *testing.F) {
	f.Add("regular empty file", int64(0))
	f.Add("symbolic link", int64(7))
	f.Fuzz(func(t *testing.T, kind string, size int64) {
		if kind == "" || size < 0 {
			return
		}
		if got, ok := parseStat(fmt.Sprintf("%s %d\n", kind, size)); !ok || got.kind != kind ||
			got.size != size {
			t.Errorf("%q %d gave %+v, %v", kind, size, got, ok)
		}
	})
}
