package sandbox

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

func TestCacheDirMustBeThisUsersAlone(t *testing.T) {
	dir := t.TempDir()
	open, link, file := filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	for _, err := range []error{os.Mkdir(open, 0o755), os.Chmod(open, 0o755), os.Symlink(open, link), os.WriteFile(file, nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{open: "chmod 700", link: "not a directory itself", file: "sandbox.cache_dir"} {
		if _, err := New(context.Background(), Options{CacheDir: path}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that says %q", path, err, says)
		}
	}
	s, err := New(context.Background(), Options{CacheDir: filepath.Join(dir, "new", "deeper")})
	if err != nil {
		t.Fatal(err)
	}
	s.Close(context.Background())
	if info, err := os.Stat(filepath.Join(dir, "new", "deeper")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made with %v %v", info.Mode(), err)
	}
}

func TestDamagedCacheIsMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	wasm := guest{imports: []imported{output}, call: ok()}.bytes()
	use := func() (files []string) {
		h := newHost(t, Options{CacheDir: dir})
		want(t, h.call(h.add(wasm), object{}), "")
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if d.Type().IsRegular() {
				files = append(files, path)
			}
			return nil
		})
		return files
	}
	files := use()
	if len(files) == 0 {
		t.Fatal("nothing was kept")
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"a flipped bit": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a cut file":    func(b []byte) []byte { return b[:len(b)/2] },
		"an empty file": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f, spoil(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			use()
		})
	}
}

func TestOptionsThatCannotBeUsed(t *testing.T) {
	for says, o := range map[string]Options{"memory_max": {MemoryMax: 100}, "memory_max: 8": {MemoryMax: 8 << 30}, "must not be negative": {MaxInstances: -1}, "warm": {Warm: 5000}} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Errorf("the zero options: %v", err)
	}
}

// BenchmarkStart is a sandbox from nothing to the first answer of a Go plugin.
func BenchmarkStart(b *testing.B) {
	wasm := goGuest(b, "echo")
	for name, dir := range map[string]string{"cold": "", "cached": filepath.Join(b.TempDir(), "cache")} {
		b.Run(name, func(b *testing.B) {
			start := func() {
				s, err := New(context.Background(), Options{CacheDir: dir})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close(context.Background())
				tool := toolOf(wasm)
				if err := s.Add(tool.Plugin, wasm, gate.Operations()); err != nil {
					b.Fatal(err)
				}
				c := &gate.Call{ID: "x", Tool: tool}
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
