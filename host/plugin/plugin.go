// Package plugin keeps plugins.lock, the reviewed list of modules that may run.
package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxLock    = 16 << 20 // bytes
	lockSchema = "caponier.lock/1"
)

// Options says where the lock and the modules are.
type Options struct {
	Lock string `koanf:"lock" path:"true"` // file, plugins.lock
	Dir  string `koanf:"dir" path:"true"`  // holds the .wasm files, build/plugins
}

// Lock is a checked plugins.lock. It is safe for concurrent use; what it returns is shared and must
// not be changed.
type Lock struct {
	entries []Entry
	tools   []*terms.Tool
	text    []byte // as Encode returns it
}

// Load reads and checks a lock file. Rules that [NewEntry] enforces hold for a hand-edited lock
// too.
func Load(path string) (*Lock, error) {
	data, err := trusted.Read(path, maxLock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the plugin lock: %w; `caponier plugin lock` writes it", err)
	} else if err != nil {
		return nil, fmt.Errorf("reading the plugin lock: %w", err)
	}
	l, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("plugin lock %s: %w", path, err)
	}
	return l, nil
}

// Unchanged reports whether path holds exactly this lock, as [Write] wrote it.
func (l *Lock) Unchanged(path string) bool {
	data, err := trusted.Read(path, maxLock)
	return err == nil && bytes.Equal(data, l.text)
}

// file is the form of the lock, with its plugins decoded or not.
type file[P any] struct {
	Schema  string `json:"schema"`
	Plugins []P    `json:"plugins"`
}

// parse decodes plugin by plugin, so that the strict decoder's bounds are for each, and then asks
// that the whole text is what Write would write but for white space: whatever a lenient outer
// decoder might have overlooked is refused there.
func parse(data []byte) (*Lock, error) {
	if len(data) > maxLock {
		return nil, fmt.Errorf("over the limit of %d bytes", maxLock)
	}
	var outer file[json.RawMessage]
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&outer); err != nil {
		return nil, err
	}
	if outer.Schema != lockSchema {
		return nil, fmt.Errorf("schema is %q, this version reads %q", outer.Schema, lockSchema)
	}
	var entries []Entry
	for i, raw := range outer.Plugins {
		var e Entry
		if err := abi.DecodeInto(raw, maxLock, &e); err != nil {
			return nil, fmt.Errorf("plugins/%d: %w", i, err)
		}
		entries = append(entries, e)
	}
	l, err := newLock(entries)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(compact(data), compact(l.text)) {
		return nil, errors.New(
			"is not in the form that `caponier plugin lock` writes (order, repeated or oddly " +
				"written keys); run it again and review the difference")
	}
	return l, nil
}

func compact(data []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return nil // not JSON: equal to nothing that was written
	}
	return b.Bytes()
}

func newLock(entries []Entry) (*Lock, error) {
	l := &Lock{entries: slices.Clone(entries)}
	slices.SortFunc(l.entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	// of names, files and URIs, without regard to case: two that look alike can be taken for each
	// other
	owner := map[string]string{}
	claim := func(what, plugin string) error {
		key := strings.ToLower(what)
		if first, taken := owner[key]; taken {
			return fmt.Errorf("plugins %s and %s both have %s", first, plugin, what)
		}
		owner[key] = plugin
		return nil
	}
	all, errs := make([][]*terms.Tool, len(l.entries)), make([]error, len(l.entries))
	var reading sync.WaitGroup
	for i, e := range l.entries {
		reading.Go(func() { all[i], errs[i] = e.Tools() })
	}
	reading.Wait()
	for i, e := range l.entries {
		tools, err := all[i], errs[i]
		if err != nil {
			return nil, err
		}
		err = errors.Join(claim("the name "+e.Name, e.Name), claim("the file "+e.File, e.Name))
		for _, t := range tools {
			err = errors.Join(err, claim("the "+t.Kind+" "+t.Name, e.Name))
			if t.URI != "" {
				err = errors.Join(err, claim("the URI "+t.URI, e.Name))
			}
		}
		if err != nil {
			return nil, err
		}
		l.tools = append(l.tools, tools...)
	}
	var err error
	l.text, err = marshal(l.entries)
	return l, err
}

// Encode returns the text of a lock that holds the entries, always the same bytes for the same
// entries. It checks them as Load does.
func Encode(entries []Entry) ([]byte, error) {
	l, err := newLock(entries)
	if err != nil {
		return nil, err
	}
	return l.text, nil
}

// Write replaces the lock file by one with this text.
func Write(path string, text []byte) error {
	if err := trusted.Replace(path, text, 0o644, filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing the plugin lock: %w", err)
	}
	return nil
}

func marshal(entries []Entry) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(file[Entry]{lockSchema, append([]Entry{}, entries...)})
	return b.Bytes(), err
}

