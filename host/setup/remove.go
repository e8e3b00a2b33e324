package setup

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/crypto/ssh"
)

// written is the file that says what Write wrote.
const written = "installed.json"

// record is the contents of that file.
type record struct {
	State string            `json:"state"`
	Made  []string          `json:"made"`  // directories that were not there before, deepest first
	Files map[string]string `json:"files"` // digests, by the paths below the directory
	Cache bool              `json:"cache"` // that of the state was not there before
}

func (r record) text() string {
	data, _ := json.MarshalIndent(r, "", "  ")
	return string(data) + "\n"
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// Kind says whose a file is.
type Kind string

const (
	Written Kind = "written" // by init, and as it wrote it
	Again   Kind = "again"   // by the host, which can make it again
	Kept    Kind = "kept"    // evidence, or of a person: it goes only when it is named
	Foreign Kind = "foreign" // a link or no file: it never goes
)

// Item is something that an installation consists of.
type Item struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	Goes bool   `json:"goes"`

	named, dir bool
}

// Installed is what lies in the directories of an installation.
type Installed struct {
	dir    string
	record record
	Items  []Item // every file of the directory, and what is directly in that of the state
}

// Open lists an installation. It is an error if init wrote nothing there.
func Open(dir string) (*Installed, error) {
	s := &Installed{dir: dir}
	info, err := os.Lstat(filepath.Join(dir, written))
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", filepath.Join(dir, written))
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(filepath.Join(dir, written))
	}
	if err == nil {
		err = json.Unmarshal(data, &s.record)
	}
	if err != nil {
		return nil, fmt.Errorf("no installation of caponier init: %w", err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch name, _ := filepath.Rel(dir, path); {
		case err != nil:
			return err
		case d.IsDir() && path == s.record.State:
			return fs.SkipDir
		case d.IsDir() || name == written:
		case !d.Type().IsRegular():
			s.add(path, Foreign)
		case s.unchanged(name):
			s.add(path, Written)
		default:
			s.add(path, Kept)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	state, err := os.ReadDir(s.record.State)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, d := range state {
		kind := Kept
		if d.Type()&^fs.ModeDir != 0 {
			kind = Foreign
		} else if d.Name() == "cache" && s.record.Cache {
			kind = Again
		}
		s.add(filepath.Join(s.record.State, d.Name()), kind)
		s.Items[len(s.Items)-1].dir = d.IsDir()
	}
	return s, err
}

func (s *Installed) add(path string, kind Kind) {
	s.Items = append(s.Items, Item{Path: path, Kind: kind, Goes: kind == Written || kind == Again})
}

// unchanged reports whether a file is as init wrote it.
func (s *Installed) unchanged(name string) bool {
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	return err == nil && s.record.Files[name] == digest(data)
}

// Also marks a path, and all below it, to be removed too.
func (s *Installed) Also(path string) error {
	found := false
	for i, it := range s.Items {
		rel, err := filepath.Rel(path, it.Path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		if it.Kind == Foreign {
			return fmt.Errorf("%s is a link or no file: remove it yourself", it.Path)
		}
		found, s.Items[i].Goes, s.Items[i].named = true, true, true
	}
	if !found {
		return fmt.Errorf("%s is nothing that uninstall lists", path)
	}
	return nil
}

// Remove removes the items that are to go, config.toml first, and then the directories that init
// made, if they are empty. While something stays, so does what a second run needs. No link is
// followed. It stops at a file that nobody named, and that was changed since Open.
func (s *Installed) Remove() error {
	config := filepath.Join(s.dir, "config.toml")
	all, stays := slices.Clone(s.Items), false
	slices.SortStableFunc(all, func(a, b Item) int {
		return strings.Compare(fmt.Sprint(a.Path != config), fmt.Sprint(b.Path != config))
	})
	for _, it := range all {
		if !it.Goes {
			stays = true
			continue
		}
		base := s.dir
		if filepath.Dir(it.Path) == s.record.State {
			base = s.record.State
		}
		root, err := os.OpenRoot(base)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(base, it.Path)
		switch {
		case it.Kind == Written && !it.named && !s.unchanged(name):
			err = fmt.Errorf("%s was changed meanwhile: it stays, and all that is listed after it",
				it.Path)
		case it.dir:
			err = root.RemoveAll(name)
		default:
			err = root.Remove(name)
		}
		_ = root.Close()
		if err != nil {
			return err
		}
		for d := filepath.Dir(it.Path); d != base; d = filepath.Dir(d) {
			_ = os.Remove(d) // if it is empty
		}
	}
	if stays {
		return nil
	}
	err := os.Remove(filepath.Join(s.dir, written))
	for _, d := range append([]string{filepath.Join(s.dir, "secrets"),
		filepath.Join(s.dir, "site")}, s.record.Made...) {
		_ = os.Remove(d) // if it is empty
	}
	return err
}

// KeyWorks reports whether a file holds a private key that can be used.
func KeyWorks(file string) error {
	data, err := os.ReadFile(file)
	if err == nil {
		_, err = ssh.ParsePrivateKey(data)
	}
	return err
}

// PublicKey returns the public key beside a private one, without its comment.
func PublicKey(identity string) (string, error) {
	text, err := os.ReadFile(cmp.Or(identity, "/nonexistent") + ".pub")
	if err != nil {
		return "", err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), nil
}

// Rewrite gives config.toml another text that try accepts, which gets a file with it, beside the
// old one and with its owner and mode. It returns the copy that it keeps of the old file.
func Rewrite(file string, text []byte, try func(file string) error) (backup string, err error) {
	info, err := os.Lstat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: edit what it points to by hand", file)
	}
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".caponier-config-*.toml")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		err = errors.Join(err, f.Chown(int(stat.Uid), int(stat.Gid)))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = try(f.Name())
	}
	if err != nil {
		return "", err
	}
	backup = file + ".before-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err := os.Link(file, backup); err != nil {
		return "", err
	}
	return backup, os.Rename(f.Name(), file)
}

