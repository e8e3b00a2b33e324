package sweep

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
	_ "modernc.org/sqlite"
)

// world is a machine with a store and a workspace, and the disk of a node.
type world struct {
	store, workspace string
	tmp, place       string // of the node
	clock, boot      atomic.Int64
}

func newWorld(t *testing.T) *world {
	dir := t.TempDir()
	w := &world{store: dir + "/store", workspace: dir + "/workspace", tmp: dir + "/tmp",
		place: dir + "/place"}
	for _, d := range []string{w.store, w.workspace, w.workspace + "/agent", w.tmp, w.place} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.workspace+"/agent/a", []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.boot.Store(int64(time.Hour))
	return w
}

func (w *world) now() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.clock.Load()))
}

func (w *world) running() time.Duration { return time.Duration(w.boot.Load()) }

// temporary lists everything that is there for a time only.
func (w *world) temporary(t *testing.T) map[string]bool {
	found := map[string]bool{}
	for _, dir := range []string{w.workspace, w.tmp, w.place} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.Contains(path, "/caponier-") || strings.Contains(path, "caponier-partial") {
				found[path] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// faults are what may happen while the next host looks for what the dead one left. Each gets that
// host, and a way to start another one.
var faults = map[string]func(p *process, r *rand.Rand, another func(cut) *process){
	"nothing": func(p *process, _ *rand.Rand, _ func(cut) *process) { p.sweep() },
	"the node is away": func(p *process, _ *rand.Rand, _ func(cut) *process) {
		f := p.node.Faults()
		f.NoSFTP = true
		p.node.Set(f)
		p.sweep()
		f.NoSFTP = false
		p.node.Set(f)
	},
	"the store is locked": func(p *process, _ *rand.Rand, _ func(cut) *process) {
		db, err := sql.Open("sqlite", "file:"+p.w.store+"/store.db?mode=rw&_txlock=immediate")
		if err != nil {
			p.t.Fatal(err)
		}
		defer db.Close()
		tx, err := db.Begin()
		if err != nil {
			p.t.Fatal(err)
		}
		p.sweep()
		tx.Rollback()
	},
	"the disk is full": func(p *process, _ *rand.Rand, _ func(cut) *process) {
		p.set(func() { p.full = true })
		p.sweep()
		p.set(func() { p.full = false })
	},
	"the host is frozen": func(p *process, _ *rand.Rand, _ func(cut) *process) {
		p.set(func() { p.frozen = true })
		p.sweep()
		p.set(func() { p.frozen = false })
	},
	"the clock is set": func(p *process, r *rand.Rand, _ func(cut) *process) {
		p.w.clock.Add(int64(time.Duration(r.IntN(53)-26) * time.Hour))
		p.sweep()
		p.w.clock.Add(int64(time.Duration(r.IntN(53)-26) * time.Hour))
	},
	"what cannot be removed stands first": func(p *process, _ *rand.Rand,
		_ func(cut) *process) {
		p.w.poison(p.t)
		p.sweep()
	},
	"two sweep at once": func(p *process, _ *rand.Rand, another func(cut) *process) {
		other := another(cut{})
		var both sync.WaitGroup
		both.Go(p.sweep)
		both.Go(other.sweep)
		both.Wait()
	},
	"two sweep at once, and one is cut": func(p *process, r *rand.Rand,
		another func(cut) *process) {
		other := another(anyCut(r, 25))
		var both sync.WaitGroup
		both.Go(p.sweep)
		both.Go(func() { other.run(other.sweep) })
		both.Wait()
		other.reap()
		other.deliver()
	},
	"the sweep is cut": func(_ *process, r *rand.Rand, another func(cut) *process) {
		for range 3 {
			p := another(anyCut(r, 25))
			p.run(p.sweep)
			p.reap()
			p.deliver()
		}
	},
}

func anyCut(r *rand.Rand, steps int) cut {
	return cut{1 + r.IntN(steps), []string{before, after, late}[r.IntN(3)]}
}

func (p *process) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *process) sweep() { p.sweeper.sweep(p.t.Context()) }

// TestWhereverAProcessIsCutTheNextOneRemovesWhatItLeft cuts a process at each step of a call that
// moves files, and then has something go wrong while the next one looks. Once that is over, the
// next sweep leaves nothing of the dead on the node or in the workspace. Nothing of a process that
// lives, and waits in the middle of the same, is removed: it goes on and succeeds.
func TestWhereverAProcessIsCutTheNextOneRemovesWhatItLeft(t *testing.T) {
	whole := newProcess(t, newWorld(t), cut{})
	if err := whole.upload("b"); err != nil {
		t.Fatal(err)
	}
	steps := whole.steps
	if steps < 40 {
		t.Fatalf("a call has %d steps", steps)
	}
	names := slices.Sorted(maps.Keys(faults))
	seed := rand.Uint64()
	t.Logf("%d steps, seed %d", steps, seed)
	stride := needs.Share(14)
	for at := 1; at <= steps; at += stride {
		for i, how := range []string{before, after, late} {
			r := rand.New(rand.NewPCG(seed, uint64(4*at+i)))
			fault := names[r.IntN(len(names))]
			t.Run(fmt.Sprintf("%s %d, %s", how, at, fault), func(t *testing.T) {
				t.Parallel()
				cutAndSweep(t, r, cut{at, how}, steps, fault)
			})
		}
	}
}

func cutAndSweep(t *testing.T, r *rand.Rand, c cut, steps int, fault string) {
	w := newWorld(t)
	living := newProcess(t, w, cut{1 + r.IntN(steps), pause})
	result := make(chan error, 1)
	living.run(func() { result <- living.upload("living") })
	theirs := w.temporary(t)
	dead := newProcess(t, w, c)
	dead.run(func() { _ = dead.upload("dead") })
	dead.reap()
	if r.IntN(2) == 0 {
		dead.deliver()
	}
	next := newProcess(t, w, cut{})
	faults[fault](next, r, func(c cut) *process { return newProcess(t, w, c) })
	dead.deliver()
	next.sweep()
	for path := range w.temporary(t) {
		if !theirs[path] && !strings.Contains(path, poisoned) {
			t.Errorf("left: %s", path)
		}
	}
	w.boot.Add(int64(11 * time.Minute))
	next.sweep()
	if left, err := next.store.DeadStages(t.Context()); err != nil ||
		len(left) > len(w.poisonous()) {
		t.Errorf("recorded: %v, %v", left, err)
	}
	now := w.temporary(t)
	for path := range theirs {
		if !now[path] {
			t.Errorf("of the process that lives: %s", path)
		}
	}
	close(living.resumed)
	if err := <-result; err != nil {
		t.Errorf("the process that lives: %v", err)
	}
	for path := range w.temporary(t) {
		if !strings.Contains(path, poisoned) {
			t.Errorf("at the end: %s", path)
		}
	}
}

// TestSweepsOfTwoHostsCrossAnywhere has one host wait at each step of its sweep while another
// sweeps too, and ends at each step of that.
func TestSweepsOfTwoHostsCrossAnywhere(t *testing.T) {
	seed, stride := rand.Uint64(), needs.Share(8)
	t.Logf("seed %d", seed)
	const most = 24 // steps of a sweep
	for waits := 1; waits <= most; waits += stride {
		for ends := 1; ends <= most; ends += stride {
			r := rand.New(rand.NewPCG(seed, uint64(waits*100+ends)))
			c := anyCut(r, 1)
			c.at = ends
			t.Run(fmt.Sprintf("waits at %d, %s %d", waits, c.how, ends), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				dead := newProcess(t, w, cut{30 + r.IntN(90), after})
				dead.run(func() { _ = dead.upload("dead") })
				dead.reap()
				one, other := newProcess(t, w, cut{waits, pause}), newProcess(t, w, c)
				done := make(chan struct{})
				one.run(func() { one.sweep(); close(done) })
				if !other.run(other.sweep) {
					other.reap()
				}
				close(one.resumed)
				<-done
				other.deliver()
				one.sweep()
				if left := w.temporary(t); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

// poisoned is in the names of what is recorded and cannot be removed.
const poisoned = "caponier-0123abcd00000000"

func (w *world) poisonous() []string {
	return []string{filepath.Join(w.tmp, poisoned+"0000000000000000"),
		filepath.Join(w.tmp, poisoned+"0000000000000001")}
}

// poison records what cannot be removed, before everything else: files where directories were made.
func (w *world) poison(t *testing.T) {
	p := newProcess(t, w, cut{})
	for _, path := range w.poisonous() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.store.PutStage(context.Background(), stageOn("n1", path)); err != nil {
			t.Fatal(err)
		}
	}
	p.reap()
}
