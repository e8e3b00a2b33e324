// Package audit is the journal: it says what was going to be done before it is done, in hash chains
// that can be verified.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

var _ terms.Journal = (*Journal)(nil)

// Open begins a chain for this process. The directory must not be writable for other accounts.
func Open(o Options) (*Journal, error) {
	o.Dir = cmp.Or(o.Dir, filepath.Join("state", "journal"))
	o.MaxFileBytes = cmp.Or(o.MaxFileBytes, 64<<20)
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
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

// Intent writes a record. When it returns nil, the record is in the journal's file under the
// file's name, and on the disk if durable is set. While an outcome could not be written, Intent
// tries to write that first, and fails if it cannot.
func (j *Journal) Intent(ctx context.Context, r terms.Record, durable bool) error {
	seg, n, err := j.add(Entry{Record: &r})
	if err != nil || !durable {
		return err
	}
	return j.sync(ctx, seg, n)
}

// Shadow writes what a candidate policy answers, without a sync.
func (j *Journal) Shadow(s Shadow) error {
	s.Time = j.now()
	_, _, err := j.add(Entry{Shadow: &s})
	return err
}

// Ready returns an error if a record could not be written now. It writes outcomes that are
// pending, and some bytes that it removes again; after a failure it also syncs them.
func (j *Journal) Ready() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return errors.New("the journal is closed")
	}
	if err := j.catchUp(); err != nil {
		return err
	}
	if err := j.ready(); err != nil {
		return err
	}
	var trial [4096]byte
	j.seg.torn = true
	_, err := j.seg.f.WriteAt(trial[:], j.seg.size)
	if err == nil && j.failed != nil {
		err = j.flush()
	}
	if j.seg != nil {
		err = errors.Join(err, j.seg.trim())
	}
	if err != nil {
		return fmt.Errorf("writing to the journal as a trial: %w", err)
	}
	return nil
}

// Outcome writes a record that must not be lost. If that fails, the record is kept in memory and
// written before any other.
func (j *Journal) Outcome(_ context.Context, r terms.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, r)
	return j.catchUp()
}

// sync returns when entry n of seg is on the disk. One sync serves all entries written before it.
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

// Close writes what is pending and a record that says that the chain ends here. It may be called
// again.
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

// Tip is the end of a chain: its last entry on the disk.
type Tip struct {
	File string
	Seq  int64
	Hash string
}

// Tip syncs the chain and returns its end, also after Close. An error says that entries may be
// lost.
func (j *Journal) Tip(ctx context.Context) (Tip, error) {
	j.mu.Lock()
	seg, tip, failed := j.seg, Tip{j.head.From, j.seq - 1, j.prev}, j.failed
	j.mu.Unlock()
	if seg == nil {
		return tip, failed
	}
	tip.File = seg.name
	return tip, j.sync(ctx, seg, tip.Seq)
}

// KeepPolicy keeps the bundle of a policy revision beside the journal, so that what it decided can
// be explained later, and its digest in the chain. It returns when the bundle is on the disk.
// Another bundle under the same revision is an error.
func (j *Journal) KeepPolicy(rev string, bundle []byte) error {
	if err := j.keepPolicy(rev, bundle); err != nil {
		return fmt.Errorf("keeping policy revision %s: %w", rev, err)
	}
	return nil
}
