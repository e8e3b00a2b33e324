package shadow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Promote puts a copy of the candidate's folder in the place of the site's, at once, if check
// accepts the copy, which is what decides afterwards. The folder that was there before is kept as
// [Former]. When Promote returns an error, the site is what it was.
func Promote(site, candidate string, check func(dir string) error) error {
	site, err := filepath.EvalSymlinks(site)
	if err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(site), filepath.Base(site)+".next-")
	if err != nil {
		return fmt.Errorf("copying the candidate beside the site: %w", err)
	}
	defer os.RemoveAll(next) // unless it is renamed
	if err := os.CopyFS(next, os.DirFS(candidate)); err != nil {
		return fmt.Errorf("copying the candidate beside the site: %w", err)
	}
	info, err := os.Stat(site)
	if err != nil {
		return err
	}
	if err := os.Chmod(next, info.Mode().Perm()); err != nil {
		return err
	}
	if err := check(next); err != nil {
		return err
	}
	if err := exchange(next, site); err != nil {
		return fmt.Errorf("exchanging %s and %s: %w", next, site, err)
	}
	if err := os.RemoveAll(Former(site)); err != nil {
		return fmt.Errorf("the candidate is in force, and the site before it was not kept: %w", err)
	}
	return os.Rename(next, Former(site))
}

// Former is the folder of the site that was in force before the last promotion.
func Former(site string) string { return filepath.Clean(site) + ".former" }

// Revert exchanges the site and the former one, so that a second time takes back the first.
func Revert(site string) error {
	site, err := filepath.EvalSymlinks(site)
	if err != nil {
		return err
	}
	if err = exchange(Former(site), site); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing was promoted: there is no %s", Former(site))
	}
	return err
}
