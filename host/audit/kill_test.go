package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CAPONIER_AUDIT_TEST_WRITER"); dir != "" {
		writer(dir)
	}
	os.Exit(m.Run())
}

// writer says of each intent, after it was acknowledged, that its effect happened.
func writer(dir string) {
	j, err := Open(Options{Dir: dir, MaxFileBytes: 8 << 10})
	if err != nil {
		panic(err)
	}
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				r := rec(fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i), "intent")
				if err := j.Intent(bg, r, i%2 == 0); err != nil {
					panic(err)
				}
				os.Stdout.WriteString(r.ID + "\n")
				r.Type, r.Outcome = "outcome", gate.Succeeded
				if err := j.Outcome(bg, r); err != nil {
					panic(err)
				}
			}
		}()
	}
	select {}
}

func TestKilledProcessesLoseNoIntent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var effects []string
	for range 12 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "CAPONIER_AUDIT_TEST_WRITER="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		first, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if r := verify(t, dir); !r.OK() {
			t.Fatalf("while it runs: %v", r.Problems)
		}
		time.AfterFunc(rand.N(30*time.Millisecond), func() { cmd.Process.Signal(syscall.SIGKILL) })
		rest, err := io.ReadAll(said)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		effects = append(effects, strings.Fields(first+string(rest))...)
	}
	r := verify(t, dir)
	if !r.OK() {
		t.Errorf("kills look like tampering: %v", r.Problems)
	}
	if !strings.Contains(fmt.Sprint(r.Warnings), "its process was killed") {
		t.Errorf("kills were not told: %v", r.Warnings)
	}
	journaled := map[string]bool{}
	for _, e := range all(t, dir) {
		if e.Record != nil && e.Record.Type == "intent" {
			journaled[e.Record.ID] = true
		}
	}
	for _, id := range effects {
		if !journaled[id] {
			t.Errorf("effect %s without an intent", id)
		}
	}
	if len(effects) < 100 || len(r.Unfinished) > 12*4 {
		t.Errorf("%d effects, %d unfinished", len(effects), len(r.Unfinished))
	}
	t.Logf("%d effects, %d files, %d unfinished", len(effects), len(r.Files), len(r.Unfinished))
}

func TestTornEndIsNoTampering(t *testing.T) {
	j := open(t, Options{})
	for i := range 3 {
		if err := j.Intent(bg, rec(fmt.Sprint(i), "intent"), false); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	name := all(t, j.opt.Dir)[0].File
	path := filepath.Join(j.opt.Dir, name)
	data, _ := os.ReadFile(path)
	end := len(data) - 1
	for cut := end; cut >= 0; cut -= 97 {
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		r := verify(t, j.opt.Dir)
		if !r.OK() || !strings.Contains(fmt.Sprint(r.Warnings), "killed") {
			t.Errorf("cut at byte %d: problems %v, warnings %v", cut, r.Problems, r.Warnings)
		}
		if whole := strings.Count(string(data[:cut]), "\n"); len(all(t, j.opt.Dir)) != whole {
			t.Errorf("cut at byte %d: read %d of %d whole entries", cut, len(all(t, j.opt.Dir)), whole)
		}
	}
}

func TestRealFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root, so no file system of its own; TestFullDiskRefusesAndRecovers has the same with an injected fault")
		return
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Logf("no tmpfs here (%v); TestFullDiskRefusesAndRecovers has the same with an injected fault", err)
		return
	}
	defer syscall.Unmount(dir, 0)
	j := open(t, Options{Dir: dir})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var written []string
	var err error
	for i := 0; err == nil; i++ {
		id := fmt.Sprint(i)
		if err = j.Intent(bg, rec(id, "intent"), true); err == nil {
			written = append(written, id)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || len(written) < 10 {
		t.Fatalf("after %d intents: %v", len(written), err)
	}
	small := rec("small", "outcome")
	small.Input, small.Principal = nil, strings.Repeat("x", 4096)
	if err := j.Outcome(bg, small); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an outcome on a full disk: %v", err)
	}
	if err := j.Intent(bg, rec("refused", "intent"), false); err == nil {
		t.Error("an intent before its pending outcome")
	}
	os.Remove(ballast)
	if err := j.Intent(bg, rec("again", "intent"), true); err != nil {
		t.Errorf("with room again: %v", err)
	}
	j.Close()
	if r := verify(t, dir); !r.OK() {
		t.Error(r.Problems)
	}
	want := append(written, "small", "again")
	if got := strings.Fields(ids(all(t, dir))); !slices.Equal(got, want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a read-only journal: %v", err)
	}
}
