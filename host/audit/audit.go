// Package audit is the journal: it says what was going to be done before it is done, in hash chains
// that can be verified.
package audit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Options of a journal.
type Options struct {
	// of all processes, default state/journal; made with mode 0700
	Dir string `koanf:"dir"`
	// a chain goes on in a new file after that many bytes, default 64 MiB
	MaxFileBytes int64            `koanf:"max_file_bytes"`
	Now          func() time.Time `koanf:"-"` // nil for time.Now
}

// Validate fills in defaults.
func (o *Options) Validate() error {
	if o.Dir == "" {
		o.Dir = filepath.Join("state", "journal")
	}
	if o.MaxFileBytes == 0 {
		o.MaxFileBytes = 64 << 20
	}
	if o.MaxFileBytes < 4096 {
		return fmt.Errorf("audit.max_file_bytes is %d, want at least 4096", o.MaxFileBytes)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Journal writes one chain. It is safe for concurrent use.
type Journal struct {
	opt    Options
	create func(path string) (file, error)
	turn   chan struct{} // held by whoever syncs; taken before mu, never after it

	mu      sync.Mutex // guards the following, and the fields of segments
	seg     *segment   // nil when the next entry has to begin a file
	next    string     // name of the file to begin
	from    string     // and of the one before it
	began   time.Time  // the newest name's
	why     string     // it begins after an error
	seq     int64      // of the next entry
	prev    string     // hash of the last entry
	pending []gate.Record
	closed  bool
}

var _ gate.Journal = (*Journal)(nil)

// file is what a journal needs of an *os.File.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// segment is one file of the chain.
type segment struct {
	f       file
	name    string
	size    int64          // bytes of whole entries
	torn    bool           // there may be a part of an entry after them
	written int64          // entries before this seq are in the file
	synced  int64          // and those before this one on the disk
	failed  error          // a sync failed, so that nobody knows what is on the disk
	busy    sync.WaitGroup // syncs under way without mu
}

// Open begins a chain of its own for this process. The directory must not be writable for others.
func Open(o Options) (*Journal, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	info, err := os.Stat(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf(
			"opening the journal: others may write to %s (mode %04o); chmod 700 it, or set [audit] dir to a directory of its own",
			o.Dir,
			info.Mode().Perm(),
		)
	}
	j := &Journal{opt: o, create: createFile, turn: make(chan struct{}, 1)}
	return j, j.start()
}

func (j *Journal) start() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.ready(); err != nil {
		return fmt.Errorf("opening the journal in %s: %w", j.opt.Dir, err)
	}
	return j.flush()
}

// Intent writes a record; if durable, it is on the disk when Intent returns nil. While an outcome
// is still to be written, every Intent tries to write it first and fails if it cannot.
func (j *Journal) Intent(ctx context.Context, r gate.Record, durable bool) error {
	seg, n, err := j.add(Entry{Record: &r})
	if err != nil || !durable {
		return err
	}
	return j.sync(ctx, seg, n)
}

func (j *Journal) add(e Entry) (*segment, int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.catchUp(); err != nil {
		return nil, 0, err
	}
	err := j.append(e)
	return j.seg, j.seq - 1, err
}

// Ready reports whether records can be written: it tries what is still to be written, and that
// there is a file.
func (j *Journal) Ready() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return errors.New("the journal is closed")
	}
	if err := j.catchUp(); err != nil {
		return err
	}
	return j.ready()
}

// Outcome writes a record that must not be lost. If it fails, the record is kept and written before
// anything else.
func (j *Journal) Outcome(_ context.Context, r gate.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, r)
	return j.catchUp()
}

func (j *Journal) catchUp() error {
	for len(j.pending) > 0 {
		if err := j.append(Entry{Record: &j.pending[0]}); err != nil {
			return fmt.Errorf(
				"%d outcomes are not written yet, and nothing may be done before they are: %w",
				len(j.pending),
				err,
			)
		}
		j.pending = j.pending[1:]
	}
	return nil
}

// sync returns when entry n of seg is on the disk. Whoever has the turn syncs for all who wrote
// before it.
func (j *Journal) sync(ctx context.Context, seg *segment, n int64) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the journal's disk: %w", context.Cause(ctx))
	}
	j.mu.Lock()
	upto, done, err := seg.written, n < seg.synced, seg.failed
	if !done && err == nil {
		seg.busy.Add(1)
	}
	j.mu.Unlock()
	if done || err != nil {
		return err
	}
	err = seg.f.Sync()
	seg.busy.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.noteSync(seg, upto, err)
}

