package pvelab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func emptyList(context.Context, *call) (any, error) { return []any{}, nil }

func version(context.Context, *call) (any, error) {
	return map[string]any{"release": "9.2", "repoid": "14a22df35955d97d", "version": "9.2.11"}, nil
}

// clusterStatus has a row for the cluster only where there is one.
func clusterStatus(_ context.Context, c *call) (any, error) {
	out := []any{}
	err := c.lab.db.view(func(s *State) {
		for _, n := range s.Nodes {
			out = append(out, map[string]any{
				"id":     "node/" + n.Name,
				"ip":     n.IP,
				"level":  "",
				"local":  bit(n.Name == c.node),
				"name":   n.Name,
				"nodeid": n.ID,
				"online": bit(!n.Offline),
				"type":   "node",
			})
		}
		c.lab.shuffle(out)
		if s.Cluster != "" {
			out = append(
				[]any{
					map[string]any{
						"id":      "cluster",
						"name":    s.Cluster,
						"nodes":   len(s.Nodes),
						"quorate": bit(s.quorate()),
						"type":    "cluster",
						"version": s.ClusterVersion,
					},
				},
				out...)
		}
	})
	return out, err
}

func nextID(_ context.Context, c *call) (any, error) {
	id := 100
	if v := c.vals["vmid"]; v != "" {
		id = c.vmid()
	}
	taken := false
	err := c.lab.db.view(func(s *State) {
		for ; s.guest(id) != nil; id++ {
			if taken = c.vals["vmid"] != ""; taken {
				return
			}
		}
	})
	if taken {
		return nil, verification(map[string]string{"vmid": fmt.Sprintf("VM %d already exists", id)})
	}
	return strconv.Itoa(id), err
}

// nodeList warns on stderr about nodes without a certificate, and succeeds.
func nodeList(_ context.Context, c *call) (any, error) {
	out := []any{}
	err := c.lab.db.view(func(s *State) {
		for _, n := range s.Nodes {
			row := nodeResource(n)
			if row["ssl_fingerprint"] = any(nil); n.Fingerprint != "" {
				row["ssl_fingerprint"] = n.Fingerprint
			} else {
				fmt.Fprintf(c.p.err, "'/etc/pve/nodes/%s/pve-ssl.pem' does not exist!\n", n.Name)
			}
			out = append(out, row)
		}
	})
	c.lab.shuffle(out)
	return out, err
}

func (c *call) thisNode() (n Node) {
	_ = c.lab.db.view(func(s *State) {
		if x := s.node(c.node); x != nil {
			n = *x
		}
	})
	return n
}

const cpuFlags = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 " +
	"clflush mmx fxsr sse sse2 ht syscall nx lm hypervisor avx2"

func nodeStatus(_ context.Context, c *call) (any, error) {
	n := c.thisNode()
	release, build := n.kernel()
	return map[string]any{
		"boot-info": map[string]any{
			"mode": "legacy-bios",
		}, "cpu": 0, "idle": 0, "wait": 0, "ksm": map[string]any{"shared": 0},
		"cpuinfo": map[string]any{
			"cores":   2,
			"cpus":    2,
			"family":  "25",
			"flags":   cpuFlags,
			"hvm":     "",
			"mhz":     "2596.152",
			"model":   "AMD EPYC",
			"sockets": 1,
			"user_hz": 100,
			"vendor":  "AuthenticAMD",
		},
		"current-kernel": map[string]any{
			"machine": "x86_64",
			"release": release,
			"sysname": "Linux",
			"version": build,
		},
		"kversion": "Linux " + release + " " + build, "loadavg": []any{"0.08", "0.11", "0.09"},
		"pveversion": "pve-manager/9.2.11/14a22df35955d97d",
		"memory": map[string]any{
			"available": n.MemTotal - n.MemUsed,
			"free":      n.MemTotal - n.MemUsed,
			"total":     n.MemTotal,
			"used":      n.MemUsed,
		},
		"rootfs": map[string]any{
			"avail": n.RootTotal - n.RootUsed,
			"free":  n.RootTotal - n.RootUsed,
			"total": n.RootTotal,
			"used":  n.RootUsed,
		},
		"swap": map[string]any{"free": 0, "total": 0, "used": 0}, "uptime": now() - n.Booted,
	}, nil
}

