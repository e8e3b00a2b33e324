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
