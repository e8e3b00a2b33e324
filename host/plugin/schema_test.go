package plugin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/google/jsonschema-go/jsonschema"
)

func TestNewEntryRefuses(t *testing.T) {
	const vmid = `"x-caponier-target":"vmid"`
	const first = `"type":"object","additionalProperties":false,"required":["vmid"]`
	for name, c := range map[string]struct{ from, to, why string }{
		"another abi": {`"abi":1`, `"abi":2`, "abi is 2"},
		"no abi":      {`"abi":1,`, ``, "abi is 0"},
		"an unknown field": {`"abi":1`, `"abi":1,"icon":"x"`,
			`unknown field "icon"`},
		"a plugin name that is a path": {`"containers"`, `"../x"`, `name "../x"`},
		"an empty version":             {`"1.0.0"`, `""`, `version ""`},
		"a tool name with a space":     {`"exec"`, `"ex ec"`, `name "ex ec"`},
		"a tool name of 65 characters": {`"exec"`, `"` + strings.Repeat("x", 65) + `"`,
			"1 to 64"},
		"a short description": {"Runs a command in a container.", "Runs things.",
			"has 12 characters, want 20"},
		"a bidirectional override": {"in a container", "in \u202ea container",
			"U+202E"},
		"tag characters": {"in a container", "in \U000E0041a container",
			"U+E0041"},
		"a zero-width space": {"in a container", "in \u200ba container",
			"U+200B"},
		"a filler that does not show": {"in a container", "in \u3164a container",
			"U+3164"},
		"an escape sequence": {"in a container", `in \u001b[2Ja container`,
			"U+001B"},
		"a line break in runs": {"pct exec VMID", `pct\nexec VMID`,
			"runs: has the character U+000A"},
		"no runs": {`"runs":"pct exec VMID -- sh -c COMMAND"`,
			`"runs":""`, "runs: has 0 characters"},
		"hidden text in an argument": {"Container ID", "Container\u200dID",
			"vmid/description: has the character U+200D"},
		"an import that the module lacks": {`["ssh_exec"]`, `["stage"]`,
			"imports stage, which its module does not"},
		"repeated imports": {`["ssh_exec"]`, `["ssh_exec","ssh_exec"]`,
			"imports repeat"},
		"no budget":                {`"budget_ms":30000,`, ``, "budget_ms 0"},
		"a budget over 15 minutes": {`30000`, `900001`, "budget_ms 900001"},
		"a missing hint":           {`"idempotent":false,`, ``, "must all be there"},
		"contradicting hints": {`"read_only":false`, `"read_only":true`,
			"contradict"},
		"no hints": {
			`"hints":{"read_only":false,"destructive":true,"idempotent":false,"open_world":true},`,
			``, "hints: missing"},
		"a URI on a tool": {`"title":"Run"`, `"title":"Run","uri":"a://b"`, "uri"},
		"no input schema": {`"input_schema":` + inputSchema + `,`, ``,
			"input_schema: missing"},
		"an input that is no object": {first, `"type":"array"`,
			`must have "type":"object"`},
		"a combinator at the top": {first, first + `,"anyOf":[{"type":"object"}]`,
			"anyOf is not allowed at the top"},
		"another draft": {first, first + `,"$schema":"http://json-schema.org/draft-07/schema#"`, "reads draft 2020-12"},
		"an open object at the top": {first, `"type":"object","required":["vmid"]`,
			`the top: needs "additionalProperties":false`},
		"an open object inside": {
			`"limits":{"type":"object","additionalProperties":false`, `"limits":{"type":"object"`,
			`properties/limits: needs`},
		"an open object in $defs": {
			`"point":{"type":"object","additionalProperties":false`, `"point":{"type":"object"`,
			`$defs/point: needs`},
		"an open object in a list of types": {`"ratio":{"type":"number"}`,
			`"ratio":{"type":["number","object"]}`, `properties/ratio: needs`},
		"a schema for anything": {`"ratio":{"type":"number"}`, `"ratio":{}`,
			"has no type"},
		"properties without a type": {`"ratio":{"type":"number"}`,
			`"ratio":{"enum":[1],"properties":{}}`, "not the type object"},
		"true as a schema": {`"ratio":{"type":"number"}`, `"ratio":true`,
			"want a schema object"},
		"an unknown keyword": {`"ratio":{"type":"number"}`,
			`"ratio":{"type":"number","contentSchema":{}}`, `keyword "contentSchema"`},
		"a keyword in another case": {`"maxLength":20`, `"MaxLength":20`,
			`keyword "MaxLength"`},
		"a remote $ref": {`"#/$defs/point"`, `"https://example.org/s"`, "does not name one"},
		"a $ref to nothing": {`"#/$defs/point"`, `"#/$defs/line"`,
			"does not name one"},
		"a $ref that escapes": {`"#/$defs/point"`, `"#/$defs/point/properties/x"`,
			"does not name one"},
		"a $ref to itself": {`"x":{"type":"integer"}`,
			`"x":{"$ref":"#/$defs/point"}`, "refers to itself"},
		"a required argument that is unknown": {`"required":["vmid"]`, `"required":["vmid","x"]`,
			"requires x"},
		"a default that does not fit":     {`"default":"json"`, `"default":"yaml"`, "yaml"},
		"a pattern that does not compile": {`^[0-7]{3,4}$`, `^[$`, "missing closing"},
		"a pattern without an end": {`^[0-7]{3,4}$`, `^[0-7]{3,4}`,
			"must begin with ^"},
		"a pattern anchored on one side only": {`^[0-7]{3,4}$`, `^a|b$`, "must begin with ^"},
		"a pattern anchored to lines": {`^[0-7]{3,4}$`, `(?m)^[0-7]{3,4}$`,
			"must begin with ^"},
		"an argument with a path for a name": {`"ratio"`, `"paths/items"`, `name "paths/items"`},
		"an unknown target kind": {vmid, `"x-caponier-target":"guest"`,
			"x-caponier-target guest is not known"},
		"a vmid that is a string": {`"type":"integer","description"`,
			`"type":"string","description"`, "must have the type integer"},
		"a target in an inner object": {`"multipleOf":2`, vmid,
			"may only mark a top-level argument"},
		"a target in $defs": {`"x":{"type":"integer"}`,
			`"x":{"type":"integer",` + vmid + `}`, "may only mark a top-level argument"},
		"a target on the items of no list": {`"paths":{"type":"array","maxItems":2`,
			`"paths":{"type":"string"`, "may only mark a top-level argument"},
		"a second confirmation": {`"ratio":{"type":"number"}`,
			`"ratio":{"type":"boolean","x-caponier-confirm":true}`, "is already on confirmed"},
		"a confirmation that is not a boolean": {`"type":"boolean"`, `"type":"string"`,
			"on a top-level boolean"},
		"a confirmation that is switched off": {`"x-caponier-confirm":true`,
			`"x-caponier-confirm":false`, "must be true"},
		"a mark in an output": {`"exit":{"type":"integer"}`,
			`"exit":{"type":"integer",` + vmid + `}`, "for input schemas"},
		"an output that is no object": {`"output_schema":{"type":"object"`,
			`"output_schema":{"type":"string"`, `output_schema: the top`},
		"a number that is not canonical": {`"minimum":100`, `"minimum":1e2`, "plain form"},
		"an unknown type": {`"ratio":{"type":"number"}`, `"ratio":{"type":"float"}`,
			"float"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewEntry("containers.wasm", nil, []string{"ssh_exec"},
				[]byte(describing(c.from, c.to)))
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
	if _, err := NewEntry("c.wasm", make([]byte, maxModule+1), nil,
		[]byte(describing())); err == nil ||
		!strings.Contains(err.Error(), "over the limit") {
		t.Errorf("a large module: %v", err)
	}
	if _, err := NewEntry("c.wasm", nil, []string{"fd_write"}, []byte(describing())); err == nil ||
		!strings.Contains(err.Error(), "not an operation") {
		t.Errorf("an unknown import: %v", err)
	}
}

func TestSchemaBombsAreRefused(t *testing.T) {
	var doubling strings.Builder
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`,
			i, i+1, i+1)
	}
	deep := strings.Repeat(`{"type":"array","items":`, 20) + `{"type":"string"}` + strings.Repeat(
		"}", 20)
	for name, c := range map[string]struct{ schema, why string }{
		"doubling references": {`{"type":"object","additionalProperties":false,` +
			`"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` + doubling.String() +
			`"d40":{"type":"string"}}}`, "nested deeper"},
		"wide doubling": {wide(), "subschemas"},
		"depth": {`{"type":"object","additionalProperties":false,"properties":{"a":` +
			deep + `}}`, "nested deeper"},
		"size": {`{"type":"object","description":"` + strings.Repeat("x", maxSchema) +
			`"}`, "over the limit"},
		"a cycle of three": {`{"type":"object","additionalProperties":false,` +
			`"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/c"},"c":{"$ref":"#/$defs/a"}}}`,
			"refers to itself"}} {
		t.Run(name, func(t *testing.T) {
			if err := lintSchema(json.RawMessage(c.schema), true); err == nil ||
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}

func wide() string {
	s := `{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/d0"}},` +
		`"$defs":{`
	for i := range 4 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		s += fmt.Sprintf(`"d%d":{"allOf":[%s]},`, i, strings.Repeat(ref+",", 30)+ref)
	}
	return s + `"d4":{"type":"string"}}}`
}

func tool(t testing.TB) *terms.Tool {
	t.Helper()
	l, err := newLock([]Entry{entry(t)})
	if err != nil {
		t.Fatal(err)
	}
	return l.Tools()[0]
}

func TestValidateNamesTheArgument(t *testing.T) {
	for name, c := range map[string]struct{ args, why string }{
		"all good": {`{"vmid":103,"command":"id","format":"text",` +
			`"mode":"0644","paths":["/a"],"limits":{"n":4},"ratio":0.5,"list":[{"x":1}],` +
			`"confirmed":true}`, ""},
		"an integer for a number": {`{"vmid":103,"ratio":2}`, ""},
		"a string for an integer": {`{"vmid":"103"}`,
			`vmid: must be an integer, got a string`},
		"a fraction": {`{"vmid":103.5}`,
			`vmid: must be an integer, got a number`},
		"null": {`{"vmid":null}`, `vmid: must be an integer, got a null`},
		"a list": {`{"vmid":[103]}`,
			`vmid: must be an integer, got an array`},
		"too small": {`{"vmid":99}`, `vmid: is less than 100`},
		"too large": {`{"vmid":1000000000}`, `vmid: is more than 999999999`},
		"missing":   {`{}`, `field "vmid" is missing`},
		"unknown": {`{"vmid":103,"foo":1}`,
			`unknown field "foo"; the fields are command, confirmed, format`},
		"unknown inside": {`{"vmid":103,"limits":{"m":1}}`,
			`limits: unknown field "m"; the fields are n`},
		"not among the choices": {`{"vmid":103,"format":"yaml"}`,
			`format: must be one of json, text`},
		"too long, not repeated": {`{"vmid":103,"command":"echo secret secret secret"}`,
			`command: has 25 characters, want at most 20`},
		"pattern, not repeated": {`{"vmid":103,"mode":"secret"}`,
			`mode: does not match the pattern ^[0-7]{3,4}$`},
		"too many items": {`{"vmid":103,"paths":["/a","/b","/c"]}`,
			`paths: has 3 items, want at most 2`},
		"an item of another type": {`{"vmid":103,"paths":["/a",7]}`,
			`paths[1]: must be a string, got an integer`},
		"in a referenced schema": {`{"vmid":103,"list":[{"x":1},{"x":"y"}]}`,
			`list[1].x: must be an integer, got a string`},
		"a rule without own words": {`{"vmid":103,"limits":{"n":3}}`,
			`breaks the rule multipleOf of the schema`},
		"a number for the flag": {`{"vmid":103,"confirmed":1}`,
			`confirmed: must be a boolean, got an integer`},
		"a long name is cut": {`{"vmid":103,"` + strings.Repeat("k", 99) + `":1}`,
			`unknown field "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…"`},
		"a line break is not repeated": {`{"vmid":"1\n2"}`,
			`vmid: must be an integer, got a string`},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := abi.Decode([]byte(c.args), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			args := v.(map[string]any)
			before, _ := abi.Encode(args)
			err = tool(t).Validate(args)
			if c.why == "" && err != nil || c.why != "" &&
				(err == nil || !strings.Contains(err.Error(), c.why) ||
					strings.Contains(err.Error(), "secret")) {
				t.Errorf("got %v, want %q", err, c.why)
			}
			if after, _ := abi.Encode(args); string(after) != string(before) {
				t.Errorf("the arguments became %s", after)
			}
		})
	}
	if err := tool(t).ValidateOutput(map[string]any{"exit": "0"}); err == nil ||
		!strings.Contains(err.Error(), "exit: must be an integer") {
		t.Errorf("an output against its schema: %v", err)
	}
}

func TestParamsSayWhatTheSchemaSays(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(`{"type":"object","required":["a"],`+
		`"$defs":{"d":{"type":"integer",
		"minimum":1,"title":"D"}},"properties":{
		"a":{"type":"string","title":"T","description":"text","maxLength":9,"pattern":"^a$",`+
		`"enum":["x","y"],
			"default":"x","x-caponier-target":"node"},
		"b":{"type":"array","items":{"type":"integer","x-caponier-target":"vmid"}},
		"c":{"type":"boolean","x-caponier-confirm":true},"d":{"$ref":"#/$defs/d",`+
		`"description":"own"},
		"e":{"type":"number","maximum":2.5}}}`), &s); err != nil {
		t.Fatal(err)
	}
	one, most := 1.0, 2.5
	want := []terms.Param{
		{Name: "a", Title: "T", Description: "text", Type: "string", MaxLength: 9, Pattern: "^a$",
			Enum: []string{"x", "y"}, Default: "x", Target: "node", Required: true},
		{Name: "b", Type: "array", Items: "integer", Target: "vmid"},
		{Name: "c", Type: "boolean", Confirm: true},
		{Name: "d", Title: "D", Description: "own", Type: "integer", Min: &one},
		{Name: "e", Type: "number", Max: &most},
	}
	if got := params(&s); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What explain finds wrong must be wrong for the validator, else its words would be lies; the
// reverse may fall back to the rule's name.
func FuzzValidate(f *testing.F) {
	f.Add(`{"vmid":103,"paths":["/a",7],"limits":{"n":3},"ratio":1}`)
	f.Add(`{"vmid":"103","command":"x","format":"yaml","mode":"1"}`)
	tool := tool(f)
	schema, _, err := compile(tool.InputSchema)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data string) {
		v, err := abi.Decode([]byte(data), 1<<16)
		args, ok := v.(map[string]any)
		if err != nil || !ok {
			return
		}
		why := explain(schema, schema, args, "")
		if err := tool.Validate(args); err == nil && why != "" {
			t.Errorf("%s is valid, but explained as %q", data, why)
		}
	})
}
