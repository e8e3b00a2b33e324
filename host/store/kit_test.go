package store

import (
	"context"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// clock is a clock that tests set.
type clock struct {
	sync.Mutex
	t time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.t = c.t.Add(d)
}

var bg = context.Background()

var aTool = &gate.Tool{Kind: "tool", Name: "stop"}

func call(principal string, vmids ...string) *gate.Call {
	return &gate.Call{Tool: aTool, Principal: gate.Principal{ID: principal},
		Targets: gate.Targets{VMIDs: vmids, Nodes: []string{"pve1"}}}
}
