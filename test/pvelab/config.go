package pvelab

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// writeConfig writes a configuration that caponier runs against the lab with.
func (l *Lab) writeConfig(name string) error {
	name, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("pvelab: naming the configuration: %w", err)
	}
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	table := func(head string, kv ...string) {
		wrote := false
		for i := 0; i+1 < len(kv); i += 2 {
			v := kv[i+1]
			if v == "" {
				continue
			}
			if abs, err := filepath.Abs(v); err == nil {
				v = abs
			}
			if !wrote {
				put("\n[%s]", head)
			}
			wrote = true
			put("%s = %s", kv[i], strconv.Quote(v))
		}
	}
	put("# Written by pvelab: a demo configuration for a simulated cluster.")
	put("accept_risks = true\n\n[cli]\nprincipal = \"demo\"")
	table("policy", "site", l.opt.Site)
	table("plugin", "lock", l.opt.Lock, "dir", l.opt.Plugins)
	table("audit", "dir", filepath.Join(l.dir, "journal"))
	table("remote", "workspace", filepath.Join(l.dir, "workspace"))
	cluster, order := "lab", []string{}
	if err := l.db.view(func(s *State) {
		if s.Cluster != "" {
			cluster = s.Cluster
		}
		for _, n := range s.Nodes {
			order = append(order, n.Name)
		}
	}); err != nil {
		return err
	}
	for _, node := range order {
		host, port, err := net.SplitHostPort(l.Nodes[node])
		if err != nil {
			return fmt.Errorf("pvelab: address of %s: %w", node, err)
		}
		put(
			"\n[[remote.nodes]]\nname = %q\ncluster = %q\nhost = %q\nport = %s\nuser = \"root\"\n"+
				"identity_file = %q\nhost_key = %q",
			node,
			cluster,
			host,
			port,
			l.Identity,
			l.HostKeys[node],
		)
		if slices.Index(order, node) == 0 {
			put("default = true")
		}
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("pvelab: writing the configuration: %w", err)
	}
	l.ConfigPath = name
	return nil
}
