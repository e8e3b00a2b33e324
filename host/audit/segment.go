package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// file is the part of *os.File that a journal uses.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Sync() error
	Close() error
}

// segment is one file of the chain.
type segment struct {
	f          file
	id         os.FileInfo // identifies the file that was created
	path, name string
	size       int64          // bytes of whole entries
	torn       bool           // there may be bytes after them
	written    int64          // entries before this seq are in the file
	synced     int64          // and those before this one are on the disk
	failed     error          // why the file was given up
	busy       sync.WaitGroup // syncs that run without mu
}

// inPlace returns an error unless the file still has its name and exactly the bytes that were
// written to it. Entries of a file that was deleted, moved, replaced or cut are not in the journal.
func (s *segment) inPlace() error {
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the journal file %s was deleted or moved while in use", s.name)
	case err != nil:
		return fmt.Errorf("the journal file %s cannot be examined: %w", s.name, err)
	case !os.SameFile(info, s.id):
		return fmt.Errorf("the journal file %s was replaced while in use", s.name)
	case info.Size() < s.size:
		return fmt.Errorf("the journal file %s was cut from %d to %d bytes while in use",
			s.name, s.size, info.Size())
	case info.Size() > s.size && !s.torn:
		return fmt.Errorf("another process appended %d bytes to the journal file %s",
			info.Size()-s.size, s.name)
	}
	return nil
}

// trim removes what a failed write left after the last whole entry.
func (s *segment) trim() error {
	if !s.torn {
		return nil
	}
	if err := s.f.Truncate(s.size); err != nil {
		return fmt.Errorf("removing a half-written entry from %s: %w", s.name, err)
	}
	s.torn = false
	return nil
}

const nameTime = "20060102T150405.000000"
