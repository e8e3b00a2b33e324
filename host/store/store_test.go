package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/terms"
)

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestWhatAKilledProcessReservedStaysSpent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Dir: t.TempDir()})
	said := int64(0)
	const rounds = 6
	for range rounds {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "CAPONIER_STORE_TEST_SPENDER="+s.opt.Dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 2) // more than one reservation in each round
		if _, err := io.ReadFull(out, first); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, func() { cmd.Process.Kill() })
		rest, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		said += int64(len(first) + len(rest))
	}
	got, _, err := s.Take(bg, call("agent"))
	if err != nil || got.USDMicrosToday < said || got.USDMicrosToday > said+rounds {
		t.Errorf("%d were acknowledged, the store says %d, %v", said, got.USDMicrosToday, err)
	}
}

func TestProcessesMayStartTogether(t *testing.T) {
	dir := t.TempDir()
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			s, err := Open(Options{Dir: dir})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestAGoneStoreRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		do  func(dir string) error
		why string
	}{
		"deleted": {func(d string) error { return os.Remove(filepath.Join(d, "store.db")) },
			"the store is gone"},
		"moved": {func(d string) error { return os.Rename(d, d+"2") }, "the store is gone"},
		"replaced": {func(d string) error {
			return errors.Join(os.Rename(filepath.Join(d, "store.db"), filepath.Join(d, "old")),
				os.WriteFile(filepath.Join(d, "store.db"), nil, 0o600))
		}, "was replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Dir: filepath.Join(t.TempDir(), "state")})
			if _, _, err := s.Take(bg, call("x")); err != nil {
				t.Fatal(err)
			}
			if err := c.do(s.opt.Dir); err != nil {
				t.Fatal(err)
			}
			_, _, err := s.Take(bg, call("x"))
			_, err2 := s.Reserve(bg, "x", 1, 9)
			_, err3 := s.Join(
				bg,
				approval.Request{ID: "1", Key: "k", Principal: "x", TTL: time.Minute,
					Detail: json.RawMessage("{}")},
				9,
			)
			_, err4 := s.Decide(bg, "1", approval.Verdict{Approve: true, By: "ops"})
			_, err5 := s.Consume(bg, "k")
			_, err6 := s.Usage(bg)
			for _, err := range []error{err, err2, err3, err4, err5, err6} {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("got %v, want %q", err, c.why)
				}
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	garbage, newer, file := filepath.Join(dir, "garbage"), filepath.Join(dir,
		"newer"), filepath.Join(dir, "file")
	s := open(t, Options{Dir: newer})
	if _, err := s.sure.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	shared, loose := filepath.Join(dir, "shared"), filepath.Join(dir, "loose")
	linked, pipe := filepath.Join(dir, "linked"), filepath.Join(dir, "pipe")
	for _, d := range []string{loose, linked, pipe} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777),
		os.WriteFile(filepath.Join(loose, "store.db"), nil, 0o600),
		os.Chmod(filepath.Join(loose, "store.db"), 0o666),
		os.Symlink(filepath.Join(loose, "store.db"), filepath.Join(linked, "store.db")),
		syscall.Mkfifo(filepath.Join(pipe, "store.db"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(garbage, 0o700),
		os.WriteFile(filepath.Join(garbage, "store.db"), []byte(strings.Repeat("garbage ", 999)),
			0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o   Options
		why string
	}{"a file that is no database": {Options{Dir: garbage}, "not a database"},
		"a newer schema":         {Options{Dir: newer}, "schema version 99"},
		"a file for a directory": {Options{Dir: file}, "not a directory"},
		"a directory that others may write to": {Options{Dir: shared},
			"can be written by other users"},
		"a database that others may write to": {Options{Dir: loose},
			"can be written by other users"},
		"a database that is a link out": {Options{Dir: linked},
			"can be written by other users"},
		"a database that is a FIFO": {Options{Dir: pipe}, "is not a regular file"},
		"a negative wait":           {Options{Dir: dir, Busy: -1}, "store.busy"}} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(c.o); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}

func TestABusyStoreRefusesInTime(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, Options{Dir: dir}), open(t, Options{Dir: dir, Busy: 50 * time.Millisecond})
	tx, err := a.sure.Begin()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, _, err := b.Take(bg, call("x")); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("another process holds it: %v", err)
	}
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if _, _, err := a.Take(ctx, call("x")); err == nil {
		t.Error("counted while it was locked")
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got, _, err := b.Take(bg, call("x")); err != nil || got.Calls60s != 1 {
		t.Errorf("free again: %+v, %v", got, err)
	}
}

func TestAFullStoreRefuses(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	var pages int
	if err := s.sure.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sure.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages+2)); err != nil {
		t.Fatal(err)
	}
	var err error
	reserved := 0
	for ; err == nil && reserved < 100_000; reserved++ {
		_, err = s.Reserve(bg, strings.Repeat("x", 200), 1, 1<<40)
	}
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("after %d reservations: %v", reserved, err)
	}
	if _, err := s.sure.Exec("PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.Take(bg, call(strings.Repeat("x", 200)))
	if err != nil || got.USDMicrosToday != int64(reserved-1) {
		t.Errorf("%d were reserved, the store says %d, %v", reserved-1, got.USDMicrosToday, err)
	}
}

