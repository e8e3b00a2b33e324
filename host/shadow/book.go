package shadow

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/terms"
)

// maxBook is the size of a file after which only counts are kept, and maxText that of a text of a
// difference, in bytes.
const maxBook, maxText = 16 << 20, 4 << 10

// The results of decisions that are no difference.
const (
	Skipped = "skipped" // the candidate cannot be asked about the record
	Dropped = "dropped" // too many wait, or there is no candidate
)

// A line of a file: a difference, or counts since the line of counts before it.
type line struct {
	Time   time.Time      `json:"time"`
	Rules  []string       `json:"rules,omitempty"` // checks that decide otherwise
	Change *replay.Change `json:"change,omitempty"`
	Counts map[string]int `json:"counts,omitempty"` // by result
}

// book is the file of one revision of a candidate. Many processes append whole lines to it. The nil
// book keeps nothing.
type book struct {
	revision string
	file     *os.File
	counts   map[string]int // since they were written
}

func open(dir, revision string) *book {
	b := &book{revision: revision, counts: map[string]int{}}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		b.file, err = os.OpenFile(filepath.Join(dir, revision+".jsonl"),
			os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	if err != nil {
		slog.Error("what a candidate policy would change cannot be kept", "error", err)
	}
	return b
}

func (b *book) add(c replay.Change, rec terms.Record) {
	b.counts[c.Change]++
	switch c.Change {
	case replay.NewlyAllowed, replay.NewlyRefused, replay.OtherReasons:
		c.On, c.Says = plaintext.Short(c.On, maxText), plaintext.Short(c.Says, maxText)
		b.write(line{Time: rec.Time, Rules: differ(c.Before, c.After), Change: &c})
	}
}

// differ returns the checks that hold on one side only.
func differ(a, b []string) (all []string) {
	for _, id := range slices.Concat(a, b) {
		if !slices.Contains(a, id) || !slices.Contains(b, id) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (b *book) flush() {
	if b != nil && len(b.counts) > 0 {
		b.write(line{Time: time.Now(), Counts: b.counts})
		clear(b.counts)
	}
}

func (b *book) write(l line) {
	if b.file == nil {
		return
	}
	info, err := b.file.Stat()
	if err == nil && info.Size() > maxBook && l.Change != nil {
		return
	}
	text, wrong := json.Marshal(l)
	if err = cmp.Or(err, wrong); err == nil {
		_, err = b.file.Write(append(text, '\n'))
	}
	if err != nil {
		slog.Error("what a candidate policy would change cannot be kept", "error", err)
	}
}

func (b *book) close() {
	b.flush()
	if b != nil && b.file != nil {
		_ = b.file.Close()
	}
}

// Report is what a candidate would have changed.
type Report struct {
	Candidate string         `json:"candidate"` // its revision
	Counts    map[string]int `json:"counts"`    // of decisions, by result
	Groups    []Group        `json:"groups"`    // the most frequent first
	Lost      int            `json:"lost"`      // lines that cannot be read
}

// Asked reports whether the candidate has decided anything.
func (r Report) Asked() bool {
	for result, n := range r.Counts {
		if n > 0 && result != Skipped && result != Dropped {
			return true
		}
	}
	return false
}

// Group are differences of one kind, by the same checks, of one tool and principal.
type Group struct {
	Change    string          `json:"change"`
	Rules     []string        `json:"rules"`
	Tool      string          `json:"tool"`
	Principal string          `json:"principal"`
	Times     int             `json:"times"`
	Last      time.Time       `json:"last"`
	Examples  []replay.Change `json:"examples"` // the first three
}

// Read reports what was kept of a revision since a time. Without a file it is a report of nothing.
func Read(dir, revision string, since time.Time) (Report, error) {
	r := Report{Candidate: revision, Counts: map[string]int{}, Groups: []Group{}}
	f, err := os.Open(filepath.Join(dir, revision+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	defer f.Close()
	at, lines := map[string]int{}, bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		switch err := d.Decode(&l); {
		case err != nil || d.More(): // such as one that a process did not write to its end
			r.Lost++
			continue
		case l.Time.Before(since):
			continue
		}
		for result, count := range l.Counts {
			r.Counts[result] += count
		}
		if l.Change != nil {
			r.add(at, l)
		}
	}
	// counts are written later than differences, and not by a process that is killed
	seen := map[string]int{}
	for _, g := range r.Groups {
		seen[g.Change] += g.Times
		r.Counts[g.Change] = max(r.Counts[g.Change], seen[g.Change])
	}
	slices.SortStableFunc(r.Groups, func(a, b Group) int { return b.Times - a.Times })
	return r, lines.Err()
}

func (r *Report) add(at map[string]int, l line) {
	c := l.Change
	key := fmt.Sprintf("%q %q %q %q", c.Change, l.Rules, c.Tool, c.Principal)
	i, known := at[key]
	if !known {
		i = len(r.Groups)
		at[key] = i
		r.Groups = append(r.Groups, Group{Change: c.Change, Rules: l.Rules, Tool: c.Tool,
			Principal: c.Principal})
	}
	g := &r.Groups[i]
	g.Times++
	g.Last = l.Time
	if len(g.Examples) < 3 {
		g.Examples = append(g.Examples, *c)
	}
}
