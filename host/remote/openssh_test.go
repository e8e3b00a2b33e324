package remote

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func openSSH(t testing.TB, lines ...string) (*sshtest.OpenSSH, Options) {
	t.Helper()
	s := sshtest.StartOpenSSH(t, lines...)
	host, port := s.HostPort()
	return s, Options{Workspace: filepath.Join(t.TempDir(), "workspace"), StageRoot: t.TempDir(),
		Nodes: []NodeOptions{
			{
				Name:    "n1",
				Cluster: "c1",
				Login: Login{
					Host:         host,
					Port:         port,
					User:         s.User,
					IdentityFile: s.ClientFile,
					HostKey:      s.Pin(),
				},
			},
		}}
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
	if v := mustExec(t, r, "/usr/bin/printf", "%s", `it's "$HOME"`); v.Stdout != `it's "$HOME"` ||
		v.Exit != 0 {
		t.Errorf("%+v", v)
	}
	if v := mustExec(t, r, "sh", "-c", "kill -TERM $$"); v.Exit != 143 || v.Signal != "TERM" {
		t.Errorf("killed by TERM: %+v", v)
	}
	began := time.Now()
	if v := mustExec(t, r, "sh", "-c", "echo started; sleep 30 &"); v.Stdout != "started\n" ||
		!v.Truncated ||
		time.Since(began) > 20*time.Second {
		t.Errorf(
			"a process left behind that holds the output open: %+v after %s",
			v,
			time.Since(began),
		)
	}
	dir := t.TempDir()
	big := []byte(strings.Repeat("0123456789abcdef", 200_000))
	write(t, filepath.Join(o.Workspace, "agent-a", "big"), big)
	res, err := do(
		t.Context(),
		r,
		abi.SFTPPut{OnNode: on("n1"), Local: "big", Path: dir + "/big", Mode: "0644"},
		yellow,
	)
	if err != nil || res.SHA256 != digest(big) {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = do(t.Context(), r, abi.SFTPGet{OnNode: on("n1"), Path: dir + "/big",
		Local: "back"}, yellow); err != nil ||
		res.SHA256 != digest(big) {
		t.Fatalf("%+v, %v", res, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left on the node: %v", left)
	}
	_, err = do(
		t.Context(),
		r,
		abi.SFTPPut{OnNode: on("n1"), Local: "big", Path: dir + "/big"},
		yellow,
	)
	refused(t, err, "exists", terms.Failed)
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

func TestOpenSSHRestarts(t *testing.T) {
	leakless(t)
	s, o := openSSH(t)
	r := start(t, o)
	mustExec(t, r, "true")
	if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"}, green); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for end := time.Now().Add(10 * time.Second); r.Connected() &&
		time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	_, err := execute(t.Context(), r, "true")
	refused(t, err, "connection", terms.Failed, "n1")
	s.Start()
	healthy(t, r)
	if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"}, green); err != nil {
		t.Errorf("SFTP after the restart: %v", err)
	}
	t.Run("with another host key it is refused", func(t *testing.T) {
		s.Kill()
		s.NewHostKey()
		s.Start()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			_, err := execute(t.Context(), r, "true")
			if err != nil && strings.HasPrefix(err.Error(), "host_key") {
				refused(t, err, "host_key", terms.Failed, s.Pin(), o.Nodes[0].HostKey)
				return
			}
			if err == nil || time.Now().After(end) {
				t.Fatalf("got %v", err)
			}
		}
	})
}

// healthy waits until a command works, as it must within a few seconds after a fault.
func healthy(t *testing.T, r *Remote) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if v, err := execute(t.Context(), r, "echo", "again"); err == nil && v.Stdout == "again\n" {
			return
		} else if time.Now().After(end) {
			t.Fatalf("not healthy again: %v", err)
		}
	}
}

func TestOpenSSHLimits(t *testing.T) {
	for name, lines := range map[string]string{
		"MaxSessions 2":  "MaxSessions 2", // fewer than Options.MaxSessions
		"MaxSessions 10": "MaxSessions 10",
		// every connection but one that is not logged in yet is dropped
		"MaxStartups 1:100:1":      "MaxStartups 1:100:1",
		"a slow login, LoginGrace": "LoginGraceTime 2",
	} {
		t.Run(name, func(t *testing.T) {
			_, o := openSSH(t, lines)
			r := start(t, o)
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() {
					if v, err := execute(t.Context(), r, "echo", "x"); err != nil ||
						v.Stdout != "x\n" {
						t.Errorf("%+v, %v", v, err)
					}
					if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"},
						green); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		})
	}
}

func TestOpenSSHRefusesCommands(t *testing.T) {
	_, o := openSSH(t, "ForceCommand internal-sftp")
	r := start(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := execute(ctx, r, "true")
	refused(t, err, "shell", terms.Failed, "n1")
	if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"}, green); err != nil {
		t.Errorf("files need no shell, but: %v", err)
	}
}

// A process that never writes may go on: sshd closes its pipes, and forwards no signal for root,
// who is not separated from sshd's own privileges.
func TestOpenSSHCancelEndsAProcessThatWrites(t *testing.T) {
	leakless(t)
	_, o := openSSH(t)
	r := start(t, o)
	mustExec(t, r, "true")
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var at atomic.Int64
	go func() {
		for ctx.Err() == nil {
			if text, _ := os.ReadFile(file); strings.HasSuffix(string(text), "\n") {
				at.Store(time.Now().UnixNano())
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := execute(
		ctx,
		r,
		"sh",
		"-c",
		"echo $$ > "+file+"; while echo tick; do sleep 0.05; done",
	)
	refused(t, err, "cancelled", terms.Unknown, "may still be running")
	text, _ := os.ReadFile(file)
	for {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(text))); os.IsNotExist(err) {
			break
		}
		if time.Since(time.Unix(0, at.Load())) > 20*time.Second {
			t.Fatal("the process still runs")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestOpenSSHTakesTheLongestCommand(t *testing.T) {
	_, o := openSSH(t)
	r := start(t, o)
	n := r.nodes["n1"].Node.Node
	text := "/bin/echo " + strings.Repeat("x", 128<<10-1-len("/bin/echo "))
	if e, err := command.Run(t.Context(), n, command.Command{Text: text,
		Max: 1 << 20}); err != nil ||
		e.Exit != 0 ||
		string(e.Stdout) != text[len("/bin/echo "):]+"\n" {
		t.Errorf("exit %d, %d bytes: %s, %v", e.Exit, len(e.Stdout), e.Stderr, err)
	}
	_, err := command.Run(t.Context(), n, command.Command{Text: text + "x", Max: 1})
	refused(t, err, "too_large", terms.Failed, "stage")
}
