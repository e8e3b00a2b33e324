package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

var bg = context.Background()

func open(t testing.TB, o Options) *Journal {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "journal")
	}
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func rec(id, kind string) terms.Record {
	return terms.Record{
		Type:      kind,
		Time:      time.Now(),
		ID:        id,
		CallID:    "call",
		Kind:      "call",
		Principal: "agent-a",
		Tool:      "exec",
		Tier:      "yellow",
		Revision:  "r1",
		Input:     json.RawMessage(`{"targets":{"vmids":["105"]},"x":"<&>"}`),
	}
}

// all returns the entries of a journal, and fails the test on an error.
func all(t testing.TB, dir string) (entries []Entry) {
	t.Helper()
	for e, err := range Records(dir) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func ids(entries []Entry) string {
	var ids []string
	for _, e := range entries {
		if e.Record != nil {
			ids = append(ids, e.Record.ID)
		}
	}
	return strings.Join(ids, " ")
}

func verify(t testing.TB, dir string) Report {
	t.Helper()
	r, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWriteReadVerify(t *testing.T) {
	j := open(t, Options{})
	if err := j.KeepPolicy("r1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r := rec(fmt.Sprint(i), "intent")
		if err := j.Intent(bg, r, i%2 == 0); err != nil {
			t.Fatal(err)
		}
		r.Type, r.Outcome = "outcome", terms.Succeeded
		if err := j.Outcome(bg, r); err != nil {
			t.Fatal(err)
		}
	}
	if r := verify(t, j.opt.Dir); !r.OK() || len(r.Warnings) > 0 || r.Files[0].State != "running" {
		t.Errorf("while it runs: %+v", r)
	}
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, j.opt.Dir); !r.OK() || len(r.Warnings) > 0 || r.Files[0].State != "closed" ||
		r.Files[0].Entries != 13 {
		t.Errorf("after it was closed: %+v", r)
	}
	entries := all(t, j.opt.Dir)
	if got := ids(entries); got != "0 0 1 1 2 2 3 3 4 4" {
		t.Errorf("read %s", got)
	}
	if got := entries[2].Record; string(got.Input) != `{"targets":{"vmids":["105"]},"x":"<&>"}` ||
		got.Time.Location() != time.UTC {
		t.Errorf("a record came back as %+v", got)
	}
	if err := j.Intent(bg, rec("x", "intent"), true); err == nil {
		t.Error("a closed journal takes intents")
	}
	info, _ := os.Stat(filepath.Join(j.opt.Dir, entries[0].File))
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %04o", info.Mode().Perm())
	}
}

