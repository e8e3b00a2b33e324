package main

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
)

// folders is what a node has, by directory.
type folders map[string][]sdk.FileInfo

func file(name string, size int64) sdk.FileInfo {
	return sdk.FileInfo{Name: name, Type: "file", Size: size}
}

func kind(name, kind string) sdk.FileInfo { return sdk.FileInfo{Name: name, Type: kind} }

// tree returns a node with these folders, and what is copied from it.
func tree(t *testing.T, all folders, get func(p string) error) (n *pvetest.Node, got *[]string) {
	n, got = pvetest.New(t, nil), &[]string{}
	n.SFTPList = func(_, p string, limit int) (sdk.List, error) {
		entries, there := all[p]
		if !there {
			return sdk.List{}, &sdk.OpError{Code: "not_found", Message: p + " is not there"}
		}
		return sdk.List{Entries: slices.Clone(entries[:min(len(entries), limit)]),
			Truncated: len(entries) > limit}, nil
	}
	n.SFTPGet = func(_, p, local string, o sdk.FileOptions) (sdk.Written, error) {
		if get != nil {
			if err := get(p); err != nil {
				return sdk.Written{}, err
			}
		}
		*got = append(*got, p+" "+local)
		return sdk.Written{Bytes: 5, SHA256: "ab", Local: local}, nil
	}
	return n, got
}

const copyAll = `{"host_dir":"/var/log/a","local_dir":"out","max_files":3,"max_bytes":100}`

func TestADirectoryIsCopiedWithAllFilesBelow(t *testing.T) {
	n, got := tree(t, folders{
		"/var/log/a": {file("z", 5), kind("b", "dir"), kind("l", "symlink"), kind("p", "fifo"),
			file("bad\xff", 1), file("a\\b", 1)},
		"/var/log/a/b":   {file("x", 5), kind("c", "dir"), kind("gone", "dir")},
		"/var/log/a/b/c": {file("y", 5)},
	}, nil)
	_, m := n.Do("proxmox_download_directory_from_host", copyAll)
	want := []string{"/var/log/a/b/c/y out/b/c/y", "/var/log/a/b/x out/b/x", "/var/log/a/z out/z"}
	sums := sha256.Sum256([]byte("ab  b/c/y\nab  b/x\nab  z\n"))
	if !slices.Equal(*got, want) || m["files"] != 3.0 || m["bytes"] != 15.0 ||
		m["left_out"] != 5.0 || m["manifest_sha256"] != fmt.Sprintf("%x", sums) {
		t.Errorf("%q %v", *got, m)
	}
	why := fmt.Sprint(m["left_out_first"])
	for _, w := range []string{"it is a symlink", "it is a fifo", "bad?", "b/gone/", `a\b`} {
		if !strings.Contains(why, w) {
			t.Errorf("no %q in %s", w, why)
		}
	}
}

func TestADirectoryThatIsTooMuchIsNotBegun(t *testing.T) {
	deep, wide := folders{}, folders{"/var/log/a": {}}
	for i, p := 0, "/var/log/a"; i < maxDepth+2; i, p = i+1, p+"/d" {
		deep[p] = []sdk.FileInfo{kind("d", "dir")}
	}
	for i := range maxDirs + 1 {
		name := fmt.Sprint(i)
		wide["/var/log/a"] = append(wide["/var/log/a"], kind(name, "dir"))
		wide[path.Join("/var/log/a", name)] = nil
	}
	many := make([]sdk.FileInfo, maxEntries+1)
	for name, c := range map[string]struct {
		all  folders
		want string
	}{
		"files": {folders{"/var/log/a": {file("1", 1), file("2", 1), file("3", 1),
			file("4", 1)}}, "max_files 3"},
		"bytes":   {folders{"/var/log/a": {file("1", 60), file("2", 60)}}, "max_bytes 100"},
		"depth":   {deep, "in one another"},
		"folders": {wide, "directories"},
		"entries": {folders{"/var/log/a": many}, "entries"},
		"nothing": {folders{}, "is not there"},
	} {
		n, got := tree(t, c.all, nil)
		out, _ := n.Do("proxmox_download_directory_from_host", copyAll)
		if out.Error == nil || !strings.Contains(out.Error.Message, c.want) || len(*got) > 0 ||
			out.Error.Suggestion == "" {
			t.Errorf("%s: %+v %q", name, out.Error, *got)
		}
	}
}

func TestWhatAFileOfADirectoryFailsAtIsSaid(t *testing.T) {
	refused := &sdk.Refused{Deny: []sdk.Reason{{ID: "file", Msg: "a secret"}}}
	all := folders{"/var/log/a": {file("1", 1), file("2", 1), file("3", 1)}}
	at := func(name string, err error) func(string) error {
		return func(p string) error {
			if path.Base(p) == name || name == "" {
				return err
			}
			return nil
		}
	}
	n, got := tree(t, all, at("2", refused))
	if out, m := n.Do("proxmox_download_directory_from_host", copyAll); len(*got) != 2 ||
		m["left_out"] != 1.0 || !strings.Contains(out.Text, "a secret") {
		t.Errorf("%q %v %+v", *got, m, out)
	}
	n, _ = tree(t, all, at("", refused))
	if out, _ := n.Do("proxmox_download_directory_from_host", copyAll); out.Error == nil ||
		out.Error.Code != "nothing_copied" {
		t.Errorf("%+v", out)
	}
	n, got = tree(t, all, at("2", &sdk.OpError{Code: "exists", Message: "it is there"}))
	if out, _ := n.Do("proxmox_download_directory_from_host", copyAll); out.Error == nil ||
		len(*got) != 2 || !strings.Contains(out.Error.Message, "2 of 3 files are in out; then 2") ||
		!strings.Contains(out.Error.Suggestion, "overwrite") {
		t.Errorf("%+v", out.Error)
	}
}

// The files of a list share what max_bytes leaves over, and none of them gets more together than
// that: a file that has grown gets the rest, and one too many ends the copying.
func TestFilesThatGrowStayWithinMaxBytes(t *testing.T) {
	all := folders{"/var/log/a": {file("1", 10), file("2", 10), file("3", 10)}}
	for name, c := range map[string]struct {
		now  map[string]int64
		want string
	}{
		"none has grown":      {map[string]int64{"1": 10, "2": 10, "3": 10}, ""},
		"each within a share": {map[string]int64{"1": 33, "2": 33, "3": 33}, ""},
		"one takes the rest":  {map[string]int64{"1": 10, "2": 80, "3": 10}, ""},
		"one more than that":  {map[string]int64{"1": 10, "2": 81, "3": 10}, "2: it is larger"},
		"all of them":         {map[string]int64{"1": 50, "2": 50, "3": 50}, "it is larger"},
	} {
		n, _ := tree(t, all, nil)
		copied := int64(0)
		n.SFTPGet = func(_, p, local string, o sdk.FileOptions) (sdk.Written, error) {
			size := c.now[path.Base(p)]
			if size > o.MaxBytes {
				return sdk.Written{}, &sdk.OpError{Code: "too_large", Message: "it is larger"}
			}
			copied += size
			return sdk.Written{Bytes: size, SHA256: "ab", Local: local}, nil
		}
		out, m := n.Do("proxmox_download_directory_from_host", copyAll)
		if copied > 100 || (out.Error == nil) != (c.want == "") ||
			c.want == "" && m["bytes"] != float64(copied) ||
			c.want != "" && !strings.Contains(out.Error.Message, c.want) {
			t.Errorf("%s: %d bytes, %v %+v", name, copied, m, out.Error)
		}
	}
}
