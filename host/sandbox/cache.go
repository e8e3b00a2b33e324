package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"
)

// openCache opens the cache of compiled plugins. Its files are native code that is guarded by a checksum only: whoever can write here can run code in
// the host, so the directory must be this user's alone.
func openCache(dir string) (wazero.CompilationCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox.cache_dir: %w", err)
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("sandbox.cache_dir: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("sandbox.cache_dir: %s is not a directory itself", dir)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("sandbox.cache_dir: %s has mode %04o, and others could put code there: chmod 700 it", dir, info.Mode().Perm())
	case !owned(info):
		return nil, fmt.Errorf("sandbox.cache_dir: %s does not belong to this user", dir)
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("sandbox.cache_dir: %w", err)
	}
	return cache, nil
}

// emptyCache removes the files, not the directories, which the open cache goes on using.
func emptyCache(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Remove(path)
	})
}
