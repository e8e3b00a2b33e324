package remote

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// What was decided is a digest: other bytes of the same length under the same name are not sent in
// their place.
func TestAnUploadSendsTheBytesThatWereDecided(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	q := question(abi.SFTPPut{OnNode: on("n1"), Local: "f", Path: "/f"})
	dir := filepath.Join(r.opts.Workspace, q.Call.Principal.ID)
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "f"), []byte("good"), 0o600)); err != nil {
		t.Fatal(err)
	}
	q.Call.Tool, q.Call.Targets.LocalPaths = &terms.Tool{}, []string{"f", "absent"}
	digests, err := r.Digests(q.Call)
	if err != nil || !strings.HasPrefix(digests["f"], "sha256:") || digests["absent"] != "none" {
		t.Fatalf("%v %v", digests, err)
	}
	q.Call.Files = digests
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	q.Phase = terms.PhaseLookup
	facts, err := r.Lookup(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.Phase, q.Facts = terms.PhaseEffect, facts
	_, err = r.Execute(t.Context(), q, yellow)
	var op *terms.OpError
	if !errors.As(err, &op) || op.Code != "changed" || op.Outcome != terms.Failed {
		t.Fatalf("other bytes were sent: %v", err)
	}
}

// trees is a call of a tool that uploads the directory dir of the workspace.
func trees(dir string) *terms.Call {
	return &terms.Call{ID: "call", Principal: terms.Principal{ID: "agent-a"},
		Targets: terms.Targets{LocalPaths: []string{dir}},
		Tool:    &terms.Tool{TargetKinds: []string{"trees"}, Imports: []string{"sftp_put"}}}
}

func TestADirectoryStandsForTheFilesBelowIt(t *testing.T) {
	r := newRemote(t, sshtest.New(t, sshtest.Options{}))
	d := filepath.Join(r.opts.Workspace, "agent-a")
	write(t, d+"/site/a", []byte("a"))
	write(t, d+"/site/b/c", []byte("c"))
	write(t, d+"/site/odd\\name", nil)
	write(t, d+"/site/not\xffutf8", nil)
	write(t, d+"/secret", []byte("s"))
	write(t, d+"/site2/x", nil)
	if err := errors.Join(os.Symlink("../secret", d+"/site/link"), os.Symlink("..", d+"/site/up"),
		syscall.Mkfifo(d+"/site/fifo", 0o600), os.Mkdir(d+"/site/empty", 0o700)); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"site": "none", "site/a": "sha256:" + digest([]byte("a")),
		"site/b/c": "sha256:" + digest([]byte("c")), "site/link": "none", "site/up": "none",
		"site/fifo": "none", `site/odd\name`: "none", "site/not\uFFFDutf8": "none"}
	if got, err := r.Digests(trees("site")); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v\nwant %v", got, err, want)
	}
	for name, change := range map[string]func(*terms.Call){
		"a tool without a remote directory": func(c *terms.Call) { c.Tool.TargetKinds = nil },
		"a tool that only downloads":        func(c *terms.Call) { c.Tool.Imports[0] = "sftp_get" },
	} {
		c := trees("site")
		change(c)
		if got, err := r.Digests(c); err != nil || len(got) != 1 || got["site"] != "none" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, c := range []struct{ dir, want string }{
		{"secret", "sha256:" + digest([]byte("s"))}, {"nothing", "none"}, {"site/up", "none"},
	} {
		got, err := r.Digests(trees(c.dir))
		if err != nil || len(got) != 1 || got[c.dir] != c.want {
			t.Errorf("%s: %v, %v", c.dir, got, err)
		}
	}
}

func TestADirectoryHasBounds(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	o := optionsFor(t, s)
	o.MaxFile = 100
	r := start(t, o)
	d := filepath.Join(r.opts.Workspace, "agent-a")
	for i := range 1001 {
		write(t, fmt.Sprintf("%s/many/%d", d, i), nil)
	}
	write(t, d+"/deep/"+strings.Repeat("d/", 40)+"f", nil)
	for i := range 3 {
		write(t, fmt.Sprintf("%s/heavy/%d", d, i), make([]byte, 60))
	}
	write(t, d+"/one/large", make([]byte, 101))
	for dir, want := range map[string]string{"many": "more than the 1000 files",
		"deep": "more than 32 directories", "heavy": "more than the 100 bytes"} {
		_, err := r.Digests(trees(dir))
		refused(t, err, "too_large", terms.Failed, want)
	}
}

// A file that was not there when the call was decided is in nobody's approval.
func TestAFileThatCameAfterTheDecisionIsNotSent(t *testing.T) {
	r := newRemote(t, sshtest.New(t, sshtest.Options{}))
	d, to := filepath.Join(r.opts.Workspace, "agent-a"), t.TempDir()
	write(t, d+"/site/a", []byte("a"))
	c := trees("site")
	var err error
	if c.Files, err = r.Digests(c); err != nil {
		t.Fatal(err)
	}
	write(t, d+"/site/b", []byte("b"))
	write(t, d+"/site/a", []byte("A"))
	for _, name := range []string{"a", "b", "."} {
		q := question(abi.SFTPPut{OnNode: on("n1"), Local: "site/" + name, Path: to + "/x/" + name,
			Parents: true})
		q.Call = c
		q.Facts.File = &terms.FileFacts{RealPath: to + "/x/" + name, LocalBytes: 1}
		if _, err := r.Execute(t.Context(), q, yellow); err == nil {
			t.Errorf("%s was sent", name)
		}
	}
	if _, err := os.Stat(to + "/x/b"); err == nil {
		t.Error("b is on the node")
	}
}

