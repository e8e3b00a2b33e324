package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/inventory"
	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plan"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/returned"
	"github.com/caponier-mcp/caponier/host/result"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/sweep"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/undo"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// openHost wires the host. When it fails half-way it closes what it has opened. With the name of a
// tool it loads the plugin of that tool alone.
func openHost(ctx context.Context, g *global, only string) (*host, error) {
	h, err := configured(g)
	if err != nil {
		return nil, err
	}
	if err := h.open(ctx, only); err != nil {
		h.Close()
		return nil, usage(err)
	}
	return h, nil
}

// configured returns a host with its configuration, and with nothing open.
func configured(g *global) (*host, error) {
	cfg, err := g.load()
	if err != nil {
		return nil, err
	}
	if !cfg.AcceptRisks {
		return nil, usage(fmt.Errorf("%s: accept_risks is not true: Caponier lets an agent act as "+
			"root on the nodes named there, within what policy allows; set accept_risks = true "+
			"(or I_ACCEPT_RISKS=true) when you have read docs/threats.md", cfg.File))
	}
	h := &host{cfg: cfg, meter: observe.NewMeter(version), turns: fair.Processors(),
		recorder: g.recorder}
	cfg.Sandbox.Log = g.pluginLog
	return h, nil
}

// openLock reads the lock, and finds which of its tools are offered.
func (h *host) openLock() error {
	lock, err := plugin.Load(h.cfg.Plugin.Lock)
	if err != nil {
		return err
	}
	h.locked.Store(h.undoes(lock))
	h.hidden, err = hiddenReason(h.cfg, lock)
	return err
}

func (h *host) open(ctx context.Context, only string) (err error) {
	if err := h.openLock(); err != nil {
		return err
	}
	offered := func(t *terms.Tool) string {
		if t.Kind == native.Host {
			return ""
		}
		return h.hidden(t)
	}
	o := gate.Options{HiddenReason: offered, Throttle: &fair.Refusals{}, Lowerer: shell.Lowerer{},
		Turns: h.turns, Mode: h.mode}
	loaded := h.loadPolicy(ctx)
	if err := h.openState(&o); err != nil {
		return err
	}
	if only == "" {
		h.shadow(ctx, &o)
	}
	if err := h.openRemote(); err != nil {
		return err
	}
	if loaded, err = h.trustFirst(loaded); err != nil {
		return err
	}
	h.guard = &result.Guard{Mode: o.Mode,
		Policy: &returned.Asker{Rules: func() *policy.Rules { return h.engine.Rules() }}}
	h.cfg.Sandbox.Said = h.guard.Said
	if err := h.openSandbox(ctx, func(t *terms.Tool) bool {
		return h.hidden(t) == "" && (only == "" || only == t.Name)
	}); err != nil {
		return err
	}
	own := native.New(runner{h.sandbox, h}, version,
		append(undo.Tools, sweep.Tool, inventory.Tool)...)
	if err := h.executors(&o); err != nil {
		return err
	}
	if err := loaded(); err != nil {
		return err
	}
	guests := &inventory.Inventory{Now: time.Now, Call: h.callNative}
	o.Decider, o.Guests = guests.Decider(h.engine), guests.Guests
	h.meter.Watch(&o)
	h.gauges()
	h.exportGauges()
	if err := h.looks(o, own); err != nil {
		return err
	}
	h.door = gate.New(o, h.guard.Runner(own))
	h.native = func(ctx context.Context, tool string, args any) terms.Answer {
		return own.Call(ctx, h.door, tool, args)
	}
	h.sweep(ctx)
	h.background(ctx, h.keeper.Run)
	h.warn()
	return nil
}

// loadPolicy loads the policy beside what opens then. The function that it returns waits for it,
// and is called when the journal is open; closing waits for it too.
func (h *host) loadPolicy(ctx context.Context) (wait func() error) {
	ctx, stop := context.WithCancel(ctx)
	journal, done := make(chan struct{}), make(chan struct{})
	p := h.cfg.Policy
	p.OnRevision = func(revision string, bundle []byte) error {
		select {
		case <-journal:
			return h.journal.KeepPolicy(revision, bundle)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	before := h.tested()
	p.Tested, p.Passed = before.has, before.keep
	p.Inventory = load.Inventory{Tools: h.lock().Tools(), Nodes: h.cfg.Remote.Known()}
	var engine *load.Site
	var err error
	go func() {
		defer close(done)
		engine, err = load.New(ctx, p)
	}()
	h.closers = append(h.closers, func() { stop(); <-done })
	return func() error {
		close(journal)
		<-done
		h.engine = engine
		return err
	}
}

// hiddenReason returns why a tool is not offered.
func hiddenReason(c *config.Config, lock *plugin.Lock) (func(*terms.Tool) string, error) {
	hidden, err := c.Tools.HiddenReason(lock)
	if err != nil {
		return nil, usage(fmt.Errorf("choosing what to offer (%s): %w", c.File, err))
	}
	return hidden, nil
}

// openState opens the journal, the store and the approvals.
func (h *host) openState(o *gate.Options) (err error) {
	if err := h.openExport(); err != nil {
		return err
	}
	var closeJournal func()
	if h.journal, closeJournal, err = openJournal(h.cfg); err != nil {
		return err
	}
	h.closers = append(h.closers, closeJournal)
	if h.store, err = openStore(h.cfg); err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = h.store.Close() })
	h.cfg.Approval.Look, h.cfg.Approval.Console = h.look, h.room.serve
	h.cfg.Approval.Journal = h.meter.Journal(h.journal)
	if h.asks, err = approval.New(h.cfg.Approval, h.store); err != nil {
		return err
	}
	h.closers = append(h.closers, h.asks.Close)
	o.Journal, o.Ledger = h.journal, h.store
	if h.store.pg != nil {
		o.Look = h.store.pg.Look
	}
	o.Confirmer, o.Planner = h.asks, plan.Planner{}
	return nil
}

