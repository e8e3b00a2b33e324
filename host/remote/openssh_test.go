package remote

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

func openSSH(t testing.TB, lines ...string) (*sshtest.OpenSSH, Options) {
	t.Helper()
	s := sshtest.StartOpenSSH(t, lines...)
	host, port := s.HostPort()
	return s, Options{Workspace: filepath.Join(t.TempDir(), "workspace"), StageRoot: t.TempDir(),
		Nodes: []NodeOptions{{Name: "n1", Cluster: "c1", Login: Login{Host: host, Port: port, User: s.User, IdentityFile: s.ClientFile, HostKey: s.Pin()}}}}
}

func start(t testing.TB, o Options) *Remote {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestOpenSSH(t *testing.T) {
	_, o := openSSH(t)
	r := start(t, o)
	if v := mustExec(t, r, "/usr/bin/printf", "%s", `it's "$HOME"`); v.Stdout != `it's "$HOME"` || v.Exit != 0 {
		t.Errorf("%+v", v)
	}
	if v := mustExec(t, r, "sh", "-c", "kill -TERM $$"); v.Exit != 143 || v.Signal != "TERM" {
		t.Errorf("killed by TERM: %+v", v)
	}
	began := time.Now()
	if v := mustExec(t, r, "sh", "-c", "echo started; sleep 30 &"); v.Stdout != "started\n" || !v.Truncated || time.Since(began) > 5*time.Second {
		t.Errorf("a process left behind that holds the output open: %+v after %s", v, time.Since(began))
	}
	dir := t.TempDir()
	big := []byte(strings.Repeat("0123456789abcdef", 200_000))
	write(t, filepath.Join(o.Workspace, "agent-a", "big"), big)
	res, err := do(t.Context(), r, gate.SFTPPut{OnNode: on("n1"), Local: "big", Path: dir + "/big", Mode: "0644"}, yellow)
	if err != nil || res.SHA256 != digest(big) {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = do(t.Context(), r, gate.SFTPGet{OnNode: on("n1"), Path: dir + "/big", Local: "back"}, yellow); err != nil || res.SHA256 != digest(big) {
		t.Fatalf("%+v, %v", res, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left on the node: %v", left)
	}
	_, err = do(t.Context(), r, gate.SFTPPut{OnNode: on("n1"), Local: "big", Path: dir + "/big"}, yellow)
	refused(t, err, "exists", gate.Failed)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			if v, err := execute(t.Context(), r, "echo", "x"); err != nil || v.Stdout != "x\n" {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	all.Wait()
}
