package main

import (
	"bytes"
	"os"
	"testing"
)

// The page is what the figures say.
func TestThePageIsGenerated(t *testing.T) {
	data, err := os.ReadFile("../../../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := write(&want, data); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/benchmarks.md")
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("docs/benchmarks.md is not what test/bench/page makes of benchmarks.json (%v): "+
			"go run ./test/bench/page docs/benchmarks.json > docs/benchmarks.md", err)
	}
}
