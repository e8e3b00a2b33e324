package remote

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// parallel is how many packets of one file are on their way at once.
const parallel = 64

// files is the SFTP session of a node. It occupies one session of its connection until either ends.
type files struct {
	*sftp.Client
	c      *conn
	active atomic.Int64 // operations under way
	moved  atomic.Int64 // when a packet last moved, in Unix nanoseconds
	names  atomic.Int64 // bytes of directory listings received
	listMu sync.Mutex   // one listing at a time, so that names counts one
	over   chan struct{}
}

// begin notes an operation. The time is set first, so that watchStall does not take the idle time
// before it for a stall.
func (f *files) begin() {
	f.moved.Store(time.Now().UnixNano())
	f.active.Add(1)
}

func (f *files) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}

// wire is the channel below an SFTP session. It notes progress, and counts the bytes of listings,
// which the library collects without a limit.
type wire struct {
	ssh.Channel
	f    *files
	head []byte // of the packet that is arriving: its length and type
	left int64  // bytes of it still to come
	name bool
}

func (w *wire) Write(p []byte) (int, error) {
	k, err := w.Channel.Write(p)
	w.f.moved.Store(time.Now().UnixNano())
	return k, err
}

func (w *wire) Read(p []byte) (int, error) {
	const typeName = 104 // SSH_FXP_NAME
	k, err := w.Channel.Read(p)
	w.f.moved.Store(time.Now().UnixNano())
	for b := p[:k]; len(b) > 0; {
		if w.left <= 0 {
			need := min(5-len(w.head), len(b))
			w.head, b = append(w.head, b[:need]...), b[need:]
			if len(w.head) == 5 {
				w.left, w.name, w.head = int64(
					binary.BigEndian.Uint32(w.head),
				)-1, w.head[4] == typeName, w.head[:0]
			}
			continue
		}
		part := min(w.left, int64(len(b)))
		if w.left, b = w.left-part, b[part:]; w.name {
			w.f.names.Add(part)
		}
	}
	return k, err
}

// sftp returns the SFTP session, opening one when there is none. Callers that come together open
// one together.
func (n *node) sftp(ctx context.Context) (*files, error) {
	for {
		n.mu.Lock()
		if n.files != nil && !n.files.ended() {
			defer n.mu.Unlock()
			return n.files, nil
		}
		if n.opening == nil {
			n.opening = make(chan struct{})
			n.r.wg.Go(n.openSFTP)
		}
		opening := n.opening
		n.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			code, why := stopped(ctx)
			return nil, failed(code, "opening SFTP on %s: %s; nothing was sent", n.opts.Name, why)
		}
		n.mu.Lock()
		f, err := n.files, n.openErr
		n.mu.Unlock()
		if f != nil || err != nil {
			return f, err
		}
	}
}

