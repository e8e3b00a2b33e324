package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func checkCommand(g *global) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use: "check", Short: "Examine configuration, policies, lock, state and nodes, and say how to mend what is wrong", Args: cobra.NoArgs,
		Long: "Looks at everything that a call needs, and changes nothing: no directory is made, nothing is decided or journaled, and what runs on the nodes are\n" +
			"fixed commands that read (docs/first-node.md lists them). Exits with 0 when nothing fails (warnings do not count), 1 when something does, 2 when\n" +
			"the configuration cannot be used at all.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			x := &examination{g: g}
			usable := x.all(cmd.Context(), offline)
			if err := x.show(cmd.OutOrStdout(), g.json); err != nil {
				return failed(err)
			}
			switch failures, _ := x.counts(); {
			case !usable:
				return &exit{code: exitUsage}
			case failures > 0:
				return &exit{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "do not connect to the nodes")
	return cmd
}

// examination gathers what the doctor finds.
type examination struct {
	g        *global
	cfg      *config.Config
	findings []doctor.Finding
}

func (x *examination) found(check string, level doctor.Level, fix, format string, args ...any) {
	x.findings = append(
		x.findings,
		doctor.Finding{Check: check, Level: level, Note: fmt.Sprintf(format, args...), Fix: fix},
	)
}

// try reports whether err is nil, and notes either.
func (x *examination) try(check string, err error, fix, format string, args ...any) bool {
	if err != nil {
		x.found(check, doctor.Fail, fix, "%v", err)
		return false
	}
	x.found(check, doctor.OK, "", format, args...)
	return true
}

func (x *examination) counts() (failures, warnings int) {
	for _, f := range x.findings {
		switch f.Level {
		case doctor.OK:
		case doctor.Warn:
			warnings++
		default:
			failures++
		}
	}
	return failures, warnings
}

func (x *examination) show(w io.Writer, asJSON bool) error {
	failures, warnings := x.counts()
	if asJSON {
		return json.NewEncoder(w).
			Encode(map[string]any{"failed": failures, "warned": warnings, "findings": x.findings})
	}
	for _, f := range x.findings {
		mark, what := "FAIL", f.Check
		switch f.Level {
		case doctor.OK:
			mark = "ok"
		case doctor.Warn:
			mark = "warn"
		}
		if f.Node != "" {
			what = f.Node + ": " + what
		}
		fmt.Fprintf(w, "%-4s  %-20s %s\n", mark, what, line(f.Note))
		if f.Fix != "" {
			fmt.Fprintf(w, "      %-20s → %s\n", "", line(f.Fix))
		}
	}
	_, err := fmt.Fprintf(
		w,
		"%d failed, %d warned, %d ok\n",
		failures,
		warnings,
		len(x.findings)-failures-warnings,
	)
	return err
}

// line is what a terminal may show: a node, or whoever stands before it, has a say in some errors.
func line(text string) string { return strings.ReplaceAll(plaintext.Clean(text), "\n", " ") }

// all reports whether there is a configuration to go by.
func (x *examination) all(ctx context.Context, offline bool) bool {
	var err error
	if x.cfg, err = x.g.load(); !x.try(
		"configuration",
		err,
		"caponier --config FILE check   # FILE: config.toml of the repository, edited",
		"%s",
		fileOf(x.cfg),
	) {
		return false
	}
	var risks error
	if !x.cfg.AcceptRisks {
		risks = fmt.Errorf("accept_risks is not true in %s", x.cfg.File)
	}
	x.try(
		"risks",
		risks,
		"accept_risks = true   # in "+x.cfg.File+", when you have read docs/threats.md",
		"accept_risks = true",
	)
	x.policy(ctx)
	x.state()
	if !offline {
		x.nodes(ctx)
	}
	return true
}

func fileOf(c *config.Config) string {
	if c == nil {
		return ""
	}
	return c.File
}

