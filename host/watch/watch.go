// Package watch follows files that decide what the host does, so that no change of them is missed
// or skipped in silence.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long files must be unchanged before they are read, because editors write a file
	// in several steps. restless is the time after which files that keep changing are read anyway.
	settle   = 100 * time.Millisecond
	restless = 5 * time.Second
)

// every is the interval at which files are checked whose changes cause no event: files on a network
// file system, or in a directory that was replaced.
var every = 5 * time.Second

// Files are files in some directories.
type Files struct {
	What string // for errors
	// Dirs returns the directories, again at each look. It may block.
	Dirs func() ([]string, error)
	// Concerns reports whether a file of this name is one of them. Nil: all that are not hidden.
	Concerns func(name string) bool
	// Touched is called as soon as a change is seen: Follow waits until files are quiet before it
	// calls changed. Nil: nothing.
	Touched func()
}

// Follow calls changed at once, and then after each change of the files, until ctx ends. If its
// argument is an error, changes may have been missed, and the caller must read the files anyway.
// Calls do not overlap.
func (f Files) Follow(ctx context.Context, changed func(missed error)) {
	missed := func(err error) {
		if err != nil {
			err = fmt.Errorf("following %s: %w", f.What, err)
		}
		changed(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		missed(err)
		w = &fsnotify.Watcher{} // without events
	} else {
		defer w.Close()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	looks, looking, slow := make(chan look, 1), false, false
	start := func() {
		if !looking {
			looking = true
			go func() { looks <- f.look(w, err == nil) }()
		}
	}
	unread := changes{touched: f.Touched}
	seen, due := "", true // due: the files are read after the next look
	for start(); ; {
		select {
		case <-ctx.Done():
			return
		case ev := <-w.Events:
			if f.concerns(filepath.Base(ev.Name)) {
				unread.touch()
			}
		case err := <-w.Errors: // events can be lost, so the files are read again
			missed(err)
			unread.touch()
		case <-unread.settled:
			unread.settled, due = nil, true
			start()
		case <-tick.C:
			if looking && !slow {
				slow = true
				missed(fmt.Errorf("looking at it takes longer than %s", every))
			}
			start()
		case l := <-looks:
			looking, slow = false, false
			if due {
				seen, due = l.text, false
				missed(l.err)
			} else if l.text != seen {
				unread.touch()
			}
		}
	}
}

// changes are those that were seen and not read yet.
type changes struct {
	touched func()
	first   time.Time
	settled <-chan time.Time // nil: there are none
}

// touch notes a change.
func (c *changes) touch() {
	if c.settled == nil {
		c.first = time.Now()
		if c.touched != nil {
			c.touched()
		}
	}
	c.settled = time.After(max(0, min(settle, time.Until(c.first.Add(restless)))))
}

func (f Files) concerns(name string) bool {
	if f.Concerns != nil {
		return f.Concerns(name)
	}
	// Kubernetes changes a mounted directory by renaming "..data".
	return !strings.HasPrefix(name, ".") || strings.HasPrefix(name, "..")
}

// look is what the directories held at one time: text differs when a file does.
type look struct {
	text string
	err  error
}

// look watches the directories, and then reads them, so that no change falls in between.
func (f Files) look(w *fsnotify.Watcher, watched bool) (l look) {
	dirs, err := f.Dirs()
	var text strings.Builder
	for _, dir := range dirs {
		if watched {
			err = errors.Join(err, w.Add(dir))
		}
		entries, bad := os.ReadDir(dir)
		err = errors.Join(err, bad)
		for _, e := range entries {
			if !f.concerns(e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			if info, err := os.Stat(path); err != nil {
				fmt.Fprintln(&text, path, err)
			} else if !info.IsDir() {
				fmt.Fprintln(&text, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return look{fmt.Sprint(text.String(), err), err}
}

// Within returns what do returns, or an error when ctx ends or the limit is over before: do may
// hang, as reading a file of a server that is away does.
func Within[T any](ctx context.Context, limit time.Duration, what string,
	do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%s took longer than %s", what, limit))
	defer cancel()
	var none T
	if ctx.Err() != nil { // before it began
		return none, context.Cause(ctx)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := do(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
