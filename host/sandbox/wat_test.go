package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
)

// TestHandWrittenHostileModules runs test/modules/hostile. The first line of each text says how a
// call ends, and what the error says. A good module answers beside each, and none of them has done
// anything to a node.
func TestHandWrittenHostileModules(t *testing.T) {
	needs.Program(t, "wat2wasm") // of Debian's wabt
	texts, err := filepath.Glob("../../test/modules/hostile/*.wat")
	if err != nil || len(texts) < 29 {
		t.Fatalf("%d texts: %v", len(texts), err)
	}
	h := newHost(t, Options{StartTimeout: 2 * time.Second})
	good := h.add(module{imports: []imported{output}, call: ok()}.bytes())
	want(t, h.call(good, object{}), "")
	for _, path := range texts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".wat"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			wasm := filepath.Join(t.TempDir(), "module.wasm")
			if said, err := exec.Command("wat2wasm", "--enable-all", "-o", wasm,
				path).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			b, err := os.ReadFile(wasm)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			ends, says, _ := strings.Cut(strings.TrimPrefix(first, ";; "), ": ")
			tool := h.add(b)
			if tool.Budget = 10 * time.Second; ends == "budget" {
				tool.Budget = 300 * time.Millisecond
			}
			h.executed = nil
			if a := h.call(tool, object{}); ends == "ok" {
				want(t, a, "")
			} else if want(t, a, ends); a.Err != nil && !strings.Contains(a.Err.Error(), says) {
				t.Errorf("the error is %q, which does not say %q", a.Err, says)
			}
			if done := strings.Join(h.executed, " "); done != map[bool]string{
				true: "stage",
			}[strings.Contains(string(text), `"stage"`)] {
				t.Errorf("it did %q", done)
			}
			want(t, h.call(good, object{}), "")
		})
	}
}
