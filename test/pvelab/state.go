package pvelab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// State is everything that the simulated cluster knows apart from file trees. It is kept as one
// JSON file, so that several processes (the wrappers of `pvelab install`) can share one lab.
type State struct {
	Cluster        string     // name of the cluster; empty for a stand-alone node
	ClusterVersion int        // corosync configuration version
	NoQuorum       bool       // fault: reads work, writes fail
	Expected       int        // votes, once pvecm expected has set them
	Nodes          []*Node    //
	Guests         []*Guest   //
	Storages       []*Storage //
	Pools          []*Pool    //
	Tasks          []*Task    // oldest first
	Backups        []any      // rows of /cluster/backup
	Replications   []any      // rows of /cluster/replication
	// names that resolve to a machine outside the cluster: name to what its sshd answers with
	Foreign map[string]string
	// lines that the worker prints on a container's start, before the UPID
	StartNoise []string
	NextPID    int //
	// what a file's inode cannot hold for an unprivileged lab: owner, special bits
	Meta map[string]*Meta
}

// Node is one machine of the cluster.
type Node struct {
	Name, IP       string
	ID             int  // corosync node id; 0 when stand-alone
	Offline        bool // the cluster does not hear it
	Down           bool // nothing can reach it: no SSH either
	Unreachable    bool // wake-on-LAN packets cannot leave it
	WakeMAC        string
	Description    string
	Fingerprint    string // TLS certificate; empty when the node has none
	NoStats        bool   // pvestatd sent nothing for the node …
	NoStorageStats bool   // … or for its storages
	Booted         int64  // unix seconds
	MemTotal       int64
	MemUsed        int64
	RootTotal      int64
	RootUsed       int64
	DNS            string
	Kernel         string // release; a default when empty
	KernelVersion  string
	Services       map[string]string // unit to running|stopped
	Disabled       []string          // units that do not start with the node; all others do
	// fault: what a start-up file of the login shell does before each command
	Startup string
	// fault: the login shell reads backslashes inside single quotes
	Fish    bool
	Skew    int64    // fault: seconds that its clock is ahead
	Without []string // fault: programs that are not installed
	NoSFTP  bool     // fault: sshd has no such subsystem
	NoEnv   bool     // fault: sshd takes no variable of a client, and there is no locale
}

// Guest is a container or a virtual machine. Config holds the keys of its configuration file,
// description included.
type Guest struct {
	VMID       int
	Type       string // lxc or qemu
	Node       string
	Config     map[string]string
	Snapshots  []*Snapshot
	Running    bool
	PID        int
	Started    int64
	Stubborn   bool   // ignores a shutdown request
	StartError string // fault: start fails with this text
	SnapError  string // fault: the storage refuses a snapshot with this text
	SnapLost   bool   // fault: a snapshot is reported as made, and is not there
	Noise      string // fault: each status read prints this on stderr
	HA         bool   //
	Version    int    // of its configuration in the cluster file system
	DiskRead   int64  //
	// directory inside the container to the bytes that still fit below it
	Full map[string]int64
}

// Snapshot is one snapshot of a guest, oldest first in Guest.Snapshots.
type Snapshot struct {
	Name, Parent, Description string
	Time                      int64
	VMState                   bool
	Config                    map[string]string
}

// Storage is one storage as one node sees it.
type Storage struct {
	ID, Node, Type string
	Content        []string
	Shared         bool
	Total, Used    int64
	Available      int64 // the file system may keep a reserve
	Volumes        []*Volume
}

// Volume is one row of a storage's content.
type Volume struct {
	VolID, Content, Format string
	Size, Used, CTime      int64
	VMID                   int
	Subtype, Notes         string
	Protected              bool
}

// Pool groups guests and storages.
type Pool struct {
	ID, Comment string
	Guests      []int
	Storages    []string
}

// Task is a worker's record.
type Task struct {
	UPID, Node, Type, ID, User string
	PID                        int
	PStart, Start, End         int64
	Status                     string // exit text; empty while running
	Log                        []string
}

