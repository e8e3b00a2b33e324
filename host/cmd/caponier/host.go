package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/export"
	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/recording"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/result"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/undo"
)

// host is the wired parts. Close ends them in reverse.
type host struct {
	cfg      *config.Config
	locked   atomic.Pointer[plugin.Lock] // what is in service
	hidden   func(*terms.Tool) string    // why a tool is not offered
	engine   *load.Site
	guard    *result.Guard
	journal  *audit.Journal
	remote   *remote.Remote
	door     *gate.Door
	lookDoor *gate.Door                                      // for approvers: green reads
	native   func(context.Context, string, any) terms.Answer // calls as the host itself
	keeper   *undo.Keeper
	asks     *approval.Approvals
	room     watchroom
	store    state
	meter    *observe.Meter
	export   *export.Exporter // nil where the journal is sent nowhere
	exports  bool             // it runs: this is a server
	turns    *fair.Shares     // of the processors, for decoding and deciding
	sandbox  *sandbox.Sandbox
	follow   func(context.Context) // policy and lock, in a server
	broken   sync.Map              // digest of a module that could not be opened: why, an error
	lazy     bool                  // modules are compiled when they are first called
	verify   bool                  // and held against the lock now
	recorder *recording.Recorder   // of what operations return; nil: none
	closers  []func()
}

// lock returns the lock in service.
func (h *host) lock() *plugin.Lock { return h.locked.Load() }

// unusable returns why the module of a plugin could not be opened, or nil.
func (h *host) unusable(digest string) error {
	err, _ := h.broken.Load(digest)
	why, _ := err.(error)
	return why
}

// Close ends the parts in reverse.
func (h *host) Close() {
	for _, end := range slices.Backward(h.closers) {
		end()
	}
	h.closers = nil
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

// visible asks policy whether a principal in a terminal may see a tool, and for its tier.
func visible(p terms.Principal, t *terms.Tool) terms.Question {
	return terms.Question{ID: "list", Kind: terms.KindVisible, Time: time.Now(),
		Call: &terms.Call{Source: "cli", Principal: p, Tool: t}}
}

// mode is the state of the host that policy sees at each decision.
func (h *host) mode(ctx context.Context) terms.Mode {
	return terms.Mode{ReadOnly: h.cfg.ReadOnly, Freezes: h.store.freezes(h.cfg).Mode(ctx)}
}