// nodeCommand takes the node down, as it would be two seconds later.
func nodeCommand(_ context.Context, c *call) (any, error) {
	return nil, c.lab.db.update(
		func(s *State) error { s.power(c.node, c.vals["command"] == "shutdown"); return nil },
	)
}

func serviceList(_ context.Context, c *call) (any, error) {
	out, n := []any{}, c.thisNode()
	for _, name := range slices.Sorted(maps.Keys(n.Services)) {
		if slices.Contains(pveServices, name) {
			out = append(out, serviceRow(name, n.Services[name]))
		}
	}
	return out, nil
}

func serviceRow(name, state string) map[string]any {
	active := map[string]string{"running": "active"}[state]
	if active == "" {
		active, state = "inactive", "dead"
	}
	return map[string]any{
		"name":         name,
		"service":      name,
		"desc":         name,
		"state":        state,
		"active-state": active,
		"unit-state":   "enabled",
	}
}

func serviceState(_ context.Context, c *call) (any, error) {
	state, _ := c.lab.service(c.node, c.vals["service"])
	return serviceRow(c.vals["service"], state), nil
}

func serviceCommand(verb, state string) func(context.Context, *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		return c.worker(ctx, "srv"+verb, c.vals["service"], func(io.Writer) error {
			if _, ok := c.lab.service(c.node, c.vals["service"]); !ok {
				return die(255, "command 'systemctl %s %s' failed: exit code 5", verb,
					c.vals["service"])
			}
			c.lab.setService(c.node, c.vals["service"], state)
			return nil
		})
	}
}

func nodeDNS(_ context.Context, c *call) (any, error) {
	return map[string]any{"dns1": c.thisNode().DNS}, nil
}

func nodeTime(context.Context, *call) (any, error) {
	return map[string]any{"localtime": now(), "time": now(), "timezone": "UTC"}, nil
}

// nodeConfigGet answers nothing at all for a node without a configuration.
func nodeConfigGet(_ context.Context, c *call) (any, error) {
	n := c.thisNode()
	out := map[string]any{}
	if n.WakeMAC != "" {
		out["wakeonlan"] = "mac=" + n.WakeMAC
	}
	if len(out) > 0 || n.Description != "" {
		out["description"], out["digest"] = n.Description, digest(nodeConfig(&n))
	}
	return out, nil
}

func nodeConfigSet(_ context.Context, c *call) (any, error) {
	return nil, c.lab.db.update(func(s *State) error {
		n := s.node(c.node)
		if n == nil || !s.quorate() {
			return die(255,
				"unable to open file '/etc/pve/nodes/%s/config.tmp' - Permission denied", c.node)
		}
		if v, ok := c.vals["wakeonlan"]; ok {
			n.WakeMAC = strings.TrimPrefix(v, "mac=")
		}
		if v, ok := c.vals["description"]; ok {
			n.Description = v
		}
		return nil
	})
}

// wake runs on the local node whatever the path says, and sends one packet without waiting for
// anything.
func wake(_ context.Context, c *call) (any, error) {
	var target *Node
	local, name := Node{}, c.vals["node"]
	err := c.lab.db.view(func(s *State) {
		if n := s.node(name); n != nil {
			cp := *n
			target = &cp
		}
		if n := s.node(c.p.node); n != nil {
			local = *n
		}
	})
	switch {
	case err != nil:
		return nil, err
	case name == local.Name:
		return nil, die(2, "'%s' is local node, cannot wake my self!", name)
	case target == nil && local.ID == 0:
		return nil, die(255, "no such cluster node '%s'", name)
	case target == nil:
		return nil, die(2, "no such cluster node '%s'", name)
	case target.WakeMAC == "":
		return nil, die(2, "No wake on LAN MAC address defined for '%s'!", name)
	case local.Unreachable:
		return nil, die(101, "Unable to send packet: Network is unreachable")
	}
	err = c.lab.db.update(func(s *State) error {
		if n := s.node(name); n != nil && n.Offline {
			n.Offline, n.Down, n.Booted = false, false, now()
		}
		return nil
	})
	return target.WakeMAC, err
}

