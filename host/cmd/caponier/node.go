package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/caponier-mcp/caponier/host/setup"
	"github.com/spf13/cobra"
)

func nodeRemove(g *global) *cobra.Command {
	var yes, away bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a node out of the configuration, once it takes the key no more",
		Long: "Prints the line that takes the key off the node, asks the node whether it is " +
			"gone, and\nthen removes the node's table from config.toml, whose old text stays " +
			"beside it. Nothing\nis changed while the node takes the key, when it cannot be " +
			"asked (--away), or when the\nsite's policy would not load without the node.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error { return v.removeNode(v.args[0], yes, away) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not wait for an answer: the line has run")
	cmd.Flags().BoolVar(&away, "away", false, "the node is gone for good: do not ask it")
	return cmd
}

func (v *verb) removeNode(name string, yes, away bool) error {
	c, err := v.load()
	if err != nil {
		return err
	}
	at := slices.Index(c.NodeNames(), name)
	if at < 0 {
		return usage(fmt.Errorf("%s has no node %q, only %s; nothing was changed", c.File, name,
			strings.Join(c.NodeNames(), ", ")))
	}
	nodes, err := v.leave(c, name)
	if err == nil && nodes[0].Why != "" && !away {
		err = fmt.Errorf("%s; --away goes on without it", nodes[0].Why)
	}
	if err != nil {
		return usage(err)
	}
	if !v.json {
		tell(v.out, nodes)
	}
	if !yes && !v.confirmed("Has it run?") {
		return errors.New("nothing was changed")
	}
	if !away {
		if err := v.refuses(c, at); err != nil {
			return fmt.Errorf("%w; nothing was changed", err)
		}
	}
	text, err := setup.WithoutNode(c.File, at, c.Line(fmt.Sprintf("remote.nodes[%d]", at)))
	old := ""
	if err == nil {
		old, err = setup.Rewrite(c.File, text, v.holds)
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	return v.print(map[string]any{"removed": name, "config": c.File, "old": old, "nodes": nodes},
		func(w io.Writer) {
			fmt.Fprintf(w, "%s is no node of %s any more; %s is the old text. A running server "+
				"has to be started again.\n", name, c.File, old)
		})
}

// refuses asks a node whether it still takes the key.
func (v *verb) refuses(c *config.Config, at int) error {
	n := c.Remote.Nodes[at]
	if err := setup.KeyWorks(n.IdentityFile); err != nil { // or every node would refuse it
		return fmt.Errorf("%s cannot be asked whether it still takes the key: %w", n.Name, err)
	}
	one := *c
	one.Remote.Nodes = c.Remote.Nodes[at : at+1]
	for _, f := range doctor.Nodes(v.ctx, &one) {
		switch {
		case f.Check == "login" && f.Level == doctor.Fail:
			return nil
		case f.Check == "login":
			return fmt.Errorf("%s still takes the key: run the line", n.Name)
		case f.Level == doctor.Fail:
			return fmt.Errorf("%s cannot be asked whether it still takes the key (%s); --away if "+
				"it is gone for good", n.Name, f.Note)
		}
	}
	return fmt.Errorf("%s does not say whether it still takes the key", n.Name)
}

// holds reports whether a configuration has a policy that loads.
func (v *verb) holds(file string) error {
	_, err := config.Load(file, os.Environ())
	exe, self := os.Executable()
	if err = errors.Join(err, self); err != nil {
		return err
	}
	out, err := exec.CommandContext(v.ctx, exe, "--config", file, "policy", "check").
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("the policy would not load without the node:\n%s", out)
	}
	return nil
}

func hostsScan(g *global) *cobra.Command {
	var add string
	cmd := &cobra.Command{
		Use:   "scan HOST[:PORT]",
		Short: "Show the keys that a host proves, for you to compare with those on its console",
		Args:  cobra.ExactArgs(1),
		Example: "  caponier hosts scan pve1.example\n  caponier hosts scan pve1.example --add " +
			"~/.ssh/known_hosts   # after comparing the fingerprints",
		RunE: g.does(func(v *verb) error {
			host, port := v.args[0], 22
			if h, p, err := net.SplitHostPort(host); err == nil {
				n, err := strconv.Atoi(p)
				if err != nil || n < 1 || n > 65535 {
					return usage(fmt.Errorf("%q is not a port", p))
				}
				host, port = h, n
			}
			keys, err := doctor.Scan(v.ctx, host, port)
			if err != nil {
				return err
			}
			lines := ""
			for _, k := range keys {
				lines += k.Line + "\n"
			}
			err = v.print(keys, func(w io.Writer) { printKeys(w, host, keys, lines, add != "") })
			if err != nil || add == "" {
				return err
			}
			return v.addTo(add, lines)
		}),
	}
	cmd.Flags().StringVar(&add, "add", "", "add the keys to this known_hosts `FILE`")
	return cmd
}

func printKeys(w io.Writer, host string, keys []doctor.ScannedKey, lines string, adds bool) {
	for _, k := range keys {
		fmt.Fprintf(w, "%-20s host_key = %q\n", k.Type, k.Fingerprint)
	}
	fmt.Fprintf(w, "\nCompare one with what the console of %s itself says:\n  ssh-keygen -lf "+
		"/etc/ssh/ssh_host_ed25519_key.pub\nThen put it as host_key into [[remote.nodes]]", host)
	if adds {
		fmt.Fprintln(w, ".")
		return
	}
	fmt.Fprintf(w, ", or add these lines to a known_hosts file (--add FILE):\n%s", lines)
}

// addTo adds text at the end of a file, which it makes for this user alone when there is none.
func (v *verb) addTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Close()); err == nil {
		fmt.Fprintf(v.say, "added to %s\n", file)
	}
	return err
}
