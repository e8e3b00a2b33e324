package audit

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
)

// Options of a journal.
type Options struct {
	// Dir is shared by all processes, which begin files of their own; it is made with mode 0700.
	Dir string `koanf:"dir" path:"true"`
	// MaxFileBytes is the size at which a chain goes on in a new file, 0 for 64 MiB.
	MaxFileBytes int64            `koanf:"-"`
	Now          func() time.Time `koanf:"-"` // nil for time.Now
}

// Journal writes one chain of entries. It is safe for concurrent use.
type Journal struct {
	opt    Options
	create func(path string) (file, error)
	turn   chan struct{} // held while a file is synced; taken before mu, never after it

	mu      sync.Mutex // guards the following, and the fields of segments
	seg     *segment   // nil when the next entry has to begin a file
	next    string     // name of the file to begin
	head    Head       // what its head says: From, Error, Changed
	began   time.Time  // time in the newest name
	seq     int64      // of the next entry
	prev    string     // hash of the last entry
	pending []terms.Record
	// the policy that decides now, as it was kept
	revision string
	bundle   []byte
	failed   error // the last failure since the last sync that succeeded
	closed   bool
}

// noteSync gives up a file whose sync failed: the kernel may have dropped what it could not write,
// and a second sync would not report that. It needs mu.
func (j *Journal) noteSync(seg *segment, upto int64, err error) error {
	if err != nil {
		return j.giveUp(seg, fmt.Errorf("syncing the journal file %s: %w", seg.name, err), false)
	}
	if seg.failed != nil {
		return seg.failed
	}
	if err := seg.inPlace(); err != nil {
		return j.giveUp(seg, err, true)
	}
	seg.synced, j.failed = max(seg.synced, upto), nil
	return nil
}

// giveUp fails every entry of the file that is not on the disk yet. The next entry begins another
// file, whose head says why.
func (j *Journal) giveUp(seg *segment, err error, changed bool) error {
	seg.failed, j.failed = err, err
	if j.seg == seg {
		seg.busy.Wait()
		j.seg, j.head = nil, Head{From: seg.name, Error: err.Error(), Changed: changed}
		seg.f.Close()
	}
	return err
}

// append writes one entry at the end of the chain. It needs mu. The file is checked before the
// entry is written, so that the entry goes to another file if needed, and again after it, so that
// an entry is never reported as written when its file is gone.
func (j *Journal) append(e Entry) (err error) {
	defer func() {
		if err != nil {
			j.failed = err
		}
	}()
	if j.closed {
		return errors.New("the journal is closed")
	}
	if err := j.ready(); err != nil {
		return err
	}
	if err := j.write(e); err != nil {
		return err
	}
	if err := j.seg.inPlace(); err != nil {
		return j.giveUp(j.seg, err, true)
	}
	return nil
}

// ready makes sure that there is a file, in its place and with room in it. It needs mu.
func (j *Journal) ready() error {
	if j.seg != nil {
		if err := j.seg.inPlace(); err != nil {
			j.giveUp(j.seg, err, true)
		}
	}
	if j.seg != nil && j.seg.size < j.opt.MaxFileBytes {
		return nil
	}
	if err := trusted.Dir(j.opt.Dir); err != nil { // it may have been replaced
		return fmt.Errorf("the journal directory: %w", err)
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
	// The new file exists, empty, before the old one names it: a file that is named but missing
	// was deleted.
	if j.seg != nil {
		if err := j.finish(Close{Time: j.now(), Next: j.next}); err != nil {
			return discard(err)
		}
	}
	seg := &segment{f: f, path: path, name: j.next, written: j.seq, synced: j.seq}
	if seg.id, err = f.Stat(); err != nil {
		return discard(err)
	}
	head := j.head
	head.Format, head.File, head.Time, head.PID = format, j.next, j.now(), os.Getpid()
	if j.seq == 0 {
		if head.Seen, err = lastHashes(j.opt.Dir); err != nil {
			return discard(err)
		}
	}
	j.seg = seg
	if err := j.write(Entry{Head: &head}); err != nil {
		j.seg = nil
		return discard(err)
	}
	if j.head, j.next = (Head{From: seg.name}), ""; head.Changed {
		j.keepAgain()
	}
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
	j.seg, j.head = nil, Head{From: seg.name}
	return seg.f.Close()
}

// flush syncs the current file while holding mu.
func (j *Journal) flush() error {
	j.seg.busy.Wait()
	return j.noteSync(j.seg, j.seg.written, j.seg.f.Sync())
}

func (j *Journal) write(e Entry) error {
	s := j.seg
	if err := s.trim(); err != nil {
		return err
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

// newName makes names that sort in the order of the chain, also when the clock is set back.
func (j *Journal) newName() string {
	now := j.now().Truncate(time.Microsecond)
	if !now.After(j.began) {
		now = j.began.Add(time.Microsecond)
	}
	j.began = now
	var b [4]byte
	rand.Read(b[:])
	return fmt.Sprintf("%s-%d-%x.jsonl", now.Format(nameTime), os.Getpid(), b)
}

func (j *Journal) keepPolicy(rev string, bundle []byte) error {
	base, err := policyBase(j.opt.Dir, rev)
	if err != nil {
		return err
	}
	kept, err := Policy(j.opt.Dir, rev)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = keep(base+ending(bundle), bundle)
	case err == nil && !bytes.Equal(kept, bundle):
		err = fmt.Errorf("another bundle with that revision is already in %s", filepath.Dir(base))
	}
	if err != nil {
		return err
	}
	_, _, err = j.add(Entry{Policy: &Kept{Time: j.now(), Revision: rev, SHA256: digest(bundle)}})
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.revision, j.bundle = rev, bundle
	}
	return err
}

// keepAgain keeps the policy that decides now in a directory that replaced the journal's. If that
// fails, its decisions cannot be explained later, and Verify warns of it. It needs mu.
func (j *Journal) keepAgain() {
	_, err := Policy(j.opt.Dir, j.revision)
	if j.revision == "" || !errors.Is(err, fs.ErrNotExist) {
		return
	}
	base, err := policyBase(j.opt.Dir, j.revision)
	if err == nil && keep(base+ending(j.bundle), j.bundle) == nil {
		_ = j.write(Entry{Policy: &Kept{Time: j.now(), Revision: j.revision,
			SHA256: digest(j.bundle)}})
	}
}

func (j *Journal) now() time.Time { return j.opt.Now().UTC() }

func (j *Journal) add(e Entry) (*segment, int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.catchUp(); err != nil {
		return nil, 0, err
	}
	err := j.append(e)
	return j.seg, j.seq - 1, err
}

func (j *Journal) catchUp() error {
	for len(j.pending) > 0 {
		if err := j.append(Entry{Record: &j.pending[0]}); err != nil {
			return fmt.Errorf("%d outcomes are not written yet, and nothing may be done before "+
				"they are: %w", len(j.pending), err)
		}
		j.pending = j.pending[1:]
	}
	return nil
}
