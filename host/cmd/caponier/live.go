package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/cmd/caponier/hangup"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/systemd"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/watch"
)

const (
	lockDeadline  = 30 * time.Second // to read the lock
	readyDeadline = 5 * time.Minute  // to make ready what came: modules are compiled
	retireAfter   = 5 * time.Second  // no call has used a module that left the lock: it is freed
)

// live keeps in service what plugins.lock says, while the server runs. It counts the calls of each
// module, so that one that was replaced stays as long as a call of it runs or waits.
type live struct {
	mcp.Door
	h      *host
	server *mcp.Server

	turn sync.Mutex     // held while the lock is read or taken; guards next three; before mu
	want string         // checksum of the lock in service or made ready; "" when that failed
	stop func()         // ends making ready what came; nil when nothing is
	came []plugin.Entry // what is made ready

	mu    sync.Mutex     // guards calls
	calls map[string]int // that run, by the digest of their module
}

func newLive(h *host, door mcp.Door) *live {
	return &live{Door: door, h: h, calls: map[string]int{}}
}

// Call goes through the door.
func (l *live) Call(ctx context.Context, r terms.Request) terms.Answer {
	l.count(r.Tool.Plugin.Digest, 1)
	defer l.count(r.Tool.Plugin.Digest, -1)
	return l.Door.Call(ctx, r)
}

func (l *live) count(digest string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[digest] += n; l.calls[digest] == 0 {
		delete(l.calls, digest)
	}
}

// follow has policy and lock read again when their files change and at SIGHUP, until ctx ends.
func (l *live) follow(ctx context.Context) {
	l.want = l.h.lock().Checksum()
	var work sync.WaitGroup
	defer work.Wait()
	missed := func(err error) {
		if err != nil {
			slog.Error("changes may have been missed; the files are read again", "error", err)
		}
	}
	work.Go(func() {
		l.h.engine.Follow(ctx, func(err error) { missed(err); l.policy(ctx, false) })
	})
	work.Go(func() {
		again := false // what cannot run was reported when the host opened
		l.files().Follow(ctx, func(err error) {
			missed(err)
			l.reload(ctx, &work, again)
			again = true
		})
	})
	work.Go(func() { l.retire(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup.C:
			systemd.Notify(systemd.Reloading())
			l.policy(ctx, true)
			l.reload(ctx, &work, true)
			systemd.Notify("READY=1")
		}
	}
}

// policy loads the site again. A candidate that does not pass leaves the running revision in force.
// When it was asked for, it is reported even if nothing has changed.
func (l *live) policy(ctx context.Context, asked bool) {
	before := l.h.engine.Revision()
	err := l.h.engine.Reload(ctx)
	if asked || err != nil || l.h.engine.Revision() != before {
		l.decides(ctx, err, before)
	}
}

// decides reports how loading the policy went.
func (l *live) decides(ctx context.Context, err error, before string) {
	if ctx.Err() != nil {
		return
	}
	revision := l.h.engine.Revision()
	l.h.meter.Reloaded("policy", err)
	if err != nil {
		slog.Error("policy not reloaded, the running one stays", "error", err,
			"revision", revision)
		return
	}
	slog.Info("policy reloaded", "revision", revision)
	if revision != before { // a file that was only touched is no change
		l.h.warn()
		l.server.Changed()
	}
}

// files are the lock and the modules: a lock whose module comes later is tried again then.
func (l *live) files() watch.Files {
	file := l.h.cfg.Plugin.Lock
	return watch.Files{What: file,
		Dirs: func() ([]string, error) {
			target, err := filepath.EvalSymlinks(file)
			if err != nil { // the lock is away
				target = file
			}
			return slices.Compact([]string{filepath.Dir(file), filepath.Dir(target),
				l.h.cfg.Plugin.Dir}), nil
		},
		Concerns: func(name string) bool {
			return name == filepath.Base(file) || name == "..data" ||
				strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".wasm") ||
				strings.HasSuffix(name, ".wasm.sig")
		}}
}

// reload reads the lock. What left it is withdrawn at once. What came is made ready in the
// background, and comes into service when all of it is ready. A lock that is wrong changes nothing.
// With again, plugins of an unchanged lock that could not run are tried again; without, a file that
// has not changed since it was read is not read in full.
func (l *live) reload(ctx context.Context, work *sync.WaitGroup, again bool) {
	l.turn.Lock()
	defer l.turn.Unlock()
	file := l.h.cfg.Plugin.Lock
	next, err := watch.Within(ctx, lockDeadline, "reading "+file,
		func(context.Context) (*plugin.Lock, error) {
			if now := l.h.lock(); !again && now.Unchanged(file) {
				return nil, nil
			}
			return plugin.Load(file)
		})
	if next == nil && err == nil {
		return
	}
	if err != nil {
		l.report(ctx, err)
		return
	}
	both := l.h.lock().Both(l.h.undoes(next))
	came := l.new(next, both)
	if l.want == next.Checksum() && (l.stop != nil || len(came) == 0 || !again) {
		return
	}
	if l.stop != nil {
		l.stop()
	}
	l.want, l.stop, l.came = next.Checksum(), nil, nil
	if err := l.offer(both); err != nil || len(came) == 0 {
		l.report(ctx, errors.Join(err, l.take(ctx, next)))
		return
	}
	making, stop := context.WithTimeoutCause(ctx, readyDeadline,
		fmt.Errorf("making plugins ready took longer than %s", readyDeadline))
	l.stop, l.came = stop, came
	work.Go(func() {
		defer stop()
		err := l.make(making, next, came)
		l.turn.Lock()
		defer l.turn.Unlock()
		if errors.Is(making.Err(), context.Canceled) {
			return // the lock has changed again
		}
		if l.stop, l.came = nil, nil; err == nil {
			err = l.take(ctx, next)
		}
		l.report(ctx, err)
	})
}

