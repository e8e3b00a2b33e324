package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// visit is a job in an SFTP session, at a path where the facts are those that were decided.
type visit struct {
	ctx context.Context // of the operation
	*files.Session
	job    *job
	pledge *effect.Pledge
	path   string // as the plugin wrote it
	link   bool   // the last part of the path is not followed
	ahead  bool   // directories above the path may be missing
	now    terms.FileFacts
	info   fs.FileInfo // nil where nothing is
}

// check finds the facts, and returns an error when they are not those that were decided. Sizes may
// differ: logs grow.
func (v *visit) check() (err error) {
	if v.now, v.info, err = look(v.Session, v.path, v.link, v.ahead); err != nil {
		return err
	}
	settled := true
	if !v.link {
		settled, err = v.Settled(v.path, v.now.RealPath)
		if v.ahead && errors.Is(err, fs.ErrNotExist) { // it is checked again once they are made
			settled, err = true, nil
		}
		if err != nil {
			return err
		}
	}
	decided := *v.job.q.Facts.File
	if v.now.RealPath != decided.RealPath || v.now.Exists != decided.Exists ||
		v.now.Type != decided.Type || !settled {
		return effect.Failed("changed",
			"%q was %s when it was decided and is %s now; nothing was done",
			v.path, describe(decided), describe(v.now))
	}
	return nil
}

func look(f *files.Session, p string, link, ahead bool) (terms.FileFacts, fs.FileInfo, error) {
	if ahead {
		return f.LookBelow(p)
	}
	return f.Look(p, !link)
}

func describe(f terms.FileFacts) string {
	if !f.Exists {
		return fmt.Sprintf("%q, which does not exist,", f.RealPath)
	}
	return fmt.Sprintf("%s %q", f.Type, f.RealPath)
}

// mustBe returns an error unless there is something of one of these types.
func (v *visit) mustBe(types ...string) error {
	switch {
	case !v.now.Exists:
		return fs.ErrNotExist
	case !slices.Contains(types, v.now.Type):
		return effect.Failed("not_a_file", "%q is a %s; %s needs a %s", v.now.RealPath, v.now.Type,
			v.job.q.Op.Import(), strings.Join(types, " or a "))
	}
	return nil
}

func (v *visit) stat() (terms.Result, error) {
	if v.info == nil {
		return terms.Result{}, fs.ErrNotExist
	}
	info := files.Info(v.info)
	info.Name, info.NameB64, info.RealPath = "", "", v.now.RealPath
	return terms.Result{Value: info}, nil
}

func (v *visit) list(limit int) (terms.Result, error) {
	if err := v.mustBe("dir"); err != nil {
		return terms.Result{}, err
	}
	infos, cut, err := v.Entries(v.ctx, v.now.RealPath, limit)
	res := abi.ListResponse{Entries: []abi.FileInfo{}, Truncated: cut}
	for _, i := range infos {
		res.Entries = append(res.Entries, files.Info(i))
	}
	return terms.Result{Value: res}, err
}

// remove removes one file or link, and makes sure that it is gone.
func (v *visit) remove() (terms.Result, error) {
	done := terms.Result{Value: struct{}{}}
	if err := v.mustBe("file", "symlink"); err != nil {
		return done, err
	}
	if !v.pledge.Send() {
		return done, context.Canceled
	}
	err := v.Client.Remove(v.now.RealPath)
	if files.Lost(err) {
		return done, err
	}
	_, left := v.Lstat(v.now.RealPath)
	switch gone := errors.Is(left, fs.ErrNotExist); {
	case err == nil && gone, err != nil && left == nil:
		return done, err
	case err == nil && left == nil:
		return done, effect.Unknown("unconfirmed",
			"removing %q: the node acknowledged it, but the file "+
				"is still there, or there again: look before you repeat it", v.path)
	}
	return done, effect.Unknown("unconfirmed",
		"removing %q: the node answered %v, and %v to whether it "+
			"is still there: look before you repeat it", v.path, err, left)
}
