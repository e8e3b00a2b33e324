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

// private makes a directory that only the login user can enter. It is recorded before it is there.
// A process that opened it before its mode was set still cannot find a name in it.
func (f *files) private(dir string) error {
	n := f.c.n
	if err := n.r.own(n.opts.Name, dir); err != nil {
		return err
	}
	if err := f.Mkdir(dir); err != nil {
		if lostConnection(err) { // it may be there all the same
			f.discard(dir)
			return err
		}
		n.r.disown(n.opts.Name, dir)
		if info, serr := f.lstat(path.Dir(dir)); serr != nil || kind(info) != "dir" {
			return fs.ErrNotExist
		}
		return f.full(path.Dir(dir), 0, err)
	}
	made, err := f.lstat(dir)
	if err == nil {
		// the group of new files stays as the parent has it
		err = f.Chmod(dir, 0o700|made.Mode()&fs.ModeSetgid)
	}
	if err == nil {
		var real string
		if real, made, err = f.resolve(dir); err == nil &&
			(real != dir || made == nil || kind(made) != "dir" || made.Mode().Perm() != 0o700) {
			err = failed("changed", "%q was replaced while it was made", dir)
		}
	}
	if err != nil {
		f.discard(dir)
	}
	return err
}

// discard removes directories of ours. What a lost connection keeps from being removed is
// remembered for later, up to 256 of them.
func (f *files) discard(dirs ...string) {
	f.begin()
	defer f.active.Add(-1)
	n := f.c.n
	for _, dir := range dirs {
		// its own context: a call that has ended still cleans up
		ctx, cancel := context.WithTimeout(n.r.ctx, n.r.opts.StallTimeout)
		_, err := guarded(func() (any, error) { return nil, f.clear(ctx, dir, 0) })
		cancel()
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			n.r.disown(n.opts.Name, dir)
			continue
		}
		n.r.abandon(n.opts.Name, dir)
		n.mu.Lock()
		if lostConnection(err) && len(n.left) < 256 {
			n.left = append(n.left, dir)
		}
		n.mu.Unlock()
	}
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

// stage makes a staging directory.
func (j *job) stage(ctx context.Context) (gate.Result, error) {
	n, root := j.n, j.r.opts.StageRoot
	return with(ctx, n, "staging below", root,
		func(ctx context.Context, f *files, p *pledge) (gate.Result, error) {
			real, info, err := f.resolve(root)
			if err != nil {
				return gate.Result{}, err
			}
			if info == nil || kind(info) != "dir" {
				return gate.Result{}, failed("not_found",
					"remote.stage_root %q is not a directory on %s", root, n.opts.Name)
			}
			if !p.send() {
				return gate.Result{}, ctx.Err()
			}
			dir := path.Join(real, stagePrefix+j.r.unique())
			if err := f.private(dir); err != nil {
				return gate.Result{}, err
			}
			if err := ctx.Err(); err != nil { // the caller has gone
				f.discard(dir)
				return gate.Result{}, err
			}
			return gate.Result{Value: abi.StageResponse{Dir: dir},
				Stage: &gate.StageDir{Node: n.opts.Name, Dir: dir}}, nil
		})
}

// End removes the staging directories of a call. What cannot be removed now stays recorded, for
// [Remote.Clean].
func (r *Remote) End(ctx context.Context, c *gate.Call) {
	for _, s := range c.Stages {
		if r.inUse(s.Node, s.Dir) {
			ctx, cancel := context.WithTimeout(ctx, r.opts.StepTimeout)
			if r.discard(ctx, s.Node, s.Dir) != nil {
				r.abandon(s.Node, s.Dir)
			}
			cancel()
		}
	}
}

func (r *Remote) discard(ctx context.Context, node, dir string) error {
	n, done, err := r.inspect(node)
	if err != nil {
		return err
	}
	defer done()
	_, err = with(ctx, n, "removing", dir,
		func(_ context.Context, f *files, p *pledge) (any, error) {
			if !p.send() {
				return nil, context.Canceled
			}
			f.discard(dir)
			return nil, nil
		})
	return err
}

// Clean removes what a process that died left behind: a directory on a node, or, where node is "",
// a file of the workspace, as that process passed it to [Options].Made. It refuses names that this
// package does not make and what this process uses. It returns nil when nothing is left; then
// [Options].Removed was called.
func (r *Remote) Clean(ctx context.Context, node, name string) error {
	m := ours.FindStringSubmatch(path.Base(name))
	switch {
	case m == nil || path.Clean(name) != name || path.IsAbs(name) != (node != ""):
		return failed("bad_input", "%q is not the name of a temporary file", name)
	case m[2] != r.opts.HostID:
		return failed("bad_input", "%q was made by another host", name)
	case m[3] == r.process && r.inUse(node, name):
		return failed("bad_input", "%q is in use", name)
	}
	if node == "" {
		top, err := os.OpenRoot(r.opts.Workspace)
		if err != nil {
			return fileError("opening", "remote.workspace", err)
		}
		defer top.Close()
		if err := top.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileError("removing local file", name, err)
		}
		r.disown("", name)
		return nil
	}
	n, done, err := r.inspect(node)
	if err != nil {
		return err
	}
	defer done()
	_, err = with(ctx, n, "removing", name,
		func(ctx context.Context, f *files, p *pledge) (any, error) {
			real, info, err := f.look(name, false)
			switch {
			case err == nil && !real.Exists, errors.Is(err, fs.ErrNotExist):
				r.disown(node, name)
				return nil, nil
			case err != nil:
				return nil, err
			case real.RealPath != name || kind(info) != "dir":
				return nil, failed("changed", "%q is not the directory that was made", name)
			case !p.send():
				return nil, ctx.Err()
			}
			if err = f.clear(ctx, name, 0); err == nil || errors.Is(err, fs.ErrNotExist) {
				r.disown(node, name)
				return nil, nil
			}
			return nil, err
		})
	return err
}

type owned struct{ node, name string }

// own records something temporary before it is made.
func (r *Remote) own(node, name string) error {
	r.mu.Lock()
	r.temporary[owned{node, name}] = true
	r.mu.Unlock()
	if r.opts.Made == nil {
		return nil
	}
	err := r.opts.Made(node, name)
	if err == nil {
		return nil
	}
	r.forget(node, name)
	return failed("internal", "recording %q, which has to be removed again: %v; nothing was done",
		name, err)
}

// abandon ends the use of something temporary that could not be removed.
func (r *Remote) abandon(node, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.temporary[owned{node, name}] = false
}

func (r *Remote) forget(node, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.temporary, owned{node, name})
}

// Abandoned lists what this process made and could not remove.
func (r *Remote) Abandoned() (all []gate.StageDir) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, used := range r.temporary {
		if !used {
			all = append(all, gate.StageDir{Node: at.node, Dir: at.name})
		}
	}
	return all
}

func (r *Remote) disown(node, name string) {
	r.forget(node, name)
	if r.opts.Removed != nil {
		r.opts.Removed(node, name)
	}
}

// inUse reports whether this process uses something temporary that it recorded.
func (r *Remote) inUse(node, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.temporary[owned{node, name}]
}
