package plugin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// locked makes the entry of a plugin with one tool. Each edit is OLD→NEW in its description.
func locked(t *testing.T, imports string, edits ...string) map[string]Entry {
	t.Helper()
	text := `{"abi":1,"name":"p","version":"1.0.0","resources":[],"prompts":[],` +
		`"tools":[{"name":"tool","title":"T","description":"A tool to be compared with itself.",
"input_schema":{"type":"object","additionalProperties":false,"required":["vmid"],"properties":{
 "vmid":{"type":"integer","minimum":100,"maximum":200,"x-caponier-target":"vmid"},` +
		`"mode":{"type":"string","enum":["a","b"],"maxLength":9},
 "name":{"type":"string","pattern":"^[a-z]{1,9}$"},"ids":{"type":"array","maxItems":3,` +
		`"items":{"type":"integer","maximum":9}},"yes":{"type":"boolean",` +
		`"x-caponier-confirm":true}}},
"output_schema":{"type":"object","properties":{"n":{"type":"integer"}}},
"hints":{"read_only":false,"destructive":true,"idempotent":false,"open_world":false},` +
		`"imports":["ssh_exec"],"commands":["pct stop"],"budget_ms":1000,"runs":"true"}]}`
	for _, e := range edits {
		old, now, ok := strings.Cut(e, "→")
		if !ok || !strings.Contains(text, old) {
			t.Fatalf("edit %q fits nothing", e)
		}
		text = strings.Replace(text, old, now, 1)
	}
	e, err := NewEntry("p.wasm", []byte(strings.Join(edits, ",")+imports),
		strings.Fields(imports), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Entry{"p": e}
}

func TestDiffKnowsWhatWidens(t *testing.T) {
	for _, c := range []struct {
		claim, imports, edit string
		want                 string // in the report; what widens begins with "!"
	}{
		{"a new import of the module widens", "sftp_read ssh_exec", "T→T",
			`! module imports: (none) → "sftp_read"`},
		{"a new import of a tool widens", "sftp_read ssh_exec",
			`"imports":["ssh_exec"]→"imports":["ssh_exec","sftp_read"]`,
			`! imports: (none) → "sftp_read"`},
		{"an import less narrows", "ssh_exec",
			`"imports":["ssh_exec"],"commands":["pct stop"]→"imports":[]`,
			`  imports: "ssh_exec" → (none)`},
		{"a lost target widens", "ssh_exec", `,"x-caponier-target":"vmid"→`,
			`! argument vmid: x-caponier-target: "vmid" → (none)`},
		{"a folder widens what may be read", "ssh_exec",
			`"enum":["a","b"]→"x-caponier-target":"remote_dir"`,
			`! argument mode: x-caponier-target: (none) → "remote_dir"`},
		{"another thing to act on widens", "ssh_exec",
			`"enum":["a","b"]→"x-caponier-target":"service"`,
			`! argument mode: x-caponier-target: (none) → "service"`},
		{"a lost confirmation widens", "ssh_exec", `,"x-caponier-confirm":true→`,
			`! argument yes: x-caponier-confirm: true → (none)`},
		{"a confirmation argument that is gone widens", "ssh_exec",
			`,"yes":{"type":"boolean","x-caponier-confirm":true}→`, `! argument yes: is gone: {`},
		{"an argument that is gone narrows", "ssh_exec",
			`"name":{"type":"string","pattern":"^[a-z]{1,9}$"},→`, `  argument name: is gone: {`},
		{"a new argument widens", "ssh_exec", `"mode":→"more":{"type":"string"},"mode":`,
			`! argument more: is new: (none) → {`},
		{"an argument that need not be given any more widens", "ssh_exec", `"required":["vmid"],→`,
			`! argument vmid: required: true → false`},
		{"an argument that must be given narrows", "ssh_exec", `["vmid"]→["vmid","mode"]`,
			`  argument mode: required: false → true`},
		{"a higher maximum widens", "ssh_exec", `"maximum":200→"maximum":300`,
			`! argument vmid: maximum: 200 → 300`},
		{"a lower maximum narrows", "ssh_exec", `"maximum":200→"maximum":150`,
			`  argument vmid: maximum: 200 → 150`},
		{"no maximum widens", "ssh_exec", `,"maximum":200→`,
			`! argument vmid: maximum: 200 → (none)`},
		{"a lower minimum widens", "ssh_exec", `"minimum":100→"minimum":1`,
			`! argument vmid: minimum: 100 → 1`},
		{"a higher minimum narrows", "ssh_exec", `"minimum":100→"minimum":110`,
			`  argument vmid: minimum: 100 → 110`},
		{"a limit of list items that goes up widens", "ssh_exec", `"maximum":9}→"maximum":10}`,
			`! argument ids: items: {"maximum":9,"type":"integer"} → `},
		{"one more choice widens", "ssh_exec", `["a","b"]→["a","b","c"]`,
			`! argument mode: enum: ["a","b"] → ["a","b","c"]`},
		{"one choice less narrows", "ssh_exec", `["a","b"]→["a"]`,
			`  argument mode: enum: ["a","b"] → ["a"]`},
		{"another pattern widens", "ssh_exec", `{1,9}$→{1,8}$`, `! argument name: pattern: `},
		{"a default changes what an old call means", "ssh_exec",
			`"maxLength":9→"maxLength":9,"default":"a"`, `! argument mode: default: (none) → "a"`},
		{"a tool that calls itself harmless widens", "ssh_exec",
			`"destructive":true→"destructive":false`, `! hint destructive: true → false`},
		{"a tool that reaches further widens", "ssh_exec", `"open_world":false→"open_world":true`,
			`! hint open_world: false → true`},
		{"a tool that may be repeated widens", "ssh_exec", `"idempotent":false→"idempotent":true`,
			`! hint idempotent: false → true`},
		{"more time widens", "ssh_exec", `1000→2000`, `! budget_ms: 1000 → 2000`},
		{"another description is shown in full", "ssh_exec", `with itself→with another`,
			`  description: "A tool to be compared with itself." → "A tool to be compared with ` +
				`another."`},
		{"another result is shown", "ssh_exec", `"n":{"type":"integer"}→"n":{"type":"string"}`,
			`  output_schema: {`},
		{"a new tool widens", "ssh_exec", `"name":"tool"→"name":"other"`,
			`! is new: (none) → {"commands":["pct stop"],"imports":["ssh_exec"]`},
		{"a new command of a tool widens", "ssh_exec", `"pct stop"→"pct stop","pct destroy"`,
			`! commands: (none) → "pct destroy"`},
		{"another command instead widens", "ssh_exec", `"pct stop"→"pct destroy"`,
			`! commands: (none) → "pct destroy"`},
		{"the caller's own text as a command widens", "ssh_exec",
			`"enum":["a","b"],→"x-caponier-target":"command",; "pct stop"→"pct stop","*"`,
			`! commands: (none) → "*"`},
		{"a tool that is gone narrows", "ssh_exec", `"name":"tool"→"name":"other"`,
			`  is gone: {"commands":`},
		{"other code under one version is said", "ssh_exec", `T→U`, `  code: "sha256:`},
		{"a version is said", "ssh_exec", `1.0.0→1.1.0`, `  version: "1.0.0" → "1.1.0"`},
	} {
		t.Run(c.claim, func(t *testing.T) {
			changes, err := Compare(locked(t, "ssh_exec"),
				locked(t, c.imports, strings.Split(c.edit, "; ")...))
			if err != nil {
				t.Fatal(err)
			}
			all := ""
			for _, x := range changes {
				mark := map[bool]string{true: "!", false: " "}[x.Wider]
				all += fmt.Sprintf("%s %s: %s → %s\n", mark, x.What, shown(x.Old), shown(x.New))
			}
			if !strings.Contains("\n"+all, "\n"+c.want) {
				t.Errorf("want %q in\n%s", c.want, all)
			}
			if strings.HasPrefix(c.want, " ") && c.claim != "a tool that is gone narrows" &&
				strings.Contains("\n"+all, "\n!") {
				t.Errorf("something widens:\n%s", all)
			}
		})
	}
}

func TestDiffOfPlugins(t *testing.T) {
	p := locked(t, "ssh_exec")
	for _, c := range []struct {
		claim    string
		old, now map[string]Entry
		want     string
	}{
		{"the same is no change", p, p, `[]`},
		{"a new plugin widens", nil, p,
			`[{"plugin":"p","what":"is new","old":null,"new":"1.0.0","wider":true}`},
		{"a plugin that is gone does not", p, nil,
			`[{"plugin":"p","what":"is gone","old":"1.0.0","new":null,"wider":false}]`},
	} {
		t.Run(c.claim, func(t *testing.T) {
			changes, err := Compare(c.old, c.now)
			got, _ := json.Marshal(changes)
			if err != nil || !strings.HasPrefix(string(got), c.want) {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// A lock that was edited by hand says something else of the same module.
func TestDiffLooksAtALockThatLies(t *testing.T) {
	honest, edited := locked(t, "ssh_exec"), locked(t, "ssh_exec", `,"x-caponier-target":"vmid"→`)
	e := edited["p"]
	e.Digest = honest["p"].Digest
	changes, err := Compare(honest, map[string]Entry{"p": e})
	if err != nil || len(changes) != 1 || !changes[0].Wider ||
		changes[0].What != "argument vmid: x-caponier-target" {
		t.Errorf("%+v, %v", changes, err)
	}
}

func TestDiffSaysWhoSigned(t *testing.T) {
	by := func(who, signature string) map[string]Entry {
		e := entry(t)
		if who != "" {
			e.Signed = &Signed{By: who, Signature: signature}
		}
		return map[string]Entry{e.Name: e}
	}
	a, b := digest([]byte("a")), digest([]byte("b"))
	for _, x := range []struct {
		old, now map[string]Entry
		wider    []bool // of each change
	}{
		{by("", ""), by("", ""), nil},
		{by("ann", a), by("ann", a), nil},
		{by("", ""), by("ann", a), []bool{false, false}},
		{by("ann", a), by("ann", b), []bool{false}},
		{by("ann", a), by("bob", b), []bool{false, true}},
		{by("ann", a), by("", ""), []bool{false, true}},
	} {
		changes, err := Compare(x.old, x.now)
		if err != nil || len(changes) != len(x.wider) {
			t.Fatalf("%v, %v", changes, err)
		}
		for i, c := range changes {
			if c.Wider != x.wider[i] {
				t.Errorf("%+v", c)
			}
		}
	}
	bad := entry(t)
	bad.Signed = &Signed{By: "ann", Signature: "x"}
	_, err := Encode([]Entry{bad})
	if err == nil || !strings.Contains(err.Error(), "signed: want") {
		t.Errorf("a lock with the signature x: %v", err)
	}
}
