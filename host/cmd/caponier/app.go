package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/store"
)

// want says how much of the host a subcommand needs.
type want int

const (
	wantTools want = iota // lock and policy: nothing is written, nothing is connected
	wantNodes             // everything
)

// host is the wired parts. Close ends them in reverse.
type host struct {
	cfg      *config.Config
	lock     *plugin.Lock
	tools    []*gate.Tool
	engine   *load.Site
	journal  *audit.Journal
	remote   *remote.Remote
	door     *gate.Door
	lookDoor *gate.Door // for approvers: green reads
	asks     *approval.Approvals
	store    *store.Store
	meter    *observe.Meter
	sandbox  *sandbox.Sandbox
	only     []string // tools whose plugins are loaded; none means all
	// hidden returns why a tool is not offered, "" for one that is: a plugin of which nothing is
	// offered is not loaded either
	hidden  func(*gate.Tool) string
	broken  map[string]error // plugins that cannot run, and why
	closers []func()
}

func (h *host) Close() {
	for i := len(h.closers) - 1; i >= 0; i-- {
		h.closers[i]()
	}
	h.closers = nil
}

func (g *global) load() (*config.Config, error) {
	file, err := config.Find(g.config, g.profile)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(file, os.Environ())
	if err == nil {
		scrubLog(os.Stderr, cfg.Secrets)
		cfg.ReadOnly = cfg.ReadOnly || g.readOnly
		cfg.Tools.Toolsets, cfg.Tools.Tools, cfg.Tools.Exclude = g.toolsets, g.tools, g.exclude
	}
	return cfg, err
}

// open wires the host. When it fails half-way it closes what it has opened.
// With a tool's name it loads the plugin of that tool alone.
func open(ctx context.Context, g *global, w want, only ...string) (*host, error) {
	cfg, err := g.load()
	if err != nil {
		return nil, err
	}
	h := &host{cfg: cfg, only: only, broken: map[string]error{}}
	if err := h.open(ctx, w); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func (h *host) open(ctx context.Context, w want) (err error) {
	cfg := h.cfg
	if w == wantNodes && !cfg.AcceptRisks {
		return fmt.Errorf(
			"%s: accept_risks is not true: Caponier lets an agent act as root on the nodes named "+
				"there, within what policy allows; "+
				"set accept_risks = true (or I_ACCEPT_RISKS=true) when you have read "+
				"docs/threats.md",
			cfg.File,
		)
	}
	if h.lock, err = plugin.Load(cfg.Plugin.Lock); err != nil {
		return err
	}
	h.tools = h.lock.Tools()
	if h.hidden, err = cfg.Tools.HiddenReason(h.lock); err != nil {
		return fmt.Errorf("choosing what to offer (%s): %w", cfg.File, err)
	}

	o := gate.Options{HiddenReason: h.hidden, Throttle: &fair.Refusals{}, Lowerer: shell.Lowerer{},
		Mode: h.mode}
	if w == wantNodes {
		if err := h.openState(ctx, &o); err != nil {
			return err
		}
		cfg.Policy.OnRevision = h.journal.KeepPolicy
	} else {
		o.Journal, o.Ledger, o.Runner = nothing{}, nothing{}, nothing{}
	}
	cfg.Policy.Inventory = load.Inventory{Tools: h.tools, Nodes: cfg.NodeNames()}
	if h.engine, err = load.New(ctx, cfg.Policy); err != nil {
		return err
	}
	o.Decider = h.engine
	if w == wantNodes {
		h.meter.Watch(&o)
		h.gauges()
		if err := h.looks(o); err != nil {
			return err
		}
	}
	h.door = gate.New(o)
	h.warn()
	return nil
}

// mode is the state of the host that policy sees at each decision.
func (h *host) mode() gate.Mode {
	return gate.Mode{ReadOnly: h.cfg.ReadOnly, Freezes: freeze.In(h.cfg.Store.Dir).Mode()}
}

// openState opens what writes and connects: journal, store, nodes, sandbox.
func (h *host) openState(ctx context.Context, o *gate.Options) (err error) {
	if h.journal, err = audit.Open(h.cfg.Audit); err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = h.journal.Close() })
	ledger, err := store.Open(h.cfg.Store)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = ledger.Close() })
	h.store, h.meter = ledger, observe.NewMeter(version)
	h.cfg.Approval.Look = h.look
	if h.asks, err = asks(h.cfg, ledger, h.meter.Journal(h.journal)); err != nil {
		return err
	}
	h.closers = append(h.closers, h.asks.Close)
	o.Confirmer = h.asks
	if err := h.openRemote(ctx); err != nil {
		return err
	}
	o.Files = h.remote.Digests
	h.cfg.Sandbox.Compiling = collectMore
	box, err := sandbox.New(ctx, h.cfg.Sandbox)
	if err != nil {
		return err
	}
	h.sandbox = box
	h.closers = append(h.closers, func() { _ = box.Close(context.WithoutCancel(ctx)) })
	for _, e := range h.lock.Plugins() {
		if !slices.ContainsFunc(h.tools, func(t *gate.Tool) bool {
			return t.Plugin.Name == e.Name && h.hidden(t) == "" &&
				(len(h.only) == 0 || slices.Contains(h.only, t.Name))
		}) {
			continue
		}
		wasm, err := h.lock.Open(h.cfg.Plugin.Dir, e.Name)
		if err == nil {
			err = box.Add(e.Plugin, wasm, e.Imports)
		}
		if err != nil {
			if len(h.only) == 0 { // else whoever asked for the one tool is told
				slog.Error("plugin cannot run", "plugin", e.Name, "error", err)
			}
			h.broken[e.Name] = err
		}
	}
	o.Journal, o.Ledger, o.Runner, o.Nodes = h.journal, ledger, runner{box,
		h.broken}, h.remote.Nodes()
	o.Executors = map[string]gate.Executor{}
	for _, name := range []string{"ssh_exec", "ssh_script", "stage", "sftp_stat", "sftp_list",
		"sftp_read", "sftp_write", "sftp_get", "sftp_put", "sftp_remove"} {
		o.Executors[name] = h.remote
	}
	o.Executors["ask"] = mcp.Asker{}
	return h.openOutside(o, ledger)
}

