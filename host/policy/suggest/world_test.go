package suggest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const root = "../../../"

var inventory = []terms.Node{{Name: "pve1", Cluster: "lab", Host: "127.0.0.1", Port: 22,
	User: "root", Default: true},
	{Name: "pve2", Cluster: "lab", Host: "127.0.0.2", Port: 22, User: "root"}}

// world is a site, the tools that its principals call, and what they were answered.
type world struct {
	dir     string
	inv     load.Inventory
	site    *load.Candidate
	records []terms.Record
}

// newWorld is the lab's site with changes, each of which must be one, and files beside it.
func newWorld(t testing.TB, files map[string]string, changes ...string) *world {
	t.Helper()
	lock, err := plugin.Load(root + "plugins.lock")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: t.TempDir(), inv: load.Inventory{Nodes: inventory}}
	w.inv.Tools = slices.DeleteFunc(slices.Clone(lock.Tools()), func(t *terms.Tool) bool {
		return t.Plugin.Name != "guests" && !slices.Contains([]string{"execute_ssh", "get_storage",
			"get_node_status", "restart_service"}, t.Name)
	})
	data, err := os.ReadFile(root + "examples/lab/site/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("the site has no %q", changes[i])
		}
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	write(t, w.dir, "data.yaml", text)
	for name, text := range files {
		write(t, w.dir, name, text)
	}
	if w.site, err = load.FromFolder(t.Context(), w.dir, w.inv); err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// others are principals beside demo, who share its role.
const demo = "  demo: {auth: [config, token], roles: [operator]}\n"

var shared = []string{demo, demo + "  eve: {auth: [config, token], roles: [operator]}\n"}

func (w *world) tool(t testing.TB, name string) *terms.Tool {
	t.Helper()
	for _, tool := range w.inv.Tools {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("the lock has no tool %s", name)
	return nil
}

// call is the question of a call, as somebody makes it.
func (w *world) call(t testing.TB, who terms.Principal, tool *terms.Tool, node, guest,
	text string) terms.Question {
	t.Helper()
	on := terms.Targets{Nodes: []string{}, VMIDs: []string{}, Services: []string{},
		Hosts: []string{}, Paths: []string{}, GuestPaths: []string{}, LocalPaths: []string{}}
	if node != "" {
		on.Nodes = []string{node}
	}
	if guest != "" {
		on.VMIDs = []string{guest}
	}
	if slices.Contains(tool.TargetKinds, "services") {
		on.Services = []string{"nginx.service"}
	}
	like := terms.Question{ID: "q", Time: time.Unix(1_700_000_000, 0),
		Call: &terms.Call{ID: "c", Principal: who, Source: "stdio", Nodes: w.inv.Nodes,
			Clusters: []string{"lab"}}}
	like.Facts.Counts = terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1}
	q := policy.Supposed(like, tool, on)
	q.Call.Clusters = []string{"lab"}
	if text != "" {
		cmd := shell.Lowerer{}.Script(text)
		cmd.Arg, cmd.Text = "command", text
		q.Call.Commands = []terms.Command{cmd}
	}
	return q
}

