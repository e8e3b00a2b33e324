package load

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMistakesInDataAreRefusedWithTheirLine(t *testing.T) {
	for name, x := range map[string]struct{ old, new, want string }{
		"tier that is none": {`"tool:list_nodes": green`, `"tool:list_nodes": greeen`,
			"tiers.tool:list_nodes"},
		"unknown key": {"claimable_roles: []", "claimable_rolls: []",
			`did you mean "claimable_roles"?`},
		"key that is there twice": {"claimable_roles: []",
			"claimable_roles: []\nclaimable_roles: []", "is already defined in line"},
		"role that is not there": {"roles: [operator]", "roles: [operater]",
			`there is no role "operater"; did you mean "operator"?`},
		"tier that is lowered": {"lifecycle: {tier: red}", "lifecycle: {tier: green}",
			"green is lower than anything in this group"},
		"core entry again": {"binaries: {}", `binaries: {pct: {"": {group: read, tier: ` +
			`green, operands: [], options: {}}}}`, "is described by the core grammar"},
		"wrapper as a program": {"binaries: {}", `binaries: {sudo: {"": {group: read, tier: ` +
			`green, operands: [], options: {}}}}`, "runs other programs"},
		"number for a VMID list":   {`["101", "104", "105"]`, `[101]`, "relaxed.vmids"},
		"VMID with a leading zero": {`["101", "104", "105"]`, `["0101"]`, "relaxed.vmids"},
		"host in another form": {"egress: {}", `egress: {Example.COM: {schemes: [https], ` +
			`ports: [443], methods: [GET], classes: [global], max_hops: 1, max_body_bytes: 1}}`,
			"Example.COM"},
		"link-local addresses": {"egress: {}", `egress: {a.b: {schemes: [https], ports: ` +
			`[443], methods: [GET], classes: [linklocal], max_hops: 1, max_body_bytes: 1}}`,
			"classes"},
		"secret folder": {"read: [/var/log", "read: [/root/.ssh",
			"can never be reached"},
		"folder above a secret": {"read: [/var/log", "read: [/etc/pve",
			`"/etc/pve" holds /etc/pve/priv, which stays closed`},
		"second document": {"redact: [password", "---\nredact: [password",
			"a second YAML document"},
		"service in upper case": {"services: []", "services: [{service: Docker, nodes: " +
			"['*'], reason: xxx}]", "protected.services"},
		"service of a pattern": {"services: []", "services: [{service: docker, nodes: " +
			"['pve*'], reason: xxx}]", "protected.services"},
		"service of another shape": {"services: []", "services: [docker]", "protected.services"},
		"one of several ways": {"lifecycle: {tier: red}", "pct start: {tier: red}",
			"raises one of several ways to the same effect"},
		"fraction": {"calls_per_minute: 120", "calls_per_minute: 1.5",
			"neither text, a whole number"},
		"exponent": {"calls_per_minute: 120", "calls_per_minute: 1e2",
			"neither text, a whole number"},
		"octal": {"calls_per_minute: 120", "calls_per_minute: 0150",
			"is not a plain decimal number"},
		"new octal": {"calls_per_minute: 120", "calls_per_minute: 0o150",
			"is not a plain decimal number"},
		"hexadecimal": {"calls_per_minute: 120", "calls_per_minute: 0x78",
			"is not a plain decimal number"},
		"underscore": {"calls_per_minute: 120", "calls_per_minute: 1_20",
			"is not a plain decimal number"},
		"plus sign": {"calls_per_minute: 120", "calls_per_minute: +120",
			"is not a plain decimal number"},
		"infinity": {"calls_per_minute: 120", "calls_per_minute: .inf",
			"neither text, a whole number"},
		"date": {"reason: management VM of the lab", "reason: 2026-11-22",
			"neither text, a whole number"},
		"hexadecimal key": {`"103": {`, `0x67: {`,
			"the key 0x67 is neither text nor a plain decimal"},
		"octal key": {`"103": {`, `0147: {`,
			"the key 0147 is neither text nor a plain decimal"},
		"fractional key": {`"103": {`, `103.0: {`,
			"the key 103.0 is neither text nor a plain decimal"},
		"boolean key": {`"103": {`, `true: {`,
			"the key true is neither text nor a plain decimal"},
		"null key": {`"103": {`, `~: {`,
			"the key ~ is neither text nor a plain decimal"},
		"list as a key": {`"103": {`, `? [103] : {`,
			"is neither text nor a plain decimal"},
		"one key in two spellings": {`"103": {reason: management VM of the lab}`,
			"103: {reason: aaa, reads: allow}\n    \"103\": {reason: bbb}",
			`the key "103" is already defined`},
		"anchor": {"redact: [password", "redact: &a [password",
			"anchors and aliases are not read"},
		"alias": {"claimable_roles: []",
			"claimable_roles: &x []\ncustom: {y: *x}", "anchors and aliases are not read"},
		"end of a line in one YAML": {"claimable_roles: []",
			"claimable_roles: []\ncustom: {a: \"b\u0085c\"}", "U+0085 ends a line in YAML 1.1"},
		"merge key": {"claimable_roles: []",
			"claimable_roles: []\ncustom: {<<: {a: b}}",
			"the key << is neither text nor a plain decimal"},
		"tag": {"claimable_roles: []", "claimable_roles: !!set {}", "the tag"},
		"tagged number": {"calls_per_minute: 120", "calls_per_minute: !!int \"120\"",
			"the tag"},
		"tab": {"claimable_roles: []", "claimable_roles:\n\t- a", "a tab?"},
		"unknown key of a part": {`"103": {reason: management VM of the lab}`,
			`"103": {reasn: xxx}`, `did you mean "reason"?`},
		"part for guests misspelt": {"  vmids:\n    \"103\"", "  vmid:\n    \"103\"",
			`did you mean "vmids"?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copySite(t)
			edit(t, dir, "data.yaml", x.old, x.new)
			_, err := Check(context.Background(), dir, inventory())
			if err == nil || !strings.Contains(err.Error(), x.want) ||
				!placed.MatchString(err.Error()) &&
					name != "tab" {
				t.Errorf("error %v, want file:line and %q", err, x.want)
			}
		})
	}
}

// What the schema's library says of a value is said in words, with what to write instead.
func TestMistakesInValuesSayWhatToWrite(t *testing.T) {
	guest, principal := `    "103": {reason: management VM of the lab}`, "{auth: [config, "+
		"token], roles: [operator]}"
	for name, x := range map[string]struct{ old, new, want string }{
		"tool without its kind": {"tiers:\n", "tiers:\n  jq_query: green\n",
			`tiers.jq_query: there is no key "jq_query" here; did you mean "tool:jq_query"?`},
		"kind in the plural": {"tiers:\n", "tiers:\n  \"tools:jq_query\": green\n",
			`did you mean "tool:jq_query"?`},
		"unknown tool without kind": {"tiers:\n", "tiers:\n  x_y: green\n",
			`a key here is kind:name, such as "tool:list_nodes": green`},
		"tier in upper case": {`"tool:list_nodes": green`, `"tool:list_nodes": Green`,
			`Green is none of green, yellow, red, black; did you mean "green"?`},
		"tier that is yes": {`"tool:list_nodes": green`, `"tool:list_nodes": yes`,
			`yes is none of green, yellow, red, black`},
		"reads that is yes": {guest, `    "103": {reason: abcd, reads: yes}`,
			`yes is none of allow, refuse`},
		"reason without its key": {guest, `    "103": management VM`,
			`this is text: write a map, such as {key: value}`},
		"reason that says nothing": {guest, `    "103": {reason: x}`,
			`"x" is too short: write at least 3 characters`},
		"no reason": {guest, `    "103": {}`,
			`the key "reason" is missing: add "reason: …"`},
		"guest without anything": {guest, `    "103":`, `this is null: write a map`},
		"guests as a list":       {guest, `    - "103"`, `this is a list: write a map`},
		"guests by a pattern": {guest, `    "1*": {reason: abcd}`,
			`a key here is one guest's number, such as "103"`},
		"guests by a range": {guest, `    "100-199": {reason: abcd}`,
			`a key here is one guest's number`},
		"guest by its name": {guest, `    web01: {reason: abcd}`,
			`a key here is one guest's number`},
		"service in upper case": {"services: []",
			"services: [{service: Nginx, nodes: ['*'], reason: abcd}]",
			`"Nginx" is not the name of a unit in lower case`},
		"service as text": {"services: []", "services: [nginx]",
			`this is text: write a map`},
		"service without nodes": {"services: []", "services: [{service: nginx, reason: abcd}]",
			`the key "nodes" is missing`},
		"role as text": {"roles: [operator]}", "roles: operator}",
			`this is text: write a list, such as [a, b]`},
		"principal without roles": {principal, "{auth: [config]}", `the key "roles" is missing`},
		"principal with empty roles": {principal, "{auth: [config], roles: []}",
			`the list is empty: write at least 1`},
		"way in that is none": {principal, "{auth: [tokens], roles: [operator]}",
			`tokens is none of config, token, oidc; did you mean "token"?`},
		"all nodes as text": {`nodes: ["*"]`, `nodes: "*"`, `this is text: write a list`},
		"tool with its kind": {`tools: ["*"]`, `tools: ["tool:jq_query"]`,
			`"tool:jq_query" is not the name of a tool as it is, without tool: before it`},
		"tools by a pattern": {`tools: ["*"]`, `tools: ["get_*"]`, `or "*" for all`},
		"ceiling that is none": {"ceiling: red", "ceiling: orange",
			`orange is none of green, yellow, red`},
		"number in quotes": {"calls_per_minute: 120", `calls_per_minute: "120"`,
			`this is text: write a whole number, without quotes`},
		"number with a unit": {"max_bytes: 10485760", "max_bytes: 10MB",
			`this is text: write a whole number`},
		"yes for a boolean": {"argument: false", "argument: no",
			`this is text: write true or false, without quotes`},
		"channel that is none": {"channels: [cli, web]", "channels: [email]",
			`email is none of cli, web, client`},
		"guest commands of all": {"guest_commands: any", "guest_commands: all",
			`all is none of any, table`},
		"relaxed range": {`vmids: ["101", "104", "105"]`, `vmids: ["100-199"]`,
			`"100-199" is not one guest's number as text`},
		"folder by a pattern": {"read: [/var/log,", "read: [/var/log/*.log,",
			`names with * or ? are taken as they stand`},
		"argument by a pattern": {"redact: [password", `redact: ["pass*"`,
			`* and ? are taken as they stand`},
		"redact as text": {"redact: [password, token, secret, api_key]",
			"redact: password", `this is text: write a list`},
		"node with a space": {"cluster_nodes: []", "cluster_nodes: [PVE 3]",
			`"PVE 3" is not the name of a node`},
		"node without a reason": {"  nodes: {}\n", "  nodes: {pve1: {}}\n",
			`the key "reason" is missing`},
		"pool that ends in nothing": {"  nodes: {}\n",
			"  nodes: {}\n  pools: {\"shop/\": {reason: ours}}\n", `shop/`},
		"pool with a hole": {"  nodes: {}\n",
			"  nodes: {}\n  pools: {a//b: {reason: ours}}\n", `a//b`},
		"snapshot of a wrong tier": {"redact: [password",
			"snapshot: {tier: orange, optional: true, keep: 1, keep_days: 1}\nredact: [password",
			`orange is none of yellow, red`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copySite(t)
			edit(t, dir, "data.yaml", x.old, x.new)
			all, err := siteFiles(dir)
			if err != nil {
				t.Fatal(err)
			}
			c, err := parse(all, inventory())
			if err == nil { // the data alone: the rules take seconds to compile
				err = c.checkSchema(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), x.want) ||
				!placed.MatchString(err.Error()) {
				t.Errorf("error %v, want file:line and %q", err, x.want)
			}
		})
	}
}

func TestMistakesInDataNameTheRightLine(t *testing.T) {
	dir := copySite(t)
	edit(t, dir, "data.yaml", `"tool:list_nodes": green`, `"tool:list_nodes": greeen`)
	data, err := os.ReadFile(filepath.Join(dir, "data.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Count(string(data[:strings.Index(string(data), "greeen")]), "\n") + 1
	_, err = Check(context.Background(), dir, Inventory{})
	want := "site/data.yaml:" + itoa(line) + ": tiers.tool:list_nodes"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestEqualBytesGiveEqualData parses the same data many times: nothing depends on the order of
// maps.
func TestEqualBytesGiveEqualData(t *testing.T) {
	const text = "a: {1: x, \"2\": y, z: [1, -5, true, null, ~, \"0x1\", yes]}\n"
	for range 50 {
		c := &Candidate{data: map[string]any{}, places: nil}
		if err := c.parseData("core/x.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
		want := `{"a":{"1":"x","2":"y","z":[1,-5,true,null,null,"0x1","yes"]}}`
		if got := encode(t, c.data["core"]); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}
