package files

import (
	"fmt"
	"path/filepath"
	"testing"
)

func TestFolders(t *testing.T) {
	seen := map[string]string{}
	for _, p := range []string{"agent-a", "Agent-A", "a/b", "../a", ".", "..", "", "a b", "sha256-0123", "https://issuer.example|42", "x\x00y", ".hidden", fmt.Sprintf("%070d", 1)} {
		f := folder(p)
		if !filepath.IsLocal(f) || filepath.Base(f) != f || f[0] == '.' {
			t.Errorf("%q gets the folder %q", p, f)
		}
		if other, twice := seen[f]; twice {
			t.Errorf("%q and %q share the folder %q", p, other, f)
		}
		seen[f] = p
	}
	if folder("agent-a") != "agent-a" {
		t.Error("a plain name is not kept")
	}
}
