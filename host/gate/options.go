package gate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Options are the parts of a [Door]. New panics without those that it needs.
type Options struct {
	Nodes     []terms.Node
	Decider   terms.Decider
	Journal   terms.Journal
	Ledger    terms.Ledger
	Confirmer terms.Confirmer // nil: a call that needs a confirmation is refused
	Planner   terms.Planner   // nil: no call is planned, and approvals bind arguments alone
	Lowerer   terms.Lowerer
	Throttle  terms.Throttle
	Turns     terms.Turns                      // nil: nobody waits for a turn
	Executors map[string]terms.Executor        // by import; an import without one is refused
	ends      []terms.Executor                 // of Executors, each once
	Mode      func(context.Context) terms.Mode // read at each decision, under the context of Look
	// Look, if set, readies the context of a decision, also from a database, before its turn.
	Look func(context.Context, terms.Question) context.Context
	// Files returns the SHA-256 of a call's local files: an approval binds their bytes. Nil: none.
	Files func(*terms.Call) (map[string]string, error)
	// Guests asks a cluster for facts that a decision lacks; missing ones refuse. Nil: it has none.
	Guests func(context.Context, terms.Question, terms.Decision) map[string]terms.Guest
	// HiddenReason returns why this host does not offer a tool, "" if it does. Nil: it offers all.
	HiddenReason func(*terms.Tool) string
	Now          func() time.Time // nil: time.Now
	MaxArgs      int              // bytes of a call's arguments; 0: 1 MiB
}

// state is what a door knows of a call beside it. A call and its dry run share one.
type state struct {
	*Options
	current   func(context.Context) error // of the request
	spent     atomic.Int64                // nanoseconds for which the host computed
	unwritten atomic.Bool                 // an outcome could not be journaled
}