// policy looks at the lock, at the modules, at the site, and at what it grants to whoever acts
// here.
func (x *examination) policy(ctx context.Context) {
	const review = "   # then review the difference like code"
	lock, err := plugin.Load(x.cfg.Plugin.Lock)
	usable := x.try("lock", err, relock(x.cfg.Plugin)+review, "%s", x.cfg.Plugin.Lock)
	engine, h := (*load.Site)(nil), (*host)(nil)
	offers := usable
	if usable {
		_, err := x.cfg.Tools.Withheld(lock)
		offers = x.try(
			"tools",
			err,
			"[tools]   # in "+x.cfg.File+": the names that there are are listed here",
			"%d in the lock",
			len(lock.Tools()),
		)
	}
	if offers {
		if h, err = open(ctx, x.g, wantTools); err == nil {
			defer h.Close()
			engine = h.engine
		}
	} else {
		engine, err = load.New(ctx, x.cfg.Policy)
	}
	if err != nil {
		x.found("policy", doctor.Fail, "caponier policy check "+x.cfg.Policy.Site, "%v", err)
	} else {
		x.found("policy", doctor.OK, "", "%s, revision %s", x.cfg.Policy.Site, engine.Revision())
		for _, w := range engine.Warnings() {
			x.found("names", doctor.Warn, "cluster_nodes: [NAME]   # in "+filepath.Join(x.cfg.Policy.Site, "data.yaml")+", or mend the name", "%s", w)
		}
	}
	if !usable {
		return
	}
	x.declared(ctx, lock, engine)
	locked := map[string]bool{}
	for _, e := range lock.Plugins() {
		locked[e.File] = true
		_, err := lock.Open(x.cfg.Plugin.Dir, e.Name)
		fix := relock(x.cfg.Plugin, strings.TrimSuffix(e.File, ".wasm")) + review
		if errors.Is(err, fs.ErrNotExist) {
			fix = fmt.Sprintf(
				"caponier plugin build -o %s FOLDER   # of its sources; make plugins builds ours",
				filepath.Join(x.cfg.Plugin.Dir, e.File),
			)
		}
		x.try("plugin", err, fix, "%s %s, %s", e.Name, e.Version, e.Digest)
	}
	for _, file := range unlocked(x.cfg.Plugin.Dir, locked) {
		x.found(
			"plugin",
			doctor.Warn,
			relock(x.cfg.Plugin, strings.TrimSuffix(filepath.Base(file), ".wasm"))+review,
			"%s is not in the lock, so that nobody can call its tools",
			file,
		)
	}
	if h == nil {
		return
	}
	principal, err := h.cliPrincipal()
	if err != nil {
		x.found(
			"principal",
			doctor.Warn,
			`principal = "local"   # under [cli] of `+x.cfg.File,
			"%v",
			err,
		)
		return
	}
	visible := 0
	for _, t := range h.tools {
		if h.door.Visible(ctx, principal, "cli", t, gate.Targets{}) {
			visible++
		}
	}
	if visible == 0 {
		x.found(
			"principal",
			doctor.Warn,
			fmt.Sprintf(
				"%s: {auth: [config], roles: [operator]}   # under principals: of %s; docs/policy.md",
				principal.ID,
				filepath.Join(x.cfg.Policy.Site, "data.yaml"),
			),
			"%s, who acts on stdio and in this terminal, may use none of %d tools",
			principal.ID,
			len(h.tools),
		)
		return
	}
	x.found(
		"principal",
		doctor.OK,
		"",
		"%s, who acts on stdio and in this terminal, may see %d of %d tools",
		principal.ID,
		visible,
		len(h.tools),
	)
}

// declared finds commands that tools declare and no grammar describes: they can never run, whatever
// they were meant to be.
func (x *examination) declared(ctx context.Context, lock *plugin.Lock, engine *load.Site) {
	if engine == nil {
		return
	}
	known, err := engine.Entries(ctx)
	if err != nil {
		x.found("commands", doctor.Fail, "caponier policy check "+x.cfg.Policy.Site, "%v", err)
		return
	}
	for _, t := range lock.Tools() {
		if len(t.Commands) == 0 &&
			(slices.Contains(t.Imports, "ssh_exec") || slices.Contains(t.Imports, "ssh_script")) {
			x.found(
				"commands",
				doctor.Warn,
				relock(
					x.cfg.Plugin,
				)+"   # when its author has declared them; then review the difference like code",
				"%s %s of plugin %s declares no command: it can run none",
				t.Kind,
				t.Name,
				t.Plugin.Name,
			)
		}
		for _, c := range t.Commands {
			if c != gate.CallersText && !slices.Contains(known, c) {
				x.found(
					"commands",
					doctor.Warn,
					fmt.Sprintf(
						"binaries:   # in %s, if it is a program of this site; else the plugin's author misspelt it",
						filepath.Join(x.cfg.Policy.Site, "data.yaml"),
					),
					"%s %s of plugin %s declares %q, which no command grammar describes: it cannot run that",
					t.Kind,
					t.Name,
					t.Plugin.Name,
					c,
				)
			}
		}
	}
}

