package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/client/settings"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/caponier-mcp/caponier/host/setup"
	"github.com/spf13/cobra"
)

// beginning is one run of init.
type beginning struct {
	*verb
	answers     *bufio.Reader
	plan        setup.Plan
	way, client string
	specs, pins []string
}

func initCommand(g *global) *cobra.Command {
	b := &beginning{}
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a configuration for nodes that allows reads only, and a key of its own",
		Long: "Writes config.toml, a site that lets its one principal read, and a key into DIR " +
			"(the\nuser's configuration directory), and prints for each node the line that lets " +
			"the key in.\nIt asks for what no flag says. Every host key must be confirmed: with " +
			"\"yes\", or with\n--host-key as the node's console shows it, and then no node is " +
			"asked. Nothing is\noverwritten: where there is a configuration, init only says what " +
			"it would add, and checks.",
		Args: cobra.MaximumNArgs(1),
		Example: "  caponier init --node pve1=192.0.2.10 --node pve2=192.0.2.11 --cluster home\n" +
			"  caponier init /etc/caponier --for caponier --node pve1=192.0.2.10 " +
			"--host-key SHA256:…",
		RunE: g.does(func(v *verb) (err error) {
			b.verb, b.answers = v, bufio.NewReader(v.in)
			return b.run()
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&b.specs, "node", nil, "a node, as `NAME=HOST[:PORT]` with its own name; "+
		"repeat it")
	f.StringArrayVar(&b.pins, "host-key", nil,
		"the fingerprint `SHA256:…` of the host key, one for each --node in their order")
	f.StringVar(&b.plan.Cluster, "cluster", "", "the `NAME` of the cluster that all nodes are of")
	f.StringVar(&b.way, "login", "gate", "`gate` (root, held to commands) or sudo (the node's "+
		"user caponier, held to commands by sudo too)")
	f.StringVar(&b.plan.Account, "for", "", "the `ACCOUNT` that the server will run as, if it "+
		"is another")
	f.StringVar(&b.client, "client", "", "the MCP `CLIENT` whose configuration is printed: "+
		strings.Join(settings.Clients(), ", "))
	f.BoolVar(&b.plan.AcceptRisks, "accept-risks", false,
		"write accept_risks = true: you have read docs/threats.md")
	return cmd
}

func (b *beginning) run() error {
	if b.way != string(setup.Gate) && b.way != string(setup.Sudo) {
		return usage(fmt.Errorf("--login %q: want gate or sudo", b.way))
	}
	if err := b.places(); err != nil {
		return usage(err)
	}
	if _, err := os.Stat(b.plan.Config()); err == nil {
		return b.again()
	}
	if err := b.nodes(); err != nil {
		return err
	}
	for i := range b.plan.Nodes {
		if err := b.hostKey(i); err != nil {
			return err
		}
	}
	if !b.plan.AcceptRisks && len(b.specs) == 0 { // the one who answers is there to be asked
		fmt.Fprint(b.say, "An agent will act as root on these nodes, within what policy allows "+
			"(docs/threats.md).\nType yes to accept that: ")
		b.plan.AcceptRisks = b.answer() == "yes"
	}
	public, err := b.plan.Write()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%s is written: reads only.\n\nLet the key in, with these lines for a "+
		"shell here; they log in as root:\n\n", b.plan.Config())
	for _, n := range b.plan.Nodes {
		fmt.Fprintf(b.out, "%s\n\n", b.plan.Line(n, setup.Way(b.way), public))
	}
	return b.finish(true)
}

// places fills in the directories.
func (b *beginning) places() (err error) {
	p := &b.plan
	if len(b.args) > 0 {
		p.Dir = b.args[0]
	} else if p.Dir, err = os.UserConfigDir(); err == nil {
		p.Dir = filepath.Join(p.Dir, "caponier")
	}
	if err == nil {
		p.Dir, err = filepath.Abs(p.Dir)
	}
	if err == nil {
		p.Shipped, err = setup.Find()
	}
	p.State = filepath.Join(p.Dir, "state")
	if err == nil && p.Account != "" {
		var u *user.User
		if u, err = user.Lookup(p.Account); err == nil {
			p.State = u.HomeDir
		}
	}
	return err
}