// noteSync gives up a file whose sync failed: the kernel may have dropped what it could not write,
// and a second sync would not tell.
func (j *Journal) noteSync(seg *segment, upto int64, err error) error {
	if err == nil {
		seg.synced = max(seg.synced, upto)
		return nil
	}
	seg.failed = fmt.Errorf("syncing the journal file %s: %w", seg.name, err)
	if j.seg == seg {
		j.seg, j.from, j.why = nil, seg.name, seg.failed.Error()
		seg.f.Close()
	}
	return seg.failed
}

// append writes one entry at the end of the chain. It needs mu.
func (j *Journal) append(e Entry) error {
	if j.closed {
		return errors.New("the journal is closed")
	}
	if err := j.ready(); err != nil {
		return err
	}
	return j.write(e)
}

// ready sees to it that there is a file with room in it.
func (j *Journal) ready() error {
	if j.seg != nil && j.seg.size < j.opt.MaxFileBytes {
		return nil
	}
	if j.next == "" {
		j.next = j.newName()
	}
	path := filepath.Join(j.opt.Dir, j.next)
	f, err := j.create(path)
	if err != nil {
		return err
	}
	discard := func(why error) error { return errors.Join(why, f.Close(), os.Remove(path)) }
	// The new file exists, empty, before the old one names it: then a file that is named but
	// missing was deleted.
	if j.seg != nil {
		if err := j.finish(Close{Time: j.now(), Next: j.next}); err != nil {
			return discard(err)
		}
	}
	head := Head{
		Format: format,
		File:   j.next,
		Time:   j.now(),
		PID:    os.Getpid(),
		From:   j.from,
		Error:  j.why,
	}
	if j.seq == 0 {
		if head.Seen, err = lastHashes(j.opt.Dir); err != nil {
			return discard(err)
		}
	}
	seg := &segment{f: f, name: j.next, written: j.seq, synced: j.seq}
	j.seg = seg
	if err := j.write(Entry{Head: &head}); err != nil {
		j.seg = nil
		return discard(err)
	}
	j.from, j.next, j.why = seg.name, "", ""
	return nil
}

// finish ends the current file with a close record and forgets it.
func (j *Journal) finish(c Close) error {
	if err := j.write(Entry{Close: &c}); err != nil {
		return err
	}
	seg := j.seg
	if err := j.flush(); err != nil {
		return err
	}
	j.seg, j.from = nil, seg.name
	return seg.f.Close()
}

// flush syncs the current file while holding mu.
func (j *Journal) flush() error {
	j.seg.busy.Wait()
	return j.noteSync(j.seg, j.seg.written, j.seg.f.Sync())
}

func (j *Journal) write(e Entry) error {
	s := j.seg
	if s.torn {
		if err := s.f.Truncate(s.size); err != nil {
			return fmt.Errorf("removing a half-written entry from %s: %w", s.name, err)
		}
		s.torn = false
	}
	e.Seq, e.Prev = j.seq, j.prev
	line, hash, err := encode(e)
	if err != nil {
		return err
	}
	if _, err := s.f.WriteAt(line, s.size); err != nil {
		s.torn = s.f.Truncate(s.size) != nil
		return fmt.Errorf("writing the journal: %w", err)
	}
	s.size += int64(len(line))
	j.seq, j.prev = j.seq+1, hash
	s.written = j.seq
	return nil
}

// Close writes what is pending and a record that says that nothing is missing after it. It may be
// called again.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	err := j.catchUp()
	if err == nil {
		err = j.ready()
	}
	if err == nil {
		err = j.finish(Close{Time: j.now()})
	}
	j.closed = true
	if err != nil && j.seg != nil {
		j.seg.busy.Wait()
		err = errors.Join(err, j.seg.f.Close())
	}
	if err != nil {
		return fmt.Errorf("closing the journal: %w", err)
	}
	return nil
}

func (j *Journal) now() time.Time { return j.opt.Now().UTC() }

const nameTime = "20060102T150405.000000"

// newName makes names that sort in the order of the chain, also when the clock goes back.
func (j *Journal) newName() string {
	now := j.now().Truncate(time.Microsecond)
	if !now.After(j.began) {
		now = j.began.Add(time.Microsecond)
	}
	j.began = now
	var b [4]byte
	rand.Read(b[:])
	return fmt.Sprintf(
		"%s-%d-%s.jsonl",
		now.Format(nameTime),
		os.Getpid(),
		hex.EncodeToString(b[:]),
	)
}
