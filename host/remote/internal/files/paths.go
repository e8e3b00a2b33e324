package files

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
)

// cleanRemote accepts a path in its one form: absolute, without . or .., without doubled or
// trailing slashes.
func cleanRemote(p string) (string, error) {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "//"):
		return "", effect.Failed("not_a_path",
			"%q must be an absolute path without . or .. or doubled slashes", p)
	case strings.ContainsRune(p, 0) || len(p) > 4096 || strings.Count(p, "/") > 128:
		return "", effect.Failed("not_a_path",
			"path has a NUL, more than 4096 bytes or more than 128 parts")
	}
	return p, nil
}

// Resolve returns the real path of p, with every symbolic link replaced. info is nil when the path
// does not exist but its parent does. Some servers leave links in the answer to REALPATH
// (draft-ietf-secsh-filexfer-02, section 6.11, does not forbid it), so each part is examined, all
// of them in parallel, which costs one round trip. Of a server that was seen to replace links, see
// [Session.replacesLinks], only the last part is: it may have become a link meanwhile.
func (f *Session) Resolve(p string) (real string, info fs.FileInfo, err error) {
	for range 16 {
		if p, err = f.RealPath(p); err != nil {
			return "", nil, err
		}
		if p, err = cleanRemote(p); err != nil {
			return "", nil, err
		}
		link, info, err := f.firstLink(p)
		if err != nil || link == "" {
			return p, info, err
		}
		target, err := f.ReadLink(link)
		if err != nil {
			return "", nil, err
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(link), target)
		}
		p = path.Join(target, strings.TrimPrefix(p, link))
	}
	return "", nil, effect.Failed("not_a_path", "%q has too many symbolic links", p)
}

// firstLink returns the first part of a path that is a symbolic link, or "" and what the path is.
func (f *Session) firstLink(p string) (link string, info fs.FileInfo, err error) {
	var parts []string
	for i := 1; i < len(p) && !f.replaces; i++ {
		if p[i] == '/' {
			parts = append(parts, p[:i])
		}
	}
	parts = append(parts, p)
	found := make([]effect.Result[fs.FileInfo], len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			found[i].Value, found[i].Err = effect.Guarded(func() (fs.FileInfo, error) {
				return f.Lstat(part)
			})
		})
	}
	all.Wait()
	for i, part := range parts {
		switch err := found[i].Err; {
		case i == len(parts)-1 && errors.Is(err, fs.ErrNotExist):
			return "", nil, nil
		case err != nil:
			return "", nil, err
		case Kind(found[i].Value) == "symlink":
			return part, nil, nil
		}
	}
	return "", found[len(found)-1].Value, nil
}

// Settled reports whether p leads to real still, where a server replaces links. Between the answer
// to REALPATH and what is then seen there, a part of the path may have become a link; where each
// part is examined that shows, and here this does.
func (f *Session) Settled(p, real string) (bool, error) {
	if !f.replaces {
		return true, nil
	}
	now, err := f.RealPath(p)
	return now == real, err
}

// Lstat never returns neither a description nor an error.
func (f *Session) Lstat(p string) (fs.FileInfo, error) {
	info, err := f.Client.Lstat(p)
	if err == nil && info == nil {
		err = broke("no attributes and no error")
	}
	return info, err
}

// Look finds the facts of a path. A path that is to be removed keeps its last part: the link itself
// is removed, not what it points to.
func (f *Session) Look(p string, follow bool) (terms.FileFacts, fs.FileInfo, error) {
	if _, err := cleanRemote(p); err != nil {
		return terms.FileFacts{}, nil, err
	}
	var real string
	var info fs.FileInfo
	var err error
	if follow {
		real, info, err = f.Resolve(p)
	} else if real, _, err = f.Resolve(path.Dir(p)); err == nil {
		real = path.Join(real, path.Base(p))
		if info, err = f.Lstat(real); errors.Is(err, fs.ErrNotExist) {
			info, err = nil, nil
		}
	}
	if err != nil || info == nil {
		return terms.FileFacts{RealPath: real}, nil, err
	}
	return terms.FileFacts{RealPath: real, Exists: true, Type: Kind(info),
		Bytes: max(info.Size(), 0), Mode: uint32(info.Mode().Perm())}, info, nil
}

