package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A directory of the workspace is uploaded as it was approved: with the bytes that it had, to where
// the person read, and with nothing that came later.
func TestAnUploadedDirectoryIsTheOneThatWasApproved(t *testing.T) {
	s := terminalSite(t, filepath.Join(plugins, "hostops.wasm"))
	work := filepath.Join(s.dir, "lab/workspace/demo")
	file := func(name, text string) {
		t.Helper()
		p := filepath.Join(work, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o700))
		must(t, os.WriteFile(p, []byte(text), 0o600))
	}
	const tool = "proxmox_upload_directory_to_host"
	for _, c := range []struct {
		what, dir string
		before    func(dir string)
		meanwhile func(dir string)
		want      string   // the outcome
		wrote     []string // below /opt/DIR
	}{
		{"as it was", "a", nil, nil, "succeeded", []string{"css/x", "index"}},
		{"a file that came later", "b", nil, func(d string) { file(d+"/late", "z") }, "succeeded",
			[]string{"css/x", "index"}},
		{"a file with other bytes", "c", nil, func(d string) { file(d+"/css/x", "y") }, "failed",
			nil},
		{"a file that is gone", "d", nil, func(d string) {
			must(t, os.Remove(filepath.Join(work, d, "css/x")))
		}, "failed", nil},
		{"a file that became a link", "e", nil, func(d string) {
			p := filepath.Join(work, d, "css/x")
			must(t, os.Remove(p))
			must(t, os.Symlink("../../a/index", p))
		}, "failed", nil},
		{"a link on the node where a directory is to be made", "f", nil, func(string) {
			s.run(t, "ln", "-s", "/etc", "/opt/f")
		}, "failed", nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			file(c.dir+"/index", "one\n")
			file(c.dir+"/css/x", "b\n")
			b := s.begin(t, tool, `{"local_dir":"`+c.dir+`","host_dir":"/opt/`+c.dir+`"}`)
			shown, err := s.command("approvals", "show", "--as", "ann", b.id).CombinedOutput()
			if err != nil || !strings.Contains(string(shown), "/opt/"+c.dir+"/css/x") {
				t.Errorf("the approver does not see where it goes: %v\n%s", err, shown)
			}
			if c.meanwhile != nil {
				c.meanwhile(c.dir)
			}
			n := len(s.lab.Effects())
			r := b.approved(t)
			if r.Outcome != c.want && !(c.want == "failed" && r.Outcome == "refused") {
				t.Errorf("%s, want %s: %s", r.Outcome, c.want, r.all)
			}
			var wrote []string
			for _, e := range s.lab.Effects()[n:] {
				if e.Op == "rename" {
					wrote = append(wrote, strings.TrimPrefix(e.Target, "/opt/"+c.dir+"/"))
				}
			}
			slices.Sort(wrote)
			if !slices.Equal(wrote, c.wrote) {
				t.Errorf("the node has %q, want %q: %q", wrote, c.wrote, first(since(s, n)))
			}
		})
	}
	t.Run("as many files as a call may upload", func(t *testing.T) {
		for i := range 1_000 {
			file(fmt.Sprintf("many/%d/access-%04d.log", i%10, i), "one\n")
		}
		b := s.begin(t, tool, `{"local_dir":"many","host_dir":"/opt/many"}`)
		shown, err := s.command("approvals", "show", "--as", "ann", b.id).CombinedOutput()
		if n := strings.Count(string(shown), "/access-"); err != nil || n != 1_000 {
			t.Errorf("the approver sees %d names: %v\n%.2000s", n, err, shown)
		}
		if r := b.approved(t); r.Outcome != "succeeded" || !strings.Contains(r.all, "1000 files") {
			t.Errorf("%s: %.2000s", r.Outcome, r.all)
		}
	})
	before := len(s.lab.Effects())
	for what, args := range map[string]string{
		"beside the site's folders": `{"local_dir":"a","host_dir":"/etc/a"}`,
		"a directory with a secret": `{"local_dir":"a","host_dir":"/opt/.ssh"}`,
		"not in the workspace":      `{"local_dir":"../a","host_dir":"/opt/a"}`,
		"nothing in it":             `{"local_dir":"none","host_dir":"/opt/none"}`,
	} {
		out, err := s.command("call", tool, args).CombinedOutput()
		if err == nil {
			t.Errorf("%s: %s", what, out)
		}
	}
	if changes, _ := since(s, before); len(changes) > 0 {
		t.Errorf("what was refused left %q on the node", changes)
	}
}
