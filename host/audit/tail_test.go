package audit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

func TestTailGoesOnPastABadLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		r := terms.Record{Type: "refused", Kind: "call", CallID: id, Time: time.Now(),
			Tool: "tool-" + id}
		if err := j.Intent(context.Background(), r, false); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte("tool-c2"), []byte("tool-xx"), 1)
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, asJSON := range []bool{false, true} {
		var out, warnings strings.Builder
		err := Tail(context.Background(), &out, &warnings, Union{{Dir: dir}}, 10, false, asJSON)
		if err == nil || !strings.Contains(err.Error(), "1 lines of the journal cannot be read") {
			t.Errorf("json %v: it does not fail: %v", asJSON, err)
		}
		if s := out.String(); !strings.Contains(s, "tool-c1") || !strings.Contains(s, "tool-c3") ||
			strings.Contains(s, "tool-xx") {
			t.Errorf("json %v: it shows\n%s", asJSON, s)
		}
		if w := warnings.String(); strings.Count(w, "\n") != 1 || !strings.Contains(w, "hash") {
			t.Errorf("json %v: warnings %q", asJSON, w)
		}
	}
}

func TestBadLinesAreToldOnce(t *testing.T) {
	var b strings.Builder
	bad := BadLines{W: &b}
	records := bad.Records(func(yield func(Entry, error) bool) { yield(Entry{}, errTorn) })
	for range 2 {
		for range records {
			t.Error("a record")
		}
	}
	if strings.Count(b.String(), errTorn.Error()) != 1 || bad.Err() == nil {
		t.Errorf("%q %v", b.String(), bad.Err())
	}
}
