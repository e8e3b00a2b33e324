package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
)

// Configuration is the finding about a configuration file that could not be loaded.
func Configuration(file string, err error) Finding {
	fix, bad := "", (*config.Error)(nil)
	switch at := quote(file); {
	case errors.Is(err, trusted.ErrUntrusted):
		fix = fmt.Sprintf(`chown "$(id -un)" %s && chmod go-w %s`, at, at)
	case errors.As(err, &bad) && bad.Own:
		fix = fmt.Sprintf("sed -i '%ds/^/# /' %s   # or correct that line", bad.Line, at)
	case errors.As(err, &bad) && bad.Line > 0:
		fix = edit(file, bad.Line)
	case file == "":
		fix = `printf 'accept_risks = false\n[cli]\nprincipal = "local"\n' > config.toml` +
			"   # then edit it"
	case errors.Is(err, fs.ErrNotExist):
		fix = "cp config.toml " + at + "   # that of the repository; then edit it"
	default: // a variable of the environment: its name is the first CAPONIER_ word
		name := regexp.MustCompile(`CAPONIER_[A-Z_]+`).FindString(err.Error())
		fix = "unset " + name + "; caponier check"
	}
	return Finding{Check: "configuration", Level: Fail, Note: err.Error(), Fix: fix}
}

// Local examines everything but the nodes.
func Local(ctx context.Context, c *config.Config) Findings {
	l := &local{c: c}
	l.found("configuration", OK, "", "%s", c.File)
	var risks error
	if !c.AcceptRisks {
		risks = fmt.Errorf("accept_risks is not true in %s", c.File)
	}
	l.try("risks", risks, l.set("", "accept_risks",
		"true")+"   # when you have read docs/threats.md",
		"accept_risks = true")
	l.policy(ctx)
	l.state()
	return l.Findings
}

// policy examines the lock, the modules, the site, and what it grants to the caller.
func (l *local) policy(ctx context.Context) {
	c := l.c
	lock, err := plugin.Load(c.Plugin.Lock)
	usable := l.try("lock", err, l.relock(), "%s", c.Plugin.Lock)
	o := c.Policy
	if o.Inventory.Nodes = c.Remote.Known(); usable {
		o.Inventory.Tools = lock.Tools()
	}
	site, err := load.New(ctx, o)
	if err != nil {
		site = nil
		l.found("policy", Fail, l.mendSite(err), "%v", err)
	} else {
		l.found("policy", OK, "", "%s, revision %s", o.Site, site.Revision())
		// as in a site that is shared by hosts with other plugins
		if tools := site.Absent(); len(tools) > 0 {
			l.found("names", OK, "", "%d names of tools are not in the lock (caponier policy "+
				"check lists them), the first: %s", len(tools), tools[0])
		}
	}
	if dir := o.Shadow; dir != "" {
		if _, err := load.FromFolder(ctx, dir, o.Inventory); err != nil {
			l.found("candidate", Warn, quote("caponier", "policy", "check", dir),
				"[policy] shadow decides nothing: %v", err)
		} else {
			l.found("candidate", OK, "", "%s", dir)
		}
	}
	if !usable {
		return
	}
	hidden, err := c.Tools.HiddenReason(lock)
	ok := l.try("tools", err, edit(c.File, c.Line("tools")), "%d in the lock", len(lock.Tools()))
	l.modules(lock)
	if site == nil {
		return
	}
	l.commands(ctx, lock, site)
	if ok {
		l.caller(ctx, lock, site, hidden)
	}
}

var place = regexp.MustCompile(`([^\s:]+\.(?:rego|yaml)):([0-9]+)`)

// mendSite is the line for a site that does not load.
func (l *local) mendSite(err error) string {
	site := l.c.Policy.Site
	if _, missing := os.Stat(site); missing != nil {
		return l.set("policy", "site", `"policies/site"`) + "   # or the folder that was meant"
	}
	file, line := l.data(), 1
	if m := place.FindStringSubmatch(err.Error()); m != nil {
		if found, globErr := filepath.Glob(filepath.Join(site,
			filepath.Base(m[1]))); globErr == nil &&
			len(found) > 0 {
			file = found[0]
		}
		_, _ = fmt.Sscan(m[2], &line)
	}
	return edit(file, line)
}