// LookBelow is [Session.Look] for a file above which directories may be missing. Its real path is
// then below that of the lowest directory that is there.
func (f *Session) LookBelow(p string) (terms.FileFacts, fs.FileInfo, error) {
	facts, info, err := f.Look(p, true)
	for dir := p; errors.Is(err, fs.ErrNotExist) && dir != "/"; {
		dir = path.Dir(dir)
		var real string
		var above fs.FileInfo
		real, above, err = f.Resolve(dir)
		switch {
		case err == nil && above == nil:
			err = fs.ErrNotExist
		case err == nil && Kind(above) != "dir":
			err = effect.Failed("not_a_file", "%q is a %s, not a directory", dir, Kind(above))
		case err == nil:
			facts.RealPath = path.Join(real, strings.TrimPrefix(p, dir))
		}
	}
	return facts, info, err
}

// OpenFile never returns neither a file nor an error.
func (f *Session) OpenFile(name string, flags int) (*sftp.File, error) {
	file, err := f.Client.OpenFile(name, flags)
	if err == nil && file == nil {
		err = broke("no file and no error")
	}
	return file, err
}

// Stat never returns neither a description nor an error.
func Stat(file *sftp.File) (fs.FileInfo, error) {
	info, err := file.Stat()
	if err == nil && info == nil {
		err = broke("no attributes and no error")
	}
	return info, err
}

// kinds of files by the type bits of their mode, as policies name them.
var fileKinds = map[uint32]string{0o100000: "file", 0o040000: "dir", 0o120000: "symlink",
	0o010000: "fifo", 0o140000: "socket", 0o060000: "device", 0o020000: "device"}

// Kind is the type of a file. A file whose server does not say what it is, or says what no file can
// be, is "other".
func Kind(info fs.FileInfo) string {
	s, is := info.Sys().(*sftp.FileStat)
	if !is {
		return "other"
	}
	return cmp.Or(fileKinds[s.Mode&0o170000], "other")
}

// Owner returns the numbers of the user and group of a file.
func Owner(i fs.FileInfo) [2]uint32 {
	if s, is := i.Sys().(*sftp.FileStat); is {
		return [2]uint32{s.UID, s.GID}
	}
	return [2]uint32{}
}

// Info describes a file as plugins see it.
func Info(i fs.FileInfo) abi.FileInfo {
	v := abi.FileInfo{Type: Kind(i), Size: max(i.Size(), 0),
		Mode: abi.Mode(i.Mode().Perm()), MTime: i.ModTime().Unix()}
	if v.Name = i.Name(); !utf8.ValidString(v.Name) {
		v.Name, v.NameB64 = "", base64.StdEncoding.EncodeToString([]byte(v.Name))
	}
	return v
}

// Entries reads at most limit entries of a directory, sorted by name, and reports whether there are
// more. The library reads a directory to its end; one without end is cut off by its bytes.
func (f *Session) Entries(ctx context.Context, dir string, limit int) ([]fs.FileInfo, bool, error) {
	f.listMu.Lock()
	defer f.listMu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var cut atomic.Bool
	// a name of 255 bytes comes twice, with its attributes
	f.wire.listing.Store(&listing{left: 256<<10 + int64(limit)*768, cut: func() {
		cut.Store(true)
		cancel()
	}})
	defer f.wire.listing.Store(nil)
	infos, err := f.ReadDirContext(ctx, dir)
	if err != nil && !cut.Load() {
		return nil, false, err
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return cmp.Compare(a.Name(), b.Name()) })
	return infos[:min(limit, len(infos))], cut.Load() || len(infos) > limit, nil
}
