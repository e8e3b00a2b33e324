package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/tetratelabs/wazero"
)

const (
	cacheKept = 30 * 24 * time.Hour // since a compiled module was last used
	cacheWork = "work-"             // a directory for each process
)

// cache keeps compiled modules. wazero's own files hold native code under a checksum that leaves
// out where functions begin: a flipped bit there would be jumped to. A file is kept under a name
// that holds the digest of the rewritten module (and so of the module and of the rewriter) and a
// checksum of the file; a file that does not match its name is deleted. wazero reads and writes in
// a directory of this process's own, into which only checked files are linked. A checksum is
// enough, since it is for accidents: an account that can forge a file could forge its digest too.
type cache struct {
	wazero.CompilationCache
	dir, work string // the second is where wazero reads and writes
	log       *slog.Logger

	mu     sync.Mutex      // guards linked
	linked map[string]bool // names in work that are links into dir
}

// openCache opens the cache of compiled plugins. An account that can write here can run code in the
// host, so the directory must be this user's alone.
func openCache(dir string, log *slog.Logger) (c *cache, err error) {
	defer func() {
		if err != nil {
			c, err = nil, fmt.Errorf("sandbox.cache_dir: %w", err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory itself", dir)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %04o, and others could put code there: chmod 700 it",
			dir, info.Mode().Perm())
	}
	if err := trusted.Dir(dir); err != nil {
		return nil, err
	}
	sweep(dir)
	work, err := os.MkdirTemp(dir, cacheWork)
	if err != nil {
		return nil, err
	}
	compiled, err := wazero.NewCompilationCacheWithDir(work)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(work))
	}
	made, _ := filepath.Glob(filepath.Join(work, "*")) // one, for its version and this machine
	if len(made) != 1 {
		return nil, errors.Join(fmt.Errorf("%d directories in %s, want one", len(made), work),
			os.RemoveAll(work))
	}
	return &cache{CompilationCache: compiled, dir: dir, work: made[0], log: log,
		linked: map[string]bool{}}, nil
}

// sweep removes what was not used for long: replaced modules, and what killed processes left.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > cacheKept {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

func (c *cache) Close(ctx context.Context) error {
	return errors.Join(c.CompilationCache.Close(ctx), os.RemoveAll(filepath.Dir(c.work)))
}

// load runs compile, which compiles a rewritten module, with the kept file of the module. It
// returns nil when there is none. key is the module's digest.
func (c *cache) load(
	key string, compile func() (wazero.CompiledModule, error),
) wazero.CompiledModule {
	_ = os.MkdirAll(c.work, 0o700) // another process's sweep may have taken it, after a month
	kept, name := c.find(key)
	if kept == "" {
		return nil
	}
	c.mu.Lock()
	c.linked[name] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.linked, name)
	}()
	at := filepath.Join(c.work, name)
	defer os.Remove(at)
	if err := os.Link(kept, at); err != nil {
		c.log.Warn("reading the cache of compiled plugins", "file", kept, "error", err)
		return nil
	}
	compiled, err := compile()
	used, usedErr := os.Stat(at)
	was, wasErr := os.Stat(kept)
	if err == nil && usedErr == nil && wasErr == nil && os.SameFile(used, was) {
		now := time.Now()
		_ = os.Chtimes(kept, now, now)
		return compiled
	}
	_ = os.Remove(kept) // of another version of wazero, which has compiled the module itself now
	return compiled
}

// find returns the checked file of a module, and the name that wazero looks for.
func (c *cache) find(key string) (path, name string) {
	files, _ := filepath.Glob(filepath.Join(c.dir, key+"-*"))
	for _, path := range files {
		parts := strings.Split(filepath.Base(path), "-") // key, name, checksum
		sum, err := checksum(path)
		if err == nil && len(parts) == 3 && sum == parts[2] {
			return path, parts[1]
		}
		c.log.Warn("a compiled plugin in the cache is damaged and is compiled again",
			"file", path, "error", err)
		_ = os.Remove(path)
	}
	return "", ""
}

// store keeps what wazero has just written. One at a time may compile and store.
func (c *cache) store(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.work)
	for _, e := range entries {
		path := filepath.Join(c.work, e.Name())
		if c.linked[e.Name()] || !e.Type().IsRegular() {
			continue
		}
		var sum string
		if sum, err = checksum(path); err == nil {
			err = os.Rename(path, filepath.Join(c.dir, key+"-"+e.Name()+"-"+sum))
		}
	}
	if err != nil {
		c.log.Warn("keeping a compiled plugin", "dir", c.dir, "error", err)
	}
}

// checksum is CRC-32C, which takes a twentieth of the time of SHA-256.
func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<18)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
