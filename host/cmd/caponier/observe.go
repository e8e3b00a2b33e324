package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/store"
)

func (h *host) health() observe.Health {
	out := observe.Health{SSHConnected: h.remote.Connected(), PolicyRevision: h.engine.Revision(),
		LockChecksum: h.lock().Checksum(), ReadOnly: h.cfg.ReadOnly}
	for _, n := range h.remote.Pool() {
		out.Nodes = append(out.Nodes, observe.NodeHealth{Name: n.Name,
			Connected: n.Connections > 0})
	}
	out.Frozen = len(h.mode(context.Background()).Freezes)
	out.Export, out.ExportFailing = h.exportHealth()
	return out
}

// parts are those without which calls fail. Nodes are none: some may answer when others do not.
func (h *host) parts() []observe.Part {
	return []observe.Part{
		{Name: "policy", Ready: func(context.Context) error {
			if h.engine.Revision() == "" {
				return errors.New("no revision is loaded")
			}
			return nil
		}},
		{Name: "journal", Ready: func(context.Context) error { return h.journal.Ready() }},
		{Name: "store", Ready: h.store.Ready},
		{Name: "disk", Ready: func(context.Context) error {
			return errors.Join(doctor.Full(h.cfg.Audit.Dir), doctor.Full(h.cfg.Store.Dir))
		}},
		{Name: "plugins", Ready: func(context.Context) error {
			var all []error
			for name, err := range h.plugins() {
				if err != nil && !errors.Is(err, sandbox.ErrPreparing) {
					all = append(all, fmt.Errorf("plugin %s: %w", name, err))
				}
			}
			return errors.Join(all...)
		}},
	}
}

// plugins returns why each plugin cannot be called: nil for one that can.
func (h *host) plugins() map[string]error {
	ready, states := h.sandbox.Readiness(), map[string]error{}
	for _, e := range h.lock().Plugins() {
		if err, loaded := ready[e.Digest]; loaded || h.unusable(e.Digest) != nil {
			states[e.Name] = cmp.Or(h.unusable(e.Digest), err)
		}
	}
	return states
}

// warn logs in one line that the policy names tools that are not in the lock.
func (h *host) warn() {
	if tools := h.engine.Absent(); len(tools) > 0 {
		slog.Warn("the policy names tools that are not in the lock", "count", len(tools),
			"first", tools[0], "all", "caponier policy check")
	}
}

// gauges registers what is read when /metrics is asked. A value that cannot be read is left out:
// alerts can watch for its absence.
func (h *host) gauges() {
	pool := func(of func(remote.NodeState) int) func(emit) {
		return func(add emit) {
			for _, n := range h.remote.Pool() {
				add(float64(of(n)), n.Name)
			}
		}
	}
	usage := func(of func(store.Usage, emit)) func(emit) {
		return func(add emit) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if u, err := h.store.Usage(ctx); err == nil {
				of(u, add)
			}
		}
	}
	for _, g := range []struct {
		name, label, help string
		read              func(emit)
	}{
		{"caponier_pool_connections", "node", "SSH connections that are open.",
			pool(func(n remote.NodeState) int { return n.Connections })},
		{"caponier_pool_sessions", "node", "SSH sessions in use.",
			pool(func(n remote.NodeState) int { return n.Sessions })},
		{"caponier_pool_waiting", "node", "Operations that wait for a session.",
			pool(func(n remote.NodeState) int { return n.Waiting })},
		{"caponier_approvals_waiting", "", "Requests that wait for a person.",
			usage(func(u store.Usage, add emit) { add(float64(u.Waiting), "") })},
		{"caponier_spent_today_usd", "principal", "US dollars spent or reserved since midnight " +
			"UTC, for the 100 principals that spent most.",
			usage(func(u store.Usage, add emit) {
				for who, n := range u.USDMicros {
					add(float64(n)/1e6, strings.ToValidUTF8(who, "?"))
				}
			})},
		{"caponier_freezes", "", "Freezes in force.",
			func(add emit) { add(float64(len(h.mode(context.Background()).Freezes)), "") }},
		{"caponier_disk_free_bytes", "directory", "Bytes that this process can still write to " +
			"the file system of the journal and of the store.",
			func(add emit) {
				for name, dir := range map[string]string{"audit": h.cfg.Audit.Dir,
					"store": h.cfg.Store.Dir} {
					if free, err := doctor.Room(dir); err == nil {
						add(float64(free), name)
					}
				}
			}},
		{"caponier_plugin_ready", "plugin", "1 for a plugin that can be called.",
			func(add emit) {
				for name, err := range h.plugins() {
					add(map[bool]float64{true: 1}[err == nil], name)
				}
			}},
		{"caponier_policy_info", "revision", "1, with the revision in force.",
			func(add emit) { add(1, h.engine.Revision()) }},
	} {
		h.meter.Gauge(g.name, g.help, g.label, g.read)
	}
}

// beside serves something else than MCP in the background when the configuration gives its address.
// An address that cannot be listened on is an error when must is set. Otherwise it is a warning:
// MCP clients on one machine start one process each from one configuration.
func (h *host) beside(ctx context.Context, what, addr string, must bool,
	serve func(context.Context, net.Listener) error) error {
	if addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil && must {
		return fmt.Errorf("serving the %s: %w", what, err)
	} else if err != nil {
		slog.Warn("this process does not serve the "+what, "error", err)
		return nil
	}
	h.background(ctx, func(ctx context.Context) {
		if err := serve(ctx, l); err != nil {
			slog.Error("the "+what+" is not served any longer", "error", err)
		}
	})
	slog.Info("serving the "+what, "address", l.Addr().String())
	return nil
}
