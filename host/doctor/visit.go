package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
)

// nodeReport is the result of the examination of one node.
type nodeReport struct {
	Findings
	Node    string
	Exec    time.Duration // the fastest `true`
	Cluster string        // as the node calls it; "" for none, or if it could not be asked
}

// reads is everything that check runs on a node, besides the probe of the login shell: fixed words
// that change nothing there.
var reads = [][]string{
	{"true"},
	{"date", "+%s"},
	{"pvesh", "get", "/cluster/status", "--output-format", "json"},
	{"pct", "list"},
	{"qm", "list"},
	{"locale", "charmap"},
}

// textOf is the command that is sent for one of reads. The first is not quoted, as a person would
// have it in the list of a forced command.
func textOf(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	return shell.Quote(argv)
}

// examiner examines nodes. It is safe for concurrent use. Close it.
type examiner struct {
	remote *remote.Remote
	nodes  map[string]remote.NodeOptions
}

const (
	// how much longer than the network `true` may take, and for how long a faster one is tried
	slowExec, insist = 100 * time.Millisecond, 3 * time.Second
	skewWarn         = 2 * time.Second // `date +%s` is good to a second
	// the journal and the node's own logs cannot be laid side by side any more
	skewFail  = time.Minute
	quietLine = "case $- in *i*) ;; *) return ;; esac"
)

// visit is the examination of one node.
type visit struct {
	r    *remote.Remote
	opts remote.NodeOptions
	rep  *nodeReport
}

func (d *visit) found(check string, level Level, fix, format string, args ...any) {
	d.rep.found(check, level, fix, format, args...)
	d.rep.Findings[len(d.rep.Findings)-1].Node = d.rep.Node
}

// words are what an error says beside its code, which the name of the check has said already.
func words(err error) string {
	if op := (*terms.OpError)(nil); errors.As(err, &op) {
		return op.Message
	}
	return err.Error()
}

// read runs one of Reads. When it does not answer, that is a finding of its own.
func (d *visit) read(ctx context.Context, check string, argv []string) ([]byte, bool) {
	e, err := d.r.Ask(ctx, d.opts.Name, textOf(argv))
	if err != nil {
		d.found(
			check,
			Fail,
			fmt.Sprintf("%s   # on %s: what hangs there, hangs for Caponier",
				strings.Join(argv, " "), d.opts.Name),
			"`%s`: %s",
			strings.Join(argv, " "),
			words(err),
		)
		return nil, false
	}
	if e.Exit != 0 {
		d.explain(check, argv, e)
		return nil, false
	}
	return e.Stdout, true
}

// explain says why a command did not work, from its exit code and what it printed.
func (d *visit) explain(check string, argv []string, e remote.Output) {
	o, line := d.opts, strings.Join(argv, " ")
	said, _, _ := bytes.Cut(bytes.TrimSpace(e.Stderr), []byte("\n"))
	switch {
	case e.Exit == 126 && bytes.Contains(e.Stderr, []byte("caponier-gate")):
		fix := fmt.Sprintf("\"%s\"   # one more line of form=( … ) in "+
			"/usr/local/sbin/caponier-gate on %s, if your tools need it",
			strings.ReplaceAll(shell.Quote(argv), "+", "[+]"), o.Name)
		d.found(check, Warn, fix,
			"the key's forced command does not let it run `%s`, nor then any tool", line)
	case e.Exit == 127:
		fix := fmt.Sprintf("SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"+
			"/sbin:/bin   # in /etc/ssh/sshd_config of %s, in place of another SetEnv there, then "+
			"systemctl reload ssh; if it is a "+
			"Proxmox node at all", o.Name)
		d.found(check, Fail, fix, "%s is not found by %s on %s (%q)", argv[0], o.User, o.Name,
			clip(said))
	case bytes.HasPrefix(said, []byte("sudo:")):
		fix := fmt.Sprintf("visudo -cf /etc/sudoers.d/caponier && sudo -l -U %s   # on %s; "+
			"docs/first-node.md has the file", o.User, o.Name)
		d.found(check, Fail, fix, "`%s`: sudo does not let %s run it without a password (%q)",
			line, o.User, clip(said))
	default:
		fix := fmt.Sprintf("ssh -p %d %s@%s %s   # it must work by hand; pct, qm and pvesh want "+
			"root, or sudo as docs/first-node.md has it", o.Port, o.User, o.Host, line)
		d.found(check, Fail, fix, "`%s` ends with exit code %d: %q", line, e.Exit, clip(said))
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 120)] }
