package inventory

import (
	"context"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/gate"
)

const (
	maxNodes = 3                // of a cluster that are asked, one after the other
	deadline = 20 * time.Second // for all of them
	spacing  = 2 * time.Second  // between the beginnings of two reads of a cluster
)

// Inventory keeps one list for each cluster, and reads it again where a decision asks for what is
// newer, or for a guest that it does not have. Its methods may be called concurrently.
type Inventory struct {
	// Call makes a call of a tool as the host. It must not be nil.
	Call func(ctx context.Context, tool string, args any) gate.Answer
	Now  func() time.Time // not nil

	mu   sync.Mutex
	kept map[string]*kept    // by cluster; a node without one is a cluster of its own
	wait func(time.Duration) // nil: time.Sleep
}

// kept is what is known of a cluster, guarded by the inventory's mu.
type kept struct {
	list  cluster.List
	asked time.Time // when the list was asked for; zero: never
	// protection is what configurations said that were read since then, by VMID: on or off
	protection map[string]string
	reading    *reading  // nil: nobody reads
	began      time.Time // when the last read began
}

// reading is one read of a cluster, for everybody who waits for it.
type reading struct {
	began time.Time     // perhaps soon
	done  chan struct{} // closed when err is set
	err   error
}

// place is a cluster, with its nodes in the order in which they are asked.
type place struct {
	cluster string // a node without one is a cluster of its own
	nodes   []string
}
