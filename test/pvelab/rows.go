package pvelab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// shuffle: the real API lists what Perl keeps in hashes, in an order that changes with every call.
func (l *Lab) shuffle(list []any) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

const usedMemory = 6291456 // of every running guest

// diskSize reads the size of a disk's configuration: size=4G. A subvolume without a quota has
// size=0.
func diskSize(g *Guest) int64 {
	for k, v := range g.Config {
		if k != "rootfs" && !isDrive(k, v) {
			continue
		}
		if _, s, ok := strings.Cut(v, "size="); ok {
			s, _, _ = strings.Cut(s, ",")
			return size(s)
		}
	}
	return 0
}

func (g *Guest) int(key string, def int64) int64 {
	if n, ok := atoi(g.Config[key]); ok {
		return n
	}
	return def
}

func (g *Guest) maxmem() int64 { return g.int("memory", 512) << 20 }

func (g *Guest) cpus(s *State) int64 {
	if g.Type == "qemu" {
		return g.int("cores", 1) * g.int("sockets", 1)
	}
	return g.int("cores", 2) // without a limit a container sees the node's
}

// disk answers what a guest uses and may use. A running container without a quota sees its
// storage's file system.
func (g *Guest) disk(s *State) (used, most int64) {
	most = diskSize(g)
	if g.Type != "lxc" {
		return 0, most
	}
	if g.Running {
		id, _, _ := strings.Cut(g.Config["rootfs"], ":")
		if st := s.storage(g.Node, id); st != nil && most == 0 {
			return st.Used, st.Total
		}
	}
	if most == 0 {
		most = 4 << 30
	}
	return 0, most
}

func (g *Guest) uptime() int64 {
	if !g.Running {
		return 0
	}
	return max(1, now()-g.Started)
}

// statusRow is one row of the list of containers or VMs of a node.
func statusRow(s *State, g *Guest) map[string]any {
	used, most := g.disk(s)
	m := map[string]any{
		"vmid":    g.VMID,
		"name":    g.name(),
		"status":  g.status(),
		"cpu":     0,
		"cpus":    g.cpus(s),
		"mem":     0,
		"maxmem":  g.maxmem(),
		"disk":    used,
		"maxdisk": most,
		"netin":   0,
		"netout":  0,
		"uptime":  g.uptime(),
	}
	zero := any(0)
	if g.Type == "lxc" {
		m["type"], m["swap"], m["maxswap"], m["diskread"], m["diskwrite"] = "lxc", 0, g.int("swap",
			512)<<20, 0, 0
		zero = "0.00" // a string for containers, a number for VMs
	} else {
		m["memhost"] = 0
	}
	if g.Running {
		if m["pid"], m["mem"] = g.PID, usedMemory; g.Type == "qemu" {
			m["memhost"] = usedMemory
		} else {
			m["diskread"] = g.DiskRead
		}
		for _, k := range []string{"cpufull", "cpusome", "iofull", "iosome", "memoryfull",
			"memorysome"} {
			m["pressure"+k] = zero
		}
	}
	for _, k := range []string{"lock", "tags"} {
		if g.Config[k] != "" {
			m[k] = g.Config[k]
		}
	}
	if g.Config["template"] == "1" {
		m["template"] = 1
	}
	return m
}

// currentRow is status/current.
func currentRow(s *State, g *Guest) map[string]any {
	m := statusRow(s, g)
	ha := map[string]any{"managed": bit(g.HA)}
	if g.HA {
		ha["group"], ha["state"] = "prod", "started"
	}
	if m["ha"] = ha; g.Type == "qemu" {
		m["qmpstatus"] = g.status()
	}
	return m
}

