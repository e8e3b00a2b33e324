package audit

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// read takes everything behind a cursor.
func read(t *testing.T, dir string, c *Cursor) (ids, gaps []string) {
	t.Helper()
	for s, err := range Behind(dir, c) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Gap != "" {
			gaps = append(gaps, s.Gap)
		} else if s.Entry.Record != nil {
			ids = append(ids, s.Entry.Record.ID)
		}
		c.Take(s)
	}
	return ids, gaps
}

// TestWhatACursorMissedIsTold changes a journal of which a part was read, and reads on. What is
// still there is read at least once.
func TestWhatACursorMissedIsTold(t *testing.T) {
	cut := func(path string, size int64) error { return os.Truncate(path, size) }
	rewrite := func(path string, change func([]byte) []byte) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(data), 0o600)
	}
	for name, x := range map[string]struct {
		change func(file string) error
		want   string
		again  bool // what was read is read again
	}{
		"nothing": {func(string) error { return nil }, "", false},
		"removed": {os.Remove, "was removed: it was read up to entry 5", false},
		"moved away": {func(f string) error { return os.Rename(f, f+".old") },
			"was removed: it was read up to entry 5", false},
		"cut to nothing": {func(f string) error { return cut(f, 0) }, "was cut to 0 bytes",
			false},
		"cut behind its head": {func(f string) error { return cut(f, 400) },
			"was cut to 400 bytes", false},
		"replaced by the same": {func(f string) error { return rewrite(f, bytes.Clone) }, "",
			false},
		"a line added": {func(f string) error {
			return rewrite(f, func(b []byte) []byte { return append(b, "{\"seq\":99}\n"...) })
		}, "was replaced or changed", true},
		"a line repeated": {func(f string) error {
			return rewrite(f, func(b []byte) []byte {
				lines := bytes.SplitAfter(b, []byte("\n"))
				return append(b, lines[len(lines)-2]...)
			})
		}, "entry 5 does not follow entry 5", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j, err := Open(Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			put := func(id string) {
				if err := j.Intent(t.Context(), terms.Record{Type: "intent", ID: id},
					false); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 5 {
				put(fmt.Sprint("a", i))
			}
			var c Cursor
			if ids, gaps := read(t, dir, &c); len(ids) != 5 || len(gaps) > 0 {
				t.Fatal(ids, gaps)
			}
			all, err := files(dir)
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			if err := x.change(filepath.Join(dir, all[0])); err != nil {
				t.Fatal(err)
			}
			put("b0") // in another file, if the process notices
			ids, gaps := read(t, dir, &c)
			if !slices.Contains(ids, "b0") || slices.Contains(ids, "a0") != x.again {
				t.Errorf("read %q", ids)
			}
			if text := strings.Join(gaps, "\n"); !strings.Contains(text, x.want) ||
				(x.want == "") != (text == "") {
				t.Errorf("told %q, want %q", gaps, x.want)
			}
			if ids, gaps := read(t, dir, &c); len(ids)+len(gaps) > 0 || c.Left(dir) > 0 {
				t.Errorf("told or read again: %q %q, %d bytes left", ids, gaps, c.Left(dir))
			}
		})
	}
}

// A file that came and went between two looks is known from those that name it.
func TestAFileThatWasNeverSeenIsTold(t *testing.T) {
	dir := t.TempDir()
	process := func(records int) string {
		before, _ := files(dir)
		j, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			if err := j.Intent(t.Context(), terms.Record{Type: "intent", ID: fmt.Sprint(i)},
				false); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		after, _ := files(dir)
		return filepath.Join(dir, after[len(before)])
	}
	old := process(1)
	var c Cursor
	if _, gaps := read(t, dir, &c); len(gaps) > 0 {
		t.Fatal(gaps)
	}
	if err := os.Remove(old); err != nil { // it was read: an archive has it
		t.Fatal(err)
	}
	between := process(3)
	process(1) // its head has seen the one between
	if err := os.Remove(between); err != nil {
		t.Fatal(err)
	}
	process(1)
	_, gaps := read(t, dir, &c)
	if len(gaps) != 1 || !strings.Contains(gaps[0], filepath.Base(between)+" is missing") {
		t.Errorf("told %q", gaps)
	}
	if _, gaps := read(t, dir, &c); len(gaps) > 0 {
		t.Errorf("told again: %q", gaps)
	}
}

// A cursor that stays where it is because nobody takes the steps reads the same again.
func TestStepsThatNobodyTakesComeAgain(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(Options{Dir: dir, MaxFileBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint(i))
		if err := j.Intent(t.Context(), terms.Record{Type: "intent", ID: want[i]},
			false); err != nil {
			t.Fatal(err)
		}
	}
	var c Cursor
	taken := map[string]bool{}
	for range 200 {
		n := 0
		for s, err := range Behind(dir, &c) {
			if err != nil || s.Gap != "" {
				t.Fatal(err, s.Gap)
			}
			if n++; n > 3 { // three are taken, then the reader is killed
				break
			}
			if c.Take(s); s.Entry.Record != nil {
				taken[s.Entry.Record.ID] = true
			}
		}
	}
	for _, id := range want {
		if !taken[id] {
			t.Errorf("%s never came", id)
		}
	}
}

