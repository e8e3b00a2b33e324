package store

import (
	"context"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

func BenchmarkTake(b *testing.B) {
	s, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := &gate.Call{Principal: gate.Principal{ID: "a"}, Targets: gate.Targets{VMIDs: []string{"105"}, Nodes: []string{"pve1"}}}
	for b.Loop() {
		_, back, err := s.Take(context.Background(), c)
		if err != nil {
			b.Fatal(err)
		}
		back()
	}
}
