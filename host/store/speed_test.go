package store_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// BenchmarkHosts is how many calls a second one database counts, for this many hosts with four
// callers each.
func BenchmarkHosts(b *testing.B) {
	server := pgtest.Start(b)
	for _, n := range []int{1, 2, 10, 100} {
		b.Run(fmt.Sprint(n, " hosts"), func(b *testing.B) {
			url := server.URL(server.Database())
			if n == 100 { // so many connections as the server of the test has
				url += "&pool_max_conns=1"
			}
			hosts := make([]*postgres.Store, n)
			for i := range hosts {
				hosts[i] = shared(b, postgres.Options{URL: url, Timeout: 30 * time.Second})
				if err := hosts[i].Ready(bg); err != nil {
					b.Fatal(err)
				}
			}
			var calls atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for h, s := range hosts {
				for c := range 4 {
					wg.Go(func() {
						for calls.Add(1) <= int64(b.N) {
							if _, _, err := s.Take(bg, call(fmt.Sprint(h, " ", c))); err != nil {
								b.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