func (n *node) openSFTP() {
	ctx, cancel := context.WithTimeout(n.r.ctx, n.r.opts.DialTimeout+n.r.opts.StepTimeout)
	defer cancel()
	f, err := n.newFiles(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files, n.openErr = f, err
	close(n.opening)
	n.opening = nil
}

func (n *node) newFiles(ctx context.Context) (*files, error) {
	c, ch, exits, err := n.session(ctx, "", false)
	if err != nil {
		return nil, err
	}
	n.r.wg.Go(func() { io.Copy(io.Discard, ch.Stderr()) })
	over := make(chan struct{})
	n.r.wg.Go(func() {
		defer n.release(c, "")
		<-over
		c.shut(ch, exits)
	})
	stop := c.watch("opening SFTP")
	defer stop()
	ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"}))
	if err != nil || !ok {
		close(over)
		return nil, failed(
			"connection",
			"%s offers no SFTP (%v); its sshd_config needs `Subsystem sftp …`",
			n.opts.Name,
			c.why(cmp.Or(err, errors.New("refused"))),
		)
	}
	f := &files{c: c, over: over}
	f.moved.Store(time.Now().UnixNano())
	f.Client, err = sftp.NewClientPipe(
		&wire{Channel: ch, f: f},
		ch,
		sftp.UseConcurrentReads(true),
		sftp.UseConcurrentWrites(true),
		sftp.UseFstat(true),
		sftp.MaxConcurrentRequestsPerFile(parallel),
	)
	if err != nil {
		close(over)
		return nil, failed(
			"connection",
			"SFTP on %s answered wrongly: %v; start-up files that print something (~/.bashrc) break it",
			n.opts.Name,
			c.why(err),
		)
	}
	// OpenSSH, which takes 255 KiB at once: fewer packets, the same bytes on their way
	if _, has := f.HasExtension("limits@openssh.com"); has {
		sftp.MaxPacketUnchecked(255 << 10)(f.Client)
		sftp.MaxConcurrentRequestsPerFile(parallel / 4)(f.Client)
	}
	n.r.wg.Go(f.watchStall)
	return f, nil
}

// watchStall closes the connection when an operation waits and nothing moves for StallTimeout. It
// ends with the session.
func (f *files) watchStall() {
	broken := make(chan struct{})
	f.c.n.r.wg.Go(func() {
		f.Wait()
		close(broken)
	})
	limit := f.c.n.r.opts.StallTimeout
	tick := time.NewTicker(max(limit/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-broken:
			close(f.over)
			return
		case <-tick.C:
			if f.active.Load() > 0 && time.Since(time.Unix(0, f.moved.Load())) > limit {
				f.c.fail(fmt.Errorf("SFTP moved nothing for %s", limit))
			}
		}
	}
}

// with runs fn against the SFTP session. It returns at once when ctx ends; fn ends soon after,
// since every step of it has a watchdog. An fn that changes a file asks p before the request that
// shows, and must not send it when p refuses. A lost session is opened again once, unless p says
// that fn cannot be repeated. after is called when fn has ended for good, which may be later than
// with returns.
func (n *node) with(
	ctx context.Context,
	what, name string,
	fn func(ctx context.Context, f *files, p *pledge) error,
	after ...func() error,
) error {
	p, done := &pledge{}, make(chan error, 1)
	n.r.wg.Go(func() {
		for _, a := range after {
			defer a()
		}
		for attempt := 1; ; attempt++ {
			f, err := n.sftp(ctx)
			if err == nil {
				f.begin()
				var ended atomic.Bool
				// others may keep the session busy, so that watchStall does not see that this one
				// hangs
				stop := context.AfterFunc(ctx, func() {
					time.AfterFunc(n.r.opts.StallTimeout, func() {
						if !ended.Load() {
							f.c.fail(
								fmt.Errorf(
									"%s was given up and did not end within %s",
									what,
									n.r.opts.StallTimeout,
								),
							)
						}
					})
				})
				err = fn(ctx, f, p)
				ended.Store(true)
				stop()
				f.active.Add(-1)
				n.touch(f)
				if attempt == 1 && lostConnection(err) && p.state.Load() == 0 && !p.once.Load() &&
					ctx.Err() == nil {
					stop := f.c.watch("closing SFTP")
					<-f.over
					stop()
					continue
				}
				if ctx.Err() != nil &&
					(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
					code, why := stopped(ctx)
					err = failed(
						code,
						"%s %q on %s: %s; nothing was changed",
						what,
						name,
						n.opts.Name,
						why,
					)
				} else if lostConnection(err) {
					err = failed("lost", "%s %q on %s: the connection was lost (%v)", what, name, n.opts.Name, f.c.why(err))
				}
			}
			op := (*gate.OpError)(nil)
			if err = fileError(what, name, err); errors.As(err, &op) && op.Code == "lost" &&
				p.state.Load() == 1 {
				err = unknown(
					"lost",
					"%s; it may have been done: look before you repeat it",
					op.Message,
				)
			}
			done <- err
			return
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	code, why := stopped(ctx)
	if p.giveUp() {
		return failed(code, "%s %q on %s: %s; nothing was changed", what, name, n.opts.Name, why)
	}
	select {
	case err := <-done:
		return err
	default:
		return unknown(
			code,
			"%s %q on %s: %s; it may have been done: look before you repeat it",
			what,
			name,
			n.opts.Name,
			why,
		)
	}
}

// touch notes that the session was used, and goes back to what could not be removed before.
func (n *node) touch(f *files) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.c.idleSince = n.r.opts.Now()
	if left := n.left; len(left) > 0 && !f.ended() {
		n.left = nil
		n.r.wg.Go(func() { f.discard(left...) })
	}
}

// cleanRemote accepts a path in its one form: absolute, without . or .., without doubled or
// trailing slashes.
func cleanRemote(p string) (string, error) {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "//"):
		return "", failed(
			"not_a_path",
			"%q must be an absolute path without . or .. or doubled slashes",
			p,
		)
	case strings.ContainsRune(p, 0) || len(p) > 4096 || strings.Count(p, "/") > 128:
		return "", failed(
			"not_a_path",
			"path has a NUL, more than 4096 bytes or more than 128 parts",
		)
	}
	return p, nil
}

// resolve finds the real path: every symbolic link on the way, and the last, replaced. info is nil
// when the path does not exist but its parent does. Not every server's realpath follows links, so
// each part of its answer is looked at; in parallel, which costs one round trip.
func (f *files) resolve(p string) (real string, info fs.FileInfo, err error) {
	for range 16 {
		if p, err = f.RealPath(p); err != nil {
			return "", nil, err
		}
		if p, err = cleanRemote(p); err != nil {
			return "", nil, err
		}
		var parts []string
		for i := 1; i < len(p); i++ {
			if p[i] == '/' {
				parts = append(parts, p[:i])
			}
		}
		parts = append(parts, p)
		infos, errs := make([]fs.FileInfo, len(parts)), make([]error, len(parts))
		var all sync.WaitGroup
		for i := range parts {
			all.Go(func() { infos[i], errs[i] = f.Lstat(parts[i]) })
		}
		all.Wait()
		link := -1
		for i := range parts {
			if errs[i] != nil {
				if i == len(parts)-1 && errors.Is(errs[i], fs.ErrNotExist) {
					return p, nil, nil
				}
				return "", nil, errs[i]
			}
			if kind(infos[i]) == "symlink" {
				link = i
				break
			}
		}
		if link < 0 {
			return p, infos[len(infos)-1], nil
		}
		target, err := f.ReadLink(parts[link])
		if err != nil {
			return "", nil, err
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(parts[link]), target)
		}
		p = path.Join(target, strings.TrimPrefix(p, parts[link]))
	}
	return "", nil, failed("not_a_path", "%q has too many symbolic links", p)
}

