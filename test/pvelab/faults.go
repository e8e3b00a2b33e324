package pvelab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// faults are what can be wrong with a cluster from the start, by the names that --fault takes: what
// `caponier check` should find.
var faults = map[string]func(*State){
	"slow-startup":  onNodes(func(n *Node) { n.Startup = "sleep 0.5" }),
	"noisy-startup": onNodes(func(n *Node) { n.Startup = "echo Welcome" }),
	"fish":          onNodes(func(n *Node) { n.Fish = true }),
	"no-pct":        onNodes(func(n *Node) { n.Without = append(n.Without, "pct") }),
	"no-pvesh":      onNodes(func(n *Node) { n.Without = append(n.Without, "pvesh") }),
	"clock":         onNodes(func(n *Node) { n.Skew = 3600 }),
	"no-sftp":       onNodes(func(n *Node) { n.NoSFTP = true }),
	"no-locale":     onNodes(func(n *Node) { n.NoEnv = true }),
	"no-quorum":     func(s *State) { s.NoQuorum = true },
	"node-down":     func(s *State) { down(s, len(s.Nodes)-1) },
}

func onNodes(fn func(*Node)) func(*State) {
	return func(s *State) {
		for _, n := range s.Nodes {
			fn(n)
		}
	}
}

func down(s *State, i int) {
	if i >= 0 {
		s.Nodes[i].Down, s.Nodes[i].Offline = true, true
	}
}

func faultNames() string { return strings.Join(slices.Sorted(maps.Keys(faults)), ", ") }

// spoil brings the named faults into the state.
func (s *State) spoil(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		if faults[name] == nil {
			return fmt.Errorf("pvelab: there is no fault %q; there are %s", name, faultNames())
		}
		faults[name](s)
	}
	return nil
}

// nodeNow is a copy of what is known of a node.
func (l *Lab) nodeNow(name string) (n Node) {
	_ = l.db.view(func(s *State) {
		if x := s.node(name); x != nil {
			n = *x
		}
	})
	return n
}

// Edit changes the state of the running lab: the general knob behind the named ones. fn must not
// wait.
func (l *Lab) Edit(fn func(*State) error) error { return l.db.update(fn) }

func (l *Lab) editGuest(vmid int, fn func(*Guest)) error {
	return l.db.update(func(s *State) error {
		g := s.guest(vmid)
		if g == nil {
			return fmt.Errorf("pvelab: there is no guest %d", vmid)
		}
		fn(g)
		return nil
	})
}

func (l *Lab) editNode(name string, fn func(*Node)) error {
	return l.db.update(func(s *State) error {
		n := s.node(name)
		if n == nil {
			return fmt.Errorf("pvelab: there is no node %s", name)
		}
		fn(n)
		return nil
	})
}

// FillDisk leaves room for so many bytes below a directory of a container; a negative number lifts
// the limit.
func (l *Lab) FillDisk(vmid int, dir string, left int64) error {
	return l.editGuest(vmid, func(g *Guest) {
		if left < 0 {
			delete(g.Full, dir)
			return
		}
		if g.Full == nil {
			g.Full = map[string]int64{}
		}
		g.Full[dir] = left
	})
}

// Stubborn makes a guest ignore shutdown requests.
func (l *Lab) Stubborn(vmid int, on bool) error {
	return l.editGuest(vmid, func(g *Guest) { g.Stubborn = on })
}

// SetHA puts a guest under the HA manager: start and stop are then only requests.
func (l *Lab) SetHA(vmid int, on bool) error {
	return l.editGuest(vmid, func(g *Guest) { g.HA = on })
}

// Lock sets a guest's lock (backup, snapshot, …), or takes it away when it is empty.
func (l *Lab) Lock(vmid int, lock string) error {
	return l.editGuest(vmid, func(g *Guest) {
		if g.Config["lock"] = lock; lock == "" {
			delete(g.Config, "lock")
		}
	})
}

// LoseQuorum takes the quorum away, or gives it back: reads work, writes fail.
func (l *Lab) LoseQuorum(lost bool) error {
	return l.db.update(func(s *State) error { s.NoQuorum = lost; return nil })
}

// SetDown switches a node off or on. Its connections are cut and new ones are closed at once.
func (l *Lab) SetDown(node string, down bool) error {
	err := l.editNode(node, func(n *Node) { n.Down, n.Offline = down, down })
	if err == nil && down {
		l.CutConnections(node)
	}
	return err
}

// CutConnections closes every connection to a node at once. What runs there goes on.
func (l *Lab) CutConnections(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, n := range l.conns {
		if n == node {
			c.Close()
		}
	}
}

// QuotaFull makes a guest's storage refuse snapshots as ZFS does when the quota is used up.
func (l *Lab) QuotaFull(vmid int) error {
	return l.editGuest(vmid, func(g *Guest) {
		g.SnapError = fmt.Sprintf("zfs error: cannot create snapshot "+
			"'rpool/data/subvol-%d-disk-0': out of space", vmid)
	})
}

// LoseSnapshots makes a node report snapshots of a guest as made that are not there.
func (l *Lab) LoseSnapshots(vmid int) error {
	return l.editGuest(vmid, func(g *Guest) { g.SnapLost = true })
}

// HoldConfigLock keeps the lock of a guest's configuration file until the returned function is
// called.
func (l *Lab) HoldConfigLock(vmid int) (release func(), err error) {
	key := ""
	if err := l.editGuest(vmid, func(g *Guest) { key = g.Node + ":" + g.lockFile() }); err != nil {
		return nil, err
	}
	l.hold(key, 1)
	return func() { l.hold(key, -1) }, nil
}

// SetLatency changes Options.Latency.
func (l *Lab) SetLatency(d time.Duration) { l.latency.Store(int64(d)) }

// Running lists the commands that run inside a container.
func (l *Lab) Running(vmid int) []string {
	var out []string
	for _, s := range l.processes(fmt.Sprintf("ct/%d", vmid)) {
		out = append(out, strings.Join(s.argv, " "))
	}
	return out
}

// NodeFile reads a file of a node.
func (l *Lab) NodeFile(node, name string) ([]byte, error) {
	t := l.nodeTree(node)
	if t == nil {
		return nil, fmt.Errorf("pvelab: there is no tree of node %s", node)
	}
	return t.readFile(name)
}

// GuestFile reads a file of a container.
func (l *Lab) GuestFile(vmid int, name string) ([]byte, error) {
	t := l.ctTree(vmid, "")
	if t == nil {
		return nil, fmt.Errorf("pvelab: there is no tree of guest %d", vmid)
	}
	return t.readFile(name)
}

// WriteNodeFile writes a file of a node, with the directories above it.
func (l *Lab) WriteNodeFile(node, name, text string) error {
	return l.fill(l.nodeTree(node), map[string]string{name: text})
}

// WriteGuestFile writes a file of a container, with the directories above it.
func (l *Lab) WriteGuestFile(vmid int, name, text string) error {
	return l.fill(l.ctTree(vmid, ""), map[string]string{name: text})
}
