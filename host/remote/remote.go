package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
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
	pinKinds  map[string]int // by pin, its kind; see kinds
}

// New validates the options and prepares the nodes. It connects to none of them unless Options.Warm
// is set, and then in the background.
func New(o Options) (*Remote, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := os.MkdirAll(o.Workspace, 0o700); err != nil {
		return nil, fmt.Errorf("making remote.workspace: %w", err)
	}
	r := &Remote{opts: o, process: randomHex(4), nodes: map[string]*node{},
		temporary: map[owned]bool{}, pinKinds: map[string]int{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, n := range o.Nodes {
		r.nodes[n.Name] = &node{r: r, opts: n, shares: fair.New(0, 0)}
	}
	if o.Warm {
		for _, n := range r.nodes {
			r.wg.Go(func() {
				if c, err := n.acquire(r.ctx, ""); err == nil {
					n.release(c, "")
				}
			})
		}
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

// enter finds the node of a question. done must be called.
func (r *Remote) enter(q gate.Question) (n *node, done func(), err error) {
	name := q.Op.NodeName()
	if n = r.nodes[name]; n == nil || q.Node != nil && q.Node.Name != name {
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

// least is the smallest of those limits that are set.
func least[T int64 | time.Duration](limits ...T) (min T) {
	for _, l := range limits {
		if l > 0 && (min == 0 || l < min) {
			min = l
		}
	}
	return min
}

// Execute runs an allowed operation, on the facts that were decided. The error is a *gate.OpError;
// its outcome is Unknown when a request that may have had an effect was sent and no answer came, or
// none that can be believed.
func (r *Remote) Execute(
	ctx context.Context, q gate.Question, d gate.Decision,
) (res gate.Result, err error) {
	if !d.Allow {
		return res, failed("refused", "%s was not allowed", q.Op.Import())
	}
	n, done, err := r.enter(q)
	if err != nil {
		return res, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx,
		least(q.Op.Timeout(), d.Obligations.Timeout, r.opts.ExecTimeout))
	defer cancel()
	j := &job{r: r, n: n, q: q, d: d, max: least(d.Obligations.MaxBytes, r.opts.MaxFile)}
	if entry, _ := abi.Lookup(q.Op.Import()); entry.Lookup {
		if q.Facts.File == nil {
			return res, failed("changed", "%s was not looked up before it was decided",
				q.Op.Import())
		}
		j.decided = *q.Facts.File
	}
	switch op := q.Op.(type) {
	case abi.SSHExec:
		res, err = j.exec(ctx, op)
	case abi.SSHScript:
		res, err = j.command(ctx, nil, op.MaxBytes, q.Cmd)
	case abi.Stage:
		res, err = j.stage(ctx)
	case abi.SFTPStat:
		res, err = j.stat(ctx, op)
	case abi.SFTPList:
		res, err = j.list(ctx, op)
	case abi.SFTPRead:
		res, err = j.read(ctx, op)
	case abi.SFTPWrite:
		res, err = j.write(ctx, op)
	case abi.SFTPGet:
		res, err = j.download(ctx, op)
	case abi.SFTPPut:
		res, err = j.upload(ctx, op)
	case abi.SFTPRemove:
		res, err = j.remove(ctx, op)
	default:
		err = failed("not_found", "%s is not an operation of nodes", q.Op.Import())
	}
	if err != nil {
		return gate.Result{}, err
	}
	return res, nil
}

func (j *job) exec(ctx context.Context, op abi.SSHExec) (gate.Result, error) {
	stdin := []byte(op.Stdin)
	if op.StdinB64 != "" {
		var err error
		stdin, err = base64.StdEncoding.Strict().DecodeString(op.StdinB64)
		if err != nil || op.Stdin != "" {
			return gate.Result{}, failed("bad_input", "stdin_b64 must be base64, and alone")
		}
	}
	res, err := j.command(ctx, stdin, op.MaxBytes, j.q.Cmd)
	if v, is := res.Value.(abi.ExecResponse); is {
		v.Rendered = ""
		res.Value = v
	}
	return res, err
}

// command sends the rendering that was decided, to a shell that is known to read it as it was
// meant.
func (j *job) command(
	ctx context.Context, stdin []byte, limit int64, cmd *gate.Command,
) (gate.Result, error) {
	if cmd == nil || !cmd.Parsed || cmd.Rendered == "" {
		return gate.Result{}, failed("bad_input", "%s has no decided command", j.q.Op.Import())
	}
	e, err := j.n.exec(ctx, command{who: j.q.Call.Principal.ID, text: cmd.Rendered, stdin: stdin,
		max: least(limit, j.d.Obligations.MaxBytes, j.r.opts.MaxOutput)})
	if err != nil {
		return gate.Result{}, err
	}
	if guard := guardOf(e); guard != "" {
		return gate.Result{}, failed(notPermitted, "the command did not run on %s: %s",
			j.n.opts.Name, guard)
	}
	return e.result(cmd.Rendered), nil
}
