// Package plugin keeps plugins.lock, the reviewed list of modules that may run.
package plugin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	// maxModule is the largest module, in bytes.
	maxModule   = 16 << 20
	maxLock     = 16 << 20
	maxDescribe = 1 << 20
	lockSchema  = "caponier.lock/1"
)

// Options says where the lock and the modules are.
type Options struct {
	Lock string `koanf:"lock" path:"true"` // file, plugins.lock
	Dir  string `koanf:"dir" path:"true"`  // holds the .wasm files, build/plugins
}

// Entry is one locked plugin. Its name and version repeat those of Describe.
type Entry struct {
	gate.Plugin
	File    string   `json:"file"`    // base name of the module
	Imports []string `json:"imports"` // the operations of its import section, sorted
	// what caponier_v1_describe answered, in canonical form
	Describe json.RawMessage `json:"describe"`
}

// Tools are what the plugin offers, ready to be called.
func (e Entry) Tools() ([]*gate.Tool, error) { return e.compile() }

// Lock is a checked plugins.lock. It is safe for concurrent use; what it returns is shared and must
// not be changed.
type Lock struct {
	entries  []Entry
	tools    []*gate.Tool
	checksum string
}

// NewEntry checks a module and what it described against the rules for locked plugins. File is its
// path, of which the base name is kept; imports are the operations of its import section.
func NewEntry(file string, wasm []byte, imports []string, describe []byte) (Entry, error) {
	e := Entry{File: filepath.Base(file), Imports: sorted(imports)}
	e.Digest = digest(wasm)
	if len(wasm) > maxModule {
		return Entry{}, fmt.Errorf("plugin %s: module of %d bytes is over the limit of %d", e.File,
			len(wasm), maxModule)
	}
	v, err := abi.Decode(describe, maxDescribe)
	if err != nil {
		return Entry{}, fmt.Errorf("plugin %s: describe: %w", e.File, err)
	}
	if e.Describe, err = abi.Encode(v); err != nil {
		return Entry{}, fmt.Errorf("plugin %s: describe: %w", e.File, err)
	}
	d, err := parseDescribe(e.Describe)
	if err != nil {
		return Entry{}, fmt.Errorf("plugin %s: describe: %w", e.File, err)
	}
	e.Name, e.Version = d.Name, d.Version
	tools, err := e.compile()
	for _, t := range tools {
		if runsCommands(t) && len(t.Commands) == 0 {
			return Entry{}, fmt.Errorf(
				"plugin %s: %s %s: imports ssh_exec or ssh_script and declares no command, so it "+
					"could run none; %s",
				e.Name, t.Kind, t.Name, exampleCommands)
		}
	}
	return e, err
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

type file struct {
	Schema  string            `json:"schema"`
	Plugins []json.RawMessage `json:"plugins"`
}

// parse decodes plugin by plugin, so that the strict decoder's bounds are for each, and then asks
// that the whole text is what Write would write but for white space: whatever a lenient outer
// decoder might have overlooked is refused there.
func parse(data []byte) (*Lock, error) {
	if len(data) > maxLock {
		return nil, fmt.Errorf("over the limit of %d bytes", maxLock)
	}
	var outer file
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
	written, err := marshal(l.entries)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(compact(data), compact(written)) {
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
	for _, e := range l.entries {
		tools, err := e.compile()
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
	data, err := marshal(l.entries)
	l.checksum = digest(data)
	return l, err
}

// Write replaces the lock file by one that holds the entries, always the same bytes for the same
// entries.
func Write(path string, entries []Entry) error {
	l, err := newLock(entries)
	if err != nil {
		return err
	}
	data, err := marshal(l.entries)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return fmt.Errorf("writing the plugin lock: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("writing the plugin lock: %w", err)
	}
	return nil
}

func marshal(entries []Entry) ([]byte, error) {
	if entries == nil {
		entries = []Entry{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(struct {
		Schema  string  `json:"schema"`
		Plugins []Entry `json:"plugins"`
	}{lockSchema, entries})
	return b.Bytes(), err
}

// Plugins lists the entries by name.
func (l *Lock) Plugins() []Entry { return l.entries }

// Tools lists tools, resources and prompts, by plugin and then by kind and name.
func (l *Lock) Tools() []*gate.Tool { return l.tools }

// Checksum is over everything locked: modules, imports, names, descriptions and schemas.
func (l *Lock) Checksum() string { return l.checksum }

// Open reads a locked module from dir and refuses bytes that are not the locked ones.
func (l *Lock) Open(dir, name string) ([]byte, error) {
	i := slices.IndexFunc(l.entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("plugin %q is not in the lock", name)
	}
	e := l.entries[i]
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

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func sorted(names []string) []string {
	s := append([]string{}, names...)
	slices.Sort(s)
	return slices.Compact(s)
}
