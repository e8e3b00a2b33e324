package remote

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// stage makes a staging directory.
func (j *job) stage(ctx context.Context) (gate.Result, error) {
	root := j.r.opts.StageRoot
	return files.With(ctx, j.n.Node, "staging below", root,
		func(ctx context.Context, f *files.Session, p *effect.Pledge) (gate.Result, error) {
			real, info, err := f.Resolve(root)
			if err != nil {
				return gate.Result{}, err
			}
			if info == nil || files.Kind(info) != "dir" {
				return gate.Result{}, effect.Failed("not_found",
					"%q is not a directory on %s", root,
					j.n.Name)
			}
			if !p.Send() {
				return gate.Result{}, ctx.Err()
			}
			dir := path.Join(real, files.StagePrefix+j.r.ledger.Unique())
			if err := f.MakePrivate(dir); err != nil {
				return gate.Result{}, err
			}
			if err := ctx.Err(); err != nil { // the caller has gone
				f.Discard(dir)
				return gate.Result{}, err
			}
			return gate.Result{Value: abi.StageResponse{Dir: dir},
				Stage: &gate.StageDir{Node: j.n.Name, Dir: dir}}, nil
		})
}

// End removes the staging directories of a call. What cannot be removed now stays recorded, for
// [Remote.Leftovers].
func (r *Remote) End(ctx context.Context, c *gate.Call) {
	for _, s := range c.Stages {
		if r.ledger.InUse(s) {
			ctx, cancel := context.WithTimeout(ctx, r.opts.StepTimeout)
			r.ledger.Disown(s, r.remove(ctx, s) == nil)
			cancel()
		}
	}
}

// discard removes one of the leftovers: a directory on a node, or, where the node is "", a file of
// the workspace. It succeeds if nothing is there any more.
func (r *Remote) discard(ctx context.Context, at gate.StageDir) (gate.Result, error) {
	err := r.ledger.CheckLeftover(ctx, at)
	switch {
	case err != nil:
	case at.Node == "":
		err = r.workspace.Remove(at.Dir)
	default:
		err = r.remove(ctx, at)
	}
	if err != nil {
		return gate.Result{}, err
	}
	r.ledger.Disown(at, true)
	return gate.Result{Value: struct{}{}}, nil
}

// remove removes a directory of ours from a node, and returns nil if it is gone already.
func (r *Remote) remove(ctx context.Context, at gate.StageDir) error {
	n, done, err := r.enter(at.Node)
	if err != nil {
		return err
	}
	defer done()
	_, err = files.With(ctx, n.Node, "removing", at.Dir,
		func(ctx context.Context, f *files.Session, p *effect.Pledge) (any, error) {
			now, info, err := f.Look(at.Dir, false)
			switch {
			case err == nil && !now.Exists:
				return nil, nil
			case err == nil && (now.RealPath != at.Dir || files.Kind(info) != "dir"):
				return nil, effect.Failed("changed",
					"%q is not the directory that was made", at.Dir)
			case err == nil && !p.Send():
				return nil, ctx.Err()
			case err == nil:
				err = f.Clear(ctx, at.Dir, 0)
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return nil, err
		})
	return err
}
