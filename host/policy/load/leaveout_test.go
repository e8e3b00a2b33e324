package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/test/needs"
)

// TestLeavingSomethingOutNeverWidens takes out, nulls and empties each key of each shipped site.
// Either the site is refused, with the key's name, or no question is refused less than before. With
// -short it does so for each fourth, another fourth of each site.
func TestLeavingSomethingOutNeverWidens(t *testing.T) {
	for i, dir := range []string{lab, "../../../policies/examples/team",
		"../../../policies/examples/homelab", "../../../policies/site"} {
		t.Run(path.Base(path.Dir(dir))+"/"+path.Base(dir), func(t *testing.T) {
			c, err := FromFolder(t.Context(), dir, Inventory{})
			if err != nil {
				t.Fatal(err)
			}
			site := c.data["site"].(map[string]any)
			if snapshot := snapshotsOf[path.Base(dir)]; snapshot != nil {
				site["snapshot"] = snapshot
			}
			narrow(site)
			c.base = nil
			if err := c.finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			questions := questionsOf(site)
			before := ask(t, c, questions)
			loaded, refused, n := 0, 0, i
			each(nil, site, func(at []string, how string, without map[string]any) {
				if len(at) == 1 && at[0] == "snapshot" && how == "taken out" {
					return // how a site says that it wants none
				}
				if len(at) == 3 && at[1] == "narrow" && narrows[at[2]] != nil &&
					how == "taken out" {
					return // how a role says that it is not narrowed, as can --diff shows
				}
				if n++; n%needs.Share(4) != 0 {
					return
				}
				x := *c
				x.data, x.base = maps.Clone(c.data), nil
				x.data["site"] = without
				err := errors.Join(x.checkData(t.Context()), x.lintCompiled())
				if err != nil {
					// An error can also be about what needs the key: a list's name stands for its
					// entries.
					if refused++; !strings.Contains(err.Error(), at[len(at)-1]) &&
						!strings.Contains(err.Error(), at[0]) {
						t.Errorf("%s %s: the error does not name it: %v", at, how, err)
					}
					return
				}
				if err := x.finish(t.Context()); err != nil {
					t.Errorf("%s %s: %v", at, how, err)
				}
				loaded++
				for i, after := range ask(t, &x, questions) {
					if after < before[i] {
						t.Errorf("%s %s: less refused: %s", at, how, questions[i].ID)
					}
				}
			})
			t.Logf("%d questions; %d mutilated sites refused, %d loaded", len(questions), refused,
				loaded)
			few := 20 / needs.Share(4)
			if refused < few || loaded < few || slices.Max(before) == slices.Min(before) {
				t.Error("the test asks too little")
			}
			if first := func(n int) bool { return n%10 > 0 }; slices.ContainsFunc(before, first) !=
				(snapshotsOf[path.Base(dir)] != nil) {
				t.Error("no question is about the guest of a snapshot")
			}
		})
	}
}

