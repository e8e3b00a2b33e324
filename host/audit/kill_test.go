package audit

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
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
				// The spaces fill the pipe: nobody reads it while the journal is verified.
				fmt.Fprintf(os.Stdout, "%-200s\n", r.ID)
				r.Type, r.Outcome = "outcome", terms.Succeeded
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
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if r := verify(t, dir); !r.OK() {
			t.Fatalf("while it runs: %v", r.Problems)
		}
		text := line
		for range 10 + rand.N(40) { // then comes the kill, at another place each time
			if line, err = said.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			text += line
		}
		time.Sleep(rand.N(time.Millisecond))
		cmd.Process.Signal(syscall.SIGKILL)
		rest, err := io.ReadAll(said)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		effects = append(effects, strings.Fields(text+string(rest))...)
	}
	r := verify(t, dir)
	if !r.OK() {
		t.Errorf("kills look like tampering: %v", r.Problems)
	}
	if !strings.Contains(fmt.Sprint(r.Warnings), "have no end: their processes were killed") ||
		len(r.Warnings) > 5 {
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

func TestATornEndIsNotTampering(t *testing.T) {
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
			t.Errorf("cut at byte %d: read %d of %d whole entries", cut, len(all(t, j.opt.Dir)),
				whole)
		}
	}
}
