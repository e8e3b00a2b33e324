package can

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
)

const root = "../../../"

var nodes = []terms.Node{{Name: "pve1", Cluster: "lab", Host: "127.0.0.1", Port: 22, User: "root",
	Default: true},
	{Name: "pve2", Cluster: "lab", Host: "127.0.0.2", Port: 22, User: "root"}}

func tools(t *testing.T) []*terms.Tool {
	t.Helper()
	lock, err := plugin.Load(root + "plugins.lock")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(lock.Tools()), func(t *terms.Tool) bool {
		return t.Plugin.Name != "guests" && t.Plugin.Name != "containers" && t.Plugin.Name != "jq"
	})
}

// site is the lab's with changes, each of which must be one.
func site(t *testing.T, changes ...string) *load.Candidate {
	t.Helper()
	data, err := os.ReadFile(root + "examples/lab/site/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, text := t.TempDir(), string(data)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("the site has no %q", changes[i])
		}
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	if err := os.WriteFile(filepath.Join(dir, "data.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load.FromFolder(t.Context(), dir, load.Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const someTags = `  services: []
  tags: {prod: {reason: customers}}
raised:
  names: {"db-.*": {tier: red}}
`

func guests() map[string]terms.Guest {
	g := func(name string, tags ...string) terms.Guest {
		return terms.Guest{Name: name, Kind: "lxc", Status: "running",
			Tags: append([]string{}, tags...)}
	}
	return map[string]terms.Guest{"101": g("web01"), "103": g("mgmt"), "106": g("a"),
		"107": g("b", "prod"), "1000": g("db-1")}
}

func ask(t *testing.T, c *load.Candidate, all []*terms.Tool, who ...Who) []Cell {
	t.Helper()
	if who == nil {
		who = []Who{{ID: "demo", Auth: "config"}}
	}
	cells, err := Of(t.Context(), c.Rules, World{Who: who, Tools: all, Nodes: nodes,
		Guests: guests(), Time: time.Unix(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return cells
}

// The parts of a door that lets calls run that do nothing.
type parts struct{}

func (parts) Intent(context.Context, terms.Record, bool) error { return nil }
func (parts) Outcome(context.Context, terms.Record) error      { return nil }
func (parts) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1}, func() {}, nil
}
func (parts) Ready(context.Context, *terms.Call, func(string)) error { return nil }
func (parts) Run(context.Context, *gate.Running) (terms.Output, error) {
	return terms.Output{JSON: json.RawMessage("{}")}, nil
}

// What can says is what the door says to the call itself, with its arguments decoded and its
// targets found as always.
func TestCanSaysWhatTheDoorSays(t *testing.T) {
	all := tools(t)
	byName := map[string]*terms.Tool{}
	for _, tool := range all {
		byName[tool.Name] = tool
	}
	for name, c := range map[string]*load.Candidate{"numbers": site(t),
		"tags": site(t, "  services: []\n", someTags),
		"argument": site(t, "  argument: false", "  argument: true", "    ceiling: red",
			"    ceiling: yellow")} {
		door := gate.New(gate.Options{Nodes: nodes, Decider: c.Rules, Journal: parts{},
			Ledger: parts{}, Lowerer: shell.Lowerer{},
			Throttle: &fair.Refusals{},
			Mode:     func(context.Context) terms.Mode { return terms.Mode{} },
			Guests: func(_ context.Context, _ terms.Question,
				d terms.Decision) map[string]terms.Guest {
				facts := map[string]terms.Guest{}
				for _, id := range d.Guests {
					facts[id] = guests()[id]
				}
				return facts
			}}, parts{})
		cells, compared := ask(t, c, all), map[string]int{}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(cells), func(i, j int) {
			cells[i], cells[j] = cells[j], cells[i]
		})
		for _, cell := range cells {
			tool, args := byName[cell.Tool], map[string]any{}
			for _, p := range tool.Params {
				switch {
				case p.Target == "vmid":
					args[p.Name] = json.Number(cell.Guest)
				case p.Target == "node" && cell.Node != "":
					args[p.Name] = cell.Node
				}
			}
			data, _ := json.Marshal(args)
			a := door.Call(t.Context(), terms.Request{Source: "stdio",
				Principal: terms.Principal{ID: "demo", Auth: "config"},
				Tool:      tool, Arguments: data})
			refused, wrong := (*terms.Refused)(nil), (*terms.InvalidArguments)(nil)
			errors.As(a.Err, &refused)
			if errors.As(a.Err, &wrong) || len(cell.Needs) > 0 {
				continue // the tool needs more than nodes and guests
			}
			if len(cell.Failed) == 1 && cell.Failed[0] == "role" && a.Err == nil {
				continue // the call may run, and everything that it runs is refused
			}
			said := map[bool]string{true: yes, false: No}[a.Err == nil]
			if refused != nil && refused.NeedsApproval {
				said = approval
			}
			if cell.Can == argument {
				cell.Can = approval // without the argument
			}
			if said != cell.Can || refused != nil && said == No &&
				!slices.Equal(slices.Sorted(slices.Values(refused.Failed)), cell.Failed) {
				t.Errorf("%s: %s %s: can says %s (%v), the door %s: %v", name, cell.Tool, data,
					cell.Can, cell.Failed, said, a.Err)
			}
			compared[said]++
		}
		if compared[No] == 0 || compared[yes] == 0 || name != "argument" &&
			compared[approval] == 0 {
			t.Errorf("%s: compared %v", name, compared)
		}
	}
}

func TestADiffNamesExactlyWhatChanges(t *testing.T) {
	all := tools(t)
	was := ask(t, site(t), all)
	for name, c := range map[string]struct {
		changes []string
		changed func(was Cell) bool
		sign    string
	}{
		"nothing": {nil, func(Cell) bool { return false }, ""},
		"a guest relaxed": {[]string{`vmids: ["101", "104", "105"]`,
			`vmids: ["101", "104", "105", "106"]`}, func(c Cell) bool {
			return c.Guest == "106" && strings.Contains(" proxmox_start_container "+
				"proxmox_stop_container proxmox_upload_file_to_container "+
				"start_guest stop_guest restart_guest start_vm stop_vm restart_vm "+
				"start_container stop_container restart_container ", " "+c.Tool+" ")
		}, "+"},
		"a guest protected": {[]string{`"103": {reason`,
			"\"106\": {reason: of others}\n    \"103\": {reason"},
			func(c Cell) bool { return c.Guest == "106" && c.Can != No }, "-"},
		"a tag protected": {[]string{"  services: []\n",
			"  services: []\n  tags: {prod: {reason: customers}}\n"},
			func(c Cell) bool { return c.Guest == "107" && c.Can != No }, "-"},
		"a tool switched off": {[]string{"  \"tool:get_guest_status\": green\n", ""},
			func(c Cell) bool { return c.Tool == "get_guest_status" && c.Can != No }, "-"},
		"a node out of reach": {[]string{"    ceiling: red\n    nodes: [\"*\"]",
			"    ceiling: red\n    nodes: [pve1]"},
			func(c Cell) bool { return c.Node == "pve2" && c.Can != No }, "-"},
		"nobody may approve": {[]string{"  channels: [cli, web]\n  approvers: [\"*\"]",
			"  channels: []\n  approvers: []"},
			func(c Cell) bool { return c.Can == approval }, "-"},
		"there is nowhere to approve": {[]string{"  channels: [cli, web]", "  channels: []"},
			func(c Cell) bool { return c.Can == approval }, "-"},
		"there is nobody to approve": {[]string{"  approvers: [\"*\"]", "  approvers: []"},
			func(c Cell) bool { return c.Can == approval }, "-"},
		"a tag that raises": {[]string{"relaxed:\n",
			"raised:\n  names: {web01: {tier: red}}\nrelaxed:\n"},
			func(c Cell) bool { return c.Guest == "101" && c.Tier == "yellow" }, "-"},
	} {
		now := ask(t, site(t, c.changes...), all)
		changes, err := Diff(was, now)
		if err != nil {
			t.Fatal(err)
		}
		key := func(c Cell) string { return fmt.Sprint(c.Tool, " ", c.Node, " ", c.Guest) }
		got, want := map[string]bool{}, map[string]bool{}
		for _, ch := range changes {
			got[key(ch.Was)] = true
			if ch.Grants != (c.sign == "+") || ch.Takes != (c.sign == "-") {
				t.Errorf("%s: %s: grants %v, takes %v: was %+v, is %+v", name, key(ch.Was),
					ch.Grants, ch.Takes, ch.Was, ch.Now)
			}
		}
		for _, cell := range was {
			if c.changed(cell) {
				want[key(cell)] = true
			}
		}
		if len(want) == 0 && c.sign != "" {
			t.Errorf("%s: the test expects no change", name)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: changed %v\nwant %v", name, slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)))
		}
		back, err := Diff(now, was)
		if err != nil || len(back) != len(changes) {
			t.Errorf("%s: %d changes, and %d back; %v", name, len(changes), len(back), err)
		}
	}
}

func TestACommandThatARoleLosesShows(t *testing.T) {
	all := tools(t)
	was := ask(t, site(t), all)
	now := ask(t, site(t, "    ceiling: red\n    nodes: [\"*\"]\n    commands: [\"*\"]",
		"    ceiling: red\n    nodes: [\"*\"]\n    commands: [read, files]"), all)
	changes, err := Diff(was, now)
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]bool{}
	for _, c := range changes {
		if c.Grants {
			t.Errorf("%+v", c)
		}
		lost[c.Was.Tool] = true
	}
	if !lost["stop_guest"] || !lost["create_snapshot"] || lost["get_guest_status"] {
		t.Errorf("lost %v", lost)
	}
}

func TestTheOrderIsTheSameEachTime(t *testing.T) {
	c, all := site(t), tools(t)
	var texts [2]bytes.Buffer
	for i := range texts {
		Print(&texts[i], ask(t, c, all, Everybody(c)...))
		slices.Reverse(all)
	}
	if texts[0].String() != texts[1].String() ||
		!strings.Contains(texts[0].String(), "demo (token)") {
		t.Error("two orders, or nothing")
	}
}

func TestWhatCannotBeAsked(t *testing.T) {
	c, all := site(t), tools(t)
	many := map[string]terms.Guest{}
	for i := range maxCells {
		many[fmt.Sprint(100+i)] = terms.Guest{}
	}
	for why, w := range map[string]World{"more than": {Guests: many},
		"no such call": {Guests: guests(), On: []string{"pve9"}}} {
		w.Who, w.Tools, w.Nodes = []Who{{ID: "demo", Auth: "config"}}, all, nodes
		if _, err := Of(t.Context(), c.Rules, w); err == nil ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

func TestEverybodyAndEveryNumber(t *testing.T) {
	c := site(t, "claimable_roles: []", "claimable_roles: [viewer]")
	if got := fmt.Sprint(Everybody(
		c)); got != "[(anybody) with the claimed role viewer (oidc) demo (config) demo (token)]" {
		t.Error(got)
	}
	named, err := Named(c)
	if got := fmt.Sprint(slices.SortedFunc(maps.Keys(named),
		byNumber)); got != "[100 101 103 104 105]" || err != nil {
		t.Error(got, err)
	}
}

// Whoever compares two sites without a list sees each change of what protects or raises.
func TestADiffWithoutAListSeesEachKindOfEntry(t *testing.T) {
	all := tools(t)
	without := site(t)
	for _, section := range []string{"protected", "raised"} {
		for kind, entry := range map[string]string{"tags": "web", "pools": "shop", "nodes": "pve2",
			"names": "db"} {
			old, in := "  services: []\n", "  services: []\n  %s: {%s: {reason: ours}}\n"
			if section == "raised" {
				old, in = "relaxed:\n", "raised:\n  %s: {%s: {tier: black}}\nrelaxed:\n"
			}
			if kind == "nodes" && section == "protected" {
				continue // they count for guests only beside the other entries
			}
			with := site(t, old, fmt.Sprintf(in, kind, entry))
			guests, err := Named(without, with)
			if kind == "names" {
				if err == nil || !strings.Contains(err.Error(), "--guests") {
					t.Errorf("%s by names: %v", section, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			w := World{Who: []Who{{ID: "demo", Auth: "config"}}, Tools: all, Nodes: nodes,
				Guests: guests, Time: time.Unix(0, 0)}
			was, errs := Of(t.Context(), with.Rules, w)
			now, err := Of(t.Context(), without.Rules, w)
			changes, diff := Diff(was, now)
			if err := errors.Join(errs, err, diff); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(changes, func(c Change) bool {
				return c.Grants && strings.Contains(c.Now.guest(), entry)
			}) {
				t.Errorf("%s by %s: nothing is granted without it", section, kind)
			}
		}
	}
}

func TestAGuestIsAskedAboutWhereItCanBe(t *testing.T) {
	far := terms.Node{Name: "far", Cluster: "other"}
	for on, want := range map[string]string{"": "pve1 pve2 far", "pve1": "pve1 pve2",
		"far": "far", "pve3": "pve1 pve2 far"} { // pve3 is a member beside the inventory
		w := World{Nodes: append(slices.Clone(nodes), far),
			Guests: map[string]terms.Guest{"105": {Node: on}}}
		var got []string
		for _, n := range w.Nodes {
			if w.there("105", n.Name) {
				got = append(got, n.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("a guest on %q is asked about on %v, want %s", on, got, want)
		}
	}
}