// new returns the entries of a lock whose modules have to be made ready: those that both has not,
// and those that cannot run, for their file may be right by now.
func (l *live) new(next, both *plugin.Lock) (came []plugin.Entry) {
	ready, different := l.h.sandbox.Readiness(), next.New(both)
	for _, e := range next.Plugins() {
		is := func(d plugin.Entry) bool { return d.Name == e.Name }
		offered := func(t *terms.Tool) bool {
			return t.Plugin.Name == e.Name &&
				l.h.hidden(t) == ""
		}
		err := cmp.Or(l.h.unusable(e.Digest), ready[e.Digest])
		if slices.ContainsFunc(next.Tools(), offered) && (slices.ContainsFunc(different, is) ||
			err != nil && !errors.Is(err, sandbox.ErrPreparing)) {
			came = append(came, e)
		}
	}
	return came
}

// make makes modules ready. When one cannot be, none of them stays in the sandbox.
func (l *live) make(ctx context.Context, next *plugin.Lock, came []plugin.Entry) error {
	ready := l.h.sandbox.Readiness()
	serves := func(e plugin.Entry) bool {
		err, there := ready[e.Digest]
		return there && err == nil
	}
	_, err := watch.Within(ctx, readyDeadline, "making plugins ready",
		func(ctx context.Context) (none struct{}, err error) {
			for _, e := range came {
				if !serves(e) { // what failed before
					l.h.sandbox.Remove(e.Digest)
				}
				err = errors.Join(err, l.h.addPlugin(ctx, next, e))
			}
			for _, e := range came {
				if err == nil {
					c := &terms.Call{Tool: &terms.Tool{Plugin: e.Plugin}}
					err = l.h.sandbox.Ready(ctx, c, nil)
				}
			}
			return none, err
		})
	for _, e := range came {
		if err != nil && !serves(e) {
			l.h.sandbox.Remove(e.Digest)
		} else if err == nil {
			l.h.broken.Delete(e.Digest)
		}
	}
	return err
}

// take puts a lock into service. The caller holds turn.
func (l *live) take(ctx context.Context, next *plugin.Lock) error {
	if err := l.offer(next); err != nil {
		return err
	}
	before := l.h.engine.Revision()
	err := l.h.engine.Against(ctx,
		load.Inventory{Tools: next.Tools(), Nodes: l.h.cfg.Remote.Known()})
	if err != nil { // a rule of the site names what left the lock
		l.decides(ctx, err, before)
	} else {
		l.h.warn()
	}
	return nil
}

// offer changes at once what clients are offered. The caller holds turn.
func (l *live) offer(lock *plugin.Lock) error {
	if err := l.server.SetTools(lock.Tools()); err != nil {
		return err
	}
	l.h.locked.Store(lock)
	return nil
}

// report says how reading the lock went. The caller holds turn.
func (l *live) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.h.meter.Reloaded("lock", err)
	if err != nil {
		l.want = ""
		slog.Error("the lock was not taken; what it had before stays, without what left it",
			"lock", l.h.cfg.Plugin.Lock, "error", err)
		return
	}
	slog.Info("the lock was taken", "lock", l.h.cfg.Plugin.Lock,
		"plugins", len(l.h.lock().Plugins()), "tools", len(l.h.lock().Tools()))
}

// retire frees modules that are not in service any more, when no call has used them for a while.
func (l *live) retire(ctx context.Context) {
	idle := map[string]bool{} // at the last look
	tick := time.NewTicker(retireAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.turn.Lock()
		used := map[string]bool{}
		for _, e := range slices.Concat(l.h.lock().Plugins(), l.came) {
			used[e.Digest] = true
		}
		l.mu.Lock()
		next := map[string]bool{}
		for digest := range l.h.sandbox.Readiness() {
			if used[digest] || l.calls[digest] > 0 {
				continue
			}
			if next[digest] = true; idle[digest] {
				l.h.sandbox.Remove(digest)
			}
		}
		idle = next
		l.mu.Unlock()
		l.turn.Unlock()
	}
}
