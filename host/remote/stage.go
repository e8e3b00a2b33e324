package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	stagePrefix   = "caponier-"
	partialPrefix = ".caponier-partial-" // of what is being written, on nodes and in the workspace
)

// ours is the name of everything temporary: host, process and a random part, see unique.
var ours = regexp.MustCompile(
	`^(caponier-|\.caponier-partial-)([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{16}$`)

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// unique is the end of a temporary name: 8 digits for the host, 8 for this process, 16 random ones.
func (r *Remote) unique() string { return r.opts.HostID + r.process + randomHex(8) }

// stage makes a staging directory.
func (j *job) stage(ctx context.Context) (gate.Result, error) {
	r, root := j.n.r, j.n.r.opts.StageRoot
	return with(ctx, j.n, "staging below", root,
		func(ctx context.Context, f *files, p *pledge) (gate.Result, error) {
			real, info, err := f.resolve(root)
			if err != nil {
				return gate.Result{}, err
			}
			if info == nil || kind(info) != "dir" {
				return gate.Result{}, failed("not_found", "%q is not a directory on %s", root,
					j.n.opts.Name)
			}
			if !p.send() {
				return gate.Result{}, ctx.Err()
			}
			dir := path.Join(real, stagePrefix+r.unique())
			if err := f.private(dir); err != nil {
				return gate.Result{}, err
			}
			if err := ctx.Err(); err != nil { // the caller has gone
				f.discard(dir)
				return gate.Result{}, err
			}
			return gate.Result{Value: abi.StageResponse{Dir: dir},
				Stage: &gate.StageDir{Node: j.n.opts.Name, Dir: dir}}, nil
		})
}

// private makes a directory that only the login user can enter. It is recorded before it is there.
// A process that opened it before its mode was set still cannot find a name in it.
func (f *files) private(dir string) error {
	r, at := f.c.n.r, owned{f.c.n.opts.Name, dir}
	if err := r.own(at); err != nil {
		return err
	}
	err := f.Mkdir(dir)
	if err != nil && !lostConnection(err) { // it was not made
		r.disown(at, true)
		if info, serr := f.lstat(path.Dir(dir)); serr != nil || kind(info) != "dir" {
			return fs.ErrNotExist
		}
		return f.full(path.Dir(dir), 0, err)
	}
	if err == nil {
		err = f.seal(dir)
	}
	if err != nil {
		f.discard(dir)
	}
	return err
}

// seal closes a new directory to everybody but the login user.
func (f *files) seal(dir string) error {
	made, err := f.lstat(dir)
	if err != nil {
		return err
	}
	// the group of new files stays as the parent has it
	if err := f.Chmod(dir, 0o700|made.Mode()&fs.ModeSetgid); err != nil {
		return err
	}
	real, made, err := f.resolve(dir)
	if err == nil && (real != dir || made == nil || kind(made) != "dir" ||
		made.Mode().Perm() != 0o700) {
		err = failed("changed", "%q was replaced while it was made", dir)
	}
	return err
}

// discard removes a directory of ours, also for a call that has ended.
func (f *files) discard(dir string) {
	f.begin()
	defer f.end()
	n := f.c.n
	ctx, cancel := context.WithTimeout(n.r.ctx, n.r.opts.StallTimeout)
	defer cancel()
	_, err := guarded(func() (any, error) { return nil, f.clear(ctx, dir, 0) })
	n.r.disown(owned{n.opts.Name, dir}, err == nil || errors.Is(err, fs.ErrNotExist))
}

// clear removes a directory of ours with the files in it. We make none deeper than that; a command
// may have.
func (f *files) clear(ctx context.Context, dir string, depth int) error {
	if depth > 8 {
		return failed("too_large", "%q is nested too deeply to be removed", dir)
	}
	infos, more, err := f.entries(ctx, dir, 10_000)
	if err != nil {
		return err
	}
	if more {
		return failed("too_large", "%q has more entries than are removed", dir)
	}
	for _, i := range infos {
		name := path.Join(dir, i.Name())
		if kind(i) == "dir" {
			err = f.clear(ctx, name, depth+1)
		} else {
			err = f.Client.Remove(name) // a link is removed, not followed
		}
		if err != nil {
			return err
		}
	}
	return f.RemoveDirectory(dir)
}

