package pvelab

import (
	"context"
	"fmt"
	"time"
)

func pvecmProgram() *program {
	m := apiMethods()
	own := func(name string) *method { return mustMethod(m, "PVE::CLI::pvecm::"+name) }
	other := &method{Class: "PVE::CLI::pvecm", Name: "other"}
	return &program{Name: "pvecm", Commands: []command{
		{"add", 0, []string{"hostname"}, own("add"), nil},
		{"create", 0, []string{"clustername"}, own("create"), nil},
		{"delnode", 0, []string{"node"}, own("delnode"), nil},
		{"addnode", 0, []string{"node"}, own("delnode"), nil},
		{"apiver", 0, nil, other, nil},
		{"keygen", 0, []string{"filename"}, own("keygen"), nil},
		{"mtunnel", 0, nil, other, nil},
		{"qdevice remove", 0, nil, other, nil},
		{"qdevice setup", 0, []string{"hostname"}, own("add"), nil},
		{"expected", 0, []string{"expected"}, own("expected"), nil},
		{"nodes", 0, nil, own("nodes"), nil},
		{"status", 0, nil, own("status"), nil},
		{"updatecerts", 0, nil, own("updatecerts"), nil},
		{"help", 1, []string{"extra-args"}, mustMethod(m, "PVE::CLI::pvenode::help"), nil},
	}}
}

func (c *call) clustered() error {
	name := ""
	if err := c.lab.db.view(func(s *State) { name = s.Cluster }); err != nil {
		return err
	}
	if name == "" {
		return die(
			2,
			"Error: Corosync config '/etc/pve/corosync.conf' does not exist - is this node part "+
				"of a cluster?",
		)
	}
	return nil
}

func cmNodes(_ context.Context, c *call) (any, error) {
	if err := c.clustered(); err != nil {
		return nil, err
	}
	return nil, c.lab.db.view(func(s *State) {
		fmt.Fprint(c.p.out,
			"\nMembership information\n----------------------\n    Nodeid      Votes Name\n")
		for _, n := range s.Nodes {
			if n.Offline {
				continue
			}
			local := ""
			if n.Name == c.p.node {
				local = " (local)"
			}
			fmt.Fprintf(c.p.out, "%10d %10d %s%s\n", n.ID, 1, n.Name, local)
		}
	})
}

// cmStatus exits 2 without quorum.
func cmStatus(_ context.Context, c *call) (any, error) {
	if err := c.clustered(); err != nil {
		return nil, err
	}
	quorate := false
	err := c.lab.db.view(func(s *State) {
		online := 0
		for _, n := range s.Nodes {
			online += bit(!n.Offline)
		}
		if s.NoQuorum {
			online = 1
		}
		word, flags := "No", ""
		if quorate = s.quorate(); quorate {
			word, flags = "Yes", "Quorate"
		}
		need := len(s.Nodes)/2 + 1
		blocked := ""
		if !quorate {
			blocked = " Activity blocked"
		}
		fmt.Fprintf(
			c.p.out,
			"Cluster information\n-------------------\nName:             %s\nConfig Version:   "+
				"%d\nTransport:        knet\nSecure auth:      on\n\n",
			s.Cluster,
			s.ClusterVersion,
		)
		fmt.Fprintf(
			c.p.out,
			"Quorum information\n------------------\nDate:             %s\nQuorum provider:  "+
				"corosync_votequorum\nNodes:            %d\nNode ID:          0x%08x\nRing ID:   "+
				"       1.9\nQuorate:          %s\n\n",
			time.Now().UTC().Format("Mon Jan _2 15:04:05 2006"),
			online,
			s.node(c.p.node).ID,
			word,
		)
		fmt.Fprintf(
			c.p.out,
			"Votequorum information\n----------------------\nExpected votes:   %d\nHighest "+
				"expected: %d\nTotal votes:      %d\nQuorum:           %d%s\nFlags:            "+
				"%s\n\n",
			len(s.Nodes),
			len(s.Nodes),
			online,
			need,
			blocked,
			flags,
		)
		fmt.Fprint(c.p.out,
			"Membership information\n----------------------\n    Nodeid      Votes Name\n")
		for _, n := range s.Nodes {
			if n.Offline || (s.NoQuorum && n.Name != c.p.node) {
				continue
			}
			local := ""
			if n.Name == c.p.node {
				local = " (local)"
			}
			fmt.Fprintf(c.p.out, "0x%08x %10d %s%s\n", n.ID, 1, n.IP, local)
		}
	})
	if err == nil && !quorate {
		err = &exit{2}
	}
	return nil, err
}

// cmExpected lowers the votes that are needed: the way to break a cluster in two.
func cmExpected(_ context.Context, c *call) (any, error) {
	if err := c.clustered(); err != nil {
		return nil, err
	}
	return nil, c.lab.db.update(
		func(s *State) error { s.Expected = c.num("expected", 1); return nil },
	)
}

func pvenodeProgram() *program {
	m := apiMethods()
	api := func(name string) *method { return mustMethod(m, "PVE::API2::"+name) }
	return &program{Name: "pvenode", Commands: []command{
		{"config get", 0, nil, api("NodeConfig::get_config"), printNodeConfig},
		{"config set", 0, nil, api("NodeConfig::set_options"), nil},
		{"migrateall", 1, []string{"target"}, api("Nodes::Nodeinfo::migrateall"), nil},
		{"startall", 1, nil, api("Nodes::Nodeinfo::startall"), nil},
		{"stopall", 1, nil, api("Nodes::Nodeinfo::stopall"), nil},
		{"task list", 2, nil, api("Tasks::node_tasks"), printTasks},
		{"task log", 2, []string{"upid"}, api("Tasks::read_task_log"), printTaskLog},
		{"task status", 2, []string{"upid"}, api("Tasks::read_task_status"), printTaskStatus},
		{"wakeonlan", 3, []string{"node"}, api("Nodes::Nodeinfo::wakeonlan"), printWake},
		{"help", 4, []string{"extra-args"}, mustMethod(m, "PVE::CLI::pvenode::help"), nil},
	}}
}

func printWake(c *call, v any) { fmt.Fprintf(c.p.out, "Wake on LAN packet send for '%v'\n", v) }

func printNodeConfig(c *call, v any) {
	m := v.(map[string]any)
	for _, k := range []string{"description", "wakeonlan"} {
		if s, _ := m[k].(string); s != "" {
			fmt.Fprintf(c.p.out, "%s: %s\n", k, s)
		}
	}
}

func printTaskLog(c *call, v any) {
	for _, r := range v.([]any) {
		fmt.Fprintln(c.p.out, r.(map[string]any)["t"])
	}
}
