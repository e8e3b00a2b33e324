package audit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// faulty is a file that fails when told to, after it has written part of the data.
type faulty struct {
	file
	f *faults
}

type faults struct {
	sync.Mutex
	write, truncate, sync, create error
	part                          int
	syncing                       func()
}

func (f *faults) set(do func()) {
	f.Lock()
	defer f.Unlock()
	do()
}

func (f faulty) WriteAt(p []byte, off int64) (int, error) {
	f.f.Lock()
	defer f.f.Unlock()
	if f.f.write != nil {
		n, _ := f.file.WriteAt(p[:min(f.f.part, len(p))], off)
		return n, f.f.write
	}
	return f.file.WriteAt(p, off)
}

func (f faulty) Truncate(n int64) error {
	f.f.Lock()
	defer f.f.Unlock()
	if f.f.truncate != nil {
		return f.f.truncate
	}
	return f.file.Truncate(n)
}

func (f faulty) Sync() error {
	f.f.Lock()
	defer f.f.Unlock()
	if f.f.syncing != nil {
		f.f.syncing()
	}
	if f.f.sync != nil {
		return f.f.sync
	}
	return f.file.Sync()
}

func openFaulty(t testing.TB, o Options) (*Journal, *faults) {
	j, f := open(t, o), &faults{}
	real := j.create
	j.create = func(path string) (file, error) {
		f.Lock()
		defer f.Unlock()
		if f.create != nil {
			return nil, f.create
		}
		inner, err := real(path)
		return faulty{inner, f}, err
	}
	j.seg.f = faulty{j.seg.f, f}
	return j, f
}

func TestFullDiskRefusesAndRecovers(t *testing.T) {
	for name, c := range map[string]struct {
		part     int
		truncate error
	}{"nothing was written": {0, nil},
		"half an entry was written":                   {100, nil},
		"half an entry was written and stays a while": {100, errors.New("stuck")}} {
		t.Run(name, func(t *testing.T) {
			j, f := openFaulty(t, Options{})
			if err := j.Intent(bg, rec("a", "intent"), true); err != nil {
				t.Fatal(err)
			}
			f.set(func() { f.write, f.part, f.truncate = syscall.ENOSPC, c.part, c.truncate })
			if err := j.Outcome(bg, rec("a", "outcome")); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("outcome on a full disk: %v", err)
			}
			for _, durable := range []bool{true, false} {
				if err := j.Intent(bg, rec("b", "intent"), durable); err == nil ||
					!strings.Contains(err.Error(), "1 outcomes are not written yet") {
					t.Errorf("intent on a full disk: %v", err)
				}
			}
			if r := verify(t, j.opt.Dir); !r.OK() {
				t.Errorf("while the disk is full: %v", r.Problems)
			}
			f.set(func() { f.write = nil })
			if err := j.Intent(bg, rec("c", "intent"), true); (err != nil) != (c.truncate != nil) {
				t.Errorf("intent when there is room again: %v", err)
			}
			f.set(func() { f.truncate = nil })
			if err := j.Intent(bg, rec("d", "intent"), true); err != nil {
				t.Errorf("intent after all: %v", err)
			}
			want := "a a c d"
			if c.truncate != nil {
				want = "a a d"
			}
			if got := ids(all(t, j.opt.Dir)); got != want {
				t.Errorf("the journal has %q, want %q", got, want)
			}
			j.Close()
			if r := verify(t, j.opt.Dir); !r.OK() {
				t.Error(r.Problems)
			}
		})
	}
}

func TestFailedSyncBeginsAnotherFile(t *testing.T) {
	j, f := openFaulty(t, Options{})
	if err := j.Intent(bg, rec("a", "intent"), true); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.sync = syscall.EIO })
	if err := j.Intent(bg, rec("b", "intent"), true); !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync that failed: %v", err)
	}
	f.set(func() { f.create = syscall.EROFS })
	if err := j.Intent(bg, rec("c", "intent"), false); !errors.Is(err, syscall.EROFS) {
		t.Errorf("no new file: %v", err)
	}
	f.set(func() { f.create, f.sync = nil, nil })
	if err := j.Intent(bg, rec("d", "intent"), true); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if r := verify(t, j.opt.Dir); !r.OK() || len(r.Files) != 2 {
		t.Errorf("%+v", r)
	}
	if got := ids(all(t, j.opt.Dir)); got != "a b d" {
		t.Errorf("the journal has %q", got)
	}
	// What the disk lost is told as lost by the disk, since the journal itself noted the failure.
	names, _ := files(j.opt.Dir)
	data, _ := os.ReadFile(filepath.Join(j.opt.Dir, names[0]))
	lines := strings.SplitAfter(string(data), "\n")
	os.WriteFile(filepath.Join(j.opt.Dir, names[0]), []byte(strings.Join(lines[:2], "")), 0o600)
	if r := verify(t, j.opt.Dir); !r.OK() ||
		!strings.Contains(fmt.Sprint(r.Warnings), "lost when its disk failed") {
		t.Errorf("%+v", r)
	}
}

