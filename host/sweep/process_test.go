package sweep

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// cut says at which of its steps a process ends, and how. A step is a change of the store, a record
// of the journal, or a request to the node.
type cut struct {
	at  int // 0 is never
	how string
}

const (
	before = "before" // the step is not done
	after  = "after"  // it is done, and the process does not learn of it
	late   = "late"   // the request is under way, and done when deliver is called
	pause  = "pause"  // the process waits for resume, and goes on
)

// process is a host process in this one: a store, a remote and a sweeper of its own. When it is cut
// each of its goroutines waits at its next step, so that nothing cleans up after it.
type process struct {
	t       *testing.T
	w       *world
	store   *store.Store
	remote  *remote.Remote
	node    *sshtest.Server
	sweeper Sweeper

	ended   chan struct{} // closed when it is cut or pauses
	over    chan struct{} // closed when the test is over
	resumed chan struct{}

	mu      sync.Mutex // guards the following
	cut     cut
	steps   int
	dead    bool
	frozen  bool // policy refuses
	full    bool // nothing can be written: neither a record that something is gone, nor the journal
	wire    io.Writer
	left    [][]byte // requests under way
	sent    int      // requests that the node has got
	replied chan struct{}
}

var errDead = errors.New("this process has ended")

// newProcess starts a host.
func newProcess(t *testing.T, w *world, c cut) *process {
	p := &process{t: t, w: w, cut: c, ended: make(chan struct{}), over: make(chan struct{}),
		resumed: make(chan struct{}), replied: make(chan struct{}, 1000)}
	p.node = sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: p.serve}})
	var err error
	// opening may take twice as long as Busy
	for end := time.Now().Add(time.Minute); ; {
		p.store, err = store.Open(store.Options{Dir: w.store, Busy: 100 * time.Millisecond,
			Now: w.now, Boot: w.running})
		if err == nil {
			break
		} else if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	host, port := p.node.HostPort()
	p.remote, err = remote.New(remote.Options{Workspace: w.workspace, StageRoot: w.tmp,
		HostID: "0123abcd", Nodes: []remote.NodeOptions{{Name: "n1", Cluster: "c",
			Login: remote.Login{Host: host, Port: port, User: "root", HostKey: p.node.Pin(),
				IdentityFile: p.node.ClientFile}}},
		Record: p.record()})
	if err != nil {
		t.Fatal(err)
	}
	own := native.New(nobody{}, "1", Tool)
	door := gate.New(gate.Options{Decider: p, Journal: p, Ledger: p, Lowerer: shell.Lowerer{},
		Throttle: &fair.Refusals{}, Nodes: []terms.Node{{Name: "n1"}},
		Executors: map[string]terms.Executor{"discard": p.remote},
		Mode:      func(context.Context) terms.Mode { return terms.Mode{} }}, own)
	p.sweeper = Sweeper{Left: p.remote.Leftovers,
		Call: func(ctx context.Context, tool string, args any) terms.Answer {
			return own.Call(ctx, door, tool, args)
		}}
	t.Cleanup(func() {
		close(p.over)
		p.node.Close()
		p.remote.Close()
		p.store.Close()
	})
	return p
}

// record is what the process keeps of temporary files: each change is a step.
func (p *process) record() remote.Record {
	t := p.t
	return remote.Record{
		Made: func(node, name string) error {
			at := terms.StageDir{Node: node, Dir: name}
			return p.step(func() error { return p.store.PutStage(t.Context(), at) })
		},
		Removed: func(node, name string) {
			at := terms.StageDir{Node: node, Dir: name}
			p.change(func() error { return p.store.RemoveStage(t.Context(), at) })
		},
		Missing: func(node, name string) (forgotten bool) {
			p.change(func() (err error) {
				forgotten, err = p.store.MissedStage(t.Context(),
					terms.StageDir{Node: node, Dir: name})
				return err
			})
			return forgotten
		},
		Dead: p.store.DeadStages}
}

// nobody runs no plugins.
type nobody struct{ gate.Runner }

// Decide, Intent, Outcome and Take make a process the other parts of its door.
func (p *process) Decide(context.Context, terms.Question) (terms.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return terms.Decision{Allow: !p.frozen, Tier: terms.Yellow,
		Failed: map[bool][]string{true: {"freeze"}}[p.frozen]}, nil
}

func (p *process) Intent(context.Context, terms.Record, bool) error { return p.write() }
func (p *process) Outcome(context.Context, terms.Record) error      { return p.write() }

func (p *process) write() error {
	return p.step(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.full {
			return errors.New("the disk is full")
		}
		return nil
	})
}

func (p *process) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}

// step does a step of the process, unless it is cut there or was cut before: then it waits.
func (p *process) step(do func() error) error {
	switch p.next() {
	case "":
		return do()
	case after:
		_ = do()
		close(p.ended)
	case pause:
		close(p.ended)
		<-p.resumed
		return do()
	case before, late:
		close(p.ended)
	}
	<-p.over
	return errDead
}

// change does a step that changes what is recorded, unless the disk is full.
func (p *process) change(do func() error) {
	_ = p.step(func() error {
		p.mu.Lock()
		full := p.full
		p.mu.Unlock()
		if full {
			return errors.New("the disk is full")
		}
		return do()
	})
}

