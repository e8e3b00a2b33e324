package remote

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var _ terms.Executor = (*Remote)(nil)

// Remote runs the operations ssh_*, sftp_* and stage. It is safe for concurrent use.
type Remote struct {
	opts      Options
	pool      *conn.Pool
	nodes     map[string]*node
	ledger    *files.Ledger
	workspace *files.Workspace
}

// node is an entry of the inventory.
type node struct {
	*files.Node
	units units
}

// New validates the options and prepares the nodes. It connects to none of them.
func New(o Options) (*Remote, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	ledger := files.NewLedger(o.HostID, o.Record)
	workspace, err := files.NewWorkspace(o.Workspace, o.MaxFile, ledger)
	if err != nil {
		return nil, err
	}
	r := &Remote{opts: o, pool: conn.New(o.Nodes, o.KnownHosts, o.Limits),
		nodes: map[string]*node{}, ledger: ledger, workspace: workspace}
	for _, n := range r.pool.Nodes() {
		r.nodes[n.Name] = &node{Node: files.NewNode(n, ledger, o.StallTimeout)}
	}
	return r, nil
}

// Nodes returns the inventory, in the order of the configuration.
func (r *Remote) Nodes() []terms.Node { return r.opts.Known() }

// Known returns the inventory, in the order of the configuration. It reaches nothing.
func (o Options) Known() []terms.Node {
	var all []terms.Node
	o = o.withDefaults()
	aliases := conn.Aliases(o.KnownHosts, o.Nodes)
	for _, n := range o.Nodes {
		all = append(all, terms.Node{Name: n.Name, Cluster: n.Cluster, Host: n.Host, User: n.User,
			Port: n.Port, Default: n.Default, Aliases: aliases[n.Name]})
	}
	return all
}

// Inventory returns the configuration of every node with its defaults, in the order of the
// configuration.
func (r *Remote) Inventory() []NodeOptions { return slices.Clone(r.opts.Nodes) }

// Pool reports on every node, in the order of the configuration.
func (r *Remote) Pool() []NodeState { return r.pool.State() }

// Connected reports whether there is a connection to any node.
func (r *Remote) Connected() bool {
	return slices.ContainsFunc(r.Pool(), func(s NodeState) bool { return s.Connections > 0 })
}

// Connect begins to connect to a node that has no connection, and waits for nothing: an operation
// that comes soon finds it, or the error. A node that is not in the inventory is left alone.
func (r *Remote) Connect(node string) {
	if n, done, err := r.enter(node); err == nil {
		n.Connect()
		done()
	}
}

// Close ends all connections and waits for everything that was started. Operations under way end
// with an error. It may be called more than once.
func (r *Remote) Close() error {
	r.pool.Close()
	return nil
}

// Save makes a new file in the folder of a principal, and replaces none. The error is a
// *terms.OpError.
func (r *Remote) Save(principal, name string, data io.Reader) error {
	return r.workspace.Receive(files.Saving{Principal: principal, Name: name,
		Fill: func(w io.Writer) (int64, error) { return io.Copy(w, data) }})
}

// Digests returns what an upload of the local files of a call would send now, as sha256:HEX or
// "none". A call is approved for these bytes. For a tool that uploads directories they are also
// those of all files below a directory that the call names.
func (r *Remote) Digests(c *terms.Call) (map[string]string, error) {
	below := slices.Contains(c.Tool.TargetKinds, "trees") &&
		slices.Contains(c.Tool.Imports, abi.SFTPPut{}.Import())
	return r.workspace.Digests(c.Principal.ID, c.Targets.LocalPaths, below)
}

// Leftovers lists the temporary files and directories that are recorded and not in use: what
// processes that have ended made, and what this process made and could not remove.
func (r *Remote) Leftovers(ctx context.Context) ([]terms.StageDir, error) {
	return r.ledger.Leftovers(ctx)
}

// enter finds a node. done must be called.
func (r *Remote) enter(name string) (n *node, done func(), err error) {
	if n = r.nodes[name]; n == nil {
		return nil, nil, effect.Failed("not_found",
			"node %q is not in the inventory (remote.nodes)", name)
	}
	if done, err = r.pool.Enter(); err != nil {
		return nil, nil, effect.Failed("connection", "%v; nothing was sent to %s", err, name)
	}
	return n, done, nil
}

// ask asks for a principal. An answer has at most max bytes.
func (n *node) ask(who string, max int64) ask {
	return func(ctx context.Context, argv []string) (command.Ended, error) {
		return command.Run(ctx, n.Node.Node, command.Command{Who: who, Text: shell.Quote(argv),
			Max: max})
	}
}

// least is the smallest of those limits that are set.
func least[T int64 | time.Duration](limits ...T) (min T) {
	for _, l := range limits {
		if l > 0 && (min == 0 || l < min) {
			min = l
		}
	}
	return min
}
