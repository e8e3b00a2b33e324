package result_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/caponier-mcp/caponier/host/result"
)

// What real programs of nodes wrote holds no secret, and no detector says that it does.
func TestOrdinaryOutputsDoNotHit(t *testing.T) {
	files, err := filepath.Glob("../../test/pvelab/testdata/pve/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	set, err := result.New()
	if err != nil {
		t.Fatal(err)
	}
	outputs := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(b))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if !json.Valid(lines.Bytes()) {
				t.Fatalf("%s: %s", name, lines.Bytes())
			}
			outputs++
			if _, hits, err := set.Mask(t.Context(), lines.Bytes()); err != nil || len(hits) > 0 {
				t.Errorf("%s: %v, %v in %s", name, hits, err, lines.Bytes())
			}
		}
	}
	if outputs < 100 {
		t.Errorf("%d outputs are too few", outputs)
	}
}
