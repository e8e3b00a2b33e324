package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestCacheDirMustBelongToThisUserAlone(t *testing.T) {
	dir := t.TempDir()
	open, link, file := filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir,
		"file")
	for _, err := range []error{
		os.Mkdir(open, 0o755), os.Chmod(open, 0o755), os.Symlink(open, link),
		os.WriteFile(file, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{
		open: "chmod 700", link: "not a directory itself", file: "sandbox.cache_dir",
	} {
		if _, err := New(context.Background(), Options{CacheDir: path}); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that says %q", path, err, says)
		}
	}
	s, err := New(context.Background(), Options{CacheDir: filepath.Join(dir, "new", "deeper")})
	if err != nil {
		t.Fatal(err)
	}
	s.Close(context.Background())
	if info, err := os.Stat(filepath.Join(dir, "new", "deeper")); err != nil ||
		info.Mode().Perm() != 0o700 {
		t.Errorf("made with %v %v", info.Mode(), err)
	}
}

// kept lists the compiled modules in a cache.
func kept(t *testing.T, dir string) (files []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

func TestADamagedCacheFileIsCompiledAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	table := module{
		imports:  []imported{output},
		table:    []byte{1, 0x70, 0, 1},
		elements: []byte{1, 0, 0x41, 0, 0x0b, 1, 4},
		more:     [][]byte{body(ok()[:len(ok())-3])},
		call:     op(c32(0), 0x11, 1, 0, c32(0)),
	}
	use := func() (said string) {
		var log strings.Builder
		h := newHost(t,
			Options{
				CacheDir: dir, Warm: -1,
				Log: slog.New(
					slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
		want(t, h.call(h.add(module{imports: []imported{output}, call: ok()}.bytes()), object{}),
			"")
		want(t, h.call(h.add(table.bytes()), object{}), "")
		if err := h.box.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return log.String()
	}
	if said := use(); said != "" || len(kept(t, dir)) != 2 {
		t.Fatalf("%d files were kept; it said %s", len(kept(t, dir)), said)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"a flipped bit of the code": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		// which wazero's checksum leaves out
		"a flipped bit of where a function begins": func(b []byte) []byte {
			b[6+1+int(b[6])+4] ^= 0x10
			return b
		},
		"a flipped bit of how many functions it has": func(b []byte) []byte {
			b[6+1+int(b[6])+3] ^= 0x40
			return b
		},
		"a cut file":    func(b []byte) []byte { return b[:len(b)/2] },
		"an empty file": func([]byte) []byte { return nil },
		"a longer file": func(b []byte) []byte { return append(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			files := kept(t, dir)
			b, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(files[0], spoil(b), 0o600); err != nil {
				t.Fatal(err)
			}
			other, err := os.Stat(files[1])
			if err != nil {
				t.Fatal(err)
			}
			if said := use(); strings.Count(said, "damaged") != 1 {
				t.Errorf("it said %q", said)
			}
			if now, err := os.Stat(files[1]); err != nil || !os.SameFile(now, other) {
				t.Errorf("the file that was whole was not kept: %v", err)
			}
			if said := use(); said != "" || len(kept(t, dir)) != 2 {
				t.Errorf("afterwards there are %d files, and it said %q", len(kept(t, dir)), said)
			}
		})
	}
}

func TestACacheFileOfAnotherVersionIsCompiledAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	wasm := module{imports: []imported{output}, call: ok()}.bytes()
	use := func() {
		h := newHost(t, Options{CacheDir: dir})
		want(t, h.call(h.add(wasm), object{}), "")
		h.box.Close(t.Context())
	}
	use()
	for name, at := range map[string]int{"another version": 8, "no file of wazero's": 0} {
		t.Run(name, func(t *testing.T) {
			whole := kept(t, dir)[0]
			b, err := os.ReadFile(whole)
			if err != nil {
				t.Fatal(err)
			}
			b[at] ^= 1
			sum := sha256.Sum256(b)
			parts := strings.Split(whole, "-")
			if err := errors.Join(os.Remove(whole),
				os.WriteFile(
					strings.Join(append(parts[:len(parts)-1], hex.EncodeToString(sum[:])), "-"), b,
					0o600)); err != nil {
				t.Fatal(err)
			}
			use() // compiles it again
			use()
			if files := kept(t, dir); len(files) != 1 || files[0] != whole {
				t.Errorf("the cache holds %v, want %s", files, whole)
			}
		})
	}
}

func TestOldCacheFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old, left := filepath.Join(dir, "old"), filepath.Join(dir, "work-1")
	long := time.Now().Add(-cacheKept - time.Hour)
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(old, nil, 0o600),
		os.Mkdir(left, 0o700), os.Chtimes(old, long, long), os.Chtimes(left, long, long),
		os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s.Close(t.Context())
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 ||
		filepath.Base(files[0]) != "new" {
		t.Errorf("%v is left", files)
	}
}

// TestPluginsThatCallsWaitForAreFirst adds a plugin behind some that take long to compile: it is
// ready before them.
func TestPluginsThatCallsWaitForAreFirst(t *testing.T) {
	h := newHost(t, Options{})
	slow := module{
		more: [][]byte{body(op(repeat([]byte{0x02, 0x40}, 2500), repeat([]byte{0x0b}, 2500)))},
	}
	var others []*plugin
	for k := range 8 {
		slow.call = c32(int64(k))
		others = append(others, h.plugin(h.add(slow.bytes())))
	}
	want(t, h.call(h.add(module{imports: []imported{output}, call: ok()}.bytes()), object{}), "")
	ready := 0
	for _, p := range others {
		p.mu.Lock()
		if p.state() == nil {
			ready++
		}
		p.mu.Unlock()
	}
	if ready > 3 {
		t.Errorf("%d of %d plugins that nobody waited for were made ready before it", ready,
			len(others))
	}
}

func TestOptionsThatCannotBeUsed(t *testing.T) {
	for says, o := range map[string]Options{
		"memory_max": {MemoryMax: 100}, "memory_max: 8": {MemoryMax: 8 << 30},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Errorf("the zero options: %v", err)
	}
}

// TestNoPreparationSlotStaysFree frees two slots at once: both waiting plugins get one, whichever
// looks first.
func TestNoPreparationSlotStaysFree(t *testing.T) {
	for range 20 {
		s := &Sandbox{plugins: map[string]*plugin{}, preparing: maxPreparing}
		s.changed = sync.NewCond(&s.mu)
		s.plugins["small"], s.plugins["large"] = &plugin{s: s, size: 1}, &plugin{s: s, size: 2}
		var entered sync.WaitGroup
		for _, name := range []string{"large", "small"} {
			p := s.plugins[name]
			entered.Go(p.enter)
			soon(
				t,
				name+" is in the line",
				func() bool { s.mu.Lock(); defer s.mu.Unlock(); return p.queued },
			)
		}
		s.mu.Lock()
		s.preparing = 0
		s.changed.Broadcast()
		s.mu.Unlock()
		soon(
			t,
			"both are prepared",
			func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.preparing == 2 },
		)
		entered.Wait()
	}
}