// narrows are keys that narrow a role: no shipped site has any.
var narrows = map[string]any{"guests": []any{"101", "105"}, "services": []any{"nginx"},
	"hosts": []any{}, "paths": []any{"/var/log"}, "hours": map[string]any{
		"days": []any{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, "from": "22:00",
		"to": "21:00"}}

// narrow gives the site a principal whose role has these keys, and otherwise all that there is.
func narrow(site map[string]any) {
	role := maps.Clone(narrows)
	role["tools"], role["nodes"], role["commands"] = []any{"*"}, []any{"*"}, []any{"*"}
	role["ceiling"], role["imports"] = "red", []any{"ssh_exec", "ssh_script"}
	roles, principals := site["roles"].(map[string]any), site["principals"].(map[string]any)
	roles["narrow"] = role
	principals["web"] = map[string]any{"auth": []any{"config"}, "roles": []any{"narrow"}}
}

// snapshotsOf are the rules for snapshots that sites get for the test: no shipped one has any.
var snapshotsOf = map[string]map[string]any{
	"team": {"tier": "yellow", "optional": false, "keep": json.Number("3"),
		"keep_days": json.Number("7")},
	"homelab": {"tools": []any{"start_guest"}, "optional": false, "keep": json.Number("3"),
		"keep_days": json.Number("7")},
}

// each visits every key of a site's data, taken out, null and empty. An entry of a list that only
// refuses, such as a protected guest, may go: that is what a site says, as {} and [] are.
func each(at []string, v any, visit func([]string, string, map[string]any)) {
	var walk func(at []string, v any, put func(any, bool) map[string]any)
	walk = func(at []string, v any, put func(value any, keep bool) map[string]any) {
		if len(at) > 0 && !says(at) {
			visit(at, "taken out", put(nil, false))
			visit(at, "null", put(nil, true))
		}
		var empty any
		switch m := v.(type) {
		case map[string]any:
			empty = map[string]any{}
			for _, k := range slices.Sorted(maps.Keys(m)) {
				walk(append(slices.Clone(at), k), m[k], func(value any, keep bool) map[string]any {
					c := maps.Clone(m)
					if c[k] = value; !keep {
						delete(c, k)
					}
					if len(at) == 0 {
						return c
					}
					return put(c, true)
				})
			}
		case []any:
			empty = []any{}
		case string:
			empty = ""
		default:
			return
		}
		if len(at) > 0 && !says(at) && !says(append(slices.Clone(at), "x")) {
			visit(at, "empty", put(empty, true))
		}
	}
	walk(at, v, nil)
}

// says reports whether a key is an entry that only refuses.
func says(at []string) bool {
	return at[0] == "protected" && len(at) == 3 || at[0] == "commands" && len(at) == 2
}

// ask returns for each question how much it is refused: not, until approved, or altogether; its
// tier; and of how many guests a snapshot is taken first.
func ask(t *testing.T, c *Candidate, questions []terms.Question) (refused []int) {
	for _, q := range questions {
		d, err := c.Rules.Decide(context.Background(), q)
		n := int(d.Tier)
		switch {
		case err != nil:
			n = 300
		case d.NeedsApproval:
			n += 100
		case !d.Allow:
			n = 200
		}
		refused = append(refused, n*10+len(d.Obligations.Snapshot.VMIDs))
	}
	return refused
}

// questionsOf are calls and operations of every principal on guests, nodes, services, paths and
// hosts that sites protect, raise and relax, and on others.
func questionsOf(site map[string]any) (all []terms.Question) {
	for _, id := range slices.Sorted(maps.Keys(site["principals"].(map[string]any))) {
		entry := site["principals"].(map[string]any)[id].(map[string]any)
		auth := fmt.Sprint(entry["auth"].([]any)[0])
		add := func(name string, change func(*terms.Question)) {
			q := status()
			q.Call.Principal = terms.Principal{ID: id, Auth: auth}
			q.Call.Tool.Commands = []string{terms.CallersText, "pct stop", "pct start"}
			q.Call.Nodes = append(q.Call.Nodes,
				terms.Node{Name: "pve2", Cluster: "lab", Host: "10.20.0.5"},
				terms.Node{Name: "prod-db", Cluster: "lab", Host: "10.20.0.6"})
			change(&q)
			q.ID = id + " " + name
			all = append(all, q)
		}
		for _, vmid := range []string{"100", "101", "103", "9001"} {
			for _, tool := range []string{"get_guest_status", "start_guest", "delete_guest"} {
				add(tool+" "+vmid, func(q *terms.Question) {
					q.Call.Tool.Name, q.Call.Targets.VMIDs = tool, []string{vmid}
				})
			}
		}
		for _, line := range []string{"uptime", "pct start 106", "pct stop 103", "df -h | cat",
			"systemctl restart docker", "cat /var/log/syslog", "cat /root/x",
			"backup-report show 101 --json"} {
			add("execute_ssh "+line, func(q *terms.Question) {
				q.Call.Tool.Name, q.Call.Tool.Imports = "execute_ssh", []string{"ssh_script"}
				q.Call.Tool.TargetKinds, q.Call.Targets.VMIDs = []string{"commands"}, nil
				cmd := shell.Lowerer{}.Script(line)
				cmd.Arg, cmd.Text = "command", line
				q.Call.Commands = []terms.Command{cmd}
			})
		}
		add("too often", func(q *terms.Question) { q.Facts.Counts.ToolCalls60s = 100_000 })
		add("too large", func(q *terms.Question) { q.Call.Args.JSON = make([]byte, 4<<20) })
		add("spent", func(q *terms.Question) { q.Facts.Counts.USDMicrosToday = 1_000_000 })
		add("at night", func(q *terms.Question) {
			q.Call.Tool.Name, q.Time = "delete_guest", time.Unix(3*3600, 0)
		})
		for _, by := range []string{"", "ann"} {
			for _, channel := range []string{"cli", "client"} {
				add("approved by "+by+" on "+channel, func(q *terms.Question) {
					q.Call.Tool.Name = "delete_guest"
					q.Call.Confirmation = terms.Confirmation{State: "approved", By: by,
						Channel: channel,
						Answers: []terms.Yes{{By: by, Channel: channel}}}
				})
			}
		}
		add("confirmed by its argument", func(q *terms.Question) {
			q.Call.Tool.Name, q.Call.Confirmation.State = "delete_guest", "argument"
		})
		for _, node := range []string{"pve1", "pve2", "prod-db"} {
			add("on "+node, func(q *terms.Question) { q.Call.Targets.Nodes = []string{node} })
		}
		for _, argv := range [][]string{{"pct", "status", "103"}, {"pct", "start", "101"},
			{"pct", "stop", "9001"}, {"pvesh", "get", "/nodes/pve9/status"}} {
			add(strings.Join(argv, " "), func(q *terms.Question) {
				cmd := shell.Lowerer{}.Argv(argv)
				q.Kind, q.Op = terms.KindOperation, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
					Argv: argv}
				q.Cmd, q.Node, q.Call.Decided = &cmd, &q.Call.Nodes[0], terms.Decision{Allow: true,
					Tier: terms.Yellow}
				q.Call.Tool.Name, q.Call.Targets.VMIDs = "start_guest", []string{"101", "9001"}
				q.Call.Tool.Commands = append(q.Call.Tool.Commands, "pct status",
					"pvesh get /nodes/{node}/status")
			})
		}
	}
	return all
}