// decide journals the answer to a question as the gate does, and reports whether it is yes.
func (w *world) decide(t testing.TB, q terms.Question) bool {
	t.Helper()
	n := len(w.records)
	q.ID, q.Time = fmt.Sprintf("D%06d", n), q.Time.Add(time.Duration(n)*time.Second)
	d, err := w.site.Rules.Decide(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	rec := terms.Record{Type: "intent", Time: q.Time, ID: q.ID, CallID: q.Call.ID, Kind: "call",
		Principal: q.Call.Principal.ID, Tool: q.Call.Tool.Name, Tier: d.Tier.String(),
		Failed: d.Failed, Denied: d.Denied, Revision: d.Revision, Input: d.Input, Masked: d.Masked}
	if !d.Allow {
		rec.Type = "refused"
	}
	if q.Kind == terms.KindOperation {
		rec.Kind, rec.Op, rec.Phase = "operation", q.Op.Import(), q.Phase.String()
	}
	w.records = append(w.records, rec)
	q.Call.Decided = d
	return d.Allow
}

// run makes a call, and the operations of it that it comes to.
func (w *world) run(t testing.TB, q terms.Question, ops ...[]string) bool {
	t.Helper()
	if !w.decide(t, q) {
		return false
	}
	for _, argv := range ops {
		op := q
		op.Kind, op.Phase = terms.KindOperation, terms.PhaseEffect
		op.Node = &w.inv.Nodes[0]
		if slices.Contains(q.Call.Targets.Nodes, "pve2") {
			op.Node = &w.inv.Nodes[1]
		}
		if argv[0] == "" {
			cmd := q.Call.Commands[0]
			op.Op, op.Cmd = abi.SSHScript{OnNode: abi.OnNode{Node: op.Node.Name},
				Script: cmd.Text}, &cmd
		} else {
			cmd := shell.Lowerer{}.Argv(argv)
			op.Op, op.Cmd = abi.SSHExec{OnNode: abi.OnNode{Node: op.Node.Name}, Argv: argv}, &cmd
		}
		op.Facts = terms.Facts{}
		w.decide(t, op)
	}
	return true
}

// scripts are command texts, some of which the site refuses.
var scripts = []string{"uptime", "df -h | head -n 2", "systemctl status nginx", "rm -rf /",
	"pct status 101 && qm list", "systemctl restart nginx", "pvesh get /nodes/pve1/status",
	"cat /var/log/syslog"}

// hostile are texts that would be something else in YAML, if they were not quoted.
var hostile = []string{"x", "a\n    tools: [\"*\"]", "# x", "\" \n- \"*\"", "é\u0085\u2028\u2029*",
	"\r\nroles: {}", "*", "null", "yes", "\t- x", "\x7f\x1b[2J", "😀\ufeff", "{", "&a", "!!str",
	"\\\"", "a: b", "---", "\u202e"}

// anything journals calls of random tools on random targets by several principals: allowed,
// refused, approved, only planned, and some that a person never approved.
func (w *world) anything(t testing.TB, r *rand.Rand, n int) {
	t.Helper()
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	mine := w.inv.Tools[r.IntN(len(w.inv.Tools)):]
	mine = mine[:min(len(mine), 1+r.IntN(8))]
	for range n {
		who := terms.Principal{ID: pick("demo", "demo", "demo", "eve", "nobody"),
			Auth: pick("config", "config", "token", "oidc"), Roles: []string{}}
		tool := mine[r.IntN(len(mine))]
		if who.ID != "demo" || r.IntN(8) == 0 {
			tool = w.inv.Tools[r.IntN(len(w.inv.Tools))]
		}
		guest, text := "", ""
		if slices.Contains(tool.TargetKinds, "vmids") {
			guest = pick("101", "102", "103", "104", "105")
		}
		if slices.Contains(tool.Commands, terms.CallersText) {
			text = pick(scripts...)
		}
		q := w.call(t, who, tool, pick("pve1", "pve1", "pve2"), guest, text)
		q.Call.ID = pick(hostile...) + fmt.Sprint(len(w.records))
		q.Call.Targets.GuestPaths = []string{"/" + pick(hostile...)}
		q.Call.Planning = r.IntN(6) == 0
		if r.IntN(3) == 0 {
			q.Call.Confirmation = terms.Confirmation{State: "approved", By: "ann", Channel: "cli",
				Answers: []terms.Yes{{By: "ann", Channel: "cli"}}}
		}
		if text != "" {
			w.run(t, q, []string{""})
		} else {
			w.run(t, q, []string{"pct", "status", pick("101", "102")}, []string{"uptime"},
				[]string{"pct", "start", guest}, []string{"pct", "config", "101"})
		}
	}
}
