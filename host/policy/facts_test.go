package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// factual is a site that takes the tool's own confirmation, so that nothing but tiers is in the
// way, and that says something of guests by all that their cluster says of them.
func factual(t *testing.T) *load.Site {
	t.Helper()
	dir := copySite(t)
	edit(t, dir, "data.yaml", "  services: []\n", `  services: []
  tags: {prod: {reason: customers}, seen: {reason: looked at, reads: allow}}
  pools: {shop: {reason: the shop}}
  names: {"db-.*": {reason: data}}
raised:
  tags: {web: {tier: red}, old: {tier: yellow}, dead: {tier: black}}
  pools: {lab: {tier: red}}
  names: {"web[0-9]+": {tier: red}}
  nodes: {pve2: {tier: red}}
`)
	edit(t, dir, "data.yaml", "  argument: false\n", "  argument: true\n")
	return site(t, dir)
}

func anyFacts(r *rand.Rand) terms.Guest {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	g := terms.Guest{Name: pick("", "web1", "db-1", "x", "^.*$", "105"), Kind: pick("lxc", "qemu"),
		Node: pick("pve1", "pve2"), Status: pick("running", "stopped", "unknown"), Tags: []string{},
		Pool: pick("", "shop", "shop/a", "lab"), HA: pick("", "started"), Template: r.IntN(2) == 0,
		AgeS: int64(r.IntN(40))}
	for _, tag := range []string{"prod", "seen", "web", "old", "dead", "relaxed", "operator", "*"} {
		if r.IntN(4) == 0 {
			g.Tags = append(g.Tags, tag)
		}
	}
	return g
}

// bare is what a guest says that says nothing.
var bare = terms.Guest{Kind: "lxc", Node: "pve1", Status: "stopped", Tags: []string{}}

// Whoever can write a tag, a name or a pool, or move a guest, gets nothing by it: whatever is
// allowed with any such facts is allowed with bare ones, and no tier is lower than with these.
func TestNoFactOfAGuestMakesAnythingLessRefused(t *testing.T) {
	s := factual(t)
	r := rand.New(rand.NewPCG(17, 1))
	commands := [][]string{{"pct", "status", "105"}, {"pct", "stop", "105"},
		{"pct", "start", "101"},
		{"pct", "destroy", "105"}, {"pct", "delsnapshot", "105", "a"},
		{"pct", "snapshot", "105", "a"},
		{"qm", "stop", "105"}, {"pvesh", "create", "/nodes/pve1/lxc/105/status/stop"}, {"uptime"},
		{"pct", "exec", "105", "--", "sh", "-c", "true"},
		{"pct", "push", "105", "/run/caponier/s/a", "/a"}}
	tools := []string{"proxmox_container_status", "proxmox_stop_container", "stop_guest",
		"start_guest",
		"delete_guest", "create_snapshot", "proxmox_container_exec_command", "reboot_node"}
	allowed, lifted := map[string]int{}, 0
	for range 1500 {
		tool, ids := tools[r.IntN(len(tools))], []string{"105", "101", "106"}[:1+r.IntN(3)]
		cmd := commands[r.IntN(len(commands))]
		facts, none := map[string]terms.Guest{}, map[string]terms.Guest{}
		for _, id := range []string{"105", "101", "106"} {
			facts[id], none[id] = anyFacts(r), bare
		}
		state := []string{"none", "argument"}[r.IntN(2)]
		ask := func(guests map[string]terms.Guest) (call, op terms.Decision) {
			c := callOf(tool, []string{"vmids"}, "ssh_exec")
			c.Targets.VMIDs, c.Confirmation.State = slices.Sorted(slices.Values(ids)), state
			c.Tool.Commands = []string{"pct status", "pct stop", "pct start", "pct destroy",
				"pct delsnapshot",
				"pct snapshot", "qm stop", "pvesh create /nodes/{node}/lxc/{vmid}/status/stop",
				"uptime", "pct exec",
				"pct push"}
			q := terms.Question{ID: "q", Kind: terms.KindCall, Time: time.Unix(0, 0), Call: c,
				Facts: terms.Facts{Counts: terms.Counts{Calls60s: 1, TargetCalls60s: 1},
					Guests: guests}}
			call = decide(t, s, q)
			if !call.Allow {
				return call, op
			}
			c.Decided = call
			lowered := shell.Lowerer{}.Argv(cmd)
			q.Kind, q.Node, q.Cmd = terms.KindOperation, &c.Nodes[0], &lowered
			q.Op = abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: cmd}
			q.Facts = terms.Facts{Guests: guests, Units: []string{}}
			return call, decide(t, s, q)
		}
		call, op := ask(facts)
		plainCall, plainOp := ask(none)
		what := fmt.Sprintf("%s of %v (%s), then %q, with %+v", tool, ids, state, cmd, facts)
		if call.Allow && !plainCall.Allow || op.Allow && !plainOp.Allow {
			t.Fatalf("less refused: %s: without, %v %v", what, plainCall.Failed, plainOp.Failed)
		}
		if call.Tier < plainCall.Tier || op.Allow && op.Tier < plainOp.Tier {
			t.Fatalf("a lower tier: %s: %s and %s, without %s and %s", what, call.Tier, op.Tier,
				plainCall.Tier, plainOp.Tier)
		}
		allowed[fmt.Sprint(call.Allow, plainCall.Allow)]++
		allowed["op "+fmt.Sprint(op.Allow, plainOp.Allow)]++
		if call.Tier > plainCall.Tier {
			lifted++
		}
	}
	for _, kind := range []string{"true true", "false true", "false false", "op true true",
		"op false true"} {
		if allowed[kind] == 0 {
			t.Errorf("no question of the kind %q: %v", kind, allowed)
		}
	}
	if lifted == 0 {
		t.Error("no tier was raised: the test checks nothing")
	}
}

// Only numbers relax and grant: the schema has no other key there, and none below protected or
// raised that could make something less.
func TestOnlyNumbersRelaxAndGrant(t *testing.T) {
	for place, text := range map[string]string{
		"relaxed.tags":        "relaxed:\n  tags: [scratch]\n",
		"relaxed.names":       "relaxed:\n  names: [\"x.*\"]\n",
		"relaxed.pools":       "relaxed:\n  pools: [lab]\n",
		"roles.operator.tags": "roles:\n  operator:\n    tags: [scratch]\n",
		"raised.vmids":        "raised:\n  vmids: {\"105\": {tier: red}}\nrelaxed:\n",
		"green":               "raised:\n  tags: {a: {tier: green}}\nrelaxed:\n",
		"an odd pattern":      "raised:\n  names: {\"(\": {tier: red}}\nrelaxed:\n",
		"an upper case tag":   "raised:\n  tags: {PROD: {tier: red}}\nrelaxed:\n",
		"an odd node":         "raised:\n  nodes: {\"pve1/x\": {tier: red}}\nrelaxed:\n",
		"an age of nothing":   "guest_facts: {max_age_s: 0}\nrelaxed:\n",
	} {
		dir := copySite(t)
		old := "relaxed:\n"
		if place == "roles.operator.tags" {
			old = "roles:\n  viewer:\n"
			text = "roles:\n  viewer:\n    tags: [scratch]\n"
		}
		edit(t, dir, "data.yaml", "\n"+old, "\n"+text)
		if _, err := load.FromFolder(t.Context(), dir, load.Inventory{}); err == nil {
			t.Errorf("%s: is taken", place)
		} else {
			t.Logf("%s: %v", place, err)
		}
	}
}