// BenchmarkStart measures a new sandbox up to the first answer of a Go plugin.
func BenchmarkStart(b *testing.B) {
	wasm := goModule(b, "echo")
	for name, dir := range map[string]string{
		"cold": "", "cached": filepath.Join(b.TempDir(), "cache"),
	} {
		b.Run(name, func(b *testing.B) {
			start := func() {
				s, err := New(context.Background(), Options{CacheDir: dir})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close(context.Background())
				tool := toolOf(wasm)
				if err := s.Add(tool.Plugin, wasm, abi.Operations()); err != nil {
					b.Fatal(err)
				}
				c := &terms.Call{ID: "x", Tool: tool}
				c.Args.JSON = []byte(`{}`)
				if _, err := s.Run(context.Background(), &gate.Running{Call: c}); err != nil {
					b.Fatal(err)
				}
			}
			start()
			defer cpu(b)()
			for b.Loop() {
				start()
			}
		})
	}
}

// BenchmarkReady measures a new sandbox until all shipped plugins are ready, from the cache.
func BenchmarkReady(b *testing.B) {
	all, dir := built(b, "plugins/*.wasm", 7), filepath.Join(b.TempDir(), "cache")
	start := func() {
		s, err := New(context.Background(), Options{CacheDir: dir})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close(context.Background())
		for _, wasm := range all {
			if err := s.Add(toolOf(wasm).Plugin, wasm, abi.Operations()); err != nil {
				b.Fatal(err)
			}
		}
		for _, p := range s.plugins {
			if _, err := p.await(context.Background(), nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	start()
	defer cpu(b)()
	for b.Loop() {
		start()
	}
}