func TestRotationKeepsOneChain(t *testing.T) {
	j := open(t, Options{MaxFileBytes: 4096})
	for i := range 100 {
		if err := j.Intent(bg, rec(fmt.Sprintf("%03d", i), "intent"), false); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	r := verify(t, j.opt.Dir)
	if !r.OK() || len(r.Files) < 5 {
		t.Fatalf("%d files, problems %v", len(r.Files), r.Problems)
	}
	if got := strings.Fields(ids(all(t, j.opt.Dir))); len(got) != 100 || got[0] != "000" ||
		got[99] != "099" {
		t.Errorf("read %v", got)
	}
	for _, f := range r.Files {
		if f.State != "closed" {
			t.Errorf("%s is %s", f.Name, f.State)
		}
	}
}

func TestVerifyFinds(t *testing.T) {
	lines := func(edit func([]string) []string) func(string) string {
		return func(s string) string {
			l := strings.SplitAfter(s, "\n")
			return strings.Join(edit(l[:len(l)-1]), "")
		}
	}
	for name, c := range map[string]struct {
		edit func(string) string
		why  string
	}{
		"a changed word": {func(s string) string {
			return strings.Replace(s, "agent-a",
				"agent-b", 1)
		}, "line 2: its hash does not fit"},
		"a changed hash": {lines(func(l []string) []string {
			l[0] = l[0][:len(l[0])-7] +
				"0000\"}\n"
			return l
		}), "line 1: its hash does not fit"},
		"a deleted line": {lines(func(l []string) []string {
			return append(l[:2],
				l[3:]...)
		}), "line 3: entries 2 to 2 are missing"},
		"a deleted first line": {lines(func(l []string) []string { return l[1:] }),
			"line 1: does not begin a file"},
		"swapped lines": {lines(func(l []string) []string {
			l[2], l[3] = l[3],
				l[2]
			return l
		}), "line 3: entries 2 to 2 are missing"},
		"a repeated line": {lines(func(l []string) []string {
			return append(l[:3],
				l[2:]...)
		}), "line 4: entry 2 comes after entry 2"},
		"a line after the end": {lines(func(l []string) []string { return append(l, l[1]) }),
			"comes after the end"},
		"a line of another chain": {lines(func(l []string) []string {
			l[2] = forge(t, 2,
				"x")
			return l
		}), "line 3: does not continue the line before it"},
		"an empty line": {lines(func(l []string) []string {
			return append(l[:2],
				append([]string{"\n"}, l[2:]...)...)
		}), "line 3: is not a journal entry"},
		"a line without end": {func(s string) string {
			return s +
				strings.Repeat("x", maxLine+2) + "\n"
		}, "over the limit"},
		"a change of spaces": {func(s string) string {
			return strings.Replace(s, `"seq":1,`,
				`"seq": 1,`, 1)
		}, "line 2: its hash does not fit"},
		"nothing, when left as is": {func(s string) string { return s }, ""},
		"a cut, seen by later runs": {lines(func(l []string) []string { return l[:4] }),
			"was cut or replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			j := open(t, Options{})
			for i := range 6 {
				if err := j.Intent(bg, rec(fmt.Sprint(i), "intent"), false); err != nil {
					t.Fatal(err)
				}
			}
			j.Close()
			path := filepath.Join(j.opt.Dir, all(t, j.opt.Dir)[0].File)
			// a later run, which sees this one
			open(t,
				Options{Dir: j.opt.Dir,
					Now: func() time.Time { return time.Now().Add(time.Hour) }}).Close()
			before, _ := os.ReadFile(path)
			after := c.edit(string(before))
			if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
				t.Fatal(err)
			}
			r := verify(t, j.opt.Dir)
			found := fmt.Sprint(r.Problems)
			if c.why == "" != r.OK() || !strings.Contains(found, c.why) {
				t.Errorf("found %s, want %q", found, c.why)
			}
			if len(r.Problems) > 1 {
				t.Errorf("one change, %d problems: %s", len(r.Problems), found)
			}
		})
	}
}

