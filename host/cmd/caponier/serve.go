package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"

	"github.com/caponier-mcp/caponier/host/cmd/caponier/hangup"
	fronthttp "github.com/caponier-mcp/caponier/host/front/http"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/spf13/cobra"
)

func serveCommand(g *global) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve MCP on stdio, or on HTTP", Args: cobra.NoArgs,
		Example: "  caponier --config config.toml serve\n  caponier --config config.toml serve " +
			"--http 127.0.0.1:8000\n  caponier --config config.toml serve --read-only --toolsets " +
			"containers,guests",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), g, addr)
		},
	}
	g.narrowing(cmd)
	cmd.Flags().
		StringVar(&addr, "http", "", "serve streamable HTTP on `ADDR` (host:port) instead of stdio")
	return cmd
}

// serve serves MCP until ctx ends or the client of stdio has gone. An empty addr means stdio.
func serve(ctx context.Context, g *global, addr string) error {
	tuneGC()
	h, err := open(ctx, g, wantNodes)
	if err != nil && ctx.Err() != nil { // told to stop while starting: nothing failed
		return nil
	} else if err != nil {
		return err
	}
	defer h.Close()
	server, told, err := h.front(addr != "")
	if err != nil {
		return err
	}
	defer notify("STOPPING=1")
	go h.reload(ctx, server.Changed)
	if err := h.serveMetrics(ctx, told, addr != ""); err != nil {
		return failed(err)
	}
	h.background(ctx, func(ctx context.Context) { watchdog(ctx, func() { h.health() }) })
	if addr == "" {
		notify("READY=1")
		return failed(server.Stdio(ctx))
	}
	web, err := h.overHTTP(server, told)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return failed(err)
	}
	if err := h.serveApprovals(ctx); err != nil {
		return failed(errors.Join(err, l.Close()))
	}
	slog.Info("serving MCP", "url", fmt.Sprintf("http://%s/mcp", l.Addr()), "tools", len(h.tools),
		"policy", h.engine.Revision())
	notify("READY=1")
	return failed(web.Serve(ctx, l))
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

// extend adds to the MCP server in builds for the conformance suite; nil in every other.
var extend mcp.Extension

// front returns the MCP server with its tools, and the server of health and metrics.
func (h *host) front(http bool) (server *mcp.Server, told *observe.Server, err error) {
	table := h.cfg.Front
	o, ob := table.MCPOptions, table.ObserveOptions
	o.Version, o.Tier, o.Meter, o.Extend = version, h.tier, h.meter, extend
	for _, n := range h.remote.Nodes() {
		o.Nodes = append(o.Nodes, n.Name)
	}
	if !http {
		if o.Principal, err = h.cfg.Caller(); err != nil {
			return nil, nil, err
		}
	}
	ob.Meter, ob.Health, ob.Parts = h.meter, h.health, h.parts()
	ob.Guard = fronthttp.Guard(table.HTTPOptions)
	if told, err = observe.New(ob); err != nil {
		return nil, nil, err
	}
	if server, err = mcp.New(o, h.door); err != nil {
		return nil, nil, err
	}
	return server, told, server.SetTools(h.tools)
}

// overHTTP serves the MCP server on the listener.
func (h *host) overHTTP(server *mcp.Server, told *observe.Server) (*fronthttp.Server, error) {
	o := h.cfg.Front.HTTPOptions
	verifier, err := h.identity()
	if err != nil {
		return nil, err
	}
	o.Identity = verifier
	return fronthttp.New(o, server, told)
}

// reload loads the policies again when a file of the site changes and at SIGHUP, until ctx ends.
// A candidate that does not pass leaves the running revision in force.
func (h *host) reload(ctx context.Context, changed func()) {
	var mu sync.Mutex // guards told
	told := h.engine.Revision()
	report := func(err error) {
		revision := h.engine.Revision()
		h.meter.Reloaded(err)
		if err != nil {
			slog.Error("policy not reloaded, the running one stays", "error", err,
				"revision", revision)
			return
		}
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
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup.C:
			notify(reloading())
			report(h.engine.Reload(ctx))
			notify("READY=1")
		}
	}
}
