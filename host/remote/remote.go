package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
)

var _ gate.Executor = (*Remote)(nil)

// Remote runs the operations ssh_*, sftp_* and stage. It is safe for concurrent use.
type Remote struct {
	opts    Options
	process string // 8 hexadecimal digits, in the names of what this process makes
	nodes   map[string]*node
	ctx     context.Context // of what outlives a call: connections. Close ends it
	stop    context.CancelFunc
	wg      sync.WaitGroup // everything that was started

	mu        sync.Mutex // guards the following
	closed    bool
	temporary map[owned]bool // what is to be removed, and whether it is in use
}

// New validates the options and prepares the nodes. It connects to none of them.
func New(o Options) (*Remote, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := os.MkdirAll(o.Workspace, 0o700); err != nil {
		return nil, fmt.Errorf("making remote.workspace: %w", err)
	}
	r := &Remote{opts: o, process: randomHex(4), nodes: map[string]*node{},
		temporary: map[owned]bool{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, n := range o.Nodes {
		r.nodes[n.Name] = &node{r: r, opts: n, shares: fair.New(0, 0), kinds: map[string]int{}}
	}
	return r, nil
}

// Nodes returns the inventory, in the order of the configuration.
func (r *Remote) Nodes() []gate.Node {
	var all []gate.Node
	aliases := aliasesOf(r.opts)
	for _, n := range r.opts.Nodes {
		all = append(all, gate.Node{Name: n.Name, Cluster: n.Cluster, Host: n.Host, User: n.User,
			Port: n.Port, Default: n.Default, Aliases: aliases[n.Name]})
	}
	return all
}

// Inventory returns the configuration of every node with its defaults, in the order of the
// configuration.
func (r *Remote) Inventory() []NodeOptions { return slices.Clone(r.opts.Nodes) }

// NodeState is what the pool holds for a node.
type NodeState struct {
	Name                           string
	Connections, Sessions, Waiting int
}

// Pool reports on every node, in the order of the configuration.
func (r *Remote) Pool() []NodeState {
	var all []NodeState
	for _, o := range r.opts.Nodes {
		n := r.nodes[o.Name]
		s := NodeState{Name: o.Name}
		s.Sessions, s.Waiting = n.shares.Held()
		n.mu.Lock()
		s.Connections = len(n.conns)
		n.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// Connected reports whether there is a connection to any node.
func (r *Remote) Connected() bool {
	return slices.ContainsFunc(r.Pool(), func(s NodeState) bool { return s.Connections > 0 })
}

// Close ends all connections and waits for everything that was started. Operations under way end
// with an error. It may be called more than once.
func (r *Remote) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	for _, n := range r.nodes {
		n.mu.Lock()
		for _, c := range n.conns {
			c.fail(errShutdown)
		}
		n.mu.Unlock()
	}
	r.wg.Wait()
	return nil
}

var errShutdown = errors.New("the host is shutting down")

// enter finds a node. done must be called.
func (r *Remote) enter(name string) (n *node, done func(), err error) {
	if n = r.nodes[name]; n == nil {
		return nil, nil, failed("not_found", "node %q is not in the inventory (remote.nodes)", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, failed("connection", "%v; nothing was sent to %s", errShutdown, name)
	}
	r.wg.Add(1) // under mu, so that Close cannot have begun to wait
	return n, r.wg.Done, nil
}
