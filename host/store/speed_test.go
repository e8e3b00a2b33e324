package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

// BenchmarkDecision is what a decision waits for its counts, freezes and tokens.
func BenchmarkDecision(b *testing.B) {
	c := call("agent", "105")
	b.Run("embedded", func(b *testing.B) {
		s := open(b, store.Options{Dir: b.TempDir()})
		for b.Loop() {
			if _, _, err := s.Take(bg, c); err != nil {
				b.Fatal(err)
			}
		}
	})
	server := pgtest.Start(b)
	p := pgtest.NewProxy(b, server.Port)
	p.Delay(2 * time.Millisecond)
	behind := strings.Replace(server.URL(server.Database()), server.Port, p.Port, 1)
	for name, url := range map[string]string{"socket": server.Socket(server.Database()),
		"2ms": behind} {
		b.Run(name, func(b *testing.B) {
			s := shared(b, postgres.Options{URL: url})
			for b.Loop() {
				ctx := s.Look(bg, aCall)
				_, _, err := s.Take(ctx, c)
				if err == nil {
					_, err = s.Freezes(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
