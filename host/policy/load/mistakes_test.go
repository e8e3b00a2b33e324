package load

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

const lab = "../../../examples/lab/site"

// copySite copies the lab's site into a folder that the test may change.
func copySite(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(lab + "/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "data.yaml", string(data))
	return dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func edit(t testing.TB, dir, name, old, new string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not hold %q", name, old)
	}
	write(t, dir, name, strings.Replace(string(data), old, new, 1))
}

// inventory is what the mistakes are held against.
func inventory() Inventory {
	tool := func(name string, params ...terms.Param) *terms.Tool {
		return &terms.Tool{Kind: "tool", Name: name, Params: params}
	}
	text := func(name string) terms.Param { return terms.Param{Name: name, Type: "string"} }
	vmid := terms.Param{Name: "vmid", Type: "integer"}
	return Inventory{Nodes: []terms.Node{{Name: "pve1"}, {Name: "pve2"}}, Tools: []*terms.Tool{
		tool("restart_service", text("node"), text("service"), text("note")),
		tool("proxmox_container_status", vmid), tool("create_backup", vmid),
		tool("jq_query", terms.Param{Name: "quiet", Type: "boolean"}, text("mode")),
	}}
}

const head = `# METADATA
# scope: package
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.site.`

// rule is a module of package caponier.site.call whose line 8 refuses if body holds.
func rule(body string) string {
	return head + "call\n\ndeny contains {\"id\": \"site.x\", \"msg\": \"no\"} if " + body + "\n"
}

func TestMistakesInRulesAreRefusedWithTheirLine(t *testing.T) {
	op := func(body string) string {
		return strings.Replace(rule(body), "site.call",
			"site.operation", 1)
	}
	entry := func(text string) string {
		return head + "call\n\ndeny contains " + text + " if input.tool.name == \"jq_query\"\n"
	}
	none := func(text string) string { return head + text }
	for name, x := range map[string]struct{ rego, want string }{
		// Names and values that nothing has.
		"service without its suffix": {rule(`"nginx" in input.targets.services`),
			"a unit with its suffix, such as nginx.service"},
		"number of a guest as number": {rule(`250 in input.targets.vmids`),
			"a guest's number as text"},
		"guest below 100": {rule(`input.targets.vmids[_] == "99"`),
			"a guest's number as text"},
		"number argument as text": {rule(`input.args.scalars.vmid == "250"`),
			"declare it as integer"},
		"text argument as number": {rule(`input.args.scalars.node == 1`),
			"declare it as string"},
		"argument that no tool has": {rule(`input.args.scalars.vmidd == 250`),
			"no tool in the lock has an argument vmidd"},
		"boolean argument as text": {rule(`input.args.scalars.quiet == "true"`),
			"declare it as boolean"},
		"misspelt tool": {rule(`input.tool.name == "restart_servce"`),
			`did you mean "restart_service"?`},
		"misspelt tool in a set": {rule(`input.tool.name in {"jq_query", "jq_qurey"}`),
			`did you mean "jq_query"?`},
		"misspelt tool in a list": {rule(`input.tool.name in ["jq_qurey"]`),
			`did you mean "jq_query"?`},
		"misspelt tool negated": {rule(`input.tool.name != "jq_qurey"`),
			`did you mean "jq_query"?`},
		"misspelt tool on the left": {rule(`"jq_qurey" == input.tool.name`),
			`did you mean "jq_query"?`},
		"misspelt tool in a constant": {none("call\n\ndeny contains {\"id\": \"site.x\", " +
			"\"msg\": \"no\"} if input.tool.name in closed\n\nclosed := {\"jq_qurey\"}\n"),
			`did you mean "jq_query"?`},
		"misspelt tool of a parent": {op(`input.parent.tool == "jq_qurey"`),
			`did you mean "jq_query"?`},
		"weekday 7": {rule(`input.time.weekday == 7`), "0 is Sunday"},
		"weekday as text": {rule(`input.time.weekday in {"0", "6"}`),
			"a number from 0 to 6"},
		"hour 24": {rule(`input.time.hour_utc == 24`),
			"a number from 0 to 23"},
		"misspelt node": {rule(`"pve22" in input.targets.nodes`),
			"neither the inventory nor cluster_nodes"},
		"misspelt node of a variable": {rule("{\n\tsome n in input.targets.nodes\n\tn == " +
			"\"pve11\"\n}"), `did you mean "pve1"?`},
		"misspelt node under every": {rule("{\n\tevery n in input.targets.nodes { n == " +
			"\"pve11\" }\n}"), `did you mean "pve1"?`},
		"misspelt node of an alias": {rule("{\n\tn := input.targets\n\t\"pve11\" in " +
			"n.nodes\n}"), `did you mean "pve1"?`},
		"misspelt node of a target": {op(`input.target.node == "pve11"`),
			`did you mean "pve1"?`},
		"role that is not there": {rule(`"web" in input.principal.roles`),
			"data.yaml has no role of this name"},
		"role of the credential": {rule(`"operatr" in input.principal.credential_roles`),
			`did you mean "operator"?`},
		"tier that is none": {op(`input.parent.tier == "orange"`),
			"one of green, yellow, red, black"},
		"way in that is none": {rule(`input.source == "https"`),
			"one of stdio, http, cli"},
		"kind that is none": {rule(`input.kind == "tools"`),
			"one of tool, resource, prompt"},
		"credential that is none": {rule(`input.principal.auth == "oauth"`),
			"one of config, token, oidc"},
		"operation that is none": {op(`input.op == "sftp_delete"`), "one of ask, blob_read"},
		"import that is none": {rule(`"ssh" in input.tool.imports`),
			"one of ask, blob_read"},
		"state of approval": {rule(`input.confirmation.state == "yes"`),
			"one of none, argument, approved"},
		"method in lower case": {op(`input.http.method == "get"`),
			"a method in upper case"},
		"header in upper case": {op(`"Authorization" in input.http.headers`),
			"a header in lower case"},
		"host in upper case": {rule(`"API.example.com" in input.targets.hosts`),
			"a host in lower case"},
		"relative path": {rule(`"etc/passwd" in input.targets.paths`),
			"an absolute path"},
		"port as text":     {op(`input.target.port == "22"`), "number from 1 to 65535"},
		"action of a file": {op(`input.file.action == "delete"`), "one of stage, stat"},
		"kind of target": {rule(`"vmid" in input.tool.target_kinds`),
			"one of nodes, vmids"},
		"type of a boolean": {rule(`input.tool.hints.read_only == "false"`),
			"x.rego:8: "},
		"field of an operation": {rule(`input.file.bytes == 5`),
			"input.file is not part of a call"},
		"field of a call": {op(`input.facts.calls_60s == 5`),
			"input.facts is not part of an operation"},
		"number as a key": {rule(`data.site.custom.closed[input.time.weekday] == ` +
			`"x"`), "keys of data.yaml are text"},
		"argument as a key": {rule(`data.site.custom.closed[input.args.scalars.vmid] ` +
			`== "x"`), "keys of data.yaml are text"},
		"literal number as a key": {rule(`data.site.custom.closed[0] == "x"`),
			"keys of data.yaml are text"},
		"number of a variable as " +
			"key": {rule("{\n\tday := input.time.weekday\n\tdata.site.custom.closed[day]\n}"),
			"keys of data.yaml are text"},
		"text that can be omitted": {rule(`contains(input.args.scalars.note, "rm ")`),
			`"note" in input.args.omitted`},
		"prefix that can be omitted": {rule(`startswith(input.args.scalars.note, "rm")`),
			`"note" in input.args.omitted`},
		"pattern that can be omitted": {rule("regex.match(`^rm .*$`, input.args.scalars.note)"),
			`"note" in input.args.omitted`},
		"inequality that can be off": {rule(`input.args.scalars.mode != "safe"`),
			`"mode" in input.args.omitted`},
		"variable that can be " +
			"omitted": {rule("{\n\tn := input.args.scalars.note\n\tcontains(lower(n), \"rm\")\n}"),
			`"note" in input.args.omitted`},
		// Entries of deny that the host could not read.
		"entry that is text":      {entry(`"no"`), `"no" is no object`},
		"entry without an id":     {entry(`{"msg": "no"}`), "id is missing"},
		"entry without a message": {entry(`{"id": "a"}`), "msg is missing"},
		"entry with a number":     {entry(`{"id": "a", "msg": 5}`), "msg is 5, not text"},
		"entry with more": {entry(`{"id": "a", "msg": "b", "tier": "red"}`),
			`"tier" does not belong here`},
		"entry with an unknown type": {entry(`{"id": "a", "msg": input.args.scalars.note}`),
			"the entries of deny are"},
		"entry with a number of input": {entry(`{"id": "a", "msg": input.time.weekday}`),
			"the entries of deny are"},
		"entry from a variable": {none("call\n\ndeny contains d if d := {\"id\": " +
			"input.time.weekday, \"msg\": \"x\"}\n"), "the entries of deny are"},
		"deny that is no set": {none("call\n\ndeny := true if input.tool.name == " +
			"\"jq_query\"\n"), `deny must be written "deny contains`},
		"deny that nothing asks": {strings.Replace(rule("input.kind == \"tool\""),
			"site.call", "site.tool", 1), "is never asked"},
		"misspelt deny": {strings.Replace(rule("input.kind == \"tool\""), "deny",
			"dney", 1), "nothing uses dney"},
		"misspelt field": {rule(`input.tool.nam == "x"`),
			"undefined ref: input.tool.nam"},
		"misspelt data": {rule(`data.site.protekted.vmids["1"]`),
			"undefined ref: data.site.protekted"},
		"comparison with null": {rule(`input.facts.calls_60s > 3`),
			"compared without is_number(input.facts.calls_60s)"},
		"pattern without anchors": {rule("regex.match(`x`, input.principal.id)"),
			"is not anchored"},
		"anchors in one branch": {rule("not regex.match(`^guests_|status$`, " +
			"input.tool.name)"), "is not anchored"},
		"anchor that is a character": {rule("regex.match(`^status\\$`, input.tool.name)"),
			"is not anchored"},
		"anchor of lines": {rule("regex.match(`(?m)^status$`, input.tool.name)"),
			"is not anchored"},
		"pattern from elsewhere": {rule(`regex.match(input.source, input.tool.name)`),
			"must be a literal"},
		"range with host bits": {rule(`net.cidr_contains("10.0.0.1/8", ` +
			`input.targets.hosts[0])`), "as 10.0.0.0/8"},
		"IPv4 written as IPv6": {rule(`net.cidr_contains("::ffff:0:0/96", ` +
			`input.targets.hosts[0])`), "taken for every IPv4 address"},
		"range that is none": {rule(`net.cidr_contains("10.0.0.0/40", ` +
			`input.targets.hosts[0])`), "is not a CIDR range"},
		"search of the inventory": {rule("{\n\tsome id, _ in " +
			"data.site.protected.vmids\n\tid == input.targets.vmids[0]\n}"), "is searched through"},
		"search with a wildcard": {rule(`data.site.principals[_].auth == input.source`),
			"is searched through"},
		"negation that is off": {rule(`not input.tool.name in data.site.custom.allowed`),
			"is silently off"},
		"negation around a call": {rule(`not count(data.site.custom.allowed) > 0`),
			"is silently off"},
		"negated comparison of a call": {rule(`not lower(data.site.custom.owner) == ` +
			`input.principal.id`), "is silently off"},
		"input as a whole": {rule(`object.get(input, "tool", {}) == {}`),
			"input as a whole"},
		"field behind object.get": {rule(`object.get(input.tool, "nam", "") == "x"`),
			"hides misspelt fields"},
		"data behind an import": {none("call\n\nimport data.site.custom\n\ndeny " +
			"contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.name in custom.allowed\n"),
			"write data.site.custom out"},
		"input behind an import": {none("call\n\nimport input.args\n\ndeny contains " +
			"{\"id\": \"a\", \"msg\": \"b\"} if object.get(args, \"scalrs\", {}) == {}\n"),
			"write input.args out"},
		"misspelt rule of the core": {rule(`data.caponier.core.tier.cal == 3`),
			"there is no rule data.caponier.core.tier.cal"},
		"misspelt rule of the site": {rule(`data.caponier.site.helpers.bad`),
			"there is no rule data.caponier.site.helpers.bad"},
		"constant that is not there": {rule(`input.principal.id != data.site.custom.owner`),
			"data.yaml has no custom.owner"},
		"data without an annotation": {"package caponier.site.call\n\ndeny contains {\"id\": " +
			"\"a\", \"msg\": \"b\"} if data.site.custom.x\n", "data.site is not typed here"},
		"field without an annotation": {"package caponier.site.call\n\ndeny contains {\"id\": " +
			"\"a\", \"msg\": \"b\"} if input.tool.nam == \"x\"\n", "undefined ref: input.tool.nam"},
		"network": {rule(`http.send({"method": "get", "url": ` +
			`input.source}).status_code == 200`), "undefined function http.send"},
		"clock": {rule(`time.now_ns() == input.time.unix_ms`),
			"undefined function time.now_ns"},
		"lax conversion": {rule(`to_number(input.principal.id) == 1`),
			"undefined function to_number"},
		"package of the core": {"package caponier.core.check.tier\n\nok if true\n",
			"does not belong in site"},
		"package of nobody": {"package foo\n\nx := 1\n", "does not belong in site"},
		"rules that do not parse": {"package caponier.site.call\n\ndeny contains if {\n",
			"x.rego:"},
		"rule that always errors": {rule(`sprintf("%d", input.tool.name) == 1`), "x.rego:8"},
		"rule with conflicting results": {none("call\n\ndeny contains {\"id\": \"a\", \"msg\": " +
			"\"b\"} if level == 3\n\nlevel := 1 if input.kind\n\nlevel := 2 if input.source\n"),
			"conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copySite(t)
			write(t, dir, "custom.yaml", "custom: {closed: {\"0\": x}, allowed: [x]}\n")
			write(t, dir, "x.rego", x.rego)
			write(t, dir, "x_test.rego", "package caponier.site.x_test\n\ntest_nothing if true\n")
			_, err := Check(context.Background(), dir, inventory())
			if err == nil || !strings.Contains(err.Error(), x.want) ||
				!placed.MatchString(err.Error()) {
				t.Errorf("error %v, want file:line and %q", err, x.want)
			}
		})
	}
}

