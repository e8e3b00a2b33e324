package policy_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// shells are the tools that take command text for nodes, and one that takes it for guests.
func shells() []*terms.Tool {
	tool := func(name, imports string, commands ...string) *terms.Tool {
		return &terms.Tool{Kind: "tool", Name: name, Imports: []string{imports}, Commands: commands,
			TargetKinds: []string{"commands"},
			Plugin:      terms.Plugin{Name: "cluster", Version: "1.0.0", Digest: "sha256:00"}}
	}
	return []*terms.Tool{tool("execute_ssh", "ssh_script", terms.CallersText),
		tool("proxmox_host_exec_command", "ssh_script", terms.CallersText),
		tool("proxmox_container_exec_command", "ssh_exec", "pct exec")}
}

// listed asks for a list as the principal.
func listed(t testing.TB, s *load.Site, who string, op abi.ListCommands,
	change func(*terms.Question)) abi.CommandsResponse {
	t.Helper()
	c := callOf("list_allowed_commands", nil, "list_commands")
	c.Principal.ID = who
	c.Nodes = append(c.Nodes, terms.Node{Name: "db", Cluster: "lab", Host: "127.0.0.3", Port: 22})
	q := terms.Question{ID: "q", Kind: terms.KindOperation, Call: c, Op: op, Time: time.Unix(0, 0)}
	if change != nil {
		change(&q)
	}
	r, err := (&policy.Lister{Rules: s.Rules, Tools: shells, Turns: fair.Processors()}).Execute(
		t.Context(), q, terms.Decision{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Value.(abi.CommandsResponse)
}

// sampleWords are one word of each kind, which is nothing that a site of the tests protects.
var sampleWords = map[string]string{"vmid": "102", "node": "pve1", "snapname": "s1",
	"storage": "local", "pool": "p1", "pveservice": "cron", "unit": "nginx.service",
	"service": "nginx", "upid": "UPID:pve1:0000A0B1:0000A0B1:65000000:vzdump:102:root@pam:",
	"volid": "local:iso/a.iso", "dataset": "tank/data", "zpool": "tank", "bool": "1", "int": "1",
	"seconds": "5", "count": "5", "perms": "644", "owner": "root", "device": "/dev/sda",
	"link": "vmbr0", "when": "today", "priority": "err", "epoch": "1700000000", "signed": "5",
	"size": "1M", "fields": "1", "sortkey": "1", "pattern": "error", "delimiter": ":",
	"chars": "a", "dateformat": "+%s", "sedlines": "1,5p", "columns": "NAME",
	"sortcolumns": "name", "pscolumns": "pid", "psflags": "aux", "pid": "1", "pids": "1",
	"user": "root", "module": "zfs", "sysctlkey": "vm.swappiness", "pcislot": "00:1f.2",
	"package": "bash", "program": "pct", "nap": "1", "process": "pveproxy", "unitglob": "ssh*",
	"ident": "sshd", "jmatch": "_UID=0", "countall": "5", "boot": "0", "net": "10.0.0.1",
	"rtable": "main", "ssfilter": "sport", "chain": "INPUT", "blockdev": "/dev/sda",
	"smarttype": "sat", "zname": "tank/data", "lvmname": "pve/root", "place": "/",
	"procfile": "/proc/loadavg", "text": "text", "statformat": "%s", "readpath": "/var/log/syslog",
	"stagepath": "/run/x", "guestpath": "/root/x", "switch": "1"}

// sampleOf returns a command of an entry with what it needs, quoted for a text.
func sampleOf(t testing.TB, c load.Command, node string, piped bool) string {
	t.Helper()
	word := func(kind string) string {
		first, _, _ := strings.Cut(kind, "|")
		if first != strings.ToUpper(first) || strings.ToLower(first) == first {
			return first // a word of a list
		}
		w, known := sampleWords[strings.ToLower(first)]
		if !known {
			t.Fatalf("%s: no word of the kind %s", c.Name, kind)
		}
		return strings.ReplaceAll(w, "pve1", node)
	}
	var argv []string
	for w := range strings.SplitSeq(c.Name, " ") {
		for kind, sample := range sampleWords {
			sample = strings.ReplaceAll(sample, "pve1", node)
			w = strings.ReplaceAll(w, "{"+kind+"}", sample)
		}
		argv = append(argv, w)
	}
	for _, kind := range c.Operands {
		switch files := strings.Contains(kind, "READPATH"); {
		case piped && files, strings.HasSuffix(kind, "?"):
		case strings.HasSuffix(kind, "*") && (!files || piped):
		case files:
			argv = append(argv, sampleWords["readpath"])
		default:
			argv = append(argv, word(strings.TrimSuffix(kind, "*")))
		}
	}
	for _, o := range c.Required {
		argv = append(argv, o)
		if c.Options[o] != "" {
			argv = append(argv, word(c.Options[o]))
		}
	}
	for i, w := range argv {
		argv[i] = "'" + w + "'"
	}
	return strings.Join(argv, " ")
}

const listingSite = `
  watcher: {auth: [config], roles: [looks]}
  starter: {auth: [config], roles: [starts, looks-hard]}
  onlyhost: {auth: [config], roles: [host]}
  nobody: {auth: [config], roles: [viewer]}
`

const listingRoles = `
  looks: {tools: ["*"], imports: [ssh_script, list_commands], ceiling: yellow, nodes: [pve1, db],
    commands: [read]}
  starts: {tools: [execute_ssh], imports: [ssh_script], ceiling: red, nodes: ["*"],
    commands: [lifecycle, "systemctl restart", "mytool show"]}
  looks-hard: {tools: [proxmox_host_exec_command], imports: [ssh_script], ceiling: red,
    nodes: [pve2], commands: ["*"]}
  host: {tools: [proxmox_host_exec_command], imports: [ssh_script], ceiling: yellow, nodes: ["*"],
    commands: ["*"]}
`

// What is listed for somebody runs, or waits for an approval, in the tier that the list says; and
// what is not listed is refused: every entry, with each tool, on each node.
func TestWhatIsListedRunsAndNothingElse(t *testing.T) {
	dir := copySite(t)
	edit(t, dir, "data.yaml", "\nprincipals:\n", "\nprincipals:"+listingSite)
	edit(t, dir, "data.yaml", "\nroles:\n", "\nroles:"+listingRoles)
	edit(t, dir, "data.yaml", `  # "tool:proxmox_host_exec_command": red`,
		`  "tool:proxmox_host_exec_command": green`)
	edit(t, dir, "data.yaml", "\n  nodes: {}", "\n  nodes: {db: {reason: data, reads: allow}}")
	edit(t, dir, "data.yaml", "\nbinaries: {}", "\nbinaries: {mytool: {show: {group: mine, "+
		"tier: yellow, operands: [ident], options: {}}}}")
	s := site(t, dir)
	all, err := load.Grammar(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for n, who := range []string{"demo", "watcher", "starter", "onlyhost", "nobody"} {
		t.Run(who, func(t *testing.T) {
			some := slices.DeleteFunc(slices.Clone(all), func(c load.Command) bool {
				p := program(c)
				return crc32.ChecksumIEEE([]byte(p))%7 != uint32(n) && !slices.Contains(always, p)
			})
			rows, summary := everything(t, s, who, some)
			ran, refused := 0, 0
			for i, c := range some {
				for _, x := range cases(c, i) {
					want := rows[key(c.Name, x.tool.Name, x.node, x.piped)]
					text := sampleOf(t, c, x.node, x.piped)
					got, why := answerTo(t, s, who, x.tool, x.node, text)
					if want == "" {
						refused++
					} else {
						ran++
					}
					if got != want {
						t.Errorf("%s with %s on %s: listed as %q, and is %q: %v", text, x.tool.Name,
							x.node, want, got, why)
					}
				}
			}
			t.Logf("%d run, %d are refused; %d programs", ran, refused, len(summary.Programs))
			if who == "nobody" && ran+len(summary.Tools) > 0 || who != "nobody" && ran < 20 ||
				refused < 20 {
				t.Errorf("the test asks too little: %d run, %d are refused", ran, refused)
			}
		})
	}
}

// always are programs that are asked about for everybody.
var always = []string{"pct", "systemctl", "cat", "cmp", "mytool", "uptime"}

func program(c load.Command) string {
	name, _, _ := strings.Cut(c.Name, " ")
	return name
}

type listCase struct {
	tool  *terms.Tool
	node  string
	piped bool
}

// cases are the ways to run a command: of most commands one tool on one node, which is each in its
// turn.
func cases(c load.Command, i int) (all []listCase) {
	reads := func(k string) bool { return strings.Contains(k, "READPATH") }
	optional := func(k string) bool { return !reads(k) || strings.HasSuffix(k, "*") }
	for n, tool := range shells()[:2] {
		for m, node := range []string{"pve1", "pve2", "db"} {
			if i%6 != n*3+m && !slices.Contains(always, program(c)) {
				continue
			}
			all = append(all, listCase{tool, node, false})
			if slices.ContainsFunc(c.Operands, reads) && !slices.ContainsFunc(c.Operands,
				func(k string) bool { return !optional(k) }) {
				all = append(all, listCase{tool, node, true})
			}
		}
	}
	return all
}

func key(command, tool, node string, piped bool) string {
	return fmt.Sprintf("%s, %s, %s, %t", command, tool, node, piped)
}

// everything asks for the programs, then for each program's commands, and returns the tier of each
// command by key, which ends in "?" where a person is asked.
func everything(t *testing.T, s *load.Site, who string, all []load.Command) (
	map[string]string, abi.CommandsResponse) {
	t.Helper()
	names := map[string]bool{}
	for _, c := range all {
		names[program(c)] = true
	}
	summary := listed(t, s, who, abi.ListCommands{}, nil)
	rows := map[string]string{}
	for _, p := range slices.Sorted(maps.Keys(names)) {
		list := listed(t, s, who, abi.ListCommands{Word: p}, nil)
		for _, c := range all {
			if list.MoreCommands > 0 && program(c) == p {
				more := listed(t, s, who, abi.ListCommands{Word: c.Name}, nil)
				list.Commands = append(list.Commands, more.Commands...)
			}
		}
		count := map[string]bool{}
		for _, row := range list.Commands {
			count[row.Command] = true
			for _, tool := range row.Tools {
				for _, node := range row.Nodes {
					rows[key(row.Command, tool, node, true)] = row.Tier
					if !row.Piped {
						rows[key(row.Command, tool, node, false)] = row.Tier
					}
				}
			}
			if row.Approval != (row.Tier == "red") {
				t.Errorf("%+v", row)
			}
		}
		i := slices.IndexFunc(summary.Programs, func(x abi.Program) bool { return x.Program == p })
		if n := 0; i >= 0 {
			n = summary.Programs[i].Green + summary.Programs[i].Yellow + summary.Programs[i].Red
			if n != len(count) {
				t.Errorf("%s: %d commands counted, %d listed", p, n, len(count))
			}
		} else if len(count) > 0 {
			t.Errorf("%s is listed and not counted", p)
		}
	}
	return rows, summary
}

// answerTo returns the tier of a call that is allowed or waits, and "" for one that is refused.
func answerTo(t *testing.T, s *load.Site, who string, tool *terms.Tool, node, text string) (
	string, []terms.Reason) {
	t.Helper()
	q, _ := sshCall(text)
	q.Call.Tool, q.Call.Principal.ID, q.Call.Targets.Nodes = tool, who, []string{node}
	q.Call.Nodes = append(q.Call.Nodes, terms.Node{Name: "db", Cluster: "lab", Host: "127.0.0.3"})
	d := decide(t, s, q)
	if !d.Allow && !d.NeedsApproval {
		return "", d.Denied
	}
	return d.Tier.String(), d.Denied
}

func BenchmarkListing(b *testing.B) {
	s := site(b, lab)
	for _, word := range []string{"", "pct", "pct start"} {
		b.Run(word, func(b *testing.B) {
			for b.Loop() {
				listed(b, s, "demo", abi.ListCommands{Word: word}, nil)
			}
		})
	}
}

// A list waits for a turn of its caller, as each decision does, and gives it back however it ends.
func TestAListIsDecidedInATurnOfItsCaller(t *testing.T) {
	s := site(t, lab)
	turns := fair.New(2, 1)
	during := -1
	l := &policy.Lister{Tools: shells, Turns: turns, Rules: func() *policy.Rules {
		return s.Rules()
	}}
	l.Tools = func() []*terms.Tool { during, _ = turns.Held(); return shells() }
	ask := func(ctx context.Context, who string) error {
		c := callOf("list_allowed_commands", nil, "list_commands")
		c.Principal.ID = who
		_, err := l.Execute(ctx, terms.Question{ID: "q", Kind: terms.KindOperation, Call: c,
			Op: abi.ListCommands{}, Time: time.Unix(0, 0)}, terms.Decision{})
		return err
	}
	free := func(when string, want int) {
		t.Helper()
		if held, waiting := turns.Held(); held != want || waiting != 0 {
			t.Errorf("%s: %d held and %d wait, want %d", when, held, waiting, want)
		}
	}
	if err := ask(t.Context(), "agent-a"); err != nil || during != 1 {
		t.Errorf("%v, held during the list: %d", err, during)
	}
	free("after a list", 0)
	soon, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if err := turns.Acquire(soon, "agent-a"); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	during = -1
	if err := ask(gone, "agent-a"); err == nil || during != -1 {
		t.Errorf("without a turn: %v, decided with %d held", err, during)
	}
	free("after a list that gave up", 1)
	if err := ask(t.Context(), "somebody else"); err != nil || during != 2 {
		t.Errorf("another principal: %v, %d held", err, during)
	}
	turns.Release("agent-a")
	free("at the end", 0)
}