// next counts a step, and says how the process is cut there: "dead" when it was already.
func (p *process) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return "dead"
	}
	if p.steps++; p.steps != p.cut.at {
		return ""
	}
	p.dead = p.cut.how != pause
	return p.cut.how
}

// serve is the node for this process: SFTP on the disk of this machine, where each request is a
// step.
func (p *process) serve(rw io.ReadWriteCloser) {
	in, toNode := io.Pipe()
	fromNode, out := io.Pipe()
	server, err := sftp.NewServer(struct {
		io.Reader
		io.WriteCloser
	}{in, out})
	if err != nil {
		p.t.Error(err)
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer toNode.Close()
	defer rw.Close()
	all.Go(func() {
		server.Serve()
		out.Close()
	})
	all.Go(func() {
		for {
			answer, err := packet(fromNode)
			if err != nil {
				return
			}
			p.mu.Lock()
			dead := p.dead
			p.mu.Unlock()
			if !dead {
				rw.Write(answer)
			}
			p.replied <- struct{}{}
		}
	})
	p.mu.Lock()
	p.wire = toNode
	p.mu.Unlock()
	for {
		request, err := packet(rw)
		if err != nil {
			return
		}
		p.request(request)
	}
}

// request is a step of a process that the node gets.
func (p *process) request(b []byte) {
	switch p.next() {
	case "":
		p.send(b)
	case after:
		p.send(b)
		p.settle()
		close(p.ended)
	case pause:
		close(p.ended)
		select {
		case <-p.resumed:
			p.send(b)
		case <-p.over:
		}
	case before:
		close(p.ended)
	case late:
		p.left = append(p.left, b)
		close(p.ended)
	default:
		if p.cut.how == late {
			p.mu.Lock()
			p.left = append(p.left, b)
			p.mu.Unlock()
		}
	}
}

func (p *process) send(b []byte) {
	p.sent++
	_, _ = p.wire.Write(b)
}

// settle waits until the node has answered every request.
func (p *process) settle() {
	for ; p.sent > 0; p.sent-- {
		select {
		case <-p.replied:
		case <-time.After(20 * time.Second):
			p.t.Error("the node did not answer")
			return
		}
	}
}

// deliver has the node do what was under way.
func (p *process) deliver() {
	p.mu.Lock()
	left := p.left
	p.left = nil
	p.mu.Unlock()
	for _, b := range left {
		p.send(b)
	}
	if len(left) > 0 {
		p.settle()
	}
}

// packet reads one packet of SFTP.
func packet(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	b := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// run does something in the process, and reports whether it came to its end: else it was cut, or
// pauses.
func (p *process) run(do func()) bool {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		return true
	case <-p.ended:
		return false
	case <-time.After(time.Minute):
		p.t.Fatal("a process hangs")
		return false
	}
}

// reap ends a process that was cut as the kernel does: what it locked is free, and its file stays.
func (p *process) reap() {
	locks, err := filepath.Glob(filepath.Join(p.w.store, "process-*.lock"))
	for _, l := range locks {
		err = errors.Join(err, os.Link(l, l+".kept"))
	}
	err = errors.Join(err, p.store.Close())
	for _, l := range locks {
		// both stay if both are there
		err = errors.Join(err, os.Rename(l+".kept", l), os.RemoveAll(l+".kept"))
	}
	if err != nil {
		p.t.Error(err)
	}
}

// upload does what tools do with files, and ends the call.
func (p *process) upload(local string) (err error) {
	ctx := p.t.Context()
	call := &terms.Call{ID: "call", Principal: terms.Principal{ID: "agent"}, Tool: &terms.Tool{},
		Targets: terms.Targets{LocalPaths: []string{"a"}}}
	if call.Files, err = p.remote.Digests(call); err != nil {
		return err
	}
	do := func(op abi.Op) (terms.Result, error) {
		q := terms.Question{Kind: terms.KindOperation, Op: op, Node: &terms.Node{Name: "n1"},
			Call: call, Phase: terms.PhaseLookup}
		if _, stage := op.(abi.Stage); !stage {
			facts, err := p.remote.Lookup(ctx, q)
			if err != nil {
				return terms.Result{}, err
			}
			q.Facts = facts
		}
		q.Phase = terms.PhaseEffect
		return p.remote.Execute(ctx, q, terms.Decision{Allow: true, Tier: terms.Yellow})
	}
	on := abi.OnNode{Node: "n1"}
	made, err := do(abi.Stage{OnNode: on})
	if err != nil {
		return err
	}
	call.Stages = []terms.StageDir{*made.Stage}
	defer p.remote.End(ctx, call)
	staged := filepath.Join(made.Stage.Dir, "a")
	for _, op := range []abi.Op{abi.SFTPPut{OnNode: on, Local: "a", Path: staged},
		abi.SFTPGet{OnNode: on, Path: staged, Local: local},
		abi.SFTPWrite{OnNode: on, Path: filepath.Join(p.w.place, local),
			Data: abi.Data{Text: "text"}}} {
		if _, err := do(op); err != nil {
			return err
		}
	}
	return nil
}

func stageOn(node, dir string) terms.StageDir { return terms.StageDir{Node: node, Dir: dir} }