// resourceRow is a guest's row of /cluster/resources. Nothing but its place is known of a guest
// whose node sends nothing.
func resourceRow(s *State, g *Guest, member bool) map[string]any {
	m := map[string]any{
		"id":       g.Type + "/" + g.id(),
		"type":     g.Type,
		"vmid":     g.VMID,
		"node":     g.Node,
		"status":   "unknown",
		"template": bit(g.Config["template"] == "1"),
	}
	for _, p := range s.Pools {
		for _, id := range p.Guests {
			if id == g.VMID && !member {
				m["pool"] = p.ID
			}
		}
	}
	if n := s.node(g.Node); n == nil || n.Offline {
		return m
	}
	used, most := g.disk(s)
	m["status"], m["name"], m["cpu"], m["maxcpu"], m["maxmem"] = g.status(), g.name(), 0, g.cpus(
		s,
	), g.maxmem()
	m["mem"], m["memhost"], m["disk"], m["maxdisk"] = 0, 0, used, most
	m["diskread"], m["diskwrite"], m["netin"], m["netout"], m["uptime"] = 0, 0, 0, 0, g.uptime()
	if g.Running {
		if m["mem"] = usedMemory; g.Type == "lxc" {
			m["diskread"] = g.DiskRead
		} else {
			m["memhost"] = usedMemory
		}
	}
	if member {
		return m
	}
	for _, k := range []string{"lock", "tags"} {
		if g.Config[k] != "" {
			m[k] = g.Config[k]
		}
	}
	if g.HA {
		m["hastate"] = "started"
	}
	return m
}

func storageResource(s *State, st *Storage) map[string]any {
	m := map[string]any{
		"id":         "storage/" + st.Node + "/" + st.ID,
		"type":       "storage",
		"storage":    st.ID,
		"node":       st.Node,
		"plugintype": st.Type,
		"content":    strings.Join(st.Content, ","),
		"shared":     bit(st.Shared),
		"status":     "unknown",
	}
	if n := s.node(st.Node); n != nil && !n.Offline && !n.NoStorageStats {
		m["status"], m["disk"], m["maxdisk"] = "available", st.Used, st.Total
	}
	return m
}

func nodeResource(n *Node) map[string]any {
	m := map[string]any{"id": "node/" + n.Name, "type": "node", "node": n.Name, "status": "unknown"}
	if n.Offline {
		m["status"] = "offline"
	} else if !n.NoStats {
		m["status"], m["level"], m["cpu"], m["maxcpu"] = "online", "", 0, 2
		m["mem"], m["maxmem"], m["disk"], m["maxdisk"], m["uptime"] = n.MemUsed, n.MemTotal,
			n.RootUsed, n.RootTotal, now()-n.Booted
	}
	return m
}

// resources is /cluster/resources: answered from what the nodes broadcast, never by asking them.
func resources(_ context.Context, c *call) (any, error) {
	out, typ := []any{}, c.vals["type"]
	err := c.lab.db.view(func(s *State) {
		if typ == "" {
			for _, p := range s.Pools {
				out = append(out,
					map[string]any{"id": "/pool/" + p.ID, "pool": p.ID, "type": "pool"})
			}
		}
		if typ == "" || typ == "vm" {
			for _, g := range s.Guests {
				out = append(out, resourceRow(s, g, false))
			}
		}
		if typ == "" || typ == "storage" {
			for _, st := range s.Storages {
				out = append(out, storageResource(s, st))
			}
		}
		if typ == "" || typ == "node" {
			for _, n := range s.Nodes {
				m := nodeResource(n)
				if m["status"] == "online" {
					m["cgroup-mode"] = 1
				}
				out = append(out, m)
			}
		}
		if typ == "" || typ == "sdn" {
			for _, n := range s.Nodes {
				out = append(out, map[string]any{
					"id":           "network/" + n.Name + "/zone/localnetwork",
					"network":      "localnetwork",
					"network-type": "zone",
					"node":         n.Name,
					"status":       "ok",
					"type":         "network",
				})
			}
		}
	})
	c.lab.shuffle(out)
	return out, err
}

func guestList(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		out := []any{}
		err := c.lab.db.view(func(s *State) {
			for _, g := range s.Guests {
				if g.Type == typ && g.Node == c.node {
					out = append(out, statusRow(s, g))
				}
			}
		})
		c.lab.shuffle(out)
		return out, err
	}
}

func guestCurrent(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		fmt.Fprint(c.p.err, g.Noise)
		var m map[string]any
		err = c.lab.db.view(func(s *State) { m = currentRow(s, g) })
		return m, err
	}
}
