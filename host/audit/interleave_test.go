package audit

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"golang.org/x/sys/unix"
)

// writers are processes that share a journal, and a reader behind a cursor, in an order that a seed
// makes.
type writers struct {
	t       *testing.T
	dir     string
	random  *rand.Rand
	open    []*Journal
	cursor  Cursor
	written map[string]bool
	read    map[string]bool
	gaps    []string
}

// look takes some of the steps behind the cursor, or all.
func (w *writers) look(all bool) {
	left := w.random.IntN(8)
	for s, err := range Behind(w.dir, &w.cursor) {
		if err != nil {
			w.t.Fatal(err)
		}
		if left--; left < 0 && !all {
			return // a sink that fails
		}
		if s.Gap != "" {
			w.gaps = append(w.gaps, s.Gap)
		} else if s.Entry.Record != nil {
			w.read[s.Entry.Record.ID] = true
		}
		w.cursor.Take(s)
	}
}

func (w *writers) sometimes(do func()) {
	if w.random.IntN(2) == 0 {
		do()
	}
}

// create is createFile with looks between its parts.
func (w *writers) create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w.sometimes(func() { w.look(true) })
	err = errors.Join(lock(f, unix.LOCK_EX), syncDir(w.dir))
	w.sometimes(func() { w.look(true) })
	return osFile{f}, err
}

func (w *writers) begin() {
	j := &Journal{opt: Options{Dir: w.dir, MaxFileBytes: 1500}, create: w.create,
		turn: make(chan struct{}, 1)}
	if full, err := Open(Options{Dir: w.dir, MaxFileBytes: 1500}); err != nil {
		w.t.Fatal(err)
	} else {
		j.opt = full.opt // with its defaults
		if err := full.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := j.start(); err != nil {
		w.t.Fatal(err)
	}
	w.open = append(w.open, j)
}

func (w *writers) put(j *Journal) {
	id := fmt.Sprint("r", len(w.written))
	if j.Intent(w.t.Context(), terms.Record{Type: "intent", ID: id}, false) == nil {
		w.written[id] = true
	}
}

// damage removes a file that a process writes to, or the last line of it, which the process sees
// when it writes again.
func (w *writers) damage(j *Journal) {
	path := filepath.Join(w.dir, j.seg.name)
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	if w.random.IntN(2) == 0 {
		err = os.Remove(path)
	} else {
		lines := bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
		err = os.Truncate(path, int64(len(bytes.Join(lines[:len(lines)-1], nil))))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(j)
}

func (w *writers) run(damaged bool) {
	w.begin()
	for range 60 {
		j := w.open[w.random.IntN(len(w.open))]
		switch n := w.random.IntN(20); {
		case n < 11:
			w.put(j)
		case n < 16:
			w.look(false)
		case n == 16 && damaged:
			w.damage(j)
		case n < 18 && len(w.open) < 3:
			w.begin()
		case len(w.open) > 1:
			w.open = slices.DeleteFunc(w.open, func(o *Journal) bool { return o == j })
			if err := j.Close(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for _, j := range w.open {
		w.put(j)
		if err := j.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.look(true)
	w.look(true) // of files that were away
}

func newWriters(t *testing.T, seed uint64) *writers {
	return &writers{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 1)),
		written: map[string]bool{}, read: map[string]bool{}}
}

// orders returns how many orders a test tries.
func orders() uint64 {
	if testing.Short() {
		return 60
	}
	return 1000
}

func TestNoOrderOfLooksAndWritesLosesARecord(t *testing.T) {
	for seed := range orders() {
		w := newWriters(t, seed)
		if w.run(false); !maps.Equal(w.read, w.written) || len(w.gaps) > 0 ||
			w.cursor.Left(w.dir) > 0 {
			t.Fatalf("seed %d: wrote %d, read %d, %d bytes left, told %q", seed, len(w.written),
				len(w.read), w.cursor.Left(w.dir), w.gaps)
		}
	}
}

func TestWhatDamageTakesIsTold(t *testing.T) {
	lost := 0
	for seed := range orders() {
		w := newWriters(t, seed)
		w.run(true)
		missing := 0
		for id := range w.written {
			if !w.read[id] {
				missing++
			}
		}
		if lost += missing; missing > 0 && len(w.gaps) == 0 {
			t.Fatalf("seed %d: %d records are missing, and nothing was told", seed, missing)
		}
	}
	if lost == 0 {
		t.Error("no damage took anything")
	}
}