var placed = regexp.MustCompile(`site/[a-z_]+\.(rego|yaml):[0-9]+`)

func TestRulesThatMeanWhatTheySayAreTaken(t *testing.T) {
	for name, body := range map[string]string{
		"names that there are": `{
	input.tool.name in {"jq_query", "restart_service"}
	"nginx.service" in input.targets.services
	"250" in input.targets.vmids
	"pve1" in input.targets.nodes
	"operator" in input.principal.roles
	input.time.weekday in {0, 6}
	input.args.scalars.vmid == 250
}`,
		"text with its omission": "contains(input.args.scalars.note, \"rm\")\n\n" +
			`deny contains {"id": "site.y", "msg": "no"} if "note" in input.args.omitted`,
		"number as text of a key": `data.site.custom.closed[sprintf("%d", ` +
			`[input.time.weekday])] == "x"`,
		"element of a list":             `data.site.custom.allowed[0] == input.principal.id`,
		"argument that is never text":   `input.args.scalars.vmid != 250`,
		"empty text":                    `input.confirmation.channel == ""`,
		"equality with a short literal": `input.args.scalars.mode == "fast"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copySite(t)
			write(t, dir, "custom.yaml", "custom: {closed: {\"0\": x}, allowed: [x]}\n")
			write(t, dir, "x.rego", rule(body))
			write(t, dir, "x_test.rego", "package caponier.site.x_test\n\ntest_nothing if true\n")
			if _, err := Check(context.Background(), dir, inventory()); err != nil {
				t.Error(err)
			}
		})
	}
}
