package pvelab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// configJSON shows a configuration as the API does: numbers as numbers for containers, mostly
// strings for VMs.
func configJSON(g *Guest, cfg map[string]string) map[string]any {
	numbers := []string{
		"memory",
		"swap",
		"cores",
		"protection",
		"template",
		"unprivileged",
		"onboot",
		"cpuunits",
	}
	if g.Type == "qemu" {
		// memory stays a string
		numbers = []string{"cores", "sockets", "protection", "template", "onboot"}
	}
	out := map[string]any{}
	for k, v := range cfg {
		if n, ok := atoi(v); ok && slices.Contains(numbers, k) {
			out[k] = n
		} else {
			out[k] = v
		}
	}
	return out
}

func atoi(s string) (n int64, ok bool) {
	_, err := fmt.Sscanf(s, "%d", &n)
	return n, err == nil && fmt.Sprint(n) == s
}

func guestConfig(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		cfg := g.Config
		if name := c.vals["snapshot"]; name != "" {
			s := g.snapshot(name)
			if s == nil {
				return nil, die(255, "snapshot '%s' does not exist", name)
			}
			cfg = s.Config
		}
		out := configJSON(g, cfg)
		out["digest"] = digest(g.conf())
		return out, nil
	}
}

// printConfig is pct config and qm config: sorted lines, the description percent-encoded, no
// digest.
func printConfig(c *call, v any) {
	m := v.(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		text := fmt.Sprint(m[k])
		switch k {
		case "digest":
			continue
		case "description":
			text = strings.NewReplacer("%", "%25", "\n", "%0A", ":", "%3A").Replace(text)
		}
		fmt.Fprintf(c.p.out, "%s: %s\n", k, text)
	}
}

// guestSet stores each given option under its own name; tags are put in order.
func guestSet(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		if _, err := c.guest(typ, 2); err != nil {
			return nil, err
		}
		return nil, c.change(typ, true, func(_ *State, g *Guest) {
			for k, v := range c.vals {
				switch k {
				case "node", "vmid", "digest", "skiplock", "revert":
				case "delete":
					for _, d := range splitList(v) {
						delete(g.Config, d)
					}
				case "tags":
					tags := splitList(strings.ToLower(v))
					slices.Sort(tags)
					g.Config[k] = strings.Join(slices.Compact(tags), ";")
				case "description":
					if g.Config[k] = v; typ == "lxc" && v != "" {
						g.Config[k] = v + "\n"
					}
				case "protection":
					if g.Config[k] = v; v == "0" {
						delete(g.Config, k)
					}
				default:
					g.Config[k] = v
				}
			}
		})
	}
}

// printCTList prints nothing at all for no container.
func printCTList(c *call, v any) {
	rows := byVMID(v.([]any))
	if len(rows) == 0 {
		return
	}
	line := func(cols ...any) { fmt.Fprintf(c.p.out, "%-10v %-10v %-12v %-20v\n", cols...) }
	line("VMID", "Status", "Lock", "Name")
	for _, m := range rows {
		lock, _ := m["lock"].(string)
		line(m["vmid"], m["status"], lock, m["name"])
	}
}

func byVMID(list []any) (rows []map[string]any) {
	for _, r := range list {
		rows = append(rows, r.(map[string]any))
	}
	slices.SortFunc(rows,
		func(a, b map[string]any) int { return a["vmid"].(int) - b["vmid"].(int) })
	return rows
}

func guestStatus(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		fmt.Fprint(c.p.err, g.Noise)
		if !c.on("verbose") {
			fmt.Fprintf(c.p.out, "status: %s\n", g.status())
			return nil, nil
		}
		var m map[string]any
		if err := c.lab.db.view(func(s *State) { m = currentRow(s, g) }); err != nil {
			return nil, err
		}
		delete(m, "ha")
		delete(m, "cpu") // needs two samples, which one run does not have
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(c.p.out, "%s: %v\n", k, m[k])
		}
		return nil, nil
	}
}

func ctCPUSets(_ context.Context, c *call) (any, error) {
	return nil, c.lab.db.view(func(s *State) {
		for _, g := range s.sortedGuests(func(g *Guest) bool {
			return g.Type == "lxc" &&
				g.Node == c.node && g.Running
		}) {
			fmt.Fprintf(c.p.out, "%d: 0 1\n", g.VMID)
		}
	})
}

func ctDF(_ context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 2)
	if err != nil {
		return nil, err
	}
	vol, _, _ := strings.Cut(g.Config["rootfs"], ",")
	fmt.Fprintf(c.p.out, "MP     Volume %s Size Used Avail Use%% Path\n",
		strings.Repeat(" ", max(0, len(vol)-6)))
	fmt.Fprintf(c.p.out, "rootfs %s 4.0G 0.1G  3.9G  2.5 /\n", vol)
	return nil, nil
}
