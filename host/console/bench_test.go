package console_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/console"
	"github.com/caponier-mcp/caponier/host/terms"
)

// large writes a journal of a year with records of some 2 KiB, and returns the id of a call of it.
func large(b *testing.B, dir string, bytes int64) (some string) {
	rnd := rand.New(rand.NewPCG(1, 2))
	now := time.Now().Add(-365 * 24 * time.Hour)
	each := 365 * 24 * time.Hour / time.Duration(bytes/6000+1)
	j, err := audit.Open(audit.Options{Dir: dir, Now: func() time.Time { return now }})
	must(b, err)
	fill := strings.Repeat("0123456789abcdef", 100)
	n := int64(0)
	for i := 0; n < bytes; i++ {
		now = now.Add(each)
		id := fmt.Sprintf("c%09d", i)
		c := terms.Record{Type: "intent", Time: now, ID: id + "d", CallID: id, Kind: "call",
			Principal: fmt.Sprintf("agent-%d", rnd.IntN(20)), Tier: "yellow", Source: "http",
			Tool: fmt.Sprintf("tool_%d", rnd.IntN(60)), Revision: "r1"}
		c.Input = json.RawMessage(fmt.Sprintf(`{"targets":{"vmids":["%d"],"nodes":["pve%d"]},`+
			`"guests":{},"fill":%q}`, 100+rnd.IntN(2000), rnd.IntN(8), fill))
		op := c
		op.ID, op.Kind, op.Op, op.Node = id+"o", "operation", "ssh_exec", "pve1"
		all := []terms.Record{c, op, op, c}
		all[2].Type, all[2].Input, all[2].Outcome = "outcome", nil, terms.Succeeded
		all[3].Type, all[3].Input, all[3].Outcome = "outcome", nil, terms.Succeeded
		switch rnd.IntN(50) {
		case 0:
			all[1].Type, all[1].Failed = "refused", []string{"protected"}
			all[3].Outcome = terms.Failed
			all = slices.Delete(all, 2, 3)
		case 1:
			all[0].Type, all[0].Failed = "refused", []string{"rates"}
			all = all[:1]
		}
		for _, r := range all {
			must(b, j.Intent(b.Context(), r, false))
			n += int64(len(r.Input)) + 600
		}
		if i%2 == 0 || some == "" {
			some = id
		}
	}
	must(b, j.Close())
	return some
}

// BenchmarkPages reports p50 and p95 of pages, over a journal of CAPONIER_BENCH_JOURNAL_MB.
func BenchmarkPages(b *testing.B) {
	mb, _ := strconv.ParseInt(os.Getenv("CAPONIER_BENCH_JOURNAL_MB"), 10, 64)
	w := &world{t: b, dir: b.TempDir()}
	some := large(b, w.dir, max(mb, 64)<<20)
	folder := b.TempDir()
	x, err := index.Open(b.Context(), folder, w.dir)
	must(b, err)
	defer x.Close()
	began := time.Now()
	entries := 0
	must(b, x.Update(b.Context(), func(n int) { entries = n }))
	info, err := os.Stat(folder + "/journal.db")
	must(b, err)
	b.Logf("%d entries indexed in %s, %d MB of index", entries,
		time.Since(began).Round(time.Second), info.Size()>>20)
	w.c = console.New(console.Options{Viewers: []string{"*"}, Index: x,
		Plan: func(string, []terms.Record) (string, error) { return "", nil }})
	past := func(days int) string {
		return time.Now().Add(-time.Duration(days) * 24 * time.Hour).Format(time.DateOnly)
	}
	for name, path := range map[string]func(i int) string{
		"newest": func(int) string { return "" },
		"who":    func(i int) string { return fmt.Sprintf("?who=agent-%d", i%20) },
		"prefix": func(i int) string { return fmt.Sprintf("?tool=tool_%d*", i%60) },
		"guest and rule": func(i int) string {
			return fmt.Sprintf("?guest=%d&rule=protected", 100+i%2000)
		},
		"two common ones that never meet": func(i int) string {
			return fmt.Sprintf("?outcome=succeeded&rule=protected&who=agent-%d", i%20)
		},
		"long ago": func(i int) string {
			return fmt.Sprintf("?who=agent-%d&until=%s&since=%s", i%20, past(i%300), past(i%300+2))
		},
		"nothing":  func(int) string { return "?who=agent-1&guest=99" },
		"one call": func(int) string { return "/call/" + some },
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				w.get(path(i))
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1e3, "p95-ms")
		})
	}
}