// look finds the facts of a path. A path that is to be removed keeps its last part: the link itself
// is removed, not what it points to.
func (f *files) look(p string, follow bool) (gate.FileFacts, fs.FileInfo, error) {
	if _, err := cleanRemote(p); err != nil {
		return gate.FileFacts{}, nil, err
	}
	var real string
	var info fs.FileInfo
	var err error
	if follow {
		real, info, err = f.resolve(p)
	} else if real, _, err = f.resolve(path.Dir(p)); err == nil {
		real = path.Join(real, path.Base(p))
		if info, err = f.Lstat(real); errors.Is(err, fs.ErrNotExist) {
			info, err = nil, nil
		}
	}
	if err != nil || info == nil {
		return gate.FileFacts{RealPath: real}, nil, err
	}
	return gate.FileFacts{
		RealPath: real,
		Exists:   true,
		Type:     kind(info),
		Bytes:    max(info.Size(), 0),
		Mode:     uint32(info.Mode().Perm()),
	}, info, nil
}

// again finds the facts once more and refuses when they are not what was decided on. Sizes may
// differ: logs grow.
func (f *files) again(
	p string,
	follow bool,
	decided *gate.FileFacts,
) (gate.FileFacts, fs.FileInfo, error) {
	if decided == nil {
		return gate.FileFacts{}, nil, failed(
			"changed",
			"%q was not looked up before it was decided",
			p,
		)
	}
	now, info, err := f.look(p, follow)
	if err != nil {
		return now, nil, err
	}
	if now.RealPath != decided.RealPath || now.Exists != decided.Exists ||
		now.Type != decided.Type {
		return now, nil, failed(
			"changed",
			"%q was %s when it was decided and is %s now; nothing was done",
			p,
			describe(*decided),
			describe(now),
		)
	}
	return now, info, nil
}

