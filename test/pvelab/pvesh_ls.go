package pvelab

import (
	"fmt"
	"slices"
	"strings"
)

// children lists what stands below a path: a static name once, a parameter as each value that it
// has.
func (x *pveshCall) children(p *proc, parts []string) (names []string, below map[string]bool) {
	seen, below := map[string]bool{}, map[string]bool{}
	add := func(name string, deeper bool) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
		below[name] = below[name] || deeper
	}
	for _, r := range p.lab.api() {
		want := pathParts(r.path)
		if len(want) <= len(parts) {
			continue
		}
		head := route{path: "/" + strings.Join(want[:len(parts)], "/")}
		_, vals := match([]route{head}, parts)
		if vals == nil {
			continue
		}
		next, deeper := want[len(parts)], len(want) > len(parts)+1
		if !strings.HasPrefix(next, "{") {
			add(next, deeper)
			continue
		}
		for _, v := range p.values(strings.Trim(next, "{}"), vals["node"], parts) {
			add(v, deeper)
		}
	}
	slices.Sort(names)
	return names, below
}

func (p *proc) values(param, node string, parts []string) (out []string) {
	_ = p.lab.db.view(func(s *State) {
		switch param {
		case "node":
			for _, n := range s.Nodes {
				out = append(out, n.Name)
			}
		case "vmid":
			for _, g := range s.Guests {
				if g.Node == node && g.Type == parts[len(parts)-1] {
					out = append(out, g.id())
				}
			}
		case "storage":
			for _, st := range s.Storages {
				if node == "" || st.Node == node {
					out = append(out, st.ID)
				}
			}
		case "poolid":
			for _, pl := range s.Pools {
				out = append(out, pl.ID)
			}
		case "upid":
			for _, t := range s.Tasks {
				out = append(out, t.UPID)
			}
		case "service":
			out = append(out, pveServices...)
		}
	})
	return out
}

func (x *pveshCall) ls(p *proc, parts []string) error {
	names, below := x.children(p, parts)
	if len(names) == 0 {
		return die(1, "no such resource '/%s'", strings.Join(parts, "/"))
	}
	out := []any{}
	for _, n := range names {
		caps := []byte("-----")
		if below[n] {
			caps[0] = 'D'
		}
		if r, _ := match(p.lab.api(), append(slices.Clone(parts), n)); r != nil {
			for i, verb := range []string{"get", "set", "create", "delete"} {
				if r.methods[verb] != nil {
					caps[i+1] = "rwcd"[i]
				}
			}
		} else {
			caps[1] = 'r'
		}
		out = append(out, map[string]any{"name": n, "capabilities": string(caps)})
	}
	if x.format["output-format"] != "text" {
		return x.print(p, nil, out)
	}
	for _, r := range out {
		m := r.(map[string]any)
		fmt.Fprintf(p.out, "%s        %s\n", m["capabilities"], m["name"])
	}
	return nil
}

func (x *pveshCall) explain(p *proc, parts []string) error {
	opts, _, err := getopt(x.args,
		[]param{opt("verbose", "boolean"), opt("returns", "boolean"), opt("command", "string")})
	if err != nil {
		return err
	}
	r, vals := match(p.lab.api(), parts)
	if r == nil {
		return die(1, "no such resource '/%s'", strings.Join(parts, "/"))
	}
	for _, verb := range []string{"get", "set", "create", "delete"} {
		m := r.methods[verb]
		if m == nil {
			continue
		}
		var ps []param
		wide := 0
		for _, q := range m.Params {
			if _, ok := vals[q.Name]; !ok {
				ps = append(ps, q)
				wide = max(wide, len(q.Name))
			}
		}
		line := "USAGE: pvesh " + verb + " /" + strings.Join(parts, "/") + " "
		if len(ps) > 0 {
			line += " [OPTIONS]"
		}
		fmt.Fprintln(p.out, line)
		if _, verbose := opts["verbose"]; !verbose {
			continue
		}
		fmt.Fprintf(p.out, "\n  %s\n\n", m.Desc)
		slices.SortFunc(ps, func(a, b param) int { return strings.Compare(a.Name, b.Name) })
		for _, q := range ps {
			fmt.Fprintf(p.out, "  --%-*s <%s>", wide, q.Name, q.Type)
			if q.Default != "" {
				fmt.Fprintf(p.out, "\t (default=%s)", q.Default)
			}
			fmt.Fprintf(p.out, "\n\t     %s\n\n", q.Desc)
		}
	}
	return nil
}