// openSandbox opens the sandbox with the plugins that have a tool that is wanted.
func (h *host) openSandbox(ctx context.Context, wanted func(*terms.Tool) bool) (err error) {
	h.cfg.Sandbox.Compiling = collectMore
	if h.sandbox, err = sandbox.New(ctx, h.cfg.Sandbox); err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = h.sandbox.Close(context.WithoutCancel(ctx)) })
	lock := h.lock()
	for _, e := range lock.Plugins() {
		of := func(t *terms.Tool) bool { return t.Plugin.Name == e.Name && wanted(t) }
		if !slices.ContainsFunc(lock.Tools(), of) {
			continue
		}
		if h.lazy {
			open := func() ([]byte, error) { return h.openPlugin(ctx, lock, e) }
			if err = h.sandbox.Later(e.Plugin, open, e.Imports); err == nil && h.verify {
				_, err = open()
			}
		} else {
			err = h.addPlugin(ctx, lock, e)
		}
		if err != nil {
			h.broken.Store(e.Digest, err)
		}
	}
	return nil
}

// executors wires what acts on operations: nodes, blobs, HTTP and the client's user.
func (h *host) executors(o *gate.Options) error {
	h.cfg.Blob.Index, h.cfg.Blob.Save = h.store, h.remote.Save
	blobs, err := blob.New(h.cfg.Blob)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = blobs.Close() })
	h.cfg.Egress.Ledger, h.cfg.Egress.Keeper = h.store, blobs
	out, err := egress.New(h.cfg.Egress)
	if err != nil {
		return err
	}
	h.cfg.Identity.Client = out.Client()
	h.keeper = &undo.Keeper{Executor: &lease.Executor{Executor: h.remote, Book: h.store,
		Host: h.store.host}, Book: h.store, Now: time.Now, Call: h.callNative}
	o.Files, o.Nodes = h.remote.Digests, h.remote.Nodes()
	records := undo.Records{Keeper: h.keeper}
	views := map[abi.View]terms.Executor{abi.ViewCommand: h.keeper, abi.ViewFile: h.keeper,
		abi.ViewBlob: blobs, abi.ViewHTTP: out, abi.ViewAsk: mcp.Asker{}, abi.ViewRecord: records,
		abi.ViewListing: h.lister()}
	o.Executors = map[string]terms.Executor{}
	for _, op := range abi.Table() {
		if e := views[op.View]; e != nil {
			o.Executors[op.Import] = e
		}
	}
	o.Executors = h.guard.Executors(o.Executors)
	if h.recorder != nil {
		o.Executors = h.recorder.Executors(o.Executors, o.Nodes)
	}
	return nil
}

// lister lists the commands of tools that are offered.
func (h *host) lister() *policy.Lister {
	return &policy.Lister{Turns: h.turns, Rules: func() *policy.Rules { return h.engine.Rules() },
		Tools: func() []*terms.Tool {
			return slices.DeleteFunc(slices.Clone(h.lock().Tools()),
				func(t *terms.Tool) bool { return h.hidden(t) != "" })
		}}
}

// callNative makes a call of a tool of the host's own, once the host is open.
func (h *host) callNative(ctx context.Context, tool string, args any) terms.Answer {
	return h.native(ctx, tool, args)
}

// runner answers for plugins that could not be loaded, with the reason.
type runner struct {
	*sandbox.Sandbox
	h *host
}

func (r runner) Ready(ctx context.Context, c *terms.Call, tell func(string)) error {
	if err := r.h.unusable(c.Tool.Plugin.Digest); err != nil {
		return &terms.PluginError{Code: "plugin_unavailable", Message: err.Error()}
	}
	r.h.connect(c)
	return r.Sandbox.Ready(ctx, c, tell)
}

// undoes adds to what its tools act on, where one names a call, what that call acted on.
func (h *host) undoes(lock *plugin.Lock) *plugin.Lock {
	for _, t := range lock.Tools() {
		i := slices.IndexFunc(t.Params, func(p terms.Param) bool { return p.Target == "call" })
		if i < 0 {
			continue
		}
		name, own := t.Params[i].Name, t.Derive
		t.Derive = func(who terms.Principal, args map[string]any) (
			terms.Targets, []terms.CommandText, error) {
			on, texts, err := own(who, args)
			id, named := args[name].(string)
			if err != nil || !named {
				return on, texts, err
			}
			more, err := undo.Targets(context.Background(), h.store, who.ID, id)
			for _, list := range [][2]*[]string{{&on.Nodes, &more.Nodes}, {&on.VMIDs, &more.VMIDs},
				{&on.Services, &more.Services}, {&on.Paths, &more.Paths}} {
				all := slices.Concat(*list[0], *list[1])
				slices.Sort(all)
				*list[0] = append([]string{}, slices.Compact(all)...)
			}
			return on, texts, err
		}
	}
	return lock
}