// runner answers for plugins that could not be loaded, with the reason.
type runner struct {
	*sandbox.Sandbox
	broken map[string]error
}

func (r runner) Ready(ctx context.Context, t *gate.Tool, tell func(string)) error {
	if err := r.broken[t.Plugin.Name]; err != nil {
		return &gate.PluginError{Code: "plugin_unavailable", Message: err.Error()}
	}
	return r.Sandbox.Ready(ctx, t, tell)
}

// nothing stands in the door of a command that only asks what would be visible; whatever is tried
// through it fails.
type nothing struct{}

var errNothing = errors.New("this command makes no calls")

func (nothing) Intent(context.Context, gate.Record, bool) error { return errNothing }
func (nothing) Outcome(context.Context, gate.Record) error      { return errNothing }
func (nothing) Take(context.Context, *gate.Call) (gate.Counts, func(), error) {
	return gate.Counts{}, func() {}, errNothing
}
func (nothing) Ready(context.Context, *gate.Tool, func(string)) error { return errNothing }
func (nothing) Run(context.Context, *gate.Running) (gate.Output, error) {
	return gate.Output{}, errNothing
}

func (h *host) tool(name string) *gate.Tool {
	for _, t := range h.tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// identity says who calls over HTTP.
func (h *host) identity() (*identity.Verifier, error) {
	o := h.cfg.Identity
	if o.HTTP == "" && o.Tokens == "" && o.OIDC.Issuer == "" {
		return nil, fmt.Errorf(
			"%s: nobody may call over HTTP: set [identity] tokens = FILE (caponier token new), "+
				"[identity.oidc], or [identity] http = the id of one of [[identity.principals]] "+
				"to let every local caller be that one",
			h.cfg.File)
	}
	return identity.New(o)
}

// tier is what policy calls the tool before it knows any arguments: for lists and annotations,
// never for a decision.
func (h *host) tier(ctx context.Context, p gate.Principal, t *gate.Tool) gate.Tier {
	d, err := h.engine.Decide(ctx, gate.Question{ID: "list", Kind: gate.KindVisible,
		Call: &gate.Call{Source: "cli", Principal: p, Tool: t}, Time: time.Now()})
	if err != nil {
		return gate.NoTier
	}
	return d.Tier
}
