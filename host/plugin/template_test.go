package plugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

func resource(t *testing.T, uri, schema, more string) (*terms.Tool, error) {
	t.Helper()
	if schema != "" {
		schema = `,"input_schema":` + schema
	}
	e := Entry{Plugin: terms.Plugin{Name: "p", Version: "1", Digest: digest(nil)}, File: "p.wasm",
		Describe: json.RawMessage(
			`{"abi":1,"name":"p","version":"1","tools":[],"prompts":[],"resources":[{"name":"r",` +
				`"uri":"` + uri + `","description":"A resource with arguments in its ` +
				`URI.","imports":[],"budget_ms":1000,"runs":"nothing"` + more + schema + `}]}`)}
	tools, err := e.Tools()
	if err != nil {
		return nil, err
	}
	return tools[0], nil
}

func closed(required bool, props string) string {
	s := `{"type":"object","additionalProperties":false,"properties":{` + props + `}`
	if required {
		names := []string{}
		for _, p := range strings.Split(props, ",\n") {
			name, _, _ := strings.Cut(p, ":")
			names = append(names, name)
		}
		s += `,"required":[` + strings.Join(names, ",") + `]`
	}
	return s + `}`
}

const guestArgs = `"node":{"type":"string","x-caponier-target":"node"},` + "\n" +
	`"vmid":{"type":"integer","x-caponier-target":"vmid"}`

func TestResourcesWithArgumentsAreReadInOneWay(t *testing.T) {
	r, err := resource(t, "pve://{node}/guests/{vmid}", closed(true, guestArgs),
		`,"mime_type":"application/json"`)
	if err != nil {
		t.Fatal(err)
	}
	if r.MIME != "application/json" || strings.Join(r.TargetKinds, " ") != "nodes vmids" {
		t.Errorf("MIME %q, targets %v", r.MIME, r.TargetKinds)
	}
	for uri, want := range map[string]string{
		"pve://pve1/guests/105": "map[node:pve1 vmid:105]",
		// stays a text, which the schema refuses
		"pve://pve1/guests/0105":   "map[node:pve1 vmid:0105]",
		"pve://pve1/guests/105/":   "",
		"pve://pve1/guests/":       "",
		"pve:///guests/105":        "",
		"pve://../guests/105":      "",
		"pve://pve1/guests/1%305":  "",
		"pve://pve1/guests/105?x":  "",
		"pve://pve1/guests/10 5":   "",
		"PVE://pve1/guests/105":    "",
		"pve://a/b/guests/105":     "",
		"pve://pve1/guests/105\n":  "",
		"pve://pve1/guests/105%0A": "",
	} {
		texts, ok := r.Match(uri)
		if ok != (want != "") {
			t.Errorf("%q: matched %v", uri, ok)
		}
		if !ok {
			continue
		}
		args := r.Texts(texts)
		if got := fmt.Sprint(args); got != want {
			t.Errorf("%q: %s, want %s", uri, got, want)
		}
		_, isNumber := args["vmid"].(int64)
		if err := r.Validate(args); (err == nil) != isNumber {
			t.Errorf("%q: %v", uri, err)
		}
		if isNumber && r.Expand(args) != uri {
			t.Errorf("%q is written back as %q", uri, r.Expand(args))
		}
	}
}

func TestResourcesThatCannotBeMeantAreRefused(t *testing.T) {
	one := closed(true, `"a":{"type":"string"}`)
	two := closed(true, `"a":{"type":"string"},`+"\n"+`"b":{"type":"string"}`)
	for name, tt := range map[string]struct{ uri, schema, more, why string }{
		"nothing between two":         {"x://{a}{b}", two, "", "must begin with a character such as"},
		"a letter between two":        {"x://{a}and/{b}", two, "", "must begin with a character such as"},
		"a letter after the last":     {"x://{a}s", one, "", "must begin with a character such as"},
		"one twice":                   {"x://{a}/{a}", one, "", "twice"},
		"an expression":               {"x://{+a}", one, "", "is written {name}"},
		"an open brace":               {"x://{a", one, "", "is written {name}"},
		"escapes":                     {"x://%7b/{a}", one, "", "nothing is escaped"},
		"the scheme":                  {"x{a}://b", one, "", "uri"},
		"an argument without schema":  {"x://{a}", "", "", "not among the required properties"},
		"an optional argument":        {"x://{a}", closed(false, `"a":{"type":"string"}`), "", "not among the required properties"},
		"a schema without argument":   {"x://{a}", two, "", "and no others"},
		"arguments of a plain one":    {"x://a", one, "", "and no others"},
		"a list":                      {"x://{a}", closed(true, `"a":{"type":"array","items":{"type":"string"}}`), "", "must have the type string or integer"},
		"the host's own scheme":       {"caponier://results/x/0", "", "", "the host's own"},
		"a MIME type that is none":    {"x://a", "", `,"mime_type":"text"`, "mime_type"},
		"a MIME type with a trailer":  {"x://a", "", `,"mime_type":"text/plain; a=b"`, "mime_type"},
		"a MIME type with a new line": {"x://a", "", `,"mime_type":"text/plain\n"`, "mime_type"},
	} {
		if _, err := resource(t, tt.uri, tt.schema, tt.more); err == nil ||
			!strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %v, want %q", name, err, tt.why)
		}
	}
	if _, err := NewEntry("a.wasm", nil, []string{"ssh_exec", "sftp_get"},
		[]byte(describing(`"title":"Run"`,
			`"title":"Run","mime_type":"text/plain"`))); err == nil ||
		!strings.Contains(err.Error(), "mime_type") {
		t.Errorf("a tool with a MIME type: %v", err)
	}
}

// What a URI matches writes the same URI again, and no two sets of arguments write the same.
func FuzzTemplate(f *testing.F) {
	f.Add("pve://{node}/guests/{vmid}", "pve://pve1/guests/105")
	f.Add("x://{a}:{b}.{c}", "x://1:2.3")
	f.Add("x://a/{b}/c", "x://a/../c")
	f.Fuzz(func(t *testing.T, form, uri string) {
		tpl, err := parseTemplate(form)
		if err != nil || len(tpl.names) == 0 {
			return
		}
		texts, ok := tpl.match(uri)
		if !ok {
			return
		}
		args := map[string]any{}
		for k, v := range texts {
			args[k] = v
		}
		if back := tpl.expand(args); back != uri {
			t.Errorf("%q read by %q is written %q", uri, form, back)
		}
		if again, ok := tpl.match(tpl.expand(args)); !ok || !maps.Equal(again, texts) {
			t.Errorf("%q by %q: %v, then %v", uri, form, texts, again)
		}
	})
}
