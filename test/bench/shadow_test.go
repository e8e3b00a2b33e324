package bench

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// BenchmarkShadow reports the p50 of calls while a candidate decides beside the site, over that of
// calls of a host without one, block after block in turn. The candidate differs from the site.
func BenchmarkShadow(b *testing.B) {
	p := newPlace(b)
	next := filepath.Join(p.dir, "next")
	must(b, os.CopyFS(next, os.DirFS(filepath.Join(p.dir, "site"))))
	must(b, os.WriteFile(filepath.Join(next, "hours.rego"), []byte(`# METADATA
# scope: package
# schemas:
#   - input: schema.input
package caponier.site.call

deny contains {"id": "site.night", "msg": "not at night"} if {
	input.tool.name == "execute_ssh"
	input.time.hour_utc < 5
}
`), 0o644))
	alone := p.start(b, "caponier", "stdio")
	b.Setenv("CAPONIER_POLICY_SHADOW", next)
	beside := p.start(b, "caponier", "stdio")
	for _, tier := range []string{"green", "new", "yellow"} {
		b.Run(tier, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				for range 5 {
					first := alone.block(b, tier, 20)
					ratios = append(ratios, beside.block(b, tier, 20)/first)
					second := beside.block(b, tier, 20)
					ratios = append(ratios, second/alone.block(b, tier, 20))
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-without")
		})
	}
}
