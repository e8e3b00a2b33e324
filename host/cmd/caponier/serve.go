package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	fronthttp "github.com/caponier-mcp/caponier/host/front/http"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/systemd"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

func serveCommand(g *global) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve MCP on stdio, or on HTTP", Args: cobra.NoArgs,
		Example: "  caponier --config config.toml serve\n  caponier --config config.toml serve " +
			"--http 127.0.0.1:8000\n  caponier --config config.toml serve --read-only --toolsets " +
			"containers,guests",
		RunE: g.does(func(v *verb) error { return serve(v.ctx, g, addr) }),
	}
	g.narrowing(cmd)
	cmd.Flags().StringVar(&addr, "http", "",
		"serve streamable HTTP on `ADDR` (host:port) instead of stdio")
	return cmd
}

// serve serves MCP until ctx ends or the client of stdio has gone. An empty addr means stdio.
func serve(ctx context.Context, g *global, addr string) error {
	tuneGC()
	h, err := configured(g)
	if err != nil {
		return err
	}
	defer h.Close()
	h.lazy = true
	if addr == "" {
		return h.overStdio(ctx)
	}
	h.verify = true
	if err := h.open(ctx, ""); err != nil && ctx.Err() != nil {
		return nil // told to stop while starting: nothing failed
	} else if err != nil {
		return usage(err)
	}
	started()
	server, err := h.front(h.door, true, nil)
	if err == nil {
		err = server.SetTools(h.lock().Tools())
	}
	if err != nil {
		return usage(err)
	}
	defer systemd.Notify("STOPPING=1")
	told, err := h.about(ctx, true)
	if err != nil {
		return err
	}
	web, err := h.overHTTP(ctx, server, told)
	if err != nil {
		return usage(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	h.room.pool, h.room.revision = h.remote.Pool, h.engine.Revision
	if err := h.room.open(ctx, h.cfg, h.store, h.background); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := h.beside(ctx, "approvals page ([approval] listen)", h.cfg.Approval.Listen, true,
		h.asks.Serve); err != nil {
		return errors.Join(err, l.Close())
	}
	slog.Info("serving MCP", "url", fmt.Sprintf("http://%s/mcp", l.Addr()),
		"tools", len(h.lock().Tools()), "policy", h.engine.Revision())
	systemd.Notify("READY=1")
	return web.Serve(ctx, l)
}

// overStdio answers the client's first request before lock, policy, journal, store and nodes are
// opened. All others but pings wait for these, and are refused when one of them cannot be opened.
func (h *host) overStdio(ctx context.Context) error {
	ready := make(chan struct{})
	server, err := h.front(late{h, ready}, false, ready)
	if err != nil {
		return usage(err)
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	opened := make(chan error, 1)
	go func() {
		err := h.open(ctx, "")
		if err == nil {
			err = server.SetTools(h.lock().Tools())
		}
		if err != nil {
			err = usage(err)
		} else {
			_, err = h.about(ctx, false)
		}
		if err == nil {
			started()
			close(ready)
			systemd.Notify("READY=1")
		} else {
			stop()
		}
		opened <- err
	}()
	err = server.Stdio(serving)
	failed := <-opened
	if failed == nil {
		systemd.Notify("STOPPING=1")
	} else if ctx.Err() == nil { // else told to stop while starting: nothing failed
		err = failed
	}
	return err
}

// late is a door that opens when ready is closed.
type late struct {
	h     *host
	ready <-chan struct{}
}

func (l late) Call(ctx context.Context, r terms.Request) terms.Answer {
	select {
	case <-l.ready:
		return l.h.door.Call(ctx, r)
	case <-ctx.Done():
		return terms.Answer{Outcome: terms.Refusal, Err: context.Cause(ctx)}
	}
}

func (l late) Visible(ctx context.Context, p terms.Principal, source string, t *terms.Tool,
	on terms.Targets) bool {
	select {
	case <-l.ready:
		return l.h.door.Visible(ctx, p, source, t, on)
	case <-ctx.Done():
		return false
	}
}

// extend adds to the MCP server in builds for the conformance suite; nil in every other.
var extend mcp.Extension

// front returns the MCP server, still without tools. When ready is not nil, only the first request
// is answered before it is closed.
func (h *host) front(door mcp.Door, http bool, ready <-chan struct{}) (
	server *mcp.Server, err error) {
	o := h.cfg.Front.MCPOptions
	o.Version, o.Meter, o.Extend, o.Ready = version, h.meter, extend, ready
	o.Lists, o.OutputSchemas = h.cfg.Tools.Lists, h.cfg.Tools.OutputSchemas
	// for what lists say of a tool, never for a decision about it
	o.Listing = func(ctx context.Context, p terms.Principal, t *terms.Tool) terms.Decision {
		d, err := h.engine.Decide(ctx, visible(p, t))
		if err != nil {
			return terms.Decision{}
		}
		return d
	}
	if http && h.store.pg != nil {
		o.Rounds = h.store.pg
	}
	if !http {
		if o.Principal, err = h.cfg.Caller(); err != nil {
			return nil, err
		}
	}
	l := newLive(h, door)
	if server, err = mcp.New(o, l); err != nil {
		return nil, err
	}
	l.server, h.follow = server, l.follow
	return server, nil
}

// about starts what goes on beside MCP, in a host that is open: it follows policy and lock, answers
// the watchdog, and serves metrics and health.
func (h *host) about(ctx context.Context, http bool) (told *observe.Server, err error) {
	for _, e := range h.lock().Plugins() {
		if err := h.unusable(e.Digest); err != nil {
			slog.Error("plugin cannot run", "plugin", e.Name, "error", err)
		}
	}
	ob := h.cfg.Front.ObserveOptions
	ob.Meter, ob.Health, ob.Parts = h.meter, h.health, h.parts()
	ob.Guard = fronthttp.Guard(h.cfg.Front.HTTPOptions)
	if told, err = observe.New(ob); err != nil {
		return nil, usage(err)
	}
	h.background(ctx, h.follow)
	h.exporting(ctx)
	err = h.beside(ctx, "metrics endpoint ([front] metrics)", h.cfg.Front.Metrics, http, told.Serve)
	if err != nil {
		return nil, err
	}
	h.background(ctx, func(ctx context.Context) { systemd.Watchdog(ctx, func() { h.health() }) })
	return told, nil
}

// overHTTP returns the server of HTTP, which finds out who calls.
func (h *host) overHTTP(ctx context.Context, server *mcp.Server, told *observe.Server) (
	*fronthttp.Server, error) {
	id := h.cfg.Identity
	id.Kept = h.store.kept()
	if h.store.pg != nil {
		h.background(ctx, h.store.pg.Listen)
		h.background(ctx, h.beat)
	}
	if id.HTTP == "" && id.Tokens == "" && !id.InStore && id.OIDC.Issuer == "" {
		return nil, fmt.Errorf("%s: no caller is accepted over HTTP: set [identity] tokens = FILE "+
			"(caponier token new), [identity.oidc], or [identity] http = the id of one of "+
			"[[identity.principals]] to let every local caller be that one", h.cfg.File)
	}
	verifier, err := identity.New(id)
	if err != nil {
		return nil, err
	}
	o := h.cfg.Front.HTTPOptions
	o.Identity, o.Turns = verifier, h.turns
	return fronthttp.New(o, server, told)
}
