package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Place is where the line of an entry is in a journal.
type Place struct {
	File string
	At   int64
	Size int64 // with the line feed
}

// ErrMoved says that there is no entry at a place.
var ErrMoved = errors.New("the journal has no entry there")

// EntryAt reads the entry at a place, whose hash holds. A place may come from anywhere.
func EntryAt(dir string, p Place) (e Entry, err error) {
	wrong := func(err error) (Entry, error) {
		return Entry{}, fmt.Errorf("%w: %s at byte %d: %w", ErrMoved, p.File, p.At, err)
	}
	if !fileName.MatchString(p.File) || p.At < 0 || p.Size < 2 || p.Size > maxLine+1 {
		return wrong(errors.New("no line can be there"))
	}
	f, err := os.Open(filepath.Join(dir, p.File))
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	// the line feed before it too: a line that begins inside another one is none
	before := min(p.At, 1)
	line := make([]byte, p.Size+before)
	if _, err := f.ReadAt(line, p.At-before); err != nil {
		return wrong(err)
	}
	line, whole := bytes.CutSuffix(line, []byte("\n"))
	if whole && before == 1 {
		line, whole = bytes.CutPrefix(line, []byte("\n"))
	}
	if !whole || bytes.IndexByte(line, '\n') >= 0 {
		return wrong(errors.New("no line is there"))
	}
	if e, err = decode(line); err != nil {
		return wrong(err)
	}
	e.File, e.At, e.Size = p.File, p.At, p.Size
	return e, nil
}

// RecordsFrom calls yield with the entries of a journal, as [Records] yields them, from where at
// says that each file was read. It does not open files that have nothing more.
func RecordsFrom(dir string, at map[string]int64, yield func(Entry, error) bool) {
	r := newReader(dir)
	for name, n := range at {
		r.at[name] = n
	}
	r.skip = func(name string) bool {
		info, err := os.Lstat(filepath.Join(dir, name))
		return err == nil && info.Size() <= at[name] || errors.Is(err, fs.ErrNotExist)
	}
	r.pass(yield)
}

// Ahead is how many bytes of the journal come after where at says that each file was read.
func Ahead(dir string, at map[string]int64) (bytes int64, err error) {
	names, err := files(dir)
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			bytes += max(info.Size()-at[name], 0)
		}
	}
	return bytes, err
}
