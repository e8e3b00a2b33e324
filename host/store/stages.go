package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caponier-mcp/caponier/host/terms"
)

// PutStage records, before this process makes it, a directory or partial file that the process
// removes when its call ends. Node "" is this machine. The record is on the disk when PutStage
// returns.
func (s *Store) PutStage(ctx context.Context, at terms.StageDir) error {
	what := fmt.Sprintf("recording the stage %s on %s", at.Dir, at.Node)
	process, err := s.alive()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return s.do(ctx, s.sure, what, func(t tx) error {
		return t.exec("INSERT INTO stages (node, path, process) VALUES (?1, ?2, ?3) "+
			"ON CONFLICT DO UPDATE SET process = ?3", at.Node, at.Dir, process)
	})
}

// RemoveStage forgets a stage that was removed.
func (s *Store) RemoveStage(ctx context.Context, at terms.StageDir) error {
	what := fmt.Sprintf("forgetting the stage %s on %s", at.Dir, at.Node)
	return s.do(ctx, s.quick, what, func(t tx) error {
		return t.exec("DELETE FROM stages WHERE node = ? AND path = ?", at.Node, at.Dir)
	})
}

// late is how long a request of a process may be under way after its end. A kernel sends on what a
// process that was killed has written, through an outage of the network too: Linux gives it up
// within nine minutes.
const late = 10 * time.Minute

// MissedStage notes that a stage of a process that has ended was looked for and is not there. It
// forgets the stage, and reports so, if it was not there [late] before either: until then a request
// of the dead process may make it.
func (s *Store) MissedStage(ctx context.Context, at terms.StageDir) (forgotten bool, err error) {
	what := fmt.Sprintf("noting that the stage %s on %s is not there", at.Dir, at.Node)
	now := s.running()
	return get(ctx, s, s.quick, what, func(t tx) (bool, error) {
		// what is in the future was noted before the machine started
		err := t.exec("UPDATE stages SET missing = ?3 WHERE node = ?1 AND path = ?2 AND "+
			"(missing = 0 OR missing > ?3)", at.Node, at.Dir, now)
		if err != nil {
			return false, err
		}
		err = t.one("DELETE FROM stages WHERE node = ?1 AND path = ?2 AND missing <= ?3", at.Node,
			at.Dir, now-late.Milliseconds())
		if errors.Is(err, ErrNone) {
			return false, nil
		}
		return err == nil, err
	})
}

// DeadStages lists the stages of processes that have ended.
func (s *Store) DeadStages(ctx context.Context) (dead []terms.StageDir, err error) {
	type stage struct {
		terms.StageDir
		process string
	}
	const what = "listing stages of processes that have ended"
	found, err := get(ctx, s, s.quick, what, func(t tx) ([]stage, error) {
		return all(t, func(r Row) (v stage, err error) {
			err = r.Scan(&v.Node, &v.Dir, &v.process)
			return v, err
		}, "SELECT node, path, process FROM stages ORDER BY node, path")
	})
	if err != nil {
		return nil, err
	}
	ended := map[string]bool{}
	// the files of those that have ended and left nothing go too
	files, _ := filepath.Glob(filepath.Join(s.opt.Dir, "process-*.lock"))
	for _, f := range files {
		name := filepath.Base(f)
		if ended[name], err = s.ended(name); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	for _, f := range found {
		if _, known := ended[f.process]; !known {
			if ended[f.process], err = s.ended(f.process); err != nil {
				return nil, fmt.Errorf("%s: %w", what, err)
			}
		}
		if ended[f.process] {
			dead = append(dead, f.StageDir)
		}
	}
	return dead, nil
}

// alive returns the name of this process. The first time, it makes and locks the file of that name.
func (s *Store) alive() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		return s.process, nil
	}
	name := fmt.Sprintf("process-%d-%s.lock", os.Getpid(), strings.ToLower(rand.Text()[:8]))
	path := filepath.Join(s.opt.Dir, name)
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil { // it has its name once it is locked, so that nobody takes it for a dead one's
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	s.process, s.lock = name, f
	return name, nil
}

// ended reports whether the process of that name has ended, and removes its file if so.
func (s *Store) ended(process string) (bool, error) {
	if process != filepath.Base(process) {
		return true, nil
	}
	s.mu.Lock()
	own := s.lock != nil && process == s.process
	s.mu.Unlock()
	if own {
		return false, nil
	}
	path := filepath.Join(s.opt.Dir, process)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	// shared, so that two processes which ask at the same time do not take each other for it
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, err
	}
	_ = os.Remove(path) // another one may be first, and what stays is removed the next time
	return true, nil
}