// A look may come between the making of a file and its lock: what is written later is not lost.
func TestALookBeforeTheLockLosesNothing(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(Options{Dir: dir, MaxFileBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var c Cursor
	follow := newReader(dir)
	look := func() (n int) {
		if !follow.pass(func(_ Entry, err error) bool { n++; return err == nil }) {
			t.Error("the reader ended")
		}
		return n
	}
	j.create = func(path string) (file, error) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
		if ids, gaps := read(t, dir, &c); len(ids)+len(gaps) > 0 {
			t.Error(ids, gaps)
		}
		look()
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		return createFile(path)
	}
	if err := j.Intent(t.Context(), terms.Record{Type: "intent", ID: "a"}, false); err != nil {
		t.Fatal(err)
	}
	if ids, gaps := read(t, dir, &c); len(ids) != 1 || len(gaps) > 0 {
		t.Errorf("a cursor: %q %q", ids, gaps)
	}
	if look() < 3 { // a close, a head and the record
		t.Error("a reader that follows got nothing")
	}
}

// What cannot be found out about a process does not end its file.
func TestAProcessLivesUntilItsLockSaysOtherwise(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if !living(f) {
		t.Error("the process of an empty file is dead")
	}
	if _, err := f.WriteString("x"); err != nil || living(f) {
		t.Error("a file without a lock has a living process", err)
	}
	f.Close()
	if !living(f) {
		t.Error("an error says that a process is dead")
	}
}

// The head of the next file says how far the one before it went, whoever cut that one and when.
func TestATailThatWasCutBeforeItWasReadIsTold(t *testing.T) {
	for name, x := range map[string]struct {
		cut   int  // lines off the end of the first file
		first bool // its beginning was read before
		want  string
	}{
		"nothing":              {0, false, ""},
		"two lines":            {2, false, "what was read there ends with entry"},
		"all of it":            {1000, false, "what was read there ends with entry 0"},
		"two lines, half read": {2, true, "what was read there ends with entry"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j, err := Open(Options{Dir: dir, MaxFileBytes: 2000})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			var c Cursor
			want := 0
			for all := []string{}; len(all) < 3; want++ {
				if x.first && want == 1 {
					read(t, dir, &c)
				}
				if err := j.Intent(t.Context(), terms.Record{Type: "intent", ID: "a"},
					false); err != nil {
					t.Fatal(err)
				}
				all, _ = files(dir)
			}
			all, _ := files(dir)
			path := filepath.Join(dir, all[0])
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(data, []byte("\n"))
			lines = lines[:max(0, len(lines)-1-x.cut)]
			if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
				t.Fatal(err)
			}
			ids, gaps := read(t, dir, &c)
			if text := strings.Join(gaps, "\n"); !strings.Contains(text, x.want) ||
				(x.want == "") != (text == "") || len(gaps) > 1 {
				t.Errorf("told %q", gaps)
			}
			if len(ids) == 0 {
				t.Error("nothing is read of the other files")
			}
			if _, gaps := read(t, dir, &c); len(gaps) > 0 {
				t.Errorf("told again: %q", gaps)
			}
		})
	}
}

// A file that goes on in another one while both are read lacks nothing.
func TestAFileThatGoesOnWhileItIsReadIsNotCut(t *testing.T) {
	dir := t.TempDir()
	put := func(j *Journal, id string) {
		if err := j.Intent(t.Context(), terms.Record{Type: "intent", ID: id}, false); err != nil {
			t.Error(err)
		}
	}
	open := func(id string, most int64) *Journal {
		j, err := Open(Options{Dir: dir, MaxFileBytes: most})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		put(j, id)
		return j
	}
	j := open("a", 500)
	open("b", 0)
	var c Cursor
	next, stop := iter.Pull2(Behind(dir, &c))
	defer stop()
	var ids []string
	until := func(id string) {
		for !slices.Contains(ids, id) {
			s, err, ok := next()
			if !ok || err != nil || s.Gap != "" {
				t.Fatal(ids, ok, err, s.Gap)
			}
			if s.Entry.Record != nil {
				ids = append(ids, s.Entry.Record.ID)
			}
		}
	}
	create := j.create
	j.create = func(path string) (file, error) { // the new file is there, and nothing names it
		f, err := create(path)
		until("b") // the old one is read to its end
		return f, err
	}
	put(j, "c")
	until("c")
	if !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Error(ids)
	}
}
