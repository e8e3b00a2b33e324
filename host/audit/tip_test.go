package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// An end of a chain that somebody saw shows every change of what stands before it, also of the
// newest file, which no other file saw.
func TestAnEndThatWasSeenShowsThatTheNewestFileWasChanged(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(file string, lines [][]byte) error
		want   string
	}{
		"nothing": {func(string, [][]byte) error { return nil }, ""},
		"deleted": {func(f string, _ [][]byte) error { return os.Remove(f) },
			"is missing, but the anchor saw it"},
		"cut": {func(f string, l [][]byte) error {
			return os.WriteFile(f, bytes.Join(l[:3], nil), 0o600)
		}, "the anchor saw the entry"},
		"cut later": {func(f string, l [][]byte) error {
			return os.WriteFile(f, bytes.Join(l[:4], nil), 0o600)
		}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			dir := t.TempDir()
			j, err := Open(Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			var tip Tip
			for n := range 5 {
				if err := j.Intent(t.Context(),
					terms.Record{Type: "refused", ID: string(rune('a' + n))}, false); err != nil {
					t.Fatal(err)
				}
				if n == 2 {
					if tip, err = j.Tip(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			last, err := j.Tip(t.Context())
			if err != nil || last.File != tip.File || last.Seq <= tip.Seq {
				t.Errorf("after Close: %+v %v", last, err)
			}
			file := filepath.Join(dir, tip.File)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(file, slices.Collect(bytes.Lines(b))); err != nil {
				t.Fatal(err)
			}
			if r, err := Verify(dir); err != nil || !r.OK() {
				t.Errorf("without the anchor: %+v %v", r.Problems, err)
			}
			r, err := Verify(dir, Seen{tip, "the anchor"})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if !r.OK() {
					t.Errorf("%+v", r.Problems)
				}
				if r, _ := Verify(dir, Seen{last, "the anchor"}); claim == "nothing" != r.OK() {
					t.Errorf("with the last anchor: %+v", r.Problems)
				}
				return
			}
			if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].What, c.want) {
				t.Errorf("%+v, want %q", r.Problems, c.want)
			}
		})
	}
}
