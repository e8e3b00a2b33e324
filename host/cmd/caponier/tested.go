package main

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"

	"github.com/caponier-mcp/caponier/host/trusted"
)

// tested remembers, in a file beside the store, with what the site's own tests passed last, so that
// a start with exactly the same does not run them again. Nothing else depends on the file. One that
// is missing, odd or open to other users is as good as none.
type tested struct{ file, program, lock string }

func (h *host) tested() tested {
	t := tested{file: filepath.Join(h.cfg.Store.Dir, "tested"),
		lock: fmt.Sprintf("%s %+v", h.lock().Checksum(), h.cfg.Remote.Known())}
	if build, known := debug.ReadBuildInfo(); known && version != "dev" {
		t.program = version + "\n" + build.String()
	}
	return t
}

// key is the digest of all that the tests depend on: a revision is that of core, grammar, site,
// tests and OPA.
func (t tested) key(revision string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(revision+"\n"+t.lock+"\n"+t.program)))
}

// has reports whether the tests passed with this revision. What two builds without a version do can
// differ, so that these remember nothing.
func (t tested) has(revision string) bool {
	if t.program == "" || trusted.Dir(filepath.Dir(t.file)) != nil {
		return false
	}
	data, err := trusted.Read(t.file, 100)
	return err == nil && string(data) == t.key(revision)
}

func (t tested) keep(revision string) {
	if t.program == "" || t.has(revision) {
		return
	}
	err := trusted.Replace(t.file, []byte(t.key(revision)), 0o600, filepath.Dir(t.file))
	if err != nil {
		slog.Warn("the next start tests the site again", "error", err)
	}
}
