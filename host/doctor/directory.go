package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bytes that must be free in a file system that is written to: below failRoom a call may not be
// journaled, below warnRoom it soon may not.
const (
	failRoom = 1 << 20
	warnRoom = 64 << 20
)

// directory is one that is written to. If it is private, the program refuses one that others can
// look into.
type directory struct {
	key, dir string
	private  bool
}

// directory examines whether this user can write there, without doing so: a directory that the
// doctor made would belong to the user who ran it. It reports whether nothing failed.
func (l *local) directory(d directory) (ok bool) {
	me, quoted := account(strconv.Itoa(os.Geteuid())), quote(d.dir)
	at, missing := d.dir, false
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
		at, missing = filepath.Dir(at), true
		info, err = os.Stat(at)
	}
	create := fmt.Sprintf("install -d -m 0700 -o %s %s   # as root", me, quoted)
	found := func(level Level, fix, format string, args ...any) {
		l.found("state", level, fix, d.key+": "+format, args...)
		ok = level != Fail
	}
	if err != nil {
		found(Fail, create, "%v", err)
		return ok
	}
	if !info.IsDir() {
		old := quote(at, at+".old")
		found(Fail, "mv "+old+" && "+create, "%s is not a directory", at)
		return ok
	}
	free, err := Room(at)
	owner := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	mine, mode := owner == strconv.Itoa(os.Geteuid()), info.Mode().Perm()
	switch denied := unix.Access(at, unix.W_OK|unix.X_OK); {
	case err != nil:
		found(Fail, create, "%s: %v", at, err)
	case free < 0:
		found(Fail, l.move(d.key), "%s cannot hold files: its file system has no room at all",
			d.dir)
	case denied != nil:
		found(Fail, create, "%s cannot write to %s: %v", me, at, denied)
	case free < failRoom:
		found(Fail, "df -h "+quote(at)+"   # then delete what is not needed there",
			"the file system of %s is full: %d KiB are free", at, free>>10)
	case free < warnRoom:
		found(Warn, "df -h "+quote(at)+"   # then delete what is not needed there",
			"the file system of %s is almost full: %d MiB are free", at, free>>20)
	case missing:
		found(OK, "", "%s will be created in %s", d.dir, at)
	case !mine:
		found(Warn, "sudo -u "+account(owner)+" caponier check   # run the doctor as the user "+
			"who serves", "%s belongs to %s, and this is %s: a server of the other account "+
			"could not use what this one writes", d.dir, account(owner), me)
	case mode&0o022 != 0 || d.private && mode&0o077 != 0:
		found(Fail, "chmod 0700 "+quoted, "others can use %s (mode %04o), which is refused", d.dir,
			mode)
	case mode&0o077 != 0:
		found(Warn, "chmod 0700 "+quoted, "others can look into %s (mode %04o)", d.dir, mode)
	default:
		found(OK, "", "%s", d.dir)
	}
	return ok
}

// move is a line that puts the directory of a key where it is without that key.
func (l *local) move(key string) string {
	return fmt.Sprintf("sed -i '%ds/^/# /' %s   # its default is below %s", l.c.Line(key),
		quote(l.c.File), filepath.Join(filepath.Dir(l.c.File), "state"))
}

// Full reports why nothing more fits into the file system of a directory, as the finding "state"
// does where it fails.
func Full(dir string) error {
	switch free, err := Room(dir); {
	case err != nil:
		return fmt.Errorf("the room in %s: %w", dir, err)
	case free < 0:
		return fmt.Errorf("%s cannot hold files: its file system has no room at all", dir)
	case free < failRoom:
		return fmt.Errorf("the file system of %s is full: %d KiB are free", dir, free>>10)
	}
	return nil
}

// Room returns the bytes that this user can still write to the file system of dir, and -1 if that
// file system holds no data, as /proc.
func Room(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	blocks := fs.Bavail
	if os.Geteuid() == 0 {
		blocks = fs.Bfree
	}
	if fs.Blocks == 0 {
		return -1, nil
	}
	return int64(blocks) * fs.Bsize, nil
}

// account is the name of a user id, or the id itself.
func account(uid string) string {
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}
