package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

const (
	stageMarker = ".caponier-stage"
	stageAge    = time.Hour // a directory of another process is left alone for this long
)

var stageName = regexp.MustCompile(`^caponier-[0-9a-f]{32}$`)

// StageResult is the response of stage.
type StageResult struct {
	Dir string `json:"dir"`
}

// private makes a directory that only the login user can enter. Whoever opened it before its mode
// was set still cannot look a name up in it.
func (f *files) private(dir string) (string, error) {
	if err := f.Mkdir(dir); err != nil {
		if lostConnection(err) { // it may be there all the same
			f.discard(dir)
			return "", err
		}
		if info, serr := f.Lstat(path.Dir(dir)); serr != nil || kind(info) != "dir" {
			return "", fs.ErrNotExist
		}
		return "", f.full(path.Dir(dir), 0, err)
	}
	made, err := f.Lstat(dir)
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
		return "", err
	}
	return dir, nil
}

// discard removes directories of ours. What a lost connection keeps from being removed is
// remembered for later, up to 256 of them.
func (f *files) discard(dirs ...string) {
	f.begin()
	defer f.active.Add(-1)
	n := f.c.n
	for _, dir := range dirs {
		// of its own: a call that has ended still cleans up
		ctx, cancel := context.WithTimeout(n.r.ctx, n.r.opts.StallTimeout)
		err := f.clear(ctx, dir)
		cancel()
		if lostConnection(err) {
			n.mu.Lock()
			if len(n.left) < 256 {
				n.left = append(n.left, dir)
			}
			n.mu.Unlock()
		} else if err == nil || errors.Is(err, fs.ErrNotExist) {
			n.r.disown(n, dir)
		}
	}
}

// stage makes a staging directory. Its marker says who made it, for whoever finds it after a crash.
func (n *node) stage(ctx context.Context) (string, error) {
	dir := new(string) // of its own: what was given up may still write to it
	root := n.r.opts.StageRoot
	err := n.with(ctx, "staging below", root, func(ctx context.Context, f *files, p *pledge) error {
		real, info, err := f.resolve(root)
		if err != nil {
			return err
		}
		if info == nil || kind(info) != "dir" {
			return failed(
				"not_found",
				"remote.stage_root %q is not a directory on %s",
				root,
				n.opts.Name,
			)
		}
		var id [16]byte
		rand.Read(id[:])
		made := path.Join(real, "caponier-"+hex.EncodeToString(id[:]))
		n.r.own(n, made)
		if !p.send() {
			n.r.disown(n, made)
			return ctx.Err()
		}
		if _, err := f.private(made); err != nil {
			if !lostConnection(err) {
				n.r.disown(n, made)
			}
			return err
		}
		if err := cmp.Or(f.mark(made), ctx.Err()); err != nil { // nobody waits for it any more
			f.discard(made)
			return err
		}
		if n.firstSweep() {
			n.r.wg.Go(func() { n.sweep(f, real, made) })
		}
		*dir = made
		return nil
	})
	if err != nil {
		return "", err
	}
	return *dir, nil
}

func (f *files) mark(dir string) error {
	m, err := f.OpenFile(path.Join(dir, stageMarker), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	_, err = fmt.Fprintf(m, "caponier stage\n%s\n%d\n", host, os.Getpid())
	if cerr := m.Close(); err == nil {
		err = cerr
	}
	return err
}

// abandoned reads a marker and says whether its process is surely gone. A process on another
// machine is, after stageAge, which no call outlives.
func (f *files) abandoned(dir string) bool {
	info, err := f.Lstat(path.Join(dir, stageMarker))
	if err != nil || kind(info) != "file" {
		return false
	}
	m, err := f.OpenFile(path.Join(dir, stageMarker), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer m.Close()
	text, err := io.ReadAll(io.LimitReader(m, 1024))
	line := strings.Split(string(text), "\n")
	if err != nil || len(line) != 4 || line[0] != "caponier stage" {
		return false
	}
	pid, err := strconv.Atoi(line[2])
	if host, _ := os.Hostname(); err == nil && line[1] == host {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return err != nil || pid == os.Getpid()
	}
	return err == nil
}

// clear removes a directory of ours with the files in it; deeper ones were not made by us through
// SFTP, but a command may have.
func (f *files) clear(ctx context.Context, dir string) error {
	return f.clearTo(ctx, dir, 0)
}

func (f *files) clearTo(ctx context.Context, dir string, depth int) error {
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
			err = f.clearTo(ctx, name, depth+1)
		} else {
			err = f.Client.Remove(name) // a link is removed, not followed
		}
		if err != nil {
			return err
		}
	}
	return f.RemoveDirectory(dir)
}

func (n *node) firstSweep() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := !n.swept
	n.swept = true
	return first
}

// sweep removes what processes that died left behind: directories with our name, our marker and our
// user, older than stageAge by the node's own clock.
func (n *node) sweep(f *files, root, fresh string) {
	f.begin()
	defer f.active.Add(-1)
	ours, err := f.Lstat(fresh)
	if err != nil {
		return
	}
	list, err := f.list(n.r.ctx, root, 10_000)
	if err != nil {
		return
	}
	for _, e := range list.Entries {
		dir := path.Join(root, e.Name)
		if !stageName.MatchString(e.Name) || e.Type != "dir" || n.r.owns(n, dir) ||
			ours.ModTime().Unix()-e.MTime < int64(stageAge/time.Second) {
			continue
		}
		if info, err := f.Lstat(dir); err == nil && kind(info) == "dir" &&
			owner(info) == owner(ours) &&
			info.Mode().Perm() == 0o700 &&
			f.abandoned(dir) {
			f.clear(n.r.ctx, dir)
		}
	}
}

// unstage removes a staging directory of a call that has ended.
func (n *node) unstage(ctx context.Context, dir string) error {
	if !n.r.owns(n, dir) {
		return failed("permission", "%q was not made here", dir)
	}
	return n.with(
		ctx,
		"removing staging directory",
		dir,
		func(_ context.Context, f *files, p *pledge) error {
			if !p.send() {
				return context.Canceled
			}
			f.discard(dir)
			return nil
		},
	)
}

type owned struct{ node, dir string }

func (r *Remote) own(n *node, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stages[owned{n.opts.Name, dir}] = true
}

func (r *Remote) disown(n *node, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stages, owned{n.opts.Name, dir})
}

func (r *Remote) owns(n *node, dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stages[owned{n.opts.Name, dir}]
}

func stageOf(node, dir string) gate.Result {
	return gate.Result{Value: StageResult{Dir: dir}, Stage: &gate.StageDir{Node: node, Dir: dir}}
}
