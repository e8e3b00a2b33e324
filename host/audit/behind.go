package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Mark is how far a file was read: Bytes of it, up to the entry Seq with this hash. Hash is "" at
// the beginning and behind a line that is no entry.
type Mark struct {
	Bytes int64  `json:"bytes"`
	Seq   int64  `json:"seq"`
	Hash  string `json:"hash"`
	Done  bool   `json:"done,omitempty"` // nothing more will be written to it
}

// Cursor is how far a reader has come in a journal. The zero value is at its beginning. It is not
// safe for concurrent use.
type Cursor struct {
	First string          `json:"first"` // the oldest at the beginning; older ones are not missed
	Files map[string]Mark `json:"files"`
	Gone  []string        `json:"gone,omitempty"` // files that are away and were reported, or read
}

const maxGone = 1000 // names; a head names the 16 newest files

// Step is one entry behind a cursor, or a Gap: what the reader missed, in a sentence. Mark is where
// the cursor is after it.
type Step struct {
	Entry Entry // its File is that of the step; nothing else is set for a gap
	Gap   string
	Mark  Mark
	away  bool // the file is not there
}

// Take moves the cursor behind a step. Steps of one file are taken in their order.
func (c *Cursor) Take(s Step) {
	if c.Files == nil {
		c.Files = map[string]Mark{}
	}
	if !s.away {
		c.Files[s.Entry.File] = s.Mark
		return
	}
	delete(c.Files, s.Entry.File)
	c.Gone = append(c.Gone, s.Entry.File)
	c.Gone = c.Gone[max(0, len(c.Gone)-maxGone):]
}

// Left returns how many bytes of the journal stand behind the cursor.
func (c *Cursor) Left(dir string) (bytes int64) {
	names, _ := files(dir) // [Behind] reports the error
	for _, name := range names {
		if m := c.Files[name]; !m.Done {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				bytes += max(0, info.Size()-m.Bytes)
			}
		}
	}
	return bytes
}

// Behind yields what the journal holds behind a cursor now, file by file, and where something is
// missing: a file that went away before it was read to its end, one that was cut or replaced, which
// is read from its beginning again, lines that are no entries or do not follow each other, and
// files that others name and that are not there. Memory is bounded by one entry and the number of
// files. The caller takes steps whenever it likes; an error means that reading has to be tried
// again.
func Behind(dir string, c *Cursor) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		names, err := files(dir)
		if err != nil {
			yield(Step{}, err)
			return
		}
		if c.First == "" && len(names) > 0 {
			c.First = names[0]
		}
		b := behind{dir: dir, cursor: c, known: map[string]bool{}, yield: yield,
			at: maps.Clone(c.Files)}
		if b.at == nil {
			b.at = map[string]Mark{}
		}
		for _, name := range slices.Concat(names, c.Gone) {
			b.known[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(c.Files)) {
			if !b.known[name] && !b.missing(name, c.Files[name]) {
				return
			}
		}
		for _, name := range names {
			if !c.Files[name].Done && !b.file(name, c.Files[name]) {
				return
			}
		}
	}
}

type behind struct {
	dir    string
	cursor *Cursor
	known  map[string]bool // files that are there, or whose absence was told
	at     map[string]Mark // how far files were read; the cursor may come behind later
	yield  func(Step, error) bool
}

// gap yields that something is missing.
func (b *behind) gap(name string, m Mark, format string, args ...any) bool {
	return b.yield(Step{Entry: Entry{File: name}, Mark: m, Gap: fmt.Sprintf(format, args...)}, nil)
}

// missing tells that a file is away. One that was read to its end may be moved to an archive.
func (b *behind) missing(name string, m Mark) bool {
	b.known[name] = true
	s := Step{Entry: Entry{File: name}, away: true}
	if !m.Done {
		delete(b.at, name)
		s.Gap = fmt.Sprintf("the journal file %s was removed: it was read up to entry %d, and "+
			"what followed there is not known", name, m.Seq)
		if m.Bytes == 0 {
			s.Gap = fmt.Sprintf("the journal file %s was removed before it was read", name)
		}
	}
	return b.yield(s, nil)
}

// named tells of a file that another one names and that was never there to be read.
func (b *behind) named(name, by string) bool {
	if name == "" || name < b.cursor.First || b.known[name] || b.cursor.Files[name].Bytes > 0 {
		return true
	}
	b.known[name] = true
	if _, err := os.Lstat(filepath.Join(b.dir, name)); err == nil {
		return true // begun after the files were listed
	}
	gap := fmt.Sprintf("the journal file %s is missing: %s names it, and it was never read",
		name, by)
	return b.yield(Step{Entry: Entry{File: name}, away: true, Gap: gap}, nil)
}

