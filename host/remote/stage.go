package remote

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"sync/atomic"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// stage makes a staging directory.
func (j *job) stage(ctx context.Context) (terms.Result, error) {
	root := j.r.opts.StageRoot
	var made atomic.Pointer[terms.StageDir]
	var over atomic.Bool // set by who ends first, the caller or what makes the directory
	res, err := files.With(ctx, j.n.Node, "staging below", root,
		func(ctx context.Context, f *files.Session, p *effect.Pledge) (terms.Result, error) {
			real, info, err := f.Resolve(root)
			if err != nil {
				return terms.Result{}, err
			}
			if info == nil || files.Kind(info) != "dir" {
				return terms.Result{}, effect.Failed("not_found",
					"%q is not a directory on %s", root,
					j.n.Name)
			}
			if !p.Send() {
				return terms.Result{}, ctx.Err()
			}
			dir := path.Join(real, files.StagePrefix+j.r.ledger.Unique())
			if err := f.MakePrivate(dir); err != nil {
				return terms.Result{}, err
			}
			made.Store(&terms.StageDir{Node: j.n.Name, Dir: dir})
			if over.Swap(true) { // the caller has gone
				f.Discard(dir)
				return terms.Result{}, ctx.Err()
			}
			return terms.Result{Value: abi.StageResponse{Dir: dir}, Stage: made.Load()}, nil
		})
	if err != nil && over.Swap(true) { // it was made, and nobody will be told
		c := &terms.Call{Stages: []terms.StageDir{*made.Load()}}
		j.n.Go(func() { j.r.End(context.WithoutCancel(ctx), c) })
	}
	return res, err
}

// End removes the staging directories of a call. What cannot be removed now stays recorded, for
// [Remote.Leftovers].
func (r *Remote) End(ctx context.Context, c *terms.Call) {
	for _, s := range c.Stages {
		if r.ledger.InUse(s) {
			ctx, cancel := context.WithTimeout(ctx, r.opts.StepTimeout)
			_, err := r.remove(ctx, s)
			r.ledger.Disown(s, err == nil)
			cancel()
		}
	}
}

// discard removes one of the leftovers: a directory on a node, or, where the node is "", a file of
// the workspace. It succeeds if nothing is there any more.
func (r *Remote) discard(ctx context.Context, at terms.StageDir) (terms.Result, error) {
	err := r.ledger.CheckLeftover(ctx, at)
	there := false
	switch {
	case err != nil:
	case at.Node == "":
		err = r.workspace.Remove(at.Dir)
	default:
		there, err = r.remove(ctx, at)
	}
	if err != nil {
		return terms.Result{}, err
	}
	if there {
		r.ledger.Disown(at, true)
	} else {
		r.ledger.Missing(at)
	}
	return terms.Result{Value: struct{}{}}, nil
}

// remove removes a directory of ours from a node. It reports whether it was there.
func (r *Remote) remove(ctx context.Context, at terms.StageDir) (there bool, err error) {
	n, done, err := r.enter(at.Node)
	if err != nil {
		return false, err
	}
	defer done()
	return files.With(ctx, n.Node, "removing", at.Dir,
		func(ctx context.Context, f *files.Session, p *effect.Pledge) (bool, error) {
			now, info, err := f.Look(at.Dir, false)
			switch {
			case errors.Is(err, fs.ErrNotExist), err == nil && !now.Exists:
				return false, nil
			case err != nil:
				return false, err
			case now.RealPath != at.Dir || files.Kind(info) != "dir":
				return false, effect.Failed("changed",
					"%q is not the directory that was made", at.Dir)
			case !p.Send():
				return false, ctx.Err()
			}
			return true, f.Clear(ctx, at.Dir, 0)
		})
}