// Plugins lists the entries by name.
func (l *Lock) Plugins() []Entry { return l.entries }

// Tools lists tools, resources and prompts, by plugin and then by kind and name.
func (l *Lock) Tools() []*terms.Tool { return l.tools }

// Both returns what of this lock next has too, by the names of plugins and their tools: what may
// still be called while what is new in next is made ready.
func (l *Lock) Both(next *Lock) *Lock {
	named := map[[3]string]bool{}
	for _, t := range next.tools {
		named[[3]string{t.Plugin.Name, t.Kind, t.Name}] = true
	}
	both := &Lock{text: l.text}
	for _, t := range l.tools {
		if named[[3]string{t.Plugin.Name, t.Kind, t.Name}] {
			both.tools = append(both.tools, t)
		}
	}
	for _, e := range l.entries {
		if next.entry(e.Name) != nil {
			both.entries = append(both.entries, e)
		}
	}
	return both
}

// New returns the entries of this lock that before has not, or has with another module or other
// operations.
func (l *Lock) New(before *Lock) (entries []Entry) {
	for _, e := range l.entries {
		old := before.entry(e.Name)
		if old == nil || old.Digest != e.Digest || !slices.Equal(old.Imports, e.Imports) {
			entries = append(entries, e)
		}
	}
	return entries
}

func (l *Lock) entry(name string) *Entry {
	i := slices.IndexFunc(l.entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &l.entries[i]
}

// Checksum is over everything locked: modules, imports, names, descriptions and schemas.
func (l *Lock) Checksum() string { return digest(l.text) }

// Open reads a locked module from dir and refuses bytes that are not the locked ones.
func (l *Lock) Open(dir, name string) ([]byte, error) {
	e := l.entry(name)
	if e == nil {
		return nil, fmt.Errorf("plugin %q is not in the lock", name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening plugin %s: %w", name, err)
	}
	defer root.Close()
	wasm, err := trusted.ReadIn(root, e.File, maxModule)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening plugin %s in %s: %w; `caponier plugin build` makes it",
			name, dir,
			err)
	} else if err != nil {
		return nil, fmt.Errorf("reading plugin %s: %w", name, err)
	}
	if got := digest(wasm); got != e.Digest {
		return nil, fmt.Errorf(
			"plugin %s: %s has the digest %s, but the lock says %s; if the change is meant, run "+
				"`caponier plugin lock %s` and review the difference",
			name, filepath.Join(dir, e.File), got, e.Digest, strings.TrimSuffix(e.File, ".wasm"))
	}
	return wasm, nil
}

// SignatureOf reads the signature that lies beside a module in dir, as FILE.sig. It is nil where
// there is none.
func SignatureOf(dir, file string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	sig, err := trusted.ReadIn(root, file+".sig", limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the signature of %s: %w", file, err)
	}
	return sig, nil
}

// IsName reports whether a plugin can have this name, which is also a file name.
func IsName(name string) bool { return fileName.MatchString(name) }