// file yields what is behind the mark of one file. It reports whether the caller wants more.
func (b *behind) file(name string, m Mark) bool {
	f, err := os.Open(filepath.Join(b.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return true // the next look tells
	} else if err != nil {
		return b.yield(Step{}, fmt.Errorf("reading the journal: %w", err))
	}
	defer func() { b.at[name] = m; f.Close() }()
	final := !living(f) // before reading, so that the end is the end
	info, err := f.Stat()
	if err != nil {
		return b.yield(Step{}, fmt.Errorf("reading the journal: %w", err))
	}
	if size := info.Size(); size < m.Bytes {
		was := m
		m = Mark{}
		if !b.gap(name, m, "the journal file %s was cut to %d bytes: %d of it were read, up to "+
			"entry %d", name, size, was.Bytes, was.Seq) {
			return false
		}
	}
	resumed := m.Bytes > 0
	lines := bufio.NewReaderSize(f, 64<<10)
	if _, err := f.Seek(m.Bytes, io.SeekStart); err != nil {
		return b.yield(Step{}, fmt.Errorf("reading the journal: %w", err))
	}
	for !m.Done {
		line, err := readLine(lines)
		if err == io.EOF || err == errTorn {
			m.Done = final
			return !final || b.yield(Step{Entry: Entry{File: name}, Mark: m}, nil)
		} else if err != nil && err != errLong {
			return b.yield(Step{}, fmt.Errorf("reading the journal file %s: %w", name, err))
		}
		e, wrong := b.next(name, line, err, m)
		if wrong != nil && resumed {
			m = Mark{}
			if _, err := f.Seek(0, io.SeekStart); err != nil ||
				!b.gap(name, m, "the journal file %s was replaced or changed: what stands there "+
					"does not follow what was read: %v", name, wrong) {
				return false
			}
			resumed = false
			lines.Reset(f)
			continue
		}
		if resumed = false; !b.line(name, e, wrong, int64(len(line))+1, &m) {
			return false
		}
	}
	return true
}

// next reads a line, and returns what is wrong with it or before it.
func (b *behind) next(name string, line []byte, wrong error, m Mark) (e Entry, _ error) {
	if wrong == nil {
		e, wrong = decode(line)
	}
	switch {
	case wrong != nil:
		e = Entry{}
		wrong = fmt.Errorf("the line at byte %d %w", m.Bytes, wrong)
	case m.Bytes == 0 && (e.Head == nil || e.Head.File != name):
		wrong = errors.New("it does not begin with its own head: the lines before it are missing")
	case m.Hash == "":
	case e.Seq > m.Seq+1:
		wrong = fmt.Errorf("entries %d to %d are missing", m.Seq+1, e.Seq-1)
	case e.Seq != m.Seq+1 || e.Prev != m.Hash:
		wrong = fmt.Errorf("entry %d does not follow entry %d", e.Seq, m.Seq)
	}
	e.File = name
	return e, wrong
}

// cut returns what is missing at the end of the file that a head continues, which is whole
// once the head is there. It reports whether the caller wants more.
func (b *behind) cut(e Entry) (_ error, more bool) {
	from := e.Head.From
	m, known := b.at[from]
	if !known {
		return nil, true // [behind.named] tells, or it was before the beginning
	}
	if m.Hash != e.Prev && !m.Done && from < e.File {
		if more = b.file(from, m); !more {
			return nil, false
		}
		m = b.at[from]
	}
	if m.Hash == e.Prev || m.Hash == "" && m.Bytes > 0 { // or it was told that its end is odd
		return nil, true
	}
	return fmt.Errorf("it continues %s behind entry %d, and what was read there ends with entry "+
		"%d: what was between is missing", from, e.Seq-1, m.Seq), true
}

// line yields what is wrong with a line, and the entry in it if there is one.
func (b *behind) line(name string, e Entry, wrong error, size int64, m *Mark) bool {
	*m = Mark{Bytes: m.Bytes + size, Seq: m.Seq}
	if errors.Is(wrong, errLong) {
		m.Done = true
	}
	if e.Head != nil && wrong == nil {
		var more bool
		if wrong, more = b.cut(e); !more {
			return false
		}
	}
	if wrong != nil {
		// taken before the entry, it repeats the entry and loses nothing
		at := *m
		if e.Hash != "" {
			at.Bytes -= size
		}
		more := b.gap(name, at, "in the journal file %s %v", name, wrong)
		if !more || e.Hash == "" {
			return more
		}
	}
	m.Seq, m.Hash, m.Done = e.Seq, e.Hash, e.Close != nil
	if e.Close != nil && !b.named(e.Close.Next, name) {
		return false
	}
	if e.Head != nil {
		for _, other := range append(slices.Sorted(maps.Keys(e.Head.Seen)), e.Head.From) {
			if !b.named(other, name) {
				return false
			}
		}
	}
	return b.yield(Step{Entry: e, Mark: *m}, nil)
}

// Follows reports whether taking s alone moves a cursor as taking before and then s does.
func (s Step) Follows(before Step) bool {
	return s.Entry.File == before.Entry.File && !s.away && !before.away
}
