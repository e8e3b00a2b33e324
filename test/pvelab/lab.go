// Package pvelab is a simulated Proxmox VE cluster behind real SSH servers, for the demo and the
// tests.
package pvelab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Lab is a running cluster. Its methods may be called concurrently.
type Lab struct {
	Addr       string            // SSH address of the first node
	Nodes      map[string]string // SSH address of each node
	ConfigPath string            // the configuration that was written, or ""
	HostKeys   map[string]string // SHA256:… of each node's host key
	Identity   string            // private key file that the nodes accept for root

	opt                Options
	dir                string
	db                 *db
	effects            *effects
	programs           map[string]*program
	routes             []route
	everywhere, onNode map[string]builtin
	said               map[string][]saying
	names              map[string]bool // of all programs
	// ends every process of the lab, also those that outlive their request
	ctx     context.Context
	cancel  context.CancelFunc
	latency atomic.Int64
	work    sync.WaitGroup // servers, connections, processes

	mu      sync.Mutex // guards the rest
	procs   map[int]*process
	lastPID int
	trees   map[string]*tree
	held    map[string]int // lock files, by node:path
	closers []io.Closer
	conns   map[net.Conn]string // to the node
	closed  bool
}

// firstPID is below every process id that the lab gives.
const firstPID = 4000

// Start makes or reuses the state directory, starts one SSH server for each node and writes the
// configuration. The lab lasts until Close, or until ctx ends.
func Start(ctx context.Context, o Options) (*Lab, error) {
	l, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := l.db.update(func(s *State) error { return s.spoil(o.Faults) }); err != nil {
		l.Close()
		return nil, err
	}
	if err := l.listen(); err != nil {
		l.Close()
		return nil, err
	}
	if o.Config != "" {
		if err := l.writeConfig(o.Config); err != nil {
			l.Close()
			return nil, err
		}
	}
	context.AfterFunc(l.ctx, func() { l.Close() })
	return l, nil
}

