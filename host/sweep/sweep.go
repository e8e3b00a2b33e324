// Package sweep removes what processes that died left behind.
package sweep

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
)

// Book records temporary files and directories, one file for each record, in a directory that all
// processes of one host share. Each process holds a lock there while it lives, which the kernel
// releases however it ends: records whose process has no lock are of a dead one. A Book is safe for
// concurrent use.
type Book struct {
	dir, host, run string
	lock           *os.File
}

// Record is something temporary. Node "" is the workspace.
type Record struct {
	Node string `json:"node"`
	Name string `json:"name"`
	Run  string `json:"run"` // the process that made it

	file string
}

// unique is what each recorded name ends with.
var unique = regexp.MustCompile(`[0-9a-f]{32}$`)

func random(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Open opens the book in dir, which is made if it does not exist, and takes this process's lock.
func Open(dir string) (*Book, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making %s: %w", dir, err)
	}
	if err := trusted.Dir(dir); err != nil {
		return nil, err
	}
	b := &Book{dir: dir}
	for range 10 {
		run := random(8)
		f, err := os.OpenFile(b.runFile(run), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("making the lock of this process: %w", err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if there, serr := os.Stat(f.Name()); err == nil && serr == nil {
			if mine, ferr := f.Stat(); ferr == nil && os.SameFile(there, mine) {
				b.run, b.lock = run, f
				break
			}
		}
		f.Close() // another process took it for one of a dead process
	}
	if b.lock == nil {
		return nil, fmt.Errorf("locking a file in %s: it is not possible there", dir)
	}
	var err error
	if b.host, err = hostID(dir); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func hostID(dir string) (string, error) {
	name, mine := filepath.Join(dir, "host"), filepath.Join(dir, "host-"+random(8))
	if err := os.WriteFile(mine, []byte(random(4)), 0o600); err != nil {
		return "", fmt.Errorf("naming this host: %w", err)
	}
	defer os.Remove(mine)
	if err := os.Link(mine, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("naming this host: %w", err)
	}
	id, err := os.ReadFile(name)
	if _, derr := hex.DecodeString(string(id)); err != nil || derr != nil || len(id) != 8 {
		return "", fmt.Errorf("reading %s: want 8 hexadecimal digits (%v)", name, err)
	}
	return string(id), nil
}

func (b *Book) runFile(run string) string { return filepath.Join(b.dir, "run-"+run) }

func (b *Book) recordFile(name string) (string, error) {
	id := unique.FindString(name)
	if id == "" {
		return "", fmt.Errorf("%q does not end with 32 hexadecimal digits", name)
	}
	return filepath.Join(b.dir, "left-"+id+".json"), nil
}

// HostID is 8 hexadecimal digits that all processes with this directory share.
func (b *Book) HostID() string { return b.host }

// Close releases the lock. What is still recorded counts as left behind from then on.
func (b *Book) Close() error {
	os.Remove(b.lock.Name())
	return b.lock.Close()
}

// Made records a name, which has to end with 32 hexadecimal digits that no other has. It is called
// before the thing is made. The record outlives the process, but perhaps not a power cut.
func (b *Book) Made(node, name string) error {
	file, err := b.recordFile(name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(Record{Node: node, Name: name, Run: b.run})
	if err != nil {
		return err
	}
	part := file + ".new" // so that no reader sees half a record
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// Removed deletes the record of a name. A record that cannot be deleted is found by the next Sweep.
func (b *Book) Removed(_, name string) {
	if file, err := b.recordFile(name); err == nil {
		os.Remove(file)
	}
}

// Left returns what is recorded for processes that have died, and for this one: the caller knows
// what of it is in use.
func (b *Book) Left() (all []Record, err error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	dead := map[string]bool{b.run: true}
	for _, e := range entries {
		file := filepath.Join(b.dir, e.Name())
		if !strings.HasPrefix(e.Name(), "left-") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		var r Record
		text, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(text, &r) != nil {
			continue // it has just been deleted, or is not ours
		}
		if _, asked := dead[r.Run]; !asked {
			dead[r.Run] = b.isDead(r.Run)
		}
		if r.file = file; dead[r.Run] {
			all = append(all, r)
		}
	}
	return all, nil
}

// isDead reports whether no process holds the lock of a run.
func (b *Book) isDead(run string) bool {
	f, err := os.OpenFile(b.runFile(run), os.O_RDWR, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false
	}
	os.Remove(f.Name())
	return true
}

// Run sweeps at once, and then every hour, or after five minutes while something could not be
// removed, such as what is on a node that is away. It returns when ctx ends.
func (b *Book) Run(ctx context.Context, clean func(context.Context, Record) error) {
	for {
		wait := time.Hour
		if b.Sweep(ctx, clean) > 0 {
			wait = 5 * time.Minute
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Sweep calls clean for everything in Left and returns how much of it could not be removed. A node
// that fails once is not asked again. clean returns [ErrInUse] for what is in use.
func (b *Book) Sweep(ctx context.Context, clean func(context.Context, Record) error) (failed int) {
	left, err := b.Left()
	if err != nil {
		slog.Warn("looking for what dead processes left behind", "error", err)
		return 1
	}
	away := map[string]bool{}
	for _, r := range left {
		if away[r.Node] || ctx.Err() != nil {
			failed++
			continue
		}
		one, cancel := context.WithTimeout(ctx, time.Minute)
		err := clean(one, r)
		cancel()
		switch {
		case err == nil:
			os.Remove(r.file)
			slog.Info("removed what a process that ended left behind", "node", r.Node,
				"name", r.Name)
		case errors.Is(err, ErrInUse):
		default:
			failed++
			away[r.Node] = r.Node != ""
			slog.Warn("removing what a process that ended left behind", "node", r.Node,
				"name", r.Name, "error", err)
		}
	}
	return failed
}

// ErrInUse says that something temporary is in use by this process.
var ErrInUse = errors.New("in use")