// nodes reads the nodes from the flags, or asks for them.
func (b *beginning) nodes() error {
	specs := b.specs
	for len(b.specs) == 0 {
		fmt.Fprint(b.say, "A node, as NAME=HOST or NAME=HOST:PORT (empty: no more): ")
		line := b.answer()
		if line == "" {
			break
		}
		specs = append(specs, line)
	}
	if len(specs) == 0 {
		return usage(errors.New("no node: give --node NAME=HOST, or answer the question"))
	}
	if len(b.pins) > 0 && len(b.pins) != len(specs) {
		return usage(fmt.Errorf("%d --host-key for %d nodes", len(b.pins), len(specs)))
	}
	for i, text := range specs {
		n, err := setup.ParseNode(text, setup.Way(b.way))
		if err != nil {
			return usage(err)
		}
		if slices.ContainsFunc(b.plan.Nodes, func(o setup.Node) bool { return o.Name == n.Name }) {
			return usage(fmt.Errorf("two nodes of the name %s", n.Name))
		}
		if len(b.pins) > 0 {
			n.HostKey = b.pins[i]
		}
		b.plan.Nodes = append(b.plan.Nodes, n)
	}
	return nil
}

// hostKey finds out the host key of a node that has no pin yet. A person must say that it is the
// node's: nothing else can tell it from a stranger's.
func (b *beginning) hostKey(i int) error {
	n := &b.plan.Nodes[i]
	if n.HostKey != "" {
		return nil
	}
	keys, err := doctor.Scan(b.ctx, n.Host, n.Port)
	if err != nil {
		return fmt.Errorf("node %s: %w (nothing was written; --host-key SHA256:… needs no answer "+
			"of the node)", n.Name, err)
	}
	fmt.Fprintf(b.say, "%s (%s) shows the key\n  %s  %s\nOn its own console, not over this "+
		"network, compare:\n  for f in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $f; "+
		"done\nType yes if it is the same: ", n.Name, n.Host, keys[0].Type, keys[0].Fingerprint)
	if b.answer() != "yes" {
		return fmt.Errorf("node %s: its key is not confirmed, and nothing was written; once you "+
			"have compared it: --host-key %s", n.Name, keys[0].Fingerprint)
	}
	n.HostKey = keys[0].Fingerprint
	return nil
}

// answer reads a line.
func (b *beginning) answer() string {
	line, _ := b.answers.ReadString('\n')
	return strings.TrimSpace(line)
}

// again says what another init would change, and changes nothing.
func (b *beginning) again() error {
	c, err := config.Load(b.plan.Config(), os.Environ())
	if err != nil {
		return usage(err)
	}
	fmt.Fprintf(b.out, "%s is there, and stays as it is.\n", c.File)
	for _, text := range b.specs {
		n, err := setup.ParseNode(text, setup.Way(b.way))
		if err != nil {
			return usage(err)
		}
		if !slices.Contains(c.NodeNames(), n.Name) {
			fmt.Fprintf(b.out, "\n%s is not in it. Compare its key (caponier hosts scan %s), then "+
				"add:\n\n[[remote.nodes]]\nname = %q\nhost = %q\nport = %d\nuser = %q\n"+
				"identity_file = \"secrets/id_ed25519\"\nhost_key = \"SHA256:…\"\n", n.Name, n.Host,
				n.Name, n.Host, n.Port, n.User)
		}
	}
	return b.finish(false)
}

// finish checks what was written, and prints what a client needs. What the check finds is no error
// of init's the first time: the nodes do not know the key yet.
func (b *beginning) finish(first bool) error {
	if b.client != "" {
		b.config = b.plan.Config()
		text, file, err := b.snippet(b.client)
		if err != nil {
			return usage(err)
		}
		fmt.Fprintf(b.out, "For %s (caponier client add %s writes it):\n%s\n", file, b.client, text)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	check := []string{exe, "--config", b.plan.Config(), "check"}
	if b.plan.Account != "" {
		check = append([]string{"runuser", "-u", b.plan.Account, "--"}, check...)
	}
	words := check
	if first {
		words = append(slices.Clone(check), "--offline")
	}
	cmd := exec.CommandContext(b.ctx, words[0], words[1:]...)
	out, err := cmd.Output()
	if first {
		_, _ = io.WriteString(b.out, failures(string(out)))
		fmt.Fprintf(b.out, "Then, against the nodes:\n  %s\n", strings.Join(check, " "))
		return nil
	}
	_, _ = b.out.Write(out)
	if err != nil {
		return &exit{code: exitFailed}
	}
	return nil
}

// failures are the lines of a check that need something done, and its last line.
func failures(text string) (some string) {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "ok ") || i >= len(lines)-2 {
			some += l
		}
	}
	return some
}
