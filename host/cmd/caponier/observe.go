package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/store"
)

func (h *host) health() observe.Health {
	out := observe.Health{SSHConnected: h.remote.Connected(), PolicyRevision: h.engine.Revision(),
		LockChecksum: h.lock.Checksum(), ReadOnly: h.cfg.ReadOnly}
	for _, n := range h.remote.Pool() {
		out.Nodes = append(out.Nodes, observe.NodeHealth{Name: n.Name,
			Connected: n.Connections > 0})
	}
	out.Frozen = len(freeze.In(h.cfg.Store.Dir).Mode())
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
	states := h.sandbox.Readiness()
	maps.Copy(states, h.broken)
	return states
}

// warn logs the names in the policy that are not there: each node, because a misspelt node protects
// nothing, and one line for all tools. `caponier policy check` lists all of them.
func (h *host) warn() {
	nodes, tools := h.engine.Absent()
	for _, w := range nodes {
		slog.Warn("the policy names a node that is not there", "policy", w)
	}
	if len(tools) > 0 {
		slog.Warn("the policy names tools that are not in the lock", "count", len(tools),
			"first", tools[0], "all", "caponier policy check")
	}
}

// gauges registers what is read when /metrics is asked. A value that cannot be read is left out:
// alerts can watch for its absence.
func (h *host) gauges() {
	pool := func(name, help string, of func(remote.NodeState) int) {
		h.meter.Gauge(name, help, "node", func(emit func(float64, string)) {
			for _, n := range h.remote.Pool() {
				emit(float64(of(n)), n.Name)
			}
		})
	}
	pool("caponier_pool_connections", "SSH connections that are open.",
		func(n remote.NodeState) int { return n.Connections })
	pool("caponier_pool_sessions", "SSH sessions in use.",
		func(n remote.NodeState) int { return n.Sessions })
	pool("caponier_pool_waiting", "Operations that wait for a session.",
		func(n remote.NodeState) int { return n.Waiting })
	usage := func(name, help, label string, read func(u store.Usage, emit func(float64, string))) {
		h.meter.Gauge(name, help, label, func(emit func(float64, string)) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if u, err := h.store.Usage(ctx); err == nil {
				read(u, emit)
			}
		})
	}
	usage("caponier_approvals_waiting", "Requests that wait for a person.", "",
		func(u store.Usage, emit func(float64, string)) { emit(float64(u.Waiting), "") })
	usage(
		"caponier_spent_today_usd",
		"US dollars spent or reserved since midnight UTC, for the 100 principals that spent most.",
		"principal",
		func(u store.Usage, emit func(float64, string)) {
			for who, n := range u.USDMicros {
				emit(float64(n)/1e6, strings.ToValidUTF8(who, "?"))
			}
		},
	)
	h.meter.Gauge("caponier_freezes", "Freezes in force.", "",
		func(emit func(float64, string)) { emit(float64(h.health().Frozen), "") })
	h.meter.Gauge("caponier_plugin_ready", "1 for a plugin that can be called.", "plugin",
		func(emit func(float64, string)) {
			for name, err := range h.plugins() {
				emit(map[bool]float64{true: 1}[err == nil], name)
			}
		})
	h.meter.Gauge("caponier_policy_info", "1, with the revision in force.", "revision",
		func(emit func(float64, string)) { emit(1, h.engine.Revision()) })
}

// serveMetrics serves /metrics, /health and /ready in the background when [front] metrics says
// where. A port that cannot be opened is an error when must is set. Otherwise it is a warning: MCP
// clients on one machine start one process each from one configuration.
func (h *host) serveMetrics(ctx context.Context, s *observe.Server, must bool) error {
	if h.cfg.Front.Metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.cfg.Front.Metrics)
	if err != nil && must {
		return fmt.Errorf("serving metrics ([front] metrics): %w", err)
	} else if err != nil {
		slog.Warn("this process serves no metrics ([front] metrics)", "error", err)
		return nil
	}
	h.background(ctx, func(ctx context.Context) {
		if err := s.Serve(ctx, l); err != nil {
			slog.Error("metrics are no longer served", "error", err)
		}
	})
	slog.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	return nil
}