// forge makes a line with a good hash of its own.
func forge(t *testing.T, seq int64, prev string) string {
	r := rec("forged", "intent")
	line, _, err := encode(Entry{Seq: seq, Prev: prev, Record: &r})
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

func TestVerifyFindsWholeFiles(t *testing.T) {
	for name, c := range map[string]struct {
		do                func(dir string, files []string) error
		problem, warnings string
	}{
		"nothing": {func(string, []string) error { return nil }, "", ""},
		"a deleted middle file": {func(d string,
			f []string) error {
			return os.Remove(d + f[1])
		}, "which is missing", ""},
		"a deleted last file": {func(d string,
			f []string) error {
			return os.Remove(d + f[len(f)-2])
		}, "goes on in", ""},
		"a deleted earlier process": {func(d string,
			f []string) error {
			return os.Remove(d + f[0])
		}, "continues", ""},
		"a file under another name": {func(d string, f []string) error {
			return os.Rename(d+f[1], d+"20200101T000000.000000-1-00000000.jsonl")
		}, "belongs to the file", ""},
		"a file with a strange name": {func(d string,
			f []string) error {
			return os.WriteFile(d+"x.jsonl", nil,
				0o600)
		}, "is not a file that a journal makes", ""},
		"a mode for all": {func(d string,
			f []string) error {
			return os.Chmod(d+f[0],
				0o644)
		}, "", "has the mode 0644, want 0600"},
		"a directory for all": {func(d string,
			f []string) error {
			return os.Chmod(d, 0o755)
		}, "", "has the mode 0755, want 0700"},
		"a changed policy bundle": {func(d string,
			f []string) error {
			return os.WriteFile(d+"policies/r1.tar", []byte("x"),
				0o600)
		}, "policy revision r1 was changed", ""},
		"a deleted policy bundle": {func(d string,
			f []string) error {
			return os.Remove(d +
				"policies/r1.tar")
		}, "policy revision r1 is gone", ""},
		"an emptied file": {func(d string,
			f []string) error {
			return os.Truncate(d+f[1], 0)
		}, "was cut or replaced", ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			j := open(
				t,
				Options{MaxFileBytes: 4096,
					Now: func() time.Time { now = now.Add(time.Millisecond); return now }},
			)
			if err := j.KeepPolicy("r1", []byte("tar")); err != nil {
				t.Fatal(err)
			}
			for i := range 40 {
				if err := j.Intent(bg, rec(fmt.Sprint(i), "intent"), false); err != nil {
					t.Fatal(err)
				}
				if err := j.Outcome(bg, rec(fmt.Sprint(i), "outcome")); err != nil {
					t.Fatal(err)
				}
			}
			j.Close()
			open(t,
				Options{Dir: j.opt.Dir,
					Now: func() time.Time { return now.Add(time.Hour) }}).Close()
			names, _ := files(j.opt.Dir)
			if err := c.do(j.opt.Dir+"/", names); err != nil {
				t.Fatal(err)
			}
			r := verify(t, j.opt.Dir)
			if c.problem == "" != r.OK() || !strings.Contains(fmt.Sprint(r.Problems), c.problem) ||
				!strings.Contains(fmt.Sprint(r.Warnings), c.warnings) {
				t.Errorf("problems %v, warnings %v, want %q %q", r.Problems, r.Warnings, c.problem,
					c.warnings)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(shared, 0o700),
		os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o   Options
		why string
	}{"a file for a directory": {Options{Dir: file}, "not a directory"},
		"a directory that others may write to": {Options{Dir: shared},
			"can be written by other users"},
		"a directory that cannot be made": {Options{Dir: "/proc/x/journal"},
			"opening the journal"},
		"a directory that cannot be written to": {Options{Dir: "/proc/self"},
			"opening the journal in /proc/self"}} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(c.o); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}

func TestManyWriters(t *testing.T) {
	j := open(t, Options{MaxFileBytes: 64 << 10})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 50 {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := errors.Join(j.Intent(bg, rec(id, "intent"), i%3 > 0),
					j.Outcome(bg, rec(id, "outcome"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	j.Close()
	r := verify(t, j.opt.Dir)
	if !r.OK() || len(r.Files) < 2 || len(r.Unfinished) > 0 {
		t.Errorf("%d files, %v", len(r.Files), r.Problems)
	}
	if got := len(strings.Fields(ids(all(t, j.opt.Dir)))); got != 1600 {
		t.Errorf("%d records", got)
	}
}

func TestAnImpatientCallerDoesNotWaitForTheDisk(t *testing.T) {
	j := open(t, Options{})
	j.turn <- struct{}{} // a sync that hangs
	ctx, cancel := context.WithTimeoutCause(bg, time.Millisecond, errors.New("budget spent"))
	defer cancel()
	if err := j.Intent(ctx, rec("a", "intent"), true); err == nil ||
		!strings.Contains(err.Error(), "budget spent") {
		t.Errorf("got %v", err)
	}
	<-j.turn
}

func TestKeepPolicy(t *testing.T) {
	j := open(t, Options{})
	for _, bundle := range []string{"tar", `{"a":1}`} {
		rev := "sha256:" + fmt.Sprint(len(bundle))
		if err := errors.Join(j.KeepPolicy(rev, []byte(bundle)),
			j.KeepPolicy(rev, []byte(bundle))); err != nil {
			t.Fatal(err)
		}
		if got, err := Policy(j.opt.Dir, rev); err != nil || string(got) != bundle {
			t.Errorf("kept %q, %v", got, err)
		}
		if err := j.KeepPolicy(rev, []byte("other")); err == nil ||
			!strings.Contains(err.Error(), "another bundle") {
			t.Errorf("a second bundle: %v", err)
		}
	}
	if err := j.KeepPolicy("../x", nil); err == nil ||
		!strings.Contains(err.Error(), "policy revision") {
		t.Errorf("a revision that is a path: %v", err)
	}
	if err := j.Intent(bg, rec("a", "intent"), false); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, j.opt.Dir); !r.OK() ||
		!strings.Contains(fmt.Sprint(r.Warnings), "policy revision r1, which was never kept") {
		t.Errorf("a revision that was not kept: %v", r.Warnings)
	}
}

func BenchmarkIntent(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			j := open(b, Options{})
			r := rec("a", "intent")
			for b.Loop() {
				if err := j.Intent(bg, r, durable); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("durable, 100 writers", func(b *testing.B) {
		j := open(b, Options{})
		r := rec("a", "intent")
		b.SetParallelism(50)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := j.Intent(bg, r, true); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
