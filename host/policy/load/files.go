// Package load makes rules of a site's folder. It reads, parses, checks, compiles and tests the
// policy, and accepts a change only if all of that succeeds.
package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/policies"
	"github.com/open-policy-agent/opa/v1/version"
)

// files are everything that decides, by path: core/… without its tests, testing/…, schemas/… and
// capabilities.json as built in, and site/….
type files map[string][]byte

// maxFile is the size of the largest file of a site, in bytes; maxFiles is their number.
const (
	maxFile  = 4 << 20
	maxFiles = 1000
)

const testSuffix = "_test.rego"

// coreFiles leaves out the tests of what is built in: they passed when this program was made.
func coreFiles() (files, error) {
	all := files{}
	err := fs.WalkDir(policies.Files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, testSuffix) {
			return err
		}
		all[p], err = policies.Files.ReadFile(p)
		return err
	})
	return all, err
}

// siteFiles returns the files of a site's folder beside the built-in core. A file that nothing
// reads, that another user can change, or that is not a regular file in the folder is an error.
func siteFiles(dir string) (files, error) {
	all, err := coreFiles()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the site's policy folder: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		full, hidden := filepath.Join(dir, p), strings.HasPrefix(d.Name(), ".") && p != "."
		ext := path.Ext(p)
		switch {
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir():
			return trusted.Dir(full)
		case hidden || ext == ".md":
			return nil
		case ext != ".rego" && ext != ".yaml" && ext != ".json":
			return fmt.Errorf("%s: only .rego, .yaml, .json and .md files belong in a site's "+
				"policy folder", full)
		case len(all) > maxFiles:
			return fmt.Errorf("%s: has more than %d files", dir, maxFiles)
		}
		data, err := trusted.ReadIn(root, p, maxFile)
		all[path.Join("site", p)] = data
		return err
	})
	if errors.Is(err, trusted.ErrUntrusted) {
		err = fmt.Errorf("the site's policy is not safe from other users: %w", err)
	}
	return all, err
}

// Files returns what decides, by path: core, testing, schemas and capabilities.json as built in,
// without tests, and with a dir what the host reads of that site, below site/.
func Files(dir string) (map[string][]byte, error) {
	if dir == "" {
		return coreFiles()
	}
	return siteFiles(dir)
}

// OPA is the version of OPA that decides.
var OPA = version.Version

// pack returns the bytes by which a policy is known and kept. Equal policies give equal bytes. The
// version of OPA is part of what decides.
func pack(all files) ([]byte, error) {
	texts := map[string]string{"opa": OPA}
	for name, data := range all {
		texts[name] = string(data)
	}
	return json.Marshal(texts)
}

func unpack(bundle []byte) (files, error) {
	var texts map[string]string
	if err := json.Unmarshal(bundle, &texts); err != nil {
		return nil, fmt.Errorf("reading a kept policy: %w", err)
	}
	all := files{}
	for name, text := range texts {
		if name != "opa" {
			all[name] = []byte(text)
		}
	}
	return all, nil
}