// background runs until the host closes.
func (h *host) background(ctx context.Context, do func(context.Context)) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	h.closers = append(h.closers, func() { stop(); <-done })
}

// looks makes the door through which approvers look: it allows nothing above green, whatever the
// site says of a tool.
func (h *host) looks(o gate.Options) error {
	for _, name := range h.cfg.Approval.Looks {
		if t := h.tool(name); t == nil || t.Kind != "tool" || !t.Hints.ReadOnly {
			return fmt.Errorf("%s: [approval] looks: %s is not a tool of %s that only reads",
				h.cfg.File, name, h.cfg.Plugin.Lock)
		}
	}
	o.Confirmer, o.Mode = nil, func() gate.Mode { m := h.mode(); m.ReadOnly = true; return m }
	h.lookDoor = gate.New(o)
	return nil
}

const maxReadings = 6

// look reads what a request is about, as the approver: that principal needs an entry in the site's
// data, as every other.
func (h *host) look(ctx context.Context, approver string,
	d approval.Detail) (readings []approval.Reading) {
	p := h.cfg.Identity.Configured(approver)
	for _, name := range h.cfg.Approval.Looks {
		tool := h.tool(name)
		for _, args := range lookArgs(tool, d.Targets) {
			if len(readings) == maxReadings {
				return readings
			}
			a := h.lookDoor.Call(ctx,
				gate.Request{Source: "http", Principal: p, Tool: tool, Arguments: args})
			readings = append(readings, reading(name, a))
		}
	}
	return readings
}

// lookArgs returns the arguments with which a tool reads about targets: one set for each guest, or
// else for each node. It returns none for a tool that takes neither, or that requires more.
func lookArgs(tool *gate.Tool, t gate.Targets) (all [][]byte) {
	var guest, node gate.Param
	for _, p := range tool.Params {
		switch {
		case p.Type == "array":
		case p.Target == "vmid":
			guest = p
		case p.Target == "node":
			node = p
		}
	}
	var sets []map[string]any
	switch {
	case guest.Name != "":
		for _, id := range t.VMIDs {
			set := map[string]any{guest.Name: id}
			if n, err := strconv.ParseInt(id, 10, 64); err == nil && guest.Type == "integer" {
				set[guest.Name] = n
			}
			if node.Name != "" && len(t.Nodes) == 1 {
				set[node.Name] = t.Nodes[0]
			}
			sets = append(sets, set)
		}
	case node.Name != "":
		for _, n := range t.Nodes {
			sets = append(sets, map[string]any{node.Name: n})
		}
	}
	for _, set := range sets {
		lacks := func(p gate.Param) bool { return p.Required && set[p.Name] == nil }
		if data, err := json.Marshal(set); err == nil && !slices.ContainsFunc(tool.Params, lacks) {
			all = append(all, data)
		}
	}
	return all
}

func reading(name string, a gate.Answer) approval.Reading {
	r := approval.Reading{Tool: name}
	var out guestOutput
	_ = json.Unmarshal(a.Output.JSON, &out) // as in report: only texts are picked
	for _, c := range out.Content {
		if c.Type == "text" {
			r.Text += plaintext.Clean(c.Text) + "\n"
		}
	}
	switch {
	case a.Err != nil:
		r.Refused, r.Text = true, a.Err.Error()
	case a.Outcome != gate.Succeeded && out.Error != nil:
		r.Refused, r.Text = true, plaintext.Clean(out.Error.Message)
	case a.Outcome != gate.Succeeded:
		r.Refused = true
	}
	if runes := []rune(r.Text); len(runes) > 4000 {
		r.Text = string(runes[:4000]) + "\n… (cut)"
	}
	return r
}