func TestFilesAreOnlyForTheirOwner(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "state")})
	if _, _, err := s.Take(bg, call("x")); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(s.opt.Dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(s.opt.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
}

func BenchmarkTake(b *testing.B) {
	s := open(b, Options{Dir: b.TempDir()})
	c := &terms.Call{Tool: aTool, Principal: terms.Principal{ID: "a"},
		Targets: terms.Targets{VMIDs: []string{"105"}, Nodes: []string{"pve1"}}}
	for b.Loop() {
		_, back, err := s.Take(bg, c)
		if err != nil {
			b.Fatal(err)
		}
		back()
	}
}

// Hosts that start at the same time all see what a dead one left, none takes another one that looks
// for the process, and the files of processes go.
func TestAllHostsThatLookAtOnceSeeWhatADeadOneLeft(t *testing.T) {
	dir := t.TempDir()
	var hosts []*Store
	for range 4 {
		hosts = append(hosts, open(t, Options{Dir: dir}))
	}
	for n := range 100 {
		at := terms.StageDir{Node: "pve1", Dir: fmt.Sprint("/tmp/", n)}
		dead := open(t, Options{Dir: dir})
		if err := dead.PutStage(bg, at); err != nil {
			t.Fatal(err)
		}
		lock := filepath.Join(dir, dead.process)
		err := errors.Join(os.Link(lock, lock+".kept"), dead.Close(),
			os.Rename(lock+".kept", lock))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		begin := make(chan struct{})
		for _, s := range hosts {
			all.Go(func() {
				<-begin
				if ended, err := s.ended(dead.process); !ended || err != nil {
					t.Errorf("ended %v, %v", ended, err)
				}
				found, err := s.DeadStages(bg)
				if err != nil || !slices.Equal(found, []terms.StageDir{at}) {
					t.Errorf("found %v, %v", found, err)
				}
			})
		}
		close(begin)
		all.Wait()
		if left, _ := filepath.Glob(dir + "/process-*"); len(left) > 0 {
			t.Fatalf("left: %q", left)
		}
		if err := hosts[0].RemoveStage(bg, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A record of what is not there stays as long as a request may be under way, whatever happens to
// the clock and the machine.
func TestAMissingStageIsForgottenWhenNothingCanMakeItAnyMore(t *testing.T) {
	at, boot, clock := terms.StageDir{Node: "pve1", Dir: "/tmp/1"}, time.Hour, time.Unix(1e9, 0)
	s := open(t, Options{Dir: t.TempDir(), Now: func() time.Time { return clock },
		Boot: func() time.Duration { return boot }})
	if err := s.PutStage(bg, at); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		runs, clock time.Duration
		forgotten   bool
	}{{0, 0, false}, {9 * time.Minute, 0, false}, {0, 26 * time.Hour, false},
		{-time.Hour, -26 * time.Hour, false}, // the machine started again
		{9 * time.Minute, 0, false}, {time.Minute, 0, true}} {
		boot, clock = boot+c.runs, clock.Add(c.clock)
		if forgotten, err := s.MissedStage(bg, at); forgotten != c.forgotten || err != nil {
			t.Errorf("%d: forgotten %v, %v", i, forgotten, err)
		}
	}
}

// What only one machine can tell is in the embedded store alone.
func TestStagesBelongToTheirProcessWhileItLives(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, Options{Dir: dir}), open(t, Options{Dir: dir})
	one, two := terms.StageDir{Node: "pve1", Dir: "/tmp/1"}, terms.StageDir{Dir: "part"}
	if err := errors.Join(a.PutStage(bg, one), a.PutStage(bg, two),
		a.PutStage(bg, two)); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Store{a, b} {
		if dead, err := e.DeadStages(bg); len(dead) > 0 || err != nil {
			t.Errorf("their process lives: %v, %v", dead, err)
		}
	}
	if err := errors.Join(b.PutStage(bg, terms.StageDir{Node: "pve2", Dir: "/tmp/3"}),
		a.RemoveStage(bg, two), a.RemoveStage(bg, two), a.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // as long as it is not removed
		if dead, err := b.DeadStages(bg); err != nil ||
			!reflect.DeepEqual(dead, []terms.StageDir{one}) {
			t.Errorf("dead: %v, %v", dead, err)
		}
	}
	if err := b.RemoveStage(bg, one); err != nil {
		t.Fatal(err)
	}
	if dead, err := b.DeadStages(bg); len(dead) > 0 || err != nil {
		t.Errorf("removed: %v, %v", dead, err)
	}
}