// modules compares the modules with the lock.
func (l *local) modules(lock *plugin.Lock) {
	dir, locked := l.c.Plugin.Dir, map[string]bool{}
	for _, e := range lock.Plugins() {
		locked[e.File] = true
		_, err := lock.Open(dir, e.Name)
		fix := l.relock(strings.TrimSuffix(e.File, ".wasm"))
		if errors.Is(err, fs.ErrNotExist) {
			sources := filepath.Join(filepath.Dir(l.c.File), "plugins", e.Name)
			fix = quote("caponier", "plugin", "build", "-o", filepath.Join(dir, e.File),
				sources) + "   # or where its sources are"
		}
		l.try("plugin", err, fix, "%s %s, %s", e.Name, e.Version, e.Digest)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.wasm")) // the pattern is a good one
	for _, f := range files {
		if !locked[filepath.Base(f)] {
			l.found("plugin", Warn, l.relock(strings.TrimSuffix(filepath.Base(f), ".wasm")),
				"%s is not in the lock: its tools cannot be called", f)
		}
	}
}

// commands finds tools that can never run what they declare.
func (l *local) commands(ctx context.Context, lock *plugin.Lock, site *load.Site) {
	known, err := site.Entries(ctx)
	if err != nil {
		l.found("commands", Fail, l.mendSite(err), "%v", err)
		return
	}
	for _, w := range site.Idle() {
		l.found("commands", Warn, l.mendSite(errors.New(w)), "%s", w)
	}
	for _, t := range lock.Tools() {
		runs := slices.Contains(t.Imports, "ssh_exec") || slices.Contains(t.Imports, "ssh_script")
		if runs && len(t.Commands) == 0 {
			l.found("commands", Warn, l.relock(), "%s %s of plugin %s declares no command and "+
				"can run none: its author has to declare them", t.Kind, t.Name, t.Plugin.Name)
		}
		for _, cmd := range t.Commands {
			if cmd != terms.CallersText && !slices.Contains(known, cmd) {
				l.found("commands", Warn, edit(l.data(), 1)+"   # describe it under binaries, "+
					"if it is a program of this site", "%s %s of plugin %s declares %q, which "+
					"no command grammar describes: it cannot run that", t.Kind, t.Name,
					t.Plugin.Name, cmd)
			}
		}
	}
}

// caller examines what the principal of stdio and of this terminal may use.
func (l *local) caller(ctx context.Context, lock *plugin.Lock, site *load.Site,
	hidden func(*terms.Tool) string) {
	p, err := l.c.Caller()
	if err != nil {
		l.found("principal", Fail, l.set("cli", "principal", `"local"`), "%v", err)
		return
	}
	visible := 0
	for _, t := range lock.Tools() {
		d, err := site.Decide(ctx, terms.Question{ID: "list", Kind: terms.KindVisible,
			Time: time.Now(),
			Call: &terms.Call{Source: "cli", Principal: p, Tool: t},
			Mode: terms.Mode{ReadOnly: l.c.ReadOnly, Freezes: []terms.Freeze{}}})
		if err == nil && d.Allow && hidden(t) == "" {
			visible++
		}
	}
	if visible > 0 {
		l.found("principal", OK, "", "%s (%s), the caller on stdio and in this terminal, may "+
			"see %d of %d tools", p.ID, l.c.Where("cli.principal"), visible, len(lock.Tools()))
		return
	}
	l.found("principal", Fail, l.grant(p), "%s (%s), the caller on stdio and in this terminal, "+
		"may use none of %d tools", p.ID, l.c.Where("cli.principal"), len(lock.Tools()))
}

var (
	role = regexp.MustCompile(`(?m)^  ([a-z0-9][a-z0-9._@-]*):\n` +
		`(?:    .*\n)*?    ceiling: green$`)
	principals = regexp.MustCompile(`(?m)^principals:[ \t]*(#.*)?$`)
)

// grant is a line that gives the principal the least role of the site: one that only reads.
func (l *local) grant(p terms.Principal) string {
	if len(p.Roles) > 0 {
		return edit(l.c.File, l.c.Line("identity.principals[0]")) + "   # the roles of " + p.ID +
			" there are none that policy gives it"
	}
	data, err := os.ReadFile(l.data())
	least := role.FindSubmatch(data)
	if err != nil || least == nil || !principals.Match(data) ||
		regexp.MustCompile(`(?m)^  "?`+regexp.QuoteMeta(p.ID)+`"?:`).Match(data) {
		return edit(l.data(), 1) + "   # a role for " + p.ID + " under principals"
	}
	return fmt.Sprintf(`sed -i 's/^principals:.*/&\n  "%s": {auth: [config], roles: [%s]}/' %s`,
		p.ID,
		least[1], quote(l.data()))
}

// state examines the directories that are written to, and what is in them.
func (l *local) state() {
	c := l.c
	if l.directory(directory{"audit.dir", c.Audit.Dir, false}) {
		l.journal()
	}
	l.directory(directory{"store.dir", c.Store.Dir, false})
	l.directory(directory{"remote.workspace", c.Remote.Workspace, false})
	l.directory(directory{"blob.dir", c.Blob.Dir, true})
	l.directory(directory{"sandbox.cache_dir", c.Sandbox.CacheDir, true})
	list := filepath.Join(c.Store.Dir, "frozen")
	frozen, err := freeze.In(c.Store.Dir).All(context.Background())
	l.try("freeze", err, quote("mv", list, list+".old"), "%d freezes", len(frozen))
	l.frozen(frozen, func(z freeze.Freeze) string {
		return quote("rm", "-r", filepath.Join(list, z.Name))
	})
}

// frozen tells of freezes. Remove is how to remove one that cannot be read.
func (l *local) frozen(all []freeze.Freeze, remove func(freeze.Freeze) string) {
	for _, z := range all {
		fix := "caponier thaw"
		switch z.Kind {
		case "all":
		case "?":
			fix = remove(z)
		default:
			fix += " --" + z.Kind + " " + quote(z.Name)
		}
		l.found("freeze", Warn, fix, "%s is frozen by %q since %s (%q): such calls are refused", z,
			z.By,
			z.Since.Format("2006-01-02 15:04"), z.Reason)
	}
}

func (l *local) journal() {
	dir := l.c.Audit.Dir
	aside := quote("mv", dir, dir+".changed") + "   # and keep it; docs/operating.md says why"
	switch report, err := audit.Verify(dir); {
	case errors.Is(err, fs.ErrNotExist):
		l.found("journal", OK, "", "none yet")
	case err != nil:
		l.found("journal", Fail, aside, "%v", err)
	case !report.OK():
		l.found("journal", Fail, aside, "was changed: %s", report.Problems[0])
	default:
		l.found("journal", OK, "", "%d chains hold", len(report.Files))
	}
}
