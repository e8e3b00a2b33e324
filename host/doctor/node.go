package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/terms"
)

// newExaminer returns an examiner for the nodes of an inventory. It connects to none of them.
func newExaminer(o remote.Options) (*examiner, error) {
	o.Reads = nil
	for _, argv := range reads {
		o.Reads = append(o.Reads, textOf(argv))
	}
	r, err := remote.New(o)
	if err != nil {
		return nil, err
	}
	d := &examiner{remote: r, nodes: map[string]remote.NodeOptions{}}
	for _, n := range r.Inventory() {
		d.nodes[n.Name] = n
	}
	return d, nil
}

// Close ends all connections.
func (d *examiner) Close() error { return d.remote.Close() }

// Nodes examines all nodes of the configuration at once. The findings are in its order.
func Nodes(ctx context.Context, c *config.Config) Findings {
	var all Findings
	o := c.Remote
	o.Workspace = os.TempDir() // it exists: nothing is created
	d, err := newExaminer(o)
	if d != nil {
		defer d.Close()
	}
	if err == nil && len(o.Nodes) == 0 {
		err = errors.New("there are no nodes")
	}
	fix := `printf '\n[[remote.nodes]]\nname = "pve1"\nhost = "pve1"\nuser = "root"\n' >> ` +
		quote(c.File) + "   # then correct it, as config.toml of the repository shows"
	if !all.try("inventory", err, fix, "%d nodes", len(o.Nodes)) {
		return all
	}
	reports := make([]nodeReport, len(o.Nodes))
	var wait sync.WaitGroup
	for i, n := range o.Nodes {
		wait.Go(func() { reports[i] = d.check(ctx, n.Name) })
	}
	wait.Wait()
	firsts := map[string]int{} // the first node of each cluster
	for i, rep := range reports {
		all = append(all, rep.Findings...)
		first, seen := firsts[rep.Cluster]
		if rep.Cluster == "" || !seen {
			firsts[rep.Cluster] = i
			continue
		}
		a, b := o.Nodes[first], o.Nodes[i]
		if cmp.Or(a.Cluster, a.Name) != cmp.Or(b.Cluster, b.Name) {
			fix := fmt.Sprintf("%s   # cluster = %q for %s and for %s", edit(c.File,
				c.Line(fmt.Sprintf("remote.nodes[%d]", i))), rep.Cluster, a.Name, b.Name)
			all.found("inventory", Fail, fix, "%s and %s are in one cluster, %q, but not in the "+
				"inventory: one guest could be taken for two", a.Name, b.Name, rep.Cluster)
		}
	}
	return all
}

// check logs in to a node, runs the fixed commands there and opens SFTP. It goes as far as it can:
// what could not be examined has no finding.
func (d *examiner) check(ctx context.Context, name string) nodeReport {
	v := &visit{d.remote, d.nodes[name], &nodeReport{Node: name}}
	if v.opts.Name == "" {
		fix := fmt.Sprintf("name = %q   # in [[remote.nodes]] of the configuration", name)
		v.found("connection", Fail, fix, "node %q is not in the inventory (remote.nodes)", name)
		return *v.rep
	}
	if trip, ok := v.login(ctx); ok && v.commands(ctx, trip) {
		v.clock(ctx)
		v.cluster(ctx)
		for _, argv := range reads[3:5] {
			if _, ok := v.read(ctx, argv[0], argv); ok {
				v.found(argv[0], OK, "", "runs")
			}
		}
		v.locale(ctx)
		v.files(ctx)
	}
	return *v.rep
}

// login connects, and returns how long the network takes.
func (d *visit) login(ctx context.Context) (trip time.Duration, ok bool) {
	o := d.opts
	link, err := d.r.Link(ctx, o.Name)
	if err != nil {
		check, fix := "connection", fmt.Sprintf(
			"ssh -v -p %d %s@%s   # from this machine; then host and port in [[remote.nodes]] %s",
			o.Port, o.User, o.Host, o.Name)
		switch op := (*terms.OpError)(nil); {
		case !errors.As(err, &op):
		case op.Code == "host_key":
			check, fix = "host-key", fmt.Sprintf("caponier hosts scan %s   # compare with: "+
				"ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on the node's own console; then "+
				"host_key = \"SHA256:…\" in [[remote.nodes]] %s", o.Addr(), o.Name)
		case op.Code == "auth":
			check, fix = "login", fmt.Sprintf("ssh-copy-id -i %s.pub -p %d %s@%s   "+
				"# or mend identity_file in [[remote.nodes]] %s",
				cmp.Or(o.IdentityFile, "KEY"), o.Port, o.User, o.Host, o.Name)
		case op.Code == "credentials":
			check, fix = "credentials", "mend identity_file, certificate_file, agent or jump in "+
				"[[remote.nodes]] "+o.Name
		case op.Code == "lost":
			fix = "caponier check   # again; then look at the sshd of " + o.Name +
				": journalctl -u ssh -n 20"
		}
		d.found(check, Fail, fix, "%s", words(err))
		return 0, false
	}
	d.found("connection", OK, "", "%s@%s, %.64q, login in %s, round trip %s", o.User, o.Addr(),
		link.Server, link.Login.Round(time.Millisecond), link.Trip.Round(10*time.Microsecond))
	d.found("host-key", OK, "", "%s", link.HostKey)
	d.found("login", OK, "", "%s", link.Offered)
	return link.Trip, true
}

// commands checks that the login shell reads quoted words as expected, and how long it takes.
func (d *visit) commands(ctx context.Context, trip time.Duration) bool {
	o, limit, end := d.opts, slowExec+4*trip, time.Now().Add(insist)
	// A busy node is fast now and then. A node with a slow start-up file never is.
	for i := 0; i < 4 || d.rep.Exec > limit && time.Now().Before(end); i++ {
		began := time.Now()
		e, err := d.r.Ask(ctx, o.Name, textOf(reads[0]))
		if err != nil {
			check, fix := "login-shell", fmt.Sprintf("usermod -s /bin/bash %s   # on %s", o.User,
				o.Name)
			switch op := (*terms.OpError)(nil); {
			case !errors.As(err, &op):
			case op.Code == "shell_output":
				fix = quietLine + "   # the first line of ~/.bashrc (zsh: ~/.zshenv) of " + o.User +
					" on " + o.Name
			case op.Code == "not_permitted_on_node":
				check = "gate"
				fix = "install -o root -g root -m 0755 caponier-gate /usr/local/sbin/   # on " +
					o.Name + "; the file is packaging/node/caponier-gate of this version"
			}
			d.found(check, Fail, fix, "%s", words(err))
			return false
		}
		if e.Exit != 0 {
			d.explain("login-shell", reads[0], e)
			return false
		}
		// the first one probes the shell, too
		if took := time.Since(began); i == 1 || took < d.rep.Exec {
			d.rep.Exec = took
		}
	}
	d.found("login-shell", OK, "", "reads quoted words as a POSIX shell does")
	if d.rep.Exec > limit {
		d.found("start-up", Warn,
			quietLine+"   # the first line of ~/.bashrc (zsh: ~/.zshenv) of "+o.User+" on "+o.Name,
			"every command takes %s although the network needs %s: a start-up file of the login "+
				"shell does work (bash reads ~/.bashrc for SSH commands, zsh ~/.zshenv)",
			d.rep.Exec.Round(time.Millisecond), trip.Round(100*time.Microsecond))
	} else {
		d.found("start-up", OK, "", "`true` takes %s", d.rep.Exec.Round(10*time.Microsecond))
	}
	return true
}