func TestRotationOnAFullDisk(t *testing.T) {
	j, f := openFaulty(t, Options{MaxFileBytes: 4096})
	for i := 0; ; i++ {
		j.mu.Lock()
		full := j.seg.size >= j.opt.MaxFileBytes
		j.mu.Unlock()
		if full {
			break
		}
		if err := j.Intent(bg, rec("x", "intent"), false); err != nil {
			t.Fatal(err)
		}
	}
	for _, fault := range []func(){func() { f.create = syscall.ENOSPC },
		func() { f.create, f.write = nil, syscall.ENOSPC }, func() {
			f.write, f.sync = nil,
				syscall.EIO
		}} {
		f.set(fault)
		if err := j.Intent(bg, rec("y", "intent"), true); err == nil {
			t.Error("an intent without a file to write it to")
		}
	}
	f.set(func() { f.sync = nil })
	if err := j.Intent(bg, rec("z", "intent"), true); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if r := verify(t, j.opt.Dir); !r.OK() || len(r.Files) != 2 {
		t.Errorf("%+v", r)
	}
	if got := ids(all(t, j.opt.Dir)); !strings.HasSuffix(got, "x z") {
		t.Errorf("the journal has %q", got)
	}
}

// volatile is a file whose unsynced end a power cut loses, as far as it likes.
type volatile struct {
	file
	path   string
	mu     sync.Mutex // guards the following
	size   int64
	synced int64
}

func (v *volatile) WriteAt(p []byte, off int64) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.size = max(v.size, off+int64(len(p)))
	return v.file.WriteAt(p, off)
}

func (v *volatile) Sync() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.synced = v.size
	return v.file.Sync()
}

func TestAPowerCutLosesNoDurableIntent(t *testing.T) {
	for range 20 {
		var disk []*volatile
		j := open(t, Options{MaxFileBytes: 4096})
		real, first := j.create, &volatile{file: j.seg.f,
			path: filepath.Join(j.opt.Dir, j.seg.name), size: j.seg.size, synced: j.seg.size}
		j.seg.f, disk = first, append(disk, first)
		j.create = func(path string) (file, error) {
			f, err := real(path)
			disk = append(disk, &volatile{file: f, path: path})
			return disk[len(disk)-1], err
		}
		var mu sync.Mutex // guards sure
		var sure []string
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range rand.N(40) {
					r, durable := rec(fmt.Sprintf("%d-%d", w, i), "intent"), rand.N(3) == 0
					if err := j.Intent(bg, r, durable); err != nil {
						t.Error(err)
					}
					if durable {
						mu.Lock()
						sure = append(sure, r.ID)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for _, v := range disk {
			if err := os.Truncate(v.path, v.synced+rand.N(v.size-v.synced+1)); err != nil {
				t.Fatal(err)
			}
			v.Close() // the process is gone
		}
		if r := verify(t, j.opt.Dir); !r.OK() {
			t.Errorf("a power cut looks like tampering: %v", r.Problems)
		}
		kept := strings.Fields(ids(all(t, j.opt.Dir)))
		for _, id := range sure {
			if !slices.Contains(kept, id) {
				t.Errorf("durable intent %s is lost", id)
			}
		}
	}
}

// Asking whether the journal works makes it try, so that it recovers without calls.
func TestReadyTriesToWrite(t *testing.T) {
	j, f := openFaulty(t, Options{})
	if err := j.Ready(); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.write = syscall.ENOSPC })
	if err := j.Outcome(bg, rec("1", "outcome")); err == nil {
		t.Fatal("the outcome was written")
	}
	for range 2 {
		if err := j.Ready(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	f.set(func() { f.write = nil })
	if err := j.Ready(); err != nil || len(j.pending) != 0 {
		t.Errorf("with room again: %v, %d outcomes wait", err, len(j.pending))
	}
	j.Close()
	if err := j.Ready(); err == nil {
		t.Error("a closed journal is ready")
	}
}
