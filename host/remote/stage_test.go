package remote

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestLeftoversOfDeadProcessesAreRemoved(t *testing.T) {
	root := t.TempDir()
	host, _ := os.Hostname()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone, alive := dead.Process.Pid, os.Getppid()
	marker := func(host string, pid int) string { return fmt.Sprintf("caponier stage\n%s\n%d\n", host, pid) }
	hex := func(c string) string { return "caponier-" + strings.Repeat(c, 32) }
	for _, c := range []struct {
		name, marker string
		age          time.Duration
		mode         os.FileMode
		stays        bool
	}{
		{hex("0"), marker(host, gone), 2 * time.Hour, 0o700, false},
		{hex("1"), marker("elsewhere", 1), 2 * time.Hour, 0o700, false},
		{hex("2"), marker(host, gone), time.Minute, 0o700, true}, // too young
		{hex("3"), marker(host, alive), 2 * time.Hour, 0o700, true},
		{hex("4"), "", 2 * time.Hour, 0o700, true}, // not ours
		{hex("5"), "something else\n" + host + "\n1\n", 2 * time.Hour, 0o700, true},
		// others could have put something there
		{hex("6"), marker(host, gone), 2 * time.Hour, 0o755, true},
		{"caponier-backup", marker(host, gone), 2 * time.Hour, 0o700, true},
		{hex("G"), marker(host, gone), 2 * time.Hour, 0o700, true},
	} {
		d := filepath.Join(root, c.name)
		write(t, d+"/sub/file", []byte("x"))
		if c.marker != "" {
			write(t, d+"/"+stageMarker, []byte(c.marker))
		}
		os.Chmod(d, c.mode)
		then := time.Now().Add(-c.age)
		if err := os.Chtimes(d, then, then); err != nil {
			t.Fatal(err)
		}
	}
	victim := t.TempDir()
	write(t, victim+"/"+stageMarker, []byte(marker(host, gone)))
	os.Symlink(victim, filepath.Join(root, hex("7")))
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s, func(o *Options) { o.StageRoot = root })
	if _, err := do(t.Context(), r, abi.Stage{OnNode: on("n1")}, yellow); err != nil {
		t.Fatal(err)
	}
	left := func() string {
		var names []string
		all, _ := os.ReadDir(root)
		for _, e := range all {
			if !r.owns(r.nodes["n1"], filepath.Join(root, e.Name())) {
				names = append(names, e.Name())
			}
		}
		return strings.Join(names, " ")
	}
	want := strings.Join(
		[]string{
			hex("2"),
			hex("3"),
			hex("4"),
			hex("5"),
			hex("6"),
			hex("7"),
			hex("G"),
			"caponier-backup",
		},
		" ",
	)
	for end := time.Now().Add(5 * time.Second); left() != want && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := left(); got != want {
		t.Errorf("left\n%s\nwant\n%s", got, want)
	}
	if _, err := os.Stat(victim + "/" + stageMarker); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

func TestStageOfACallThatIsCancelledDoesNotStay(t *testing.T) {
	leakless(t)
	root := t.TempDir()
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s, func(o *Options) { o.StageRoot = root })
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		res, err := do(ctx, r, abi.Stage{OnNode: on("n1")}, yellow)
		cancel()
		if err == nil {
			r.End(t.Context(), &gate.Call{Stages: []gate.StageDir{*res.Stage}})
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, _ := os.ReadDir(root)
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %v", left)
		}
	}
}

func TestEndRemovesOnlyItsOwn(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	d := t.TempDir()
	write(t, d+"/f", nil)
	r.End(
		t.Context(),
		&gate.Call{Stages: []gate.StageDir{{Node: "n1", Dir: d}, {Node: "nowhere", Dir: d}}},
	)
	if _, err := os.Stat(d + "/f"); err != nil {
		t.Error(err)
	}
}