// WithoutNode returns the text of config.toml without the table of the node of this index, which
// begins in this line. It is an error if anything else would go with it.
func WithoutNode(file string, at, line int) ([]byte, error) {
	old, err := os.ReadFile(file)
	if err == nil && (line < 1 || line > bytes.Count(old, []byte("\n"))) {
		err = fmt.Errorf("%s: no node in line %d", file, line)
	}
	if err != nil {
		return nil, err
	}
	text := []byte(without(string(old), line))
	have, nodes, err := decoded(old)
	now, left, wrong := decoded(text)
	if err != nil || wrong != nil || at >= len(nodes) || !reflect.DeepEqual(now, have) ||
		!slices.EqualFunc(left, slices.Delete(nodes, at, at+1), reflect.DeepEqual) {
		return nil, fmt.Errorf("%s: the table of the node cannot be told from the rest: remove it "+
			"by hand", file)
	}
	return text, nil
}

// decoded returns the contents of a configuration, and apart from it the nodes.
func decoded(text []byte) (all map[string]any, nodes []any, err error) {
	err = toml.Unmarshal(text, &all)
	remote, _ := all["remote"].(map[string]any)
	nodes, list := remote["nodes"].([]any)
	if list {
		delete(remote, "nodes")
	}
	if len(remote) == 0 {
		delete(all, "remote")
	}
	return all, nodes, err
}

// without returns a TOML text without the table that begins in this line, and those below it. What
// stands above the next table, behind an empty line, is that one's.
func without(text string, line int) string {
	lines := strings.SplitAfter(text, "\n")
	begins := func(at int, with string) bool {
		return strings.HasPrefix(strings.TrimLeft(lines[at], " \t"), with)
	}
	end := line
	for end < len(lines) && (!begins(end, "[") || begins(end, "[[remote.nodes.")) {
		end++
	}
	for end < len(lines) && end > line && begins(end-1, "#") {
		end--
	}
	return strings.Join(slices.Delete(lines, line-1, end), "")
}
