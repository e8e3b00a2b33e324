// Package freeze stores the list of freezes, as files that all processes of a host share. A list of
// all hosts can be added to it. The package decides nothing; policy decides from the list.
package freeze

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
)

// Freeze is one entry of the list: what is frozen, who froze it and when.
type Freeze struct {
	Kind   string    `json:"scope"` // all | principal | node | tool | plugin, by its digest
	Name   string    `json:"name,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// String returns what is frozen, such as node "pve2".
func (z Freeze) String() string {
	if z.Kind == "all" {
		return "everything"
	}
	return fmt.Sprintf("%s %q", z.Kind, z.Name)
}

// Shared is a list that several hosts share.
type Shared interface {
	AddFreeze(ctx context.Context, z Freeze) error
	RemoveFreeze(ctx context.Context, kind, name string) (was bool, err error)
	Freezes(ctx context.Context) ([]Freeze, error)
}

// List is the list in a state directory. It is safe for concurrent use by many processes.
type List struct {
	dir    string
	shared Shared // nil: there are files only
}

// In returns the list of the state directory. The directory need not exist.
func In(state string) List { return List{dir: filepath.Join(state, "frozen")} }

// With returns the union of the state directory's list and the list of all hosts. It adds freezes
// to the list of all hosts, and removes them from both.
func (l List) With(s Shared) List { return List{l.dir, s} }

// file returns the path for a freeze. Names are digests, since a principal's id may hold anything.
func (l List) file(kind, name string) string {
	if kind == "all" {
		return filepath.Join(l.dir, "all")
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(l.dir, kind+"-"+hex.EncodeToString(sum[:16]))
}

// Add puts a freeze into the list, or replaces it. Every decision after Add returns finds it.
func (l List) Add(z Freeze) error {
	if l.shared != nil {
		return l.shared.AddFreeze(context.Background(), z)
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(z)
	if err != nil {
		return err
	}
	// Another account may serve and must read it; the directory is private.
	err = trusted.Replace(l.file(z.Kind, z.Name), data, 0o644, filepath.Dir(l.dir))
	if err != nil {
		return err
	}
	return l.sync()
}

// Remove takes a freeze off the list. It reports whether there was one.
func (l List) Remove(kind, name string) (was bool, err error) {
	if l.shared != nil {
		if was, err = l.shared.RemoveFreeze(context.Background(), kind, name); err != nil {
			return false, err
		}
	}
	err = os.Remove(l.file(kind, name))
	if errors.Is(err, fs.ErrNotExist) {
		return was, nil
	} else if err != nil {
		return was, err
	}
	return true, l.sync()
}

func (l List) sync() error {
	d, err := os.Open(l.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// All returns the freezes in the order of their files. A freeze whose file cannot be read has the
// kind "?". Policy does not know this kind, and treats it as a freeze of everything.
func (l List) All(ctx context.Context) ([]Freeze, error) {
	all := []Freeze{}
	if l.shared != nil {
		shared, err := l.shared.Freezes(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, shared...)
	}
	files, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range files {
		z := Freeze{}
		data, err := []byte(nil), errors.New("not a file")
		if e.Type().IsRegular() {
			data, err = os.ReadFile(filepath.Join(l.dir, e.Name()))
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // thawed meanwhile
		}
		if err == nil {
			err = json.Unmarshal(data, &z)
		}
		if err != nil || filepath.Base(l.file(z.Kind, z.Name)) != e.Name() {
			z = Freeze{Kind: "?", Name: e.Name(), Reason: "its file cannot be read; delete it to " +
				"thaw"}
		}
		all = append(all, z)
	}
	return all, nil
}

// Mode returns the list as policy sees it. A list that cannot be read freezes everything.
func (l List) Mode(ctx context.Context) []terms.Freeze {
	all, err := l.All(ctx)
	if err != nil {
		return []terms.Freeze{{Kind: "all", Reason: "the list of freezes cannot be read: " +
			err.Error()}}
	}
	mode := []terms.Freeze{}
	for _, z := range all {
		mode = append(mode, terms.Freeze{Kind: z.Kind, Name: z.Name, Reason: z.Reason})
	}
	return mode
}