// open is a lab without servers, as the wrappers of `pvelab install` use it.
func open(ctx context.Context, o Options) (*Lab, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.State)
	if err != nil {
		return nil, fmt.Errorf("pvelab: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pvelab: making the state directory: %w", err)
	}
	l := &Lab{
		opt: o, dir: dir, db: &db{path: filepath.Join(dir, "state.json")},
		procs: map[int]*process{}, lastPID: firstPID, trees: map[string]*tree{},
		held:  map[string]int{},
		Nodes: map[string]string{}, HostKeys: map[string]string{}, conns: map[net.Conn]string{},
	}
	l.latency.Store(int64(o.Latency))
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.everywhere, l.onNode = smallPrograms()
	l.said = sayings()
	for name, texts := range l.said {
		if l.everywhere[name] == nil && !slices.Contains(pvePrograms, name) {
			l.onNode[name] = talks(texts, l.onNode[name])
		}
	}
	l.programs, l.routes = map[string]*program{}, routes()
	for _, p := range []*program{pctProgram(), qmProgram(), pvesmProgram(), pvecmProgram(),
		pvenodeProgram()} {
		l.programs[p.Name] = p
	}
	l.names = map[string]bool{"pvesh": true}
	for name := range l.programs {
		l.names[name] = true
	}
	for _, table := range []map[string]builtin{l.everywhere, l.onNode} {
		for name := range table {
			l.names[name] = true
		}
	}
	if l.effects, err = openEffects(o.Effects); err != nil {
		return nil, err
	}
	if _, err := os.Stat(l.db.path); errors.Is(err, os.ErrNotExist) {
		err = l.populate(o.Inventory)
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// populate writes a fresh inventory and its file trees.
func (l *Lab) populate(s *State) error {
	if s == nil {
		s = DemoInventory(time.Now())
	}
	// A caller may start many labs from one inventory.
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("pvelab: encoding the inventory: %w", err)
	}
	cp := &State{}
	if err := json.Unmarshal(b, cp); err != nil {
		return fmt.Errorf("pvelab: copying the inventory: %w", err)
	}
	if cp.NextPID == 0 {
		cp.NextPID = 1000
	}
	l.db.cached = cp
	if err := l.db.save(); err != nil {
		return err
	}
	for _, n := range cp.Nodes {
		if l.opt.NodeRoot != "" {
			break // not ours to fill
		}
		if err := l.fill(l.nodeTree(n.Name), nodeFiles(n)); err != nil {
			return err
		}
	}
	for _, g := range cp.Guests {
		if g.Type == "lxc" {
			if err := l.fill(l.ctTree(g.VMID, g.Node), ctFiles(g)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill writes files: a name that ends in a slash is a directory, a text that begins with "-> " a
// symbolic link.
func (l *Lab) fill(t *tree, files map[string]string) error {
	if t == nil {
		return fmt.Errorf("pvelab: opening the file trees below %s", l.dir)
	}
	for name, text := range files {
		var err error
		if strings.HasSuffix(name, "/") {
			err = t.mkdirAll(name, 0o755)
		} else if err = t.mkdirAll(filepath.Dir(name), 0o755); err == nil {
			if to, ok := strings.CutPrefix(text, "-> "); ok {
				err = t.symlink(to, name)
			} else {
				err = t.writeFile(name, []byte(text), 0o644)
			}
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("pvelab: writing %s of %s: %w", name, t.key, err)
		}
	}
	return nil
}

func (l *Lab) nodeTree(name string) *tree { return l.tree("nodes/"+name, name, 0) }

func (l *Lab) ctTree(vmid int, node string) *tree {
	return l.tree(fmt.Sprintf("ct/%d", vmid), "", vmid)
}

// tree opens a file tree once; nil when its directory cannot be opened.
func (l *Lab) tree(key, node string, vmid int) *tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.trees[key]; t != nil {
		return t
	}
	dir := filepath.Join(l.dir, filepath.FromSlash(key))
	native := node != "" && l.opt.NodeRoot != ""
	if native {
		dir = l.opt.NodeRoot
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	t := &tree{lab: l, key: key, node: node, root: root, vmid: vmid, native: native}
	l.trees[key] = t
	l.closers = append(l.closers, root)
	return t
}

// dropCT forgets a destroyed container's tree.
func (l *Lab) dropCT(vmid int) {
	key := fmt.Sprintf("ct/%d", vmid)
	l.mu.Lock()
	t := l.trees[key]
	delete(l.trees, key)
	l.mu.Unlock()
	if t != nil {
		t.dropMeta(".")
		t.root.Close()
	}
	os.RemoveAll(filepath.Join(l.dir, filepath.FromSlash(key)))
}

// Effects are what reached the nodes through this process so far.
func (l *Lab) Effects() []Effect { return l.effects.all() }

// Close ends every connection and every process of the lab and waits for them. It may be called
// again.
func (l *Lab) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	conns := maps.Clone(l.conns)
	closers := l.closers
	l.mu.Unlock()
	l.cancel()
	if first {
		for i := len(closers) - 1; i >= 0; i-- {
			if _, isRoot := closers[i].(*os.Root); !isRoot {
				closers[i].Close() // listeners: nothing to lose
			}
		}
		for c := range conns {
			c.Close()
		}
	}
	l.work.Wait()
	if first {
		for _, c := range closers {
			if r, isRoot := c.(*os.Root); isRoot {
				r.Close()
			}
		}
		l.effects.close()
	}
	return nil
}

// Run runs one program on a node as root would without a shell, and answers its exit code. What it
// started inside a container may go on after it, without its output.
func (l *Lab) Run(ctx context.Context, node string, argv, env []string, stdin io.Reader,
	stdout, stderr io.Writer) int {
	return l.run(ctx, node, argv, env, 0, stdin, stdout, stderr)
}

func (l *Lab) run(ctx context.Context, node string, argv, env []string, uid int, in io.Reader,
	stdout, stderr io.Writer) int {
	t := l.nodeTree(node)
	if t == nil || len(argv) == 0 {
		fmt.Fprintf(stderr, "pvelab: no such node '%s', or nothing to run\n", node)
		return 255
	}
	l.effects.add(Effect{Node: node, Kind: "exec", Argv: argv})
	out, errw := &syncWriter{w: stdout}, &syncWriter{w: stderr}
	defer out.detach()
	defer errw.detach()
	stdin, closeIn, err := pipeFrom(in)
	if err != nil {
		fmt.Fprintf(stderr, "pvelab: %v\n", err)
		return 255
	}
	defer closeIn()
	sess := &session{text: strings.Join(argv, " ")}
	defer l.finish(sess)
	ctx, self, end := l.spawn(ctx, t.key, argv)
	defer end()
	dir := "/root"
	if wd, err := os.Getwd(); err == nil && l.opt.NodeRoot == "/" {
		dir = wd
	}
	p := &proc{
		lab:  l,
		node: node,
		tree: t,
		args: argv,
		env:  env,
		dir:  dir,
		in:   stdin,
		out:  out,
		err:  errw,
		sess: sess,
		self: self,
		uid:  uid,
	}
	code, lerr := p.exec(ctx)
	if lerr != nil {
		fmt.Fprintf(errw, "%s: %s\n", argv[0], errText(lerr))
	}
	return code & 0xff
}

// finish lets go of what a request held.
func (l *Lab) finish(s *session) {
	s.mu.Lock()
	s.gone = true
	locks := s.locks
	s.mu.Unlock()
	for _, k := range locks {
		l.hold(k, -1)
	}
}

// pipeFrom gives programs an *os.File to read from, as the interpreter wants it.
func pipeFrom(r io.Reader) (*os.File, func(), error) {
	if f, ok := r.(*os.File); ok || r == nil {
		return f, func() {}, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	go func() { // ends with r, or at the first write after pr is closed
		io.Copy(pw, r)
		pw.Close()
	}()
	return pr, func() { pr.Close() }, nil
}

func (l *Lab) hold(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] += n; l.held[key] <= 0 {
		delete(l.held, key)
	}
}

func (l *Lab) isHeld(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[key] > 0
}

// wait is one of a real node's own waits.
func (l *Lab) wait(ctx context.Context, d time.Duration) error {
	if !l.opt.RealWaits {
		d = 0
	}
	return sleep(ctx, d)
}