func describe(f gate.FileFacts) string {
	if !f.Exists {
		return fmt.Sprintf("%q, which does not exist,", f.RealPath)
	}
	return fmt.Sprintf("%s %q", f.Type, f.RealPath)
}

// kind is the type of a file as policies know it. A server that does not tell is not believed to
// mean a regular file.
func kind(info fs.FileInfo) string {
	if s, is := info.Sys().(*sftp.FileStat); is && s.Mode&0o170000 == 0 {
		return "other"
	}
	switch m := info.Mode(); {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "dir"
	case m&fs.ModeSymlink != 0:
		return "symlink"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "other"
}

// FileInfo is the response of sftp_stat and an entry of that of sftp_list.
type FileInfo struct {
	Name     string `json:"name,omitempty"`
	NameB64  string `json:"name_b64,omitempty"` // when the name is not UTF-8
	Type     string `json:"type"`               // file dir symlink fifo socket device other
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`  // permission bits in octal
	MTime    int64  `json:"mtime"` // seconds since 1970
	RealPath string `json:"real_path,omitempty"`
}

// ListResult is the response of sftp_list. Entries are sorted by name.
type ListResult struct {
	Entries   []FileInfo `json:"entries"`
	Truncated bool       `json:"truncated"`
}

func fileInfo(i fs.FileInfo) FileInfo {
	v := FileInfo{
		Type:  kind(i),
		Size:  max(i.Size(), 0),
		Mode:  fmt.Sprintf("%04o", i.Mode().Perm()),
		MTime: i.ModTime().Unix(),
	}
	if v.Name = i.Name(); !utf8.ValidString(v.Name) {
		v.Name, v.NameB64 = "", base64.StdEncoding.EncodeToString([]byte(v.Name))
	}
	return v
}

func (f *files) list(ctx context.Context, dir string, limit int) (ListResult, error) {
	infos, cut, err := f.entries(ctx, dir, limit)
	if err != nil {
		return ListResult{}, err
	}
	v := ListResult{Entries: []FileInfo{}, Truncated: cut}
	for _, i := range infos {
		v.Entries = append(v.Entries, fileInfo(i))
	}
	return v, nil
}

// entries reads at most limit entries of a directory, sorted by name, and says whether there are
// more.
func (f *files) entries(ctx context.Context, dir string, limit int) ([]fs.FileInfo, bool, error) {
	f.listMu.Lock()
	defer f.listMu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer close(over)
	// a name of 255 bytes comes twice, with its attributes
	most := f.names.Load() + 256<<10 + int64(limit)*768
	var cut atomic.Bool
	// the library has no limit of its own: a directory without end is cut off here
	watcher.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if f.names.Load() > most {
					cut.Store(true)
					cancel()
					return
				}
			}
		}
	})
	infos, err := f.ReadDirContext(ctx, dir)
	if err != nil && !cut.Load() {
		return nil, false, err
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return cmp.Compare(a.Name(), b.Name()) })
	return infos[:min(limit, len(infos))], cut.Load() || len(infos) > limit, nil
}