// put uploads the file f, whose parents may be missing.
func put(
	t *testing.T,
	r *Remote,
	to string,
	between func(terms.FileFacts),
) (terms.FileFacts, error) {
	t.Helper()
	write(t, filepath.Join(r.opts.Workspace, "agent-a", "f"), []byte("data"))
	q := question(abi.SFTPPut{OnNode: on("n1"), Local: "f", Path: to, Parents: true})
	q.Call.Files = map[string]string{"f": "sha256:" + digest([]byte("data"))}
	q.Phase = terms.PhaseLookup
	facts, err := r.Lookup(t.Context(), q)
	if err != nil {
		return terms.FileFacts{}, err
	}
	if between != nil {
		between(*facts.File)
	}
	q.Phase, q.Facts = terms.PhaseEffect, facts
	_, err = r.Execute(t.Context(), q, yellow)
	return *facts.File, err
}

// The files of a list are uploaded together, into directories that none of them finds.
func TestFilesUploadedTogetherMakeTheirDirectoriesOnce(t *testing.T) {
	bothServers(t, func(t *testing.T, r *Remote) {
		to := t.TempDir()
		write(t, filepath.Join(r.opts.Workspace, "agent-a", "f"), []byte("data"))
		var all sync.WaitGroup
		looked := &sync.WaitGroup{}
		looked.Add(24)
		for i := range 24 {
			all.Go(func() {
				q := question(abi.SFTPPut{OnNode: on("n1"), Local: "f", Parents: true,
					Path: fmt.Sprintf("%s/a/%d/c/f%d", to, i%3, i)})
				q.Call.Files = map[string]string{"f": "sha256:" + digest([]byte("data"))}
				q.Phase = terms.PhaseLookup
				facts, err := r.Lookup(t.Context(), q)
				looked.Done()
				looked.Wait()
				if err == nil {
					q.Phase, q.Facts = terms.PhaseEffect, facts
					_, err = r.Execute(t.Context(), q, yellow)
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
		for i := range 24 {
			got, err := os.ReadFile(fmt.Sprintf("%s/a/%d/c/f%d", to, i%3, i))
			if err != nil || string(got) != "data" {
				t.Errorf("%d: %q %v", i, got, err)
			}
		}
		left, _ := filepath.Glob(to + "/a/*/c/" + files.PartialPrefix + "*")
		if len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func TestMissingDirectoriesAreMade(t *testing.T) {
	bothServers(t, func(t *testing.T, r *Remote) {
		d := t.TempDir()
		write(t, d+"/real/there", nil)
		os.Symlink("real", d+"/link")
		os.Symlink("nowhere", d+"/dangling")
		os.WriteFile(d+"/file", nil, 0o600)
		for to, real := range map[string]string{
			"/a/b/c/f": "/a/b/c/f", "/link/x/f": "/real/x/f", "/real/f": "/real/f",
			"/link/y/../z/f": "",
		} {
			facts, err := put(t, r, d+to, nil)
			if real == "" {
				refused(t, err, "not_a_path", terms.Failed)
				continue
			}
			got, rerr := os.ReadFile(d + real)
			if err != nil || facts.RealPath != d+real || string(got) != "data" || facts.Exists {
				t.Errorf("%s: %+v, %v, %q %v", to, facts, err, got, rerr)
			}
		}
		for _, dir := range []string{"/a", "/a/b", "/real/x"} {
			if info, err := os.Stat(d + dir); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v, %v", dir, info, err)
			}
		}
		for _, to := range []string{"/file/f", "/file/x/f", "/dangling/x/f"} {
			if _, err := put(t, r, d+to, nil); err == nil {
				t.Errorf("%s was written", to)
			}
		}
	})
}

// What stands between a decision and its execution must still lead to the place that was decided.
func TestAPlaceThatMovesIsNotWrittenTo(t *testing.T) {
	bothServers(t, func(t *testing.T, r *Remote) {
		for name, between := range map[string]func(d string){
			"a link to another directory": func(d string) { os.Symlink(d+"/other", d+"/a") },
			"a link below": func(d string) {
				os.Mkdir(d+"/a", 0o755)
				os.Symlink(d+"/other", d+"/a/b")
			},
			"a file in its place": func(d string) { os.WriteFile(d+"/a", nil, 0o600) },
			"the file itself":     func(d string) { write(t, d+"/a/b/f", []byte("mine")) },
			"a dangling link":     func(d string) { os.Symlink(d+"/new", d+"/a") },
		} {
			d := t.TempDir()
			os.Mkdir(d+"/other", 0o755)
			_, err := put(t, r, d+"/a/b/f", func(terms.FileFacts) { between(d) })
			if err == nil {
				t.Errorf("%s: it was written", name)
			}
			for _, p := range []string{"/other/f", "/other/b", "/new"} {
				if _, err := os.Lstat(d + p); err == nil {
					t.Errorf("%s: %s was made", name, p)
				}
			}
		}
		d := t.TempDir()
		if _, err := put(t, r, d+"/a/b/f", func(terms.FileFacts) {
			os.MkdirAll(d+"/a/b", 0o755)
		}); err != nil {
			t.Errorf("directories that somebody else made: %v", err)
		}
	})
}
