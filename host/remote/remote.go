package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var _ gate.Executor = (*Remote)(nil)

// Remote does the ssh_*, sftp_* and stage operations. It is safe for concurrent use.
type Remote struct {
	opts  Options
	nodes map[string]*node
	memo  memo
	ctx   context.Context // of what outlives a call: connections. Close ends it
	stop  context.CancelFunc
	wg    sync.WaitGroup // everything that was started

	mu       sync.Mutex // guards the following
	closed   bool
	stages   map[owned]bool
	pinKinds map[string]int // by pin, its kind; see kinds
}

// New checks the options and prepares the nodes. It connects to none of them unless Options.Warm is
// set, and then in the background.
func New(o Options) (*Remote, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Workspace, 0o700); err != nil {
		return nil, fmt.Errorf("making remote.workspace: %w", err)
	}
	r := &Remote{
		opts:     o,
		nodes:    map[string]*node{},
		stages:   map[owned]bool{},
		pinKinds: map[string]int{},
		memo:     memo{ttl: o.Memo, seen: map[string]remembered{}},
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, n := range o.Nodes {
		r.nodes[n.Name] = &node{r: r, opts: n, gate: n.node(), held: map[string]int{}}
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

// Nodes is the inventory, in the order of the configuration.
func (r *Remote) Nodes() []gate.Node {
	var all []gate.Node
	for _, n := range r.opts.Nodes {
		all = append(all, n.node())
	}
	return all
}

// Inventory is the configuration of every node with its defaults, in the order of the configuration.
func (r *Remote) Inventory() []NodeOptions { return slices.Clone(r.opts.Nodes) }

// NodeState is what the pool holds for a node.
type NodeState struct {
	Name                           string
	Connections, Sessions, Waiting int
}

// Pool tells of every node, in the order of the configuration.
func (r *Remote) Pool() []NodeState {
	var all []NodeState
	for _, o := range r.opts.Nodes {
		n := r.nodes[o.Name]
		n.mu.Lock()
		s := NodeState{Name: o.Name, Connections: len(n.conns)}
		for _, l := range n.lines {
			s.Waiting += len(l.waiters)
		}
		for _, c := range n.conns {
			s.Sessions += c.used
		}
		n.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// Connected reports whether there is a connection to any node.
func (r *Remote) Connected() bool {
	for _, n := range r.nodes {
		n.mu.Lock()
		up := len(n.conns) > 0
		n.mu.Unlock()
		if up {
			return true
		}
	}
	return false
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
			c.fail(errors.New("the host is shutting down"))
		}
		n.settle()
		n.mu.Unlock()
	}
	r.wg.Wait()
	return nil
}

// enter finds the node of a question. done must be called.
func (r *Remote) enter(q gate.Question) (n *node, done func(), err error) {
	name := q.Op.NodeName()
	if n = r.nodes[name]; n == nil || q.Node != nil && q.Node.Name != name {
		return nil, nil, failed("not_found", "node %q is not in the inventory (remote.nodes)", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, failed(
			"connection",
			"the host is shutting down; nothing was sent to %s",
			name,
		)
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

// Lookup finds the facts of an SFTP operation: the real path and what is there, and of sftp_put the
// size of the local file.
func (r *Remote) Lookup(ctx context.Context, q gate.Question) (facts gate.Facts, err error) {
	n, done, err := r.enter(q)
	if err != nil {
		return facts, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, least(q.Op.Timeout(), r.opts.ExecTimeout))
	defer cancel()
	var name string
	follow, local := true, int64(0)
	switch op := q.Op.(type) {
	case abi.SFTPStat:
		name = op.Path
	case abi.SFTPList:
		name = op.Path
	case abi.SFTPRead:
		name = op.Path
	case abi.SFTPWrite:
		name = op.Path
	case abi.SFTPGet:
		name, err = op.Path, r.atRoot(q, func(root *os.Root) error { return vacant(root, op.Local, op.Overwrite) })
	case abi.SFTPPut:
		name = op.Path
		err = r.atRoot(q, func(root *os.Root) error {
			f, size, err := source(root, op.Local)
			if err == nil {
				local = size
				f.Close()
			}
			return err
		})
	case abi.SFTPRemove:
		name, follow = op.Path, false
	default:
		return facts, failed("not_found", "%s has no facts to look up", q.Op.Import())
	}
	if err != nil {
		return facts, err
	}
	var file gate.FileFacts
	err = n.with(ctx, "looking up", name, func(_ context.Context, f *files, _ *pledge) (err error) {
		file, _, err = f.look(name, follow)
		return err
	})
	if err != nil { // what was given up may still write to file
		return gate.Facts{}, err
	}
	file.LocalBytes = local
	return gate.Facts{File: &file}, nil
}

func (r *Remote) atRoot(q gate.Question, do func(*os.Root) error) error {
	root, err := r.local(q.Call.Principal.ID)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// Execute does an allowed operation, on the facts that were decided. The error is a *gate.OpError;
// its outcome is Unknown when a request that may have had an effect was sent and no answer came.
func (r *Remote) Execute(
	ctx context.Context,
	q gate.Question,
	d gate.Decision,
) (gate.Result, error) {
	if !d.Allow {
		return gate.Result{}, failed("refused", "%s was not allowed", q.Op.Import())
	}
	n, done, err := r.enter(q)
	if err != nil {
		return gate.Result{}, err
	}
	defer done()
	if d.Tier != gate.Green {
		r.memo.forget()
		defer r.memo.forget()
	}
	ctx, cancel := context.WithTimeout(
		ctx,
		least(q.Op.Timeout(), d.Obligations.Timeout, r.opts.ExecTimeout),
	)
	defer cancel()
	switch op := q.Op.(type) {
	case abi.SSHExec:
		return r.sshExec(ctx, n, q, d, op)
	case abi.SSHScript:
		limit := least(op.MaxBytes, d.Obligations.MaxBytes, r.opts.MaxOutput)
		e, err := r.command(ctx, n, q, nil, limit)
		if err != nil {
			return gate.Result{}, err
		}
		return e.result(q.Cmd.Rendered), nil
	case abi.Stage:
		dir, err := n.stage(ctx)
		if err != nil {
			return gate.Result{}, err
		}
		return stageOf(op.Node, dir), nil
	}
	if q.Facts.File == nil {
		return gate.Result{}, failed(
			"changed",
			"%s was not looked up before it was decided",
			q.Op.Import(),
		)
	}
	return r.file(ctx, n, q, d)
}

func (r *Remote) sshExec(
	ctx context.Context,
	n *node,
	q gate.Question,
	d gate.Decision,
	op abi.SSHExec,
) (gate.Result, error) {
	stdin := []byte(op.Stdin)
	if op.StdinB64 != "" {
		var err error
		if stdin, err = base64.StdEncoding.Strict().DecodeString(op.StdinB64); err != nil ||
			op.Stdin != "" {
			return gate.Result{}, failed("bad_input", "stdin_b64 must be base64, and alone")
		}
	}
	limit := least(op.MaxBytes, d.Obligations.MaxBytes, r.opts.MaxOutput)
	asked := r.opts.Now()
	key := r.memo.key(q, d, op, limit)
	res, epoch, known := r.memo.get(key, asked)
	if known {
		return res, nil
	}
	e, err := r.command(ctx, n, q, stdin, limit)
	if err != nil {
		return gate.Result{}, err
	}
	res = e.result("")
	r.memo.put(key, epoch, e, res, asked)
	return res, nil
}

// command sends the rendering that was decided, to a shell that is known to read it as it was
// meant.
func (r *Remote) command(
	ctx context.Context,
	n *node,
	q gate.Question,
	stdin []byte,
	limit int64,
) (ended, error) {
	if q.Cmd == nil || !q.Cmd.Parsed || q.Cmd.Rendered == "" {
		return ended{}, failed("bad_input", "%s has no decided command", q.Op.Import())
	}
	return n.exec(
		ctx,
		command{who: q.Call.Principal.ID, text: q.Cmd.Rendered, stdin: stdin, max: limit},
	)
}

// file does the SFTP operations.
func (r *Remote) file(
	ctx context.Context,
	n *node,
	q gate.Question,
	d gate.Decision,
) (gate.Result, error) {
	var err error
	res := new(gate.Result) // of its own: what was given up may still write to it
	decided := *q.Facts.File
	limit := least(d.Obligations.MaxBytes, r.opts.MaxFile)
	tell := &teller{to: q.Progress, what: "bytes moved"}
	switch op := q.Op.(type) {
	case abi.SFTPStat:
		err = n.with(ctx, "reading", op.Path, func(_ context.Context, f *files, _ *pledge) error {
			now, info, err := f.again(op.Path, true, &decided)
			if err != nil {
				return err
			}
			if info == nil {
				return os.ErrNotExist
			}
			v := fileInfo(info)
			v.Name, v.NameB64, v.RealPath = "", "", now.RealPath
			*res = gate.Result{Value: v}
			return nil
		})
	case abi.SFTPList:
		limit := int(least(int64(op.Limit), 10_000))
		err = n.with(ctx, "listing", op.Path, func(ctx context.Context, f *files, _ *pledge) error {
			now, _, err := f.again(op.Path, true, &decided)
			switch {
			case err != nil:
				return err
			case !now.Exists:
				return os.ErrNotExist
			case now.Type != "dir":
				return failed("not_a_file", "%q is a %s, not a directory", now.RealPath, now.Type)
			}
			v, err := f.list(ctx, now.RealPath, limit)
			*res = gate.Result{Value: v}
			return err
		})
	case abi.SFTPRead:
		limit := least(op.MaxBytes, d.Obligations.MaxBytes, maxData)
		err = n.with(ctx, "reading", op.Path, func(_ context.Context, f *files, _ *pledge) error {
			now, _, err := f.again(op.Path, true, &decided)
			if err != nil {
				return err
			}
			v, err := f.read(now, limit)
			*res = gate.Result{Value: v, Bytes: v.Bytes}
			return err
		})
	case abi.SFTPWrite:
		data, derr := op.Data.Bytes()
		if derr != nil {
			return *res, failed("bad_input", "data: %v", derr)
		}
		if int64(len(data)) > min(limit, maxData) {
			return *res, failed("too_large", "%d bytes are more than the %d that are allowed here", len(data), min(limit, maxData))
		}
		err = n.with(ctx, "writing", op.Path, func(ctx context.Context, f *files, p *pledge) error {
			v, err := f.put(ctx, p, upload{op.Path, decided, bytes.NewReader(data), int64(len(data)), op.Mode, op.Overwrite, tell, ""})
			*res = v.result()
			return err
		})
	case abi.SFTPGet:
		root, lerr := r.local(q.Call.Principal.ID)
		if lerr != nil {
			return *res, lerr
		}
		err = n.with(ctx, "downloading", op.Path, func(ctx context.Context, f *files, p *pledge) error {
			var v WriteResult
			err := receive(root, op.Local, op.Overwrite, commit(ctx, p), func(w io.Writer) (int64, error) {
				now, _, err := f.again(op.Path, true, &decided)
				if err != nil {
					return 0, err
				}
				v, err = f.get(ctx, now, w, least(op.MaxBytes, limit), tell)
				return v.Bytes, err
			})
			v.Local = op.Local
			*res = v.result()
			return err
		}, root.Close)
	case abi.SFTPPut:
		root, lerr := r.local(q.Call.Principal.ID)
		if lerr != nil {
			return *res, lerr
		}
		defer root.Close()
		src, size, lerr := source(root, op.Local)
		if lerr != nil {
			return *res, lerr
		}
		if size != decided.LocalBytes || size > limit {
			src.Close()
			if size > limit {
				return *res, failed("too_large", "local %q has %d bytes, %d are allowed here", op.Local, size, limit)
			}
			return *res, failed("changed", "local %q had %d bytes when it was decided and has %d now; nothing was sent", op.Local, decided.LocalBytes, size)
		}
		err = n.with(ctx, "uploading", op.Path, func(ctx context.Context, f *files, p *pledge) error {
			v, err := f.put(ctx, p, upload{op.Path, decided, src, size, op.Mode, op.Overwrite, tell, q.Call.Files[op.Local]})
			*res = v.result()
			return err
		}, src.Close)
	case abi.SFTPRemove:
		err = n.with(ctx, "removing", op.Path, func(_ context.Context, f *files, p *pledge) error {
			return f.remove(p, op.Path, &decided)
		})
		*res = gate.Result{Value: struct{}{}}
	default:
		return *res, failed("not_found", "%s is not an operation of nodes", q.Op.Import())
	}
	if err != nil {
		return gate.Result{}, err
	}
	return *res, nil
}

// End removes the staging directories of a call. What cannot be removed now is found at the next
// start.
func (r *Remote) End(ctx context.Context, c *gate.Call) {
	for _, s := range c.Stages {
		n, done, err := r.enter(gate.Question{Op: abi.Stage{OnNode: abi.OnNode{Node: s.Node}}})
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, r.opts.StepTimeout)
		n.unstage(ctx, s.Dir)
		cancel()
		done()
	}
}
