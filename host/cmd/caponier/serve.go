package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/caponier-mcp/caponier/host/front"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/spf13/cobra"
)

func serveCommand(g *global) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve MCP on stdio, or on HTTP", Args: cobra.NoArgs,
		Example: "  caponier --config config.toml serve\n  caponier --config config.toml serve --http 127.0.0.1:8000\n  caponier --config config.toml serve --read-only --toolsets containers,guests",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tuneGC()
			h, err := open(cmd.Context(), g, wantNodes)
			if err != nil {
				return err
			}
			defer h.Close()
			server, err := h.front(cmd.Context(), addr != "")
			if err != nil {
				return err
			}
			go h.reload(cmd.Context(), server.Changed)
			if err := h.serveMetrics(cmd.Context(), server); err != nil {
				return failed(err)
			}
			if addr == "" {
				return failed(server.Stdio(cmd.Context()))
			}
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return failed(err)
			}
			if err := h.serveApprovals(cmd.Context()); err != nil {
				return failed(errors.Join(err, l.Close()))
			}
			slog.Info(
				"serving MCP",
				"url",
				fmt.Sprintf("http://%s/mcp", l.Addr()),
				"tools",
				len(h.tools),
				"policy",
				h.engine.Revision(),
			)
			return failed(server.Serve(cmd.Context(), l))
		},
	}
	g.narrowing(cmd)
	cmd.Flags().
		StringVar(&addr, "http", "", "serve streamable HTTP on `ADDR` (host:port) instead of stdio")
	return cmd
}

// tuneGC spends a little memory on fewer collections, unless the operator decided otherwise. More
// than this costs memory and gains nothing that can be measured: docs/benchmarks.md has the figures
// (make bench-mcp).
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(1 << 30)
	}
}

func (h *host) front(ctx context.Context, http bool) (*front.Server, error) {
	o := h.cfg.Front
	o.Version, o.Tier, o.Log = version, h.tier, slog.Default()
	o.Health, o.Ready, o.Meter = h.health, h.ready, h.meter
	for _, n := range h.remote.Nodes() {
		o.Nodes = append(o.Nodes, n.Name)
	}
	var err error
	if http {
		o.Identity, err = h.identity()
	} else {
		o.Principal, err = h.cliPrincipal()
	}
	if err != nil {
		return nil, err
	}
	server, err := front.New(o, h.door)
	if err != nil {
		return nil, err
	}
	return server, server.SetTools(h.tools)
}

var _ front.Door = (*gate.Door)(nil)

// reload loads the policies again when a file of the site changes and at SIGHUP; a candidate that
// does not pass leaves the running one.
func (h *host) reload(ctx context.Context, changed func()) {
	var mu sync.Mutex // guards told
	told := h.engine.Revision()
	report := func(err error) {
		if err != nil {
			slog.Error(
				"policy not reloaded, the running one stays",
				"error",
				err,
				"revision",
				h.engine.Revision(),
			)
			return
		}
		revision := h.engine.Revision()
		slog.Info("policy reloaded", "revision", revision)
		mu.Lock()
		defer mu.Unlock()
		if revision != told { // a file that was only touched is no change
			told = revision
			h.warn()
			changed()
		}
	}
	go func() {
		if err := h.engine.Watch(ctx, report); err != nil {
			slog.Error("changes of the policy are not seen; kill -HUP loads it again", "error", err)
		}
	}()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			report(h.engine.Reload(ctx))
		}
	}
}