// state looks at the directories that are written to, and at what is in them.
func (x *examination) state() {
	c := x.cfg
	for _, d := range []struct {
		key, dir string
		private  bool // the program refuses it when others may even look
	}{{"audit.dir", c.Audit.Dir, false}, {"store.dir", c.Store.Dir, false}, {"remote.workspace", c.Remote.Workspace, false}, {"blob.dir", c.Blob.Dir, true}, {"sandbox.cache_dir", c.Sandbox.CacheDir, true}} {
		if d.dir != "" {
			x.directory(d.key, d.dir, d.private)
		}
	}
	switch report, err := audit.Verify(c.Audit.Dir); {
	case errors.Is(err, fs.ErrNotExist):
		x.found("journal", doctor.OK, "", "none yet")
	case err != nil:
		x.found("journal", doctor.Fail, "caponier audit verify", "%v", err)
	case !report.OK():
		x.found(
			"journal",
			doctor.Fail,
			"caponier audit verify   # then docs/operating.md: when something went wrong",
			"is not what was written: %s",
			report.Problems[0],
		)
	default:
		x.found("journal", doctor.OK, "", "%d chains hold", len(report.Files))
	}
	frozen, err := freeze.In(c.Store.Dir).All()
	switch {
	case err != nil:
		x.found(
			"freeze",
			doctor.Fail,
			"ls -l "+filepath.Join(c.Store.Dir, "frozen"),
			"%v: what cannot be read freezes",
			err,
		)
	case len(frozen) > 0:
		x.found(
			"freeze",
			doctor.Warn,
			"caponier freeze list; caponier thaw",
			"%s is frozen by %q since %s: such calls are refused",
			frozen[0],
			frozen[0].By,
			frozen[0].Since.Format("2006-01-02 15:04"),
		)
	default:
		x.found("freeze", doctor.OK, "", "nothing is frozen")
	}
}

// directory says whether this user could write there, without doing so: what the doctor made would
// belong to whoever ran it.
func (x *examination) directory(key, dir string, private bool) {
	me := "this user"
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	at, missing := dir, false
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
		at, missing = filepath.Dir(at), true
		info, err = os.Stat(at)
	}
	make := fmt.Sprintf("install -d -m 0700 -o %s %s   # as root", me, dir)
	if err != nil {
		x.found("state", doctor.Fail, make, "%s: %v", key, err)
		return
	}
	owner, mode := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)), info.Mode().Perm()
	mine := owner == strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	err = unix.Access(at, unix.W_OK|unix.X_OK)
	switch {
	case !info.IsDir():
		x.found("state", doctor.Fail, make, "%s: %s is no directory", key, at)
	case err != nil:
		x.found("state", doctor.Fail, make, "%s: %s cannot write to %s: %v", key, me, at, err)
	case missing:
		x.found("state", doctor.OK, "", "%s: %s will be made in %s", key, dir, at)
	case !mine:
		x.found(
			"state",
			doctor.Warn,
			fmt.Sprintf("sudo -u %s caponier check   # run the doctor as who serves", owner),
			"%s: %s belongs to %s, and this is %s: a server of the other one could not use what this one writes",
			key,
			dir,
			owner,
			me,
		)
	case mode&0o022 != 0 || private && mode&0o077 != 0:
		x.found(
			"state",
			doctor.Fail,
			"chmod 0700 "+dir,
			"%s: others may use %s (mode %04o), which is refused",
			key,
			dir,
			mode,
		)
	case mode&0o077 != 0:
		x.found(
			"state",
			doctor.Warn,
			"chmod 0700 "+dir,
			"%s: others may look into %s (mode %04o)",
			key,
			dir,
			mode,
		)
	default:
		x.found("state", doctor.OK, "", "%s: %s", key, dir)
	}
}

// nodes asks all of them at once, and tells in the order of the inventory.
func (x *examination) nodes(ctx context.Context) {
	o := x.cfg.Remote
	o.Workspace = os.TempDir() // it is there: nothing is made
	r, err := doctor.New(o)
	if err == nil && len(o.Nodes) == 0 {
		err = errors.New("there are no nodes")
	}
	if r != nil {
		defer r.Close()
	}
	if !x.try(
		"inventory",
		err,
		"caponier hosts import --add   # writes [[remote.nodes]] from ~/.ssh/config; or write it as config.toml of the repository shows",
		"%d nodes",
		len(o.Nodes),
	) {
		return
	}
	reports := make([]doctor.Report, len(o.Nodes))
	var all sync.WaitGroup
	for i, n := range o.Nodes {
		all.Go(func() { reports[i] = r.Check(ctx, n.Name) })
	}
	all.Wait()
	clusters := map[string]int{} // as the nodes call them, to the first node of each
	for i, rep := range reports {
		x.findings = append(x.findings, rep.Findings...)
		first, seen := clusters[rep.Cluster]
		if rep.Cluster == "" || !seen {
			clusters[rep.Cluster] = i
		} else if a, b := o.Nodes[first], o.Nodes[i]; cmp.Or(a.Cluster, a.Name) != cmp.Or(b.Cluster, b.Name) {
			x.found("inventory", doctor.Fail, fmt.Sprintf("cluster = %q   # in [[remote.nodes]] of %s and of %s", rep.Cluster, a.Name, b.Name),
				"%s and %s are in one cluster, %q, but not in the inventory: a guest could be taken for two", a.Name, b.Name, rep.Cluster)
		}
	}
}
