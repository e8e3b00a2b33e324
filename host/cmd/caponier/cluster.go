package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/spf13/cobra"
)

// beatEvery is how often a host says that it is there; after three times it is missed.
const beatEvery = 10 * time.Second

// beat says that this host is there, until ctx ends.
func (h *host) beat(ctx context.Context) {
	for {
		err := h.store.pg.Beat(ctx, postgres.Host{Version: version,
			Revision: h.engine.Revision(), Lock: h.lock().Checksum()})
		if err != nil && ctx.Err() == nil {
			slog.Warn("other hosts do not see this one", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(beatEvery):
		}
	}
}

func clusterCommand(g *global) *cobra.Command {
	return group("cluster", "See the hosts that share [store] url", &cobra.Command{
		Use:   "status",
		Short: "List the hosts that serve HTTP: versions, policies, locks, clocks",
		Args:  cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			if c.Store.URL == "" {
				return usage(fmt.Errorf("%s: [store] url is not set: this host shares nothing",
					c.File))
			}
			return withShared(c, func(s state) error {
				all, err := s.pg.Hosts(v.ctx)
				if err != nil {
					return err
				}
				seen := []hostStatus{}
				for _, h := range all {
					seen = append(seen, hostStatus{h, oddities(h, all)})
				}
				return list(v, seen, "HOST|VERSION|POLICY|LOCK|SEEN|CLOCK|", hostStatus.row)
			})
		}),
	})
}

// hostStatus is a host with what is odd about it.
type hostStatus struct {
	postgres.Host
	Odd []string `json:"odd,omitempty"`
}

func (h hostStatus) row() []string {
	short := func(s string) string {
		s = strings.TrimPrefix(s, "sha256:")
		return plaintext.Show(s[:min(len(s), 12)])
	}
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	return []string{plaintext.Show(h.Name), plaintext.Show(h.Version), short(h.Revision),
		short(h.Lock), ms(h.AgeMS) + " ago", ms(h.SkewMS), strings.Join(h.Odd, "; ")}
}

// oddities are what an operator should look at: in comparison with the host that was seen last.
func oddities(h postgres.Host, all []postgres.Host) (odd []string) {
	last := h
	for _, o := range all {
		if o.AgeMS < last.AgeMS {
			last = o
		}
	}
	skew := time.Duration(max(h.SkewMS, -h.SkewMS)) * time.Millisecond
	for _, c := range []struct {
		is   bool
		says string
	}{
		{h.AgeMS > 3*beatEvery.Milliseconds(), "missed: it stopped, or cannot reach the database"},
		{skew > postgres.MaxSkew, "its clock is off: it refuses tokens of the store"},
		{skew > postgres.WarnSkew && skew <= postgres.MaxSkew, "its clock is off"},
		{h.Version != last.Version, "another version"},
		{h.Revision != last.Revision, "another policy"},
		{h.Lock != last.Lock, "another lock"},
	} {
		if c.is {
			odd = append(odd, c.says)
		}
	}
	return odd
}