// End removes the staging directories of a call. What cannot be removed now stays recorded, for
// [Remote.Leftovers].
func (r *Remote) End(ctx context.Context, c *gate.Call) {
	for _, s := range c.Stages {
		if at := (owned{s.Node, s.Dir}); r.inUse(at) {
			ctx, cancel := context.WithTimeout(ctx, r.opts.StepTimeout)
			r.disown(at, r.remove(ctx, at) == nil)
			cancel()
		}
	}
}

// Leftovers lists what is recorded and not in use: what processes that have ended made, and what
// this process made and could not remove.
func (r *Remote) Leftovers(ctx context.Context) (all []gate.StageDir, err error) {
	if r.opts.Dead != nil {
		all, err = r.opts.Dead(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, used := range r.temporary {
		if !used {
			all = append(all, gate.StageDir{Node: at.node, Dir: at.name})
		}
	}
	return all, err
}

// discard removes one of the leftovers: a directory on a node, or, where node is "", a file of the
// workspace. It refuses names that this package does not make, what is not recorded, and what is in
// use. It succeeds if nothing is there any more.
func (r *Remote) discard(ctx context.Context, at owned) (gate.Result, error) {
	m := ours.FindStringSubmatch(path.Base(at.name))
	switch {
	case m == nil || path.Clean(at.name) != at.name || path.IsAbs(at.name) != (at.node != ""):
		return gate.Result{}, failed("bad_input", "%q is not the name of a temporary file", at.name)
	case m[2] != r.opts.HostID:
		return gate.Result{}, failed("bad_input", "%q was made by another host", at.name)
	case r.inUse(at):
		return gate.Result{}, failed("bad_input", "%q is in use", at.name)
	}
	left, err := r.Leftovers(ctx)
	if err != nil {
		return gate.Result{}, failed("internal", "looking up the record of %q: %v", at.name, err)
	}
	if !slices.Contains(left, gate.StageDir{Node: at.node, Dir: at.name}) {
		return gate.Result{}, failed("not_found", "%q is not recorded as left behind", at.name)
	}
	remove := r.remove
	if at.node == "" {
		remove = r.removeLocal
	}
	if err := remove(ctx, at); err != nil {
		return gate.Result{}, err
	}
	r.disown(at, true)
	return gate.Result{Value: struct{}{}}, nil
}

func (r *Remote) removeLocal(_ context.Context, at owned) error {
	top, err := os.OpenRoot(r.opts.Workspace)
	if err != nil {
		return fileError("opening", "remote.workspace", err)
	}
	defer top.Close()
	if err := top.Remove(at.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("removing local file", at.name, err)
	}
	return nil
}

// remove removes a directory of ours from a node, and returns nil if it is gone already.
func (r *Remote) remove(ctx context.Context, at owned) error {
	n, done, err := r.enter(at.node)
	if err != nil {
		return err
	}
	defer done()
	_, err = with(ctx, n, "removing", at.name,
		func(ctx context.Context, f *files, p *pledge) (any, error) {
			now, info, err := f.look(at.name, false)
			switch {
			case err == nil && !now.Exists:
				return nil, nil
			case err == nil && (now.RealPath != at.name || kind(info) != "dir"):
				return nil, failed("changed", "%q is not the directory that was made", at.name)
			case err == nil && !p.send():
				return nil, ctx.Err()
			case err == nil:
				err = f.clear(ctx, at.name, 0)
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return nil, err
		})
	return err
}

// owned is something temporary: a directory on a node, or where node is "" a file of the workspace.
type owned struct{ node, name string }

// own records something temporary before it is made.
func (r *Remote) own(at owned) error {
	r.mu.Lock()
	r.temporary[at] = true
	r.mu.Unlock()
	if r.opts.Made == nil {
		return nil
	}
	err := r.opts.Made(at.node, at.name)
	if err == nil {
		return nil
	}
	r.mu.Lock()
	delete(r.temporary, at)
	r.mu.Unlock()
	return failed("internal", "recording %q, which has to be removed again: %v; nothing was done",
		at.name, err)
}

// disown ends the use of something temporary, which is gone or else to be cleaned.
func (r *Remote) disown(at owned, gone bool) {
	r.mu.Lock()
	if r.temporary[at] = false; gone {
		delete(r.temporary, at)
	}
	r.mu.Unlock()
	if gone && r.opts.Removed != nil {
		r.opts.Removed(at.node, at.name)
	}
}

// inUse reports whether this process uses something temporary that it recorded.
func (r *Remote) inUse(at owned) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.temporary[at]
}
