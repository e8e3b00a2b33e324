package audit

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Records yields the entries of all files ordered by time; the entries of one process keep their
// own order. A line that is no entry is yielded as an error with the file's name in Entry.File,
// and reading goes on with the next line. [Verify] reports whether anything is missing.
func Records(dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { newReader(dir).pass(yield) }
}

// reader remembers how far each file was read.
type reader struct {
	dir   string
	at    map[string]int64
	ended map[string]bool        // nothing more is to be read
	skip  func(name string) bool // files that are not wanted; nil for none
}

func newReader(dir string) *reader {
	return &reader{dir: dir, at: map[string]int64{}, ended: map[string]bool{}}
}

// source is a file that is being read, at an entry or error not yet yielded.
type source struct {
	name  string
	from  string // the file that it continues, which is read to its end first
	f     *os.File
	final bool // its process has ended, or it has a close record
	lines *bufio.Reader
	entry Entry
	err   error
	key   time.Time // of the entry, never before that of the one before it
}

// pass yields what there is to read now. It reports whether the caller wants more.
func (r *reader) pass(yield func(Entry, error) bool) bool {
	waiting, err := files(r.dir)
	if err != nil {
		yield(Entry{}, err)
		return false
	}
	if r.skip != nil {
		waiting = slices.DeleteFunc(waiting, r.skip)
	}
	var open []*source
	defer func() {
		for _, s := range open {
			s.f.Close()
		}
	}()
	for {
		least := -1
		for i, s := range open {
			behind := slices.ContainsFunc(open, func(o *source) bool { return o.name == s.from })
			if !behind && (least < 0 || s.key.Before(open[least].key)) {
				least = i
			}
		}
		// A file is opened when its turn comes, so that a thousand old files do not need a
		// thousand descriptors.
		if len(waiting) > 0 && (least < 0 || !begins(waiting[0]).After(open[least].key)) {
			s, err := r.open(waiting[0])
			waiting = waiting[1:]
			if err != nil && !yield(Entry{}, err) {
				return false
			}
			if s != nil {
				open = append(open, s)
			}
			continue
		}
		if least < 0 {
			return true
		}
		s := open[least]
		if !yield(s.entry, s.err) {
			return false
		}
		if !r.next(s) {
			s.f.Close()
			open = append(open[:least], open[least+1:]...)
		}
	}
}

// open returns a source at its next entry, or nil when there is none.
func (r *reader) open(name string) (*source, error) {
	if r.ended[name] {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(r.dir, name))
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	_, err = f.Seek(r.at[name], io.SeekStart)
	s := &source{name: name, f: f, final: !living(f), key: begins(name),
		lines: bufio.NewReaderSize(f, 64<<10)}
	if err != nil || !r.next(s) {
		f.Close()
		return nil, err
	}
	return s, nil
}

// next moves a source to its next entry or error, and reports whether there is one.
func (r *reader) next(s *source) bool {
	if r.ended[s.name] {
		return false
	}
	line, err := readLine(s.lines)
	if err == io.EOF || err == errTorn {
		r.ended[s.name] = s.final // final was known before reading, so that this is the end
		return false
	}
	at := r.at[s.name]
	s.entry, s.err = Entry{}, nil
	if err != nil {
		r.ended[s.name] = true
		err = fmt.Errorf("%w; the rest of the file is left out", err)
	} else {
		r.at[s.name] += int64(len(line)) + 1
		s.entry, err = decode(line)
	}
	if err != nil {
		s.entry, s.err = Entry{}, fmt.Errorf("journal file %s at byte %d: %w", s.name, at, err)
	}
	s.entry.File, s.entry.At, s.entry.Size = s.name, at, r.at[s.name]-at
	s.final = s.final || s.entry.Close != nil
	if s.entry.Head != nil {
		s.from = s.entry.Head.From
	}
	if t := s.entry.when(); t.After(s.key) {
		s.key = t
	}
	return true
}

// begins returns when a file was begun, from its name.
func begins(name string) time.Time {
	t, _ := time.Parse(nameTime, name[:len(nameTime)])
	return t
}
