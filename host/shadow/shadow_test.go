package shadow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/terms"
)

type written []terms.Record

func (w *written) Intent(_ context.Context, r terms.Record, _ bool) error {
	if r.ID == "broken" {
		return errors.New("the disk is full")
	}
	*w = append(*w, r)
	return nil
}

func (w *written) Outcome(context.Context, terms.Record) error { return nil }

// A journal with a shadow writes what it is given, and does not wait for a shadow that stands
// still.
func TestWhatIsEnforcedDoesNotWaitForTheShadow(t *testing.T) {
	s, w := New(Options{Site: t.TempDir(), Dir: t.TempDir()}), &written{}
	j := s.Journal(w)
	for i := range maxWaiting + 10 {
		r := terms.Record{ID: string(rune('a' + i%26))}
		if err := j.Intent(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Counts()[Dropped]; n != 10 || len(*w) != maxWaiting+10 {
		t.Errorf("%d dropped, %d written", n, len(*w))
	}
	if err := j.Intent(t.Context(), terms.Record{ID: "broken"}, true); err == nil {
		t.Error("the journal's error is lost")
	}
	*w = make(written, 0, 1000)
	if n := testing.AllocsPerRun(100, func() {
		_ = j.Intent(context.Background(), terms.Record{}, false)
	}); n > 0 {
		t.Errorf("a record costs its caller %v allocations", n)
	}
}

// What waits for the shadow takes little memory, however large it is, and there is room again.
func TestWhatWaitsForTheShadowIsBounded(t *testing.T) {
	s := New(Options{Site: t.TempDir(), Dir: t.TempDir()})
	j := s.Journal(&written{})
	large := terms.Record{Input: make([]byte, 1<<20)}
	for range maxWaiting {
		if err := j.Intent(t.Context(), large, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.waiting); n != maxHeld>>20 || s.Counts()[Dropped] != maxWaiting-n {
		t.Errorf("%d records of 1 MiB wait, %v", n, s.Counts())
	}
	ctx, stop := context.WithCancel(t.Context())
	go s.Run(ctx)
	for len(s.waiting) > 0 || s.held.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := j.Intent(t.Context(), large, false); err != nil || s.held.Load() != 1<<20 {
		t.Errorf("%d bytes wait, %v", s.held.Load(), err)
	}
}

// A candidate that cannot be loaded decides nothing, until it can.
func TestACandidateThatCannotBeLoadedDecidesNothing(t *testing.T) {
	site, dir := t.TempDir(), t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(site, "data.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nothing: good\n")
	s := New(Options{Site: site, Dir: dir})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	j := s.Journal(&written{})
	until := func(result string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); s.Counts()[result] == 0; {
			if time.Now().After(end) {
				t.Fatalf("no decision is %s: %v", result, s.Counts())
			}
			_ = j.Intent(ctx, terms.Record{Type: "intent", Kind: "call", Revision: "r",
				Input: []byte(`{"schema":"caponier.call/0"}`)}, false)
			time.Sleep(50 * time.Millisecond)
		}
	}
	until(Dropped)
	good, err := os.ReadFile("../../examples/lab/site/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(string(good))
	until(Skipped) // it is loaded, and the record is of another version
	stop()
	<-done
	files, err := filepath.Glob(dir + "/*.jsonl")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	r, err := Read(dir, filepath.Base(files[0][:len(files[0])-len(".jsonl")]), time.Time{})
	if err != nil || r.Counts[Skipped] != s.Counts()[Skipped] || len(r.Groups) != 0 {
		t.Errorf("%+v %v, counted %v", r, err, s.Counts())
	}
}

// What many processes keep of one revision is one report, the most frequent first.
func TestAReportGroupsWhatWasKept(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		b := open(dir, "r")
		for range 4 {
			b.add(replay.Change{Change: replay.NewlyRefused, Tool: "a", After: []string{"tier"}},
				terms.Record{Time: time.Unix(100, 0)})
		}
		b.add(replay.Change{Change: replay.NewlyAllowed, Tool: "b", Before: []string{"rate", "x"},
			After: []string{"x"}}, terms.Record{Time: time.Unix(200, 0)})
		b.add(replay.Change{Change: replay.Same}, terms.Record{})
		b.close()
	}
	r, err := Read(dir, "r", time.Time{})
	if err != nil || len(r.Groups) != 2 || r.Counts[replay.Same] != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	a, b := r.Groups[0], r.Groups[1]
	if a.Times != 8 || a.Rules[0] != "tier" || len(a.Examples) != 3 || b.Times != 2 ||
		len(b.Rules) != 1 || b.Rules[0] != "rate" {
		t.Errorf("%+v", r.Groups)
	}
	if r, err = Read(dir, "r", time.Unix(150, 0)); err != nil || len(r.Groups) != 1 {
		t.Errorf("since the second: %+v %v", r.Groups, err)
	}
	if r, err = Read(dir, "other", time.Time{}); err != nil || len(r.Counts) != 0 {
		t.Errorf("of another revision: %+v %v", r, err)
	}
}

// A report taken before the counts are written counts the differences that are there: what is
// promoted depends on it.
func TestAReportCountsWhatIsKeptBeforeItsCounts(t *testing.T) {
	dir := t.TempDir()
	b := open(dir, "r1")
	for range 3 {
		b.add(replay.Change{Change: replay.NewlyAllowed, Tool: "a"}, terms.Record{Time: time.Now()})
	}
	for _, when := range []string{"before", "after"} {
		r, err := Read(dir, "r1", time.Time{})
		if err != nil || r.Counts[replay.NewlyAllowed] != 3 {
			t.Errorf("%s the counts: %v, %v", when, r.Counts, err)
		}
		b.flush()
	}
	b.close()
}

// A candidate that check refuses changes nothing, and what is promoted is what was checked.
func TestAPromotionIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	site, candidate := filepath.Join(dir, "site"), filepath.Join(dir, "next")
	text := func(path string) string {
		b, err := os.ReadFile(filepath.Join(path, "data.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for path, content := range map[string]string{site: "old", candidate: "new"} {
		if err := errors.Join(os.Mkdir(path, 0o750),
			os.WriteFile(filepath.Join(path, "data.yaml"), []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Revert(site); err == nil || text(site) != "old" {
		t.Errorf("what was never promoted is reverted: %v", err)
	}
	no := errors.New("no")
	if err := Promote(site, candidate, func(string) error { return no }); err != no {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if text(site) != "old" || len(left) != 2 || err != nil {
		t.Errorf("a refused promotion leaves %v: %v", left, err)
	}
	err = Promote(site, candidate, func(copied string) error {
		return os.WriteFile(filepath.Join(candidate, "data.yaml"), []byte("later"), 0o640)
	})
	info, _ := os.Stat(site)
	if err != nil || text(site) != "new" || text(Former(site)) != "old" ||
		info.Mode().Perm() != 0o750 {
		t.Errorf("%v: %q, before it %q, %v", err, text(site), text(Former(site)), info.Mode())
	}
	if err := Revert(site); err != nil || text(site) != "old" || text(Former(site)) != "new" {
		t.Errorf("%v: %q", err, text(site))
	}
}

// A line that was not written to its end hides nothing else, and is told. What a process noted
// before it was killed counts.
func TestAReportOfWhatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	b := open(dir, "r")
	b.add(replay.Change{Change: replay.NewlyAllowed, On: strings.Repeat("x", 2<<20),
		Says: strings.Repeat("y", 2<<20)}, terms.Record{})
	if _, err := b.file.WriteString(`{"time":"2026-01-0`); err != nil { // killed
		t.Fatal(err)
	}
	r, err := Read(dir, "r", time.Time{})
	if err != nil || r.Lost != 1 || r.Counts[replay.NewlyAllowed] != 1 || !r.Asked() {
		t.Errorf("of a process that was killed: %+v %v", r.Counts, err)
	}
	if _, err := b.file.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	b.close()
	c := open(dir, "r")
	c.add(replay.Change{Change: replay.NewlyAllowed}, terms.Record{})
	c.close()
	r, err = Read(dir, "r", time.Time{})
	if err != nil || r.Lost != 1 || r.Counts[replay.NewlyAllowed] != 2 ||
		len(r.Groups) != 1 || r.Groups[0].Times != 2 {
		t.Errorf("%d lost, %+v, %d groups, %v", r.Lost, r.Counts, len(r.Groups), err)
	}
	d := open(dir, "dropped")
	d.add(replay.Change{Change: Dropped}, terms.Record{})
	d.add(replay.Change{Change: Skipped}, terms.Record{})
	d.close()
	if r, err = Read(dir, "dropped", time.Time{}); err != nil || r.Asked() {
		t.Errorf("all was dropped or skipped, and it was asked: %+v %v", r, err)
	}
}