func syslog(_ context.Context, c *call) (any, error) {
	at := time.Now().UTC().Format("Jan 02 15:04:05")
	return []any{
		map[string]any{"n": 1, "t": at + " " + c.node + " systemd[1]: Started pveproxy."},
	}, nil
}

func disks(_ context.Context, c *call) (any, error) {
	return []any{
		map[string]any{
			"devpath": "/dev/sda",
			"size":    c.thisNode().RootTotal,
			"type":    "ssd",
			"health":  "PASSED",
			"used":    "LVM",
			"wearout": 97,
			"model":   "LAB-SSD",
			"serial":  "LAB0001",
			"vendor":  "LAB",
			"wwn":     "unknown",
			"rpm":     0,
			"gpt":     1,
		},
	}, nil
}

func haStatus(_ context.Context, c *call) (any, error) {
	ok := false
	err := c.lab.db.view(func(s *State) { ok = s.quorate() })
	return []any{
		map[string]any{
			"id":      "quorum",
			"node":    c.node,
			"quorate": bit(ok),
			"status": map[bool]string{true: "OK", false: "No quorum on node '" + c.node +
				"'!"}[ok],
			"type": "quorum",
		},
	}, err
}

func backupJobs(_ context.Context, c *call) (out any, err error) {
	err = c.lab.db.view(func(s *State) { out = append([]any{}, s.Backups...) })
	return out, err
}

func replicationJobs(_ context.Context, c *call) (out any, err error) {
	err = c.lab.db.view(func(s *State) { out = append([]any{}, s.Replications...) })
	return out, err
}

func guestPending(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		out := []any{}
		for _, k := range slices.Sorted(maps.Keys(g.Config)) {
			out = append(out, map[string]any{"key": k, "value": g.Config[k]})
		}
		return out, nil
	}
}

func printPending(c *call, v any) {
	for _, r := range v.([]any) {
		m := r.(map[string]any)
		fmt.Fprintf(c.p.out, "cur %s: %v\n", m["key"], m["value"])
	}
}

func ctInterfaces(_ context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 2)
	if err != nil {
		return nil, err
	}
	if !g.Running {
		return nil, die(255, "CT %d not running", g.VMID)
	}
	return []any{
		map[string]any{
			"name":             "lo",
			"hwaddr":           "00:00:00:00:00:00",
			"hardware-address": "00:00:00:00:00:00",
			"inet":             "127.0.0.1/8",
		},
		map[string]any{
			"name":   "eth0",
			"hwaddr": fmt.Sprintf("bc:24:11:00:%02x:%02x", g.VMID>>8&0xff, g.VMID&0xff),
			"inet":   fmt.Sprintf("10.99.1.%d/24", g.VMID%250+1),
		},
	}, nil
}

// allGuests is startall, stopall and suspendall of a node.
func allGuests(typ string, running bool) func(context.Context, *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		return c.worker(ctx, typ, "", func(io.Writer) error {
			return c.lab.db.update(func(s *State) error {
				for _, g := range s.Guests {
					if g.Node != c.node ||
						(running && (g.Config["onboot"] != "1" || g.Config["template"] == "1")) {
						continue
					}
					if g.Running = running; running {
						s.NextPID++
						g.PID, g.Started = s.NextPID, now()
					}
				}
				return nil
			})
		})
	}
}

func (n *Node) kernel() (release, build string) {
	if n.Kernel == "" {
		return kernel, "#1 SMP PREEMPT_DYNAMIC PMX"
	}
	return n.Kernel, n.KernelVersion
}
