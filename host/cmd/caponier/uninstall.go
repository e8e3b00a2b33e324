package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caponier-mcp/caponier/client/settings"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/setup"
	"github.com/spf13/cobra"
)

// leaving is what node remove and uninstall tell of a node.
type leaving struct {
	Node string `json:"node"`
	Line string `json:"line"`            // takes the key away
	Why  string `json:"error,omitempty"` // there is no line
}

func uninstallCommand(g *global) *cobra.Command {
	var also []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "uninstall [DIR]",
		Short: "Take back what init wrote, and print what takes the key off the nodes",
		Long: "Removes from DIR (the user's configuration directory) what init wrote and nobody " +
			"changed\nsince, and the cache. Everything else stays, and is listed: files that you " +
			"wrote or\nchanged, the journal, the store, tokens. --also removes what it names. " +
			"Links always\nstay. It logs in to no node: first run the lines that it prints. With " +
			"--json it\nremoves something only with --yes.",
		Args: cobra.MaximumNArgs(1),
		Example: "  caponier uninstall\n  caponier uninstall --also " +
			"~/.config/caponier/config.toml --yes",
		RunE: g.does(func(v *verb) error { return v.uninstall(also, yes) }),
	}
	cmd.Flags().StringArrayVar(&also, "also", nil,
		"remove this `PATH` too, which uninstall would keep; repeat it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (v *verb) uninstall(also []string, yes bool) error {
	dir, err := os.UserConfigDir()
	dir = filepath.Join(dir, "caponier")
	if len(v.args) > 0 {
		dir, err = filepath.Abs(v.args[0])
	}
	if err != nil {
		return usage(err)
	}
	found, err := setup.Open(dir)
	if err != nil {
		return usage(err)
	}
	for _, path := range also {
		if path, err = filepath.Abs(path); err == nil {
			err = found.Also(path)
		}
		if err != nil {
			return usage(err)
		}
	}
	var nodes []leaving
	c, err := config.Load(filepath.Join(dir, "config.toml"), nil)
	if err == nil {
		nodes, err = v.leave(c, c.NodeNames()...)
	}
	if err != nil {
		fmt.Fprintf(v.say, "The nodes are not known, and may know the key still: %v\n", err)
	}
	show := func(w io.Writer) {
		tell(w, nodes)
		for _, it := range found.Items {
			word := map[bool]string{true: "removed", false: "stays"}[it.Goes]
			fmt.Fprintf(w, "%-8s %-8s %s\n", word, it.Kind, it.Path)
		}
		if c != nil {
			v.entries(w, c.File)
		}
	}
	if !v.json {
		show(v.out)
	}
	if !yes && (v.json || !v.confirmed("Remove what is listed as removed?")) {
		return v.listed(found, nodes, false)
	}
	if err := found.Remove(); err != nil {
		return err
	}
	return v.listed(found, nodes, true)
}

func (v *verb) listed(found *setup.Installed, nodes []leaving, done bool) error {
	result := map[string]any{"done": done, "items": found.Items, "nodes": nodes}
	return v.print(result, func(w io.Writer) {
		fmt.Fprintln(w, map[bool]string{true: "done", false: "nothing was removed"}[done])
	})
}

// entries names the clients that start this configuration.
func (v *verb) entries(w io.Writer, file string) {
	g := *v.global
	g.config = file
	for _, name := range settings.Clients() {
		_, place, err := (&verb{global: &g}).snippet(name)
		data, unread := os.ReadFile(place)
		if err == nil && unread == nil && strings.Contains(string(data), file) {
			fmt.Fprintf(w, "%s names this configuration: first caponier --config %s client remove "+
				"%s\n", place, file, name)
		}
	}
}

// leave returns the lines for some nodes, or why one has none.
func (v *verb) leave(c *config.Config, names ...string) (all []leaving, err error) {
	shipped, err := setup.Find()
	if err != nil {
		return nil, err
	}
	p := setup.Plan{Shipped: shipped}
	for _, name := range names {
		for _, n := range c.Remote.Nodes {
			if n.Name != name {
				continue
			}
			key, err := setup.PublicKey(n.IdentityFile)
			if err != nil {
				all = append(all, leaving{Node: name, Why: fmt.Sprintf("node %s: its public key "+
					"(identity_file = %q, with .pub) cannot be read: %v", name, n.IdentityFile,
					err)})
				continue
			}
			node := setup.Node{Name: n.Name, Host: n.Host, User: n.User, Port: n.Port}
			all = append(all, leaving{Node: name, Line: p.Unline(node, key)})
		}
	}
	return all, nil
}

func tell(w io.Writer, nodes []leaving) {
	if len(nodes) > 0 {
		fmt.Fprint(w, "Take the key off the nodes first, with a shell here that can log in as "+
			"root:\n\n")
	}
	for _, n := range nodes {
		fmt.Fprintf(w, "%s\n\n", cmp.Or(n.Line, n.Why+"; take the key off by hand"))
	}
}

// confirmed asks a question.
func (v *verb) confirmed(question string) bool {
	fmt.Fprint(v.say, question+" Type yes: ")
	line, _ := bufio.NewReader(v.in).ReadString('\n')
	return strings.TrimSpace(line) == "yes"
}
