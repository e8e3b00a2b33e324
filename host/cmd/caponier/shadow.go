package main

import (
	"context"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/shadow"
)

// shadow has the candidate of the configuration decide beside the site, in a server.
func (h *host) shadow(ctx context.Context, o *gate.Options) {
	if h.cfg.Policy.Shadow == "" {
		return
	}
	s := shadow.New(shadow.Options{Site: h.cfg.Policy.Shadow, Dir: shadowDir(h.cfg),
		Inventory: load.Inventory{Tools: h.lock().Tools(), Nodes: h.cfg.Remote.Known()},
		Answer:    h.journal.Shadow})
	o.Journal = s.Journal(o.Journal)
	h.background(ctx, s.Run)
	h.meter.Gauge("caponier_shadow_decisions_total", "Decisions that the candidate of "+
		"policy.shadow was asked about, by what it would change.", "result",
		func(emit func(float64, string)) {
			for result, n := range s.Counts() {
				emit(float64(n), strings.ReplaceAll(strings.ToLower(result), " ", "_"))
			}
		})
}
