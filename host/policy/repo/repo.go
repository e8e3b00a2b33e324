// Package repo writes what plain opa needs to check, format and test a site in a repository of the
// site's own.
package repo

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"golang.org/x/mod/semver"
)

//go:embed CAPONIER.md.tmpl
var page string

//go:embed ci.sh
var ci []byte

// manifest is the file that lists what an export wrote.
const manifest = ".caponier-export" // without .json: opa would read it as data

// Options say what is exported, and where to.
type Options struct {
	Dir       string // is made if it does not exist
	Site      string // the folder that is copied, if Dir has no folder site
	Version   string // of this program
	Inventory load.Inventory
}

// Report says what an export did. Paths are relative to Dir.
type Report struct {
	Dir     string   `json:"dir"`
	Before  string   `json:"before"` // the version that wrote the files before, "" for none
	Version string   `json:"version"`
	OPA     string   `json:"opa"` // the version of opa that decides as the host does
	Written []string `json:"written"`
	Removed []string `json:"removed"` // that an older version wrote, and that are no more
	Same    int      `json:"same"`    // files that were as they are now
	Site    string   `json:"site"`    // where the copied site came from, "" for one that was there
}

type written struct {
	Caponier string            `json:"caponier"`
	OPA      string            `json:"opa"`
	Files    map[string]string `json:"files"` // SHA-256 by path
}

// Write writes an export, or renews one. It touches nothing but what an export wrote, and changes
// nothing when it returns an error about what is there. A site that is there stays as it is.
func Write(o Options) (Report, error) {
	rep := Report{Dir: o.Dir, Version: o.Version, OPA: load.OPA, Written: []string{},
		Removed: []string{}}
	next, err := contents(o)
	if err != nil {
		return rep, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return rep, err
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return rep, err
	}
	defer root.Close()
	before, err := o.before(root)
	if err != nil {
		return rep, err
	}
	rep.Before = before.Caponier
	if err := o.foreign(root, before, next); err != nil {
		return rep, err
	}
	if _, err := root.Lstat("site"); errors.Is(err, fs.ErrNotExist) {
		rep.Site = o.Site
		all, err := load.Files(o.Site)
		if err != nil {
			return rep, fmt.Errorf("copying the site: %w", err)
		}
		for name, data := range all {
			if strings.HasPrefix(name, "site/") {
				if err := put(root, name, data); err != nil {
					return rep, err
				}
				rep.Written = append(rep.Written, name)
			}
		}
	}
	return rep, rep.renew(root, before, next)
}

// contents are the files of an export.
func contents(o Options) (map[string][]byte, error) {
	all, err := load.Files("")
	if err != nil {
		return nil, err
	}
	all["testing/data.json"] = o.Inventory.World()
	all["ci.sh"] = ci
	all["CAPONIER.md"] = []byte(strings.NewReplacer("{{opa}}", load.OPA, "{{version}}",
		o.Version).Replace(page))
	return all, nil
}

// before reads the manifest of the export that is there, if one is.
func (o Options) before(root *os.Root) (was written, err error) {
	data, err := root.ReadFile(manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return was, o.vacant(root)
	}
	if err == nil {
		err = json.Unmarshal(data, &was)
	}
	if err != nil {
		return was, fmt.Errorf("%s: %w: bring it back (git checkout), or export to an empty folder",
			filepath.Join(o.Dir, manifest), err)
	}
	if semver.Compare("v"+was.Caponier, "v"+o.Version) > 0 && semver.IsValid("v"+o.Version) {
		return was, fmt.Errorf("%s holds an export of version %s, which is newer than this "+
			"program (%s): export with that version, or to an empty folder", o.Dir,
			was.Caponier, o.Version)
	}
	return was, nil
}

// vacant refuses a folder with anything but hidden files, such as those of git.
func (o Options) vacant(root *os.Root) error {
	all, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") {
			return fmt.Errorf("%s holds %s and no export: name a new or empty folder, such as %s",
				o.Dir, e.Name(), filepath.Join(o.Dir, "policy"))
		}
	}
	return nil
}

// foreign refuses to write over what no export wrote, and over what was changed since.
func (o Options) foreign(root *os.Root, before written, next map[string][]byte) error {
	names := map[string]bool{}
	for name := range before.Files {
		names[name] = true
	}
	for name := range next {
		names[name] = true
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !fs.ValidPath(name) || name == "." || strings.HasPrefix(name, "site/") {
			return fmt.Errorf("%s lists %q, which no export writes: bring it back (git checkout)",
				filepath.Join(o.Dir, manifest), name)
		}
		have, err := root.ReadFile(name)
		full := filepath.Join(o.Dir, name)
		switch is := sum(have); {
		case errors.Is(err, fs.ErrNotExist), err == nil && is == before.Files[name],
			err == nil && next[name] != nil && is == sum(next[name]):
		case err != nil:
			wrong = append(wrong, err)
		case before.Files[name] == "":
			wrong = append(wrong, fmt.Errorf("%s is not of an export: move it away", full))
		default:
			wrong = append(wrong, fmt.Errorf("%s was changed since the export: take the change "+
				"back (git checkout), or remove the file; what a site adds belongs into %s",
				full, filepath.Join(o.Dir, "site")))
		}
	}
	return errors.Join(wrong...)
}

// renew writes what differs. The manifest comes first where there is none, and else last, so that
// an export that was interrupted can be made again.
func (r *Report) renew(root *os.Root, before written, next map[string][]byte) error {
	now := written{r.Version, r.OPA, map[string]string{}}
	for name, data := range next {
		now.Files[name] = sum(data)
	}
	list, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return err
	}
	list = append(list, '\n')
	if before.Files == nil {
		if err := put(root, manifest, list); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if have, err := root.ReadFile(name); err == nil && sum(have) == now.Files[name] {
			r.Same++
			continue
		}
		if err := put(root, name, next[name]); err != nil {
			return err
		}
		r.Written = append(r.Written, name)
	}
	for _, name := range slices.Sorted(maps.Keys(before.Files)) {
		if next[name] == nil {
			if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			r.Removed = append(r.Removed, name)
		}
	}
	slices.Sort(r.Written)
	return put(root, manifest, list)
}

// put writes a file completely before it has its name.
func put(root *os.Root, name string, data []byte) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if path.Ext(name) == ".sh" {
		mode = 0o755
	}
	made := path.Join(path.Dir(name), ".caponier-"+path.Base(name))
	_ = root.Remove(made) // of an export that was interrupted
	if err := root.WriteFile(made, data, mode); err != nil {
		return err
	}
	return root.Rename(made, name)
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
