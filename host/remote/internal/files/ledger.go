package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"sync"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
)

// StagePrefix begins the name of a staging directory, and PartialPrefix that of what is being
// written, on nodes and in the workspace.
const (
	StagePrefix   = "caponier-"
	PartialPrefix = ".caponier-partial-"
)

// ours is the name of everything temporary: host, process and a random part, see Unique.
var ours = regexp.MustCompile(
	`^(caponier-|\.caponier-partial-)([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{16}$`)

// Record keeps the ledger's entries for other processes. Its functions may be nil.
type Record struct {
	// Made records a temporary directory of a node, or with node "" a temporary file of the
	// workspace, before it is made; an error stops the operation. Removed is called when it is
	// gone, perhaps more than once. Dead lists what is recorded by processes that have ended.
	// Missing says that a directory of a node was looked for and is not there; it reports whether
	// the record is gone with it, or stays since a request may be under way that makes it.
	Made    func(node, name string) error
	Removed func(node, name string)
	Dead    func(ctx context.Context) ([]terms.StageDir, error)
	Missing func(node, name string) (forgotten bool)
}

// Ledger lists the temporary directories of nodes, and, with node "", the temporary files of the
// workspace, which have to be removed again. It is safe for concurrent use.
type Ledger struct {
	record  Record
	host    string // 8 hexadecimal digits, the same for all processes that share a record
	process string // 8 hexadecimal digits

	mu  sync.Mutex // guards the following
	use map[terms.StageDir]bool
}

// NewLedger returns an empty ledger. host is 8 hexadecimal digits, or "" for random ones.
func NewLedger(host string, r Record) *Ledger {
	host = cmp.Or(host, randomHex(4))
	return &Ledger{record: r, host: host, process: randomHex(4), use: map[terms.StageDir]bool{}}
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Unique is the end of a temporary name: 8 digits for the host, 8 for this process, 16 random ones.
func (l *Ledger) Unique() string { return l.host + l.process + randomHex(8) }

// own records something temporary before it is made.
func (l *Ledger) own(at terms.StageDir) error {
	l.mu.Lock()
	l.use[at] = true
	l.mu.Unlock()
	if l.record.Made == nil {
		return nil
	}
	err := l.record.Made(at.Node, at.Dir)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	delete(l.use, at)
	l.mu.Unlock()
	return effect.Failed("internal",
		"recording %q, which has to be removed again: %v; nothing was "+
			"done", at.Dir, err)
}

// Disown ends the use of something temporary, which is gone or else to be cleaned.
func (l *Ledger) Disown(at terms.StageDir, gone bool) {
	l.mu.Lock()
	if l.use[at] = false; gone {
		delete(l.use, at)
	}
	l.mu.Unlock()
	if gone && l.record.Removed != nil {
		l.record.Removed(at.Node, at.Dir)
	}
}

// Missing notes that something temporary, which is not in use, was looked for and is not there. A
// file of the workspace is then gone. A directory of a node stays recorded as long as a request may
// be under way that makes it.
func (l *Ledger) Missing(at terms.StageDir) {
	switch {
	case at.Node == "" || l.record.Missing == nil:
		l.Disown(at, true)
	case l.record.Missing(at.Node, at.Dir):
		l.mu.Lock()
		delete(l.use, at)
		l.mu.Unlock()
	}
}

// InUse reports whether this process uses something temporary that it recorded.
func (l *Ledger) InUse(at terms.StageDir) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.use[at]
}

// Leftovers lists what is recorded and not in use: what processes that have ended made, and what
// this process made and could not remove.
func (l *Ledger) Leftovers(ctx context.Context) (all []terms.StageDir, err error) {
	if l.record.Dead != nil {
		all, err = l.record.Dead(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, used := range l.use {
		if !used {
			all = append(all, at)
		}
	}
	return all, err
}

// CheckLeftover refuses names that this package does not make, what is not recorded, and what is in
// use.
func (l *Ledger) CheckLeftover(ctx context.Context, at terms.StageDir) error {
	m := ours.FindStringSubmatch(path.Base(at.Dir))
	switch {
	case m == nil || path.Clean(at.Dir) != at.Dir || path.IsAbs(at.Dir) != (at.Node != ""):
		return effect.Failed("bad_input", "%q is not the name of a temporary file", at.Dir)
	case m[2] != l.host:
		return effect.Failed("bad_input", "%q was made by another host", at.Dir)
	case l.InUse(at):
		return effect.Failed("bad_input", "%q is in use", at.Dir)
	}
	left, err := l.Leftovers(ctx)
	if err != nil {
		return effect.Failed("internal", "looking up the record of %q: %v", at.Dir, err)
	}
	if !slices.Contains(left, at) {
		return effect.Failed("not_found", "%q is not recorded as left behind", at.Dir)
	}
	return nil
}
