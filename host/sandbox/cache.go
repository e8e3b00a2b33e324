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
	"reflect"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero"
)

const (
	cacheKept = 30 * 24 * time.Hour // since a compiled module was last used
	// a directory for each process, in which wazero reads and writes
	cacheWork = "work-"
)

// cache keeps compiled modules. wazero's own files hold native code under a checksum that leaves
// out where functions begin, so that a flipped bit there would be jumped to. Here a file's name is
// the digest of the rewritten module (and with it of the module and of the rewriter), and a
// checksum of what is in it: what does not sum up to its name is deleted. Only what was checked is
// shown to wazero, in a directory of this process's own. A checksum is enough: it is for accidents,
// since who could forge a file could forge its digest too.
type cache struct {
	wazero.CompilationCache
	dir, work string // the second is where wazero reads and writes
	log       *slog.Logger

	mu    sync.Mutex      // guards shown
	shown map[string]bool // names in work that are links into dir
}

// openCache opens the cache of compiled plugins. Whoever can write here can run code in the host,
// so the directory must be this user's alone.
func openCache(dir string, log *slog.Logger) (*cache, error) {
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
		return nil, fmt.Errorf(
			"sandbox.cache_dir: %s has mode %04o, and others could put code there: chmod 700 it",
			dir,
			info.Mode().Perm(),
		)
	case !owned(info):
		return nil, fmt.Errorf("sandbox.cache_dir: %s does not belong to this user", dir)
	}
	sweep(dir)
	work, err := os.MkdirTemp(dir, cacheWork)
	if err != nil {
		return nil, fmt.Errorf("sandbox.cache_dir: %w", err)
	}
	c, err := wazero.NewCompilationCacheWithDir(work)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox.cache_dir: %w", err), os.RemoveAll(work))
	}
	made, err := filepath.Glob(filepath.Join(work, "*")) // one for its version and this machine
	if err != nil || len(made) != 1 {
		return nil, errors.Join(
			fmt.Errorf(
				"sandbox.cache_dir: %d directories in %s, want one: %w",
				len(made),
				work,
				err,
			),
			os.RemoveAll(work),
		)
	}
	return &cache{
		CompilationCache: c,
		dir:              dir,
		work:             made[0],
		log:              log,
		shown:            map[string]bool{},
	}, nil
}

// sweep removes what nobody has used for long: modules that were replaced, and what processes that
// were killed have left.
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

// warm is compile, which compiles a rewritten module, with what the cache has of it; nil when that
// is nothing. key is the module's digest.
func (c *cache) warm(
	key string,
	compile func() (wazero.CompiledModule, error),
) wazero.CompiledModule {
	// which another process's sweep may have taken for left over, after a month
	_ = os.MkdirAll(c.work, 0o700)
	stored, name := c.find(key)
	if stored == "" {
		return nil
	}
	c.mu.Lock()
	c.shown[name] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.shown, name)
	}()
	at := filepath.Join(c.work, name)
	defer os.Remove(at)
	if err := os.Link(stored, at); err != nil {
		c.log.Warn("reading the cache of compiled plugins", "file", stored, "error", err)
		return nil
	}
	compiled, err := compile()
	if used, statErr := os.Stat(at); err == nil && statErr == nil {
		if was, err := os.Stat(stored); err == nil && os.SameFile(used, was) {
			now := time.Now()
			_ = os.Chtimes(stored, now, now)
			return compiled
		}
	}
	// of another version of wazero, which has compiled the module itself now, or cannot be read for
	// another reason
	_ = os.Remove(stored)
	return compiled
}

// find returns the checked file of a module, and the name that wazero looks for.
func (c *cache) find(key string) (path, name string) {
	files, _ := filepath.Glob(filepath.Join(c.dir, key+"-*"))
	for _, path := range files {
		parts := strings.Split(filepath.Base(path), "-") // key, name, checksum
		if sum, err := checksum(path); err == nil && len(parts) == 3 && sum == parts[2] {
			return path, parts[1]
		} else {
			c.log.Warn("a compiled plugin in the cache is damaged: it is made anew", "file", path, "error", err)
			_ = os.Remove(path)
		}
	}
	return "", ""
}

// store takes into the cache what wazero has just written. One at a time may compile and store.
func (c *cache) store(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.work)
	for _, e := range entries {
		path := filepath.Join(c.work, e.Name())
		if c.shown[e.Name()] || !e.Type().IsRegular() {
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

// forget drops the bytes of the functions of a compiled module, which wazero keeps and never reads
// again: 28 MiB for the shipped plugins. There is no call for it, so it looks for the field, and
// reports whether it was where it should be.
func forget(compiled wazero.CompiledModule) bool {
	module := reflect.Indirect(reflect.ValueOf(compiled)).FieldByName("module")
	if module.Kind() != reflect.Pointer || module.IsNil() {
		return false
	}
	codes := module.Elem().FieldByName("CodeSection")
	for i := range codes.Len() {
		body := codes.Index(i).FieldByName("Body")
		if body.Type() != reflect.TypeFor[[]byte]() {
			return false
		}
		*(*[]byte)(unsafe.Pointer(body.UnsafeAddr())) = nil
	}
	return codes.Len() > 0
}