// Meta is a file's ownership and what its real mode cannot carry.
type Meta struct {
	Mode     uint32 // permission and special bits as the lab shows them; used when Moded
	Moded    bool
	UID, GID int
	FIFO     bool
}

func (s *State) node(name string) *Node {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (s *State) guest(vmid int) *Guest {
	for _, g := range s.Guests {
		if g.VMID == vmid {
			return g
		}
	}
	return nil
}

// local finds a guest as pct (lxc) or qm (qemu) on one node sees it.
func (s *State) local(node, typ string, vmid int) *Guest {
	if g := s.guest(vmid); g != nil && g.Node == node && g.Type == typ {
		return g
	}
	return nil
}

func (s *State) storage(node, id string) *Storage {
	for _, st := range s.Storages {
		if st.ID == id && st.Node == node {
			return st
		}
	}
	return nil
}

// quorate: a stand-alone node always is; a cluster needs more than half of its nodes.
func (s *State) quorate() bool {
	if s.Cluster == "" {
		return !s.NoQuorum
	}
	online := 0
	for _, n := range s.Nodes {
		if !n.Offline {
			online++
		}
	}
	votes := len(s.Nodes)
	if s.Expected > 0 {
		votes = s.Expected
	}
	return !s.NoQuorum && 2*online > votes
}

func (s *State) sortedGuests(keep func(*Guest) bool) []*Guest {
	var out []*Guest
	for _, g := range s.Guests {
		if keep(g) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *Guest) int { return a.VMID - b.VMID })
	return out
}

func (g *Guest) name() string {
	if g.Type == "lxc" {
		return g.Config["hostname"]
	}
	return g.Config["name"]
}

func (g *Guest) id() string { return strconv.Itoa(g.VMID) }

func (g *Guest) status() string {
	if g.Running {
		return "running"
	}
	return "stopped"
}

func (g *Guest) snapshot(name string) *Snapshot {
	for _, s := range g.Snapshots {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// db is the state file. Lock order: db.mu, then the file lock.
type db struct {
	path   string
	mu     sync.Mutex // guards cached and cachedAt
	cached *State
	stamp  os.FileInfo
}

// view runs fn on the current state, which fn must neither change nor keep.
func (d *db) view(fn func(*State)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.load(); err != nil {
		return err
	}
	fn(d.cached)
	return nil
}

// update runs fn on the state and writes it back when fn returns nil. fn must not wait for
// anything: every other process that uses the lab stands still meanwhile.
func (d *db) update(fn func(*State) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	lock, err := os.OpenFile(d.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("locking the lab's state %s: %w", d.path, err)
	}
	defer lock.Close() // gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the lab's state %s: %w", d.path, err)
	}
	if err := d.load(); err != nil {
		return err
	}
	if err := fn(d.cached); err != nil {
		d.cached = nil // fn may have changed half of it
		return err
	}
	return d.save()
}

func (d *db) load() error {
	fi, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("reading the lab's state: %w", err)
	}
	if d.cached != nil && os.SameFile(fi, d.stamp) && fi.ModTime().Equal(d.stamp.ModTime()) &&
		fi.Size() == d.stamp.Size() {
		return nil
	}
	b, err := os.ReadFile(d.path)
	if err != nil {
		return fmt.Errorf("reading the lab's state: %w", err)
	}
	s := &State{}
	if err := json.Unmarshal(b, s); err != nil {
		return fmt.Errorf("reading the lab's state %s: %w", d.path, err)
	}
	d.cached, d.stamp = s, fi
	return nil
}

// save replaces the file in one step, so that a reader in another process sees the old or the new
// state, never half of one.
func (d *db) save() error {
	b, err := json.Marshal(d.cached)
	if err != nil {
		return fmt.Errorf("encoding the lab's state: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(d.path), ".state-*")
	if err != nil {
		return fmt.Errorf("writing the lab's state: %w", err)
	}
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), d.path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		d.cached = nil
		return fmt.Errorf("writing the lab's state %s: %w", d.path, err)
	}
	d.stamp, err = os.Stat(d.path)
	return err
}

func now() int64 { return time.Now().Unix() }
