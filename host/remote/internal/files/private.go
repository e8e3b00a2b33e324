package files

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/pkg/sftp"
)

// MakePrivate makes a directory that only the login user can enter. It is recorded before it is
// there. A process that opened it before its mode was set still cannot find a name in it.
func (f *Session) MakePrivate(dir string) error {
	made, at := f.Node.made, terms.StageDir{Node: f.Node.Name, Dir: dir}
	if err := made.own(at); err != nil {
		return err
	}
	err := f.Mkdir(dir)
	if err != nil && !Lost(err) { // it was not made
		made.Disown(at, true)
		if info, serr := f.Lstat(path.Dir(dir)); serr != nil || Kind(info) != "dir" {
			return fs.ErrNotExist
		}
		return f.Full(path.Dir(dir), 0, err)
	}
	if err == nil {
		err = f.seal(dir)
	}
	if err != nil {
		f.Discard(dir)
	}
	return err
}

// seal closes a new directory to everybody but the login user.
func (f *Session) seal(dir string) error {
	made, err := f.Lstat(dir)
	if err != nil {
		return err
	}
	// the group of new files stays as the parent has it
	if err := f.Chmod(dir, 0o700|made.Mode()&fs.ModeSetgid); err != nil {
		return err
	}
	real, made, err := f.Resolve(dir)
	if err == nil && (real != dir || made == nil || Kind(made) != "dir" ||
		made.Mode().Perm() != 0o700) {
		err = effect.Failed("changed", "%q was replaced while it was made", dir)
	}
	return err
}

// Discard removes a directory of ours, also for a call that has ended.
func (f *Session) Discard(dir string) {
	f.begin()
	defer f.end()
	n := f.Node
	ctx, cancel := context.WithTimeout(n.Context(), n.stall)
	defer cancel()
	_, err := effect.Guarded(func() (any, error) { return nil, f.Clear(ctx, dir, 0) })
	n.made.Disown(terms.StageDir{Node: n.Name, Dir: dir}, err == nil)
}

// Clear removes a directory of ours with the files in it, and returns nil when it is gone, perhaps
// by another process that removes it too. We make none deeper than that; a command may have.
func (f *Session) Clear(ctx context.Context, dir string, depth int) error {
	err := f.clear(ctx, dir, depth)
	if errors.Is(err, fs.ErrNotExist) { // of dir: what is missing in it is no error of clear
		return nil
	}
	return err
}

func (f *Session) clear(ctx context.Context, dir string, depth int) error {
	if depth > 8 {
		return effect.Failed("too_large", "%q is nested too deeply to be removed", dir)
	}
	err := f.RemoveDirectory(dir) // fails unless it is empty, as it is after an upload
	if err == nil || errors.Is(err, fs.ErrNotExist) || Lost(err) {
		return err
	}
	infos, more, err := f.Entries(ctx, dir, 10_000)
	if err != nil {
		return err
	}
	if more {
		return effect.Failed("too_large", "%q has more entries than are removed", dir)
	}
	for _, i := range infos {
		name := path.Join(dir, i.Name())
		if Kind(i) == "dir" {
			err = f.Clear(ctx, name, depth+1)
		} else {
			err = f.Client.Remove(name) // a link is removed, not followed
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return f.RemoveDirectory(dir)
}

// Full finds out whether a write into dir failed because the disk is full: SFTP version 3 has no
// code for that.
func (f *Session) Full(dir string, size int64, err error) error {
	status := (*sftp.StatusError)(nil)
	if _, has := f.HasExtension("statvfs@openssh.com"); !has || !errors.As(err, &status) {
		return err
	}
	disk, serr := f.StatVFS(dir)
	if serr != nil || disk == nil {
		return err
	}
	free := int64(min(disk.Bavail*disk.Frsize, 1<<62))
	if free >= size+1<<16 && (disk.Favail > 0 || disk.Files == 0) {
		return err
	}
	return effect.Failed("disk_full",
		"no space is left on the node's disk for %d bytes; nothing was "+
			"changed", size)
}
