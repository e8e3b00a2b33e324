package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func decoded(t *testing.T, tl *terms.Tool, code int, out string) *mcp.CallToolResult {
	t.Helper()
	s := newServer(t, helloDoor(), func(o *Options) { o.MaxChars = 20; o.MaxOutput = 100_000 })
	o := terms.Succeeded
	if code != 0 {
		o = terms.Failed
	}
	r := ended(s, tl, terms.Answer{CallID: "C1", Outcome: o,
		Output: terms.Output{Code: code, JSON: json.RawMessage(out)}})
	return &r.CallToolResult
}

func TestEveryKindOfContentArrives(t *testing.T) {
	r := decoded(
		t,
		tool("x", terms.Hints{}),
		0,
		`{"content":[{"type":"text","text":"a\u001b[31mb","annotations":{"audience":["user"],`+
			`"priority":1}},{"type":"image","data":"aGk=","mimeType":"image/png"},
		{"type":"audio","data":"aGk=","mimeType":"audio/wav"},{"type":"resource","resource":{"uri":"test://r","mimeType":"text/plain","text":"inner"}},
		{"type":"resource","resource":{"uri":"test://b","blob":"aGk="}},{"type":"resource_link","uri":"caponier://blob/1","name":"full","size":3}],"structured":{"k\u001b[1m":"v\u202e","big":12345678901234567890}}`,
	)
	if r.IsError || len(r.Content) != 7 {
		t.Fatalf("%s", text(r))
	}
	got := string(must(json.Marshal(r)))
	for _, part := range []string{`"text":"ab"`, `"audience":["user"]`, `"type":"image","mimeType":"image/png","data":"aGk="`, `"type":"audio"`, `"text":"inner"`, `"blob":"aGk="`, `"uri":"caponier://blob/1"`, `\"k\":\"v\"`, `\"big\":12345678901234567890`} {
		if !strings.Contains(got, part) {
			t.Errorf("lacks %s: %s", part, got)
		}
	}
}

func TestOutputAgainstTheContractIsThePluginsFault(t *testing.T) {
	typed := tool("x_typed", terms.Hints{})
	typed.OutputSchema = json.RawMessage(`{"type":"object"}`)
	typed.ValidateOutput = func(v any) error {
		if _, ok := v.(map[string]any)["n"].(float64); !ok {
			return errors.New("n is not a number")
		}
		return nil
	}
	for _, c := range []struct {
		name, out, says string
		code            int
		tool            *terms.Tool
	}{
		{"nothing", ``, "is empty", 0, nil},
		{"not JSON", `hello`, "invalid character", 0, nil},
		{"two values", `{}{}`, "more after", 0, nil},
		{"a list", `[]`, "cannot unmarshal array", 0, nil},
		{"unknown field", `{"contens":[]}`, `unknown field "contens"`, 0, nil},
		{"_meta of its own",
			`{"content":[{"type":"text","text":"a","_meta":{"io.caponier/call":{}}}]}`,
			"unknown field", 0, nil},
		{"not UTF-8", "{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}", "UTF-8", 0, nil},
		{"too large", `{"structured":"` + strings.Repeat("x", 100_000) + `"}`,
			"over the limit of 100000", 0, nil},
		{"too deep", `{"structured":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`,
			"nested deeper", 0, nil},
		{"unknown kind", `{"content":[{"type":"video"}]}`, `content[0]: type "video"`, 0, nil},
		{"what a resource answers", `{"contents":[{"uri":"a:b","text":"x"}]}`,
			"not the output of a tool", 0, nil},
		{"text with data", `{"content":[{"type":"text","text":"a","data":"aGk="}]}`,
			"text has no data", 0, nil},
		{"image that is no image",
			`{"content":[{"type":"image","data":"aGk=","mimeType":"text/html"}]}`,
			"media type image/", 0, nil},
		{"bad base64", `{"content":[{"type":"image","data":"a","mimeType":"image/png"}]}`, "base64",
			0, nil},
		{"relative link", `{"content":[{"type":"resource_link","uri":"x","name":"n"}]}`,
			"absolute URI", 0, nil},
		{"script link",
			`{"content":[{"type":"resource_link","uri":"JavaScript:alert(1)","name":"n"}]}`,
			"not allowed", 0, nil},
		{"text and blob",
			`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"","blob":""}}]}`,
			"not both", 0, nil},
		{"made-up audience",
			`{"content":[{"type":"text","text":"a","annotations":{"audience":["root"]}}]}`,
			"audience", 0, nil},
		{"error in a success", `{"error":{"code":"a","message":"b"}}`, "said that it succeeded", 0,
			nil},
		{"failure without error", `{"content":[]}`, "without an error", 1, nil},
		{"error without a message", `{"error":{"code":"a","message":""}}`, "must not be empty", 1,
			nil},
		{"promised structure missing", `{"content":[]}`, "structured is missing", 0, typed},
		{"promised structure broken", `{"structured":{"n":"1"}}`, "n is not a number", 0, typed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.tool == nil {
				c.tool = tool("x", terms.Hints{})
			}
			s := newServer(t, helloDoor(), func(o *Options) { o.MaxOutput = 100_000 })
			r := ended(s, c.tool, terms.Answer{CallID: "C1", Outcome: terms.Succeeded,
				Output: terms.Output{Code: c.code, JSON: json.RawMessage(c.out)}})
			if m := r.sum; !r.IsError || m.Error == nil || m.Error.Code != "plugin_protocol" ||
				!strings.Contains(m.Error.message, c.says) ||
				m.Outcome != terms.Failed {
				t.Errorf("%+v %+v", m, m.Error)
			}
		})
	}
}

// What the host changes in a value, by masks, cuts and cleaning, fits the output schema or is an
// error that says so. It is never a success without the structured content that was promised.
func TestAPromisedResultFitsOrIsAnError(t *testing.T) {
	list := `["` + strings.Repeat(`a","`, 30_000) + `b"]`
	masked := []terms.Hit{{Detector: "x", Count: 1, Action: "mask"}}
	for _, c := range []struct {
		name, schema, structured string
		hits                     []terms.Hit
		says, fields             string // an error, or what is in the structured content
	}{
		{"short", `"s":{"maxLength":3}`, `{"s":"abc"}`, nil, "", `{"s":"abc"}`},
		{"cut, and marked", `"s":{},"truncated":{"type":"boolean"}`,
			`{"s":"` + strings.Repeat("x", 30_000) + `"}`, nil, "", `"truncated":true`},
		{"cut, with a mark that the schema does not admit", `"s":{"type":"string"}`,
			`{"s":"` + strings.Repeat("x", 30_000) + `"}`, nil, "", "characters left out"},
		{"cut, with a mark of another type", `"s":{},"truncated":{"type":"string"}`,
			`{"truncated":"no","s":"` + strings.Repeat("x", 30_000) + `"}`, nil, "",
			`"truncated":"no"`},
		{"a form that no cut has", `"s":{"pattern":"^x*$"}`,
			`{"s":"` + strings.Repeat("x", 30_000) + `"}`, nil, "was too long", ""},
		{"a list that may not be shorter", `"l":{"minItems":30000}`, `{"l":` + list + `}`, nil,
			"was too long", ""},
		{"hidden characters", `"s":{"const":"a\u202e"}`, `{"s":"a\u202e"}`, nil,
			"hidden characters", ""},
		{"a hidden name", `"k\u202e":{}`, `{"k\u202e":1}`, nil, "hidden characters", ""},
		{"a mask", `"s":{"type":"string"}`, `{"s":"[caponier:masked:x]"}`, masked, "",
			`{"s":"[caponier:masked:x]"}`},
		{"a mask that does not fit", `"s":{"pattern":"^[0-9]+$"}`,
			`{"s":"[caponier:masked:x]"}`, masked, "was masked", ""},
		{"large numbers", `"n":{"type":"integer"}`, `{"n":12345678901234567890}`, nil, "",
			`{"n":12345678901234567890}`},
	} {
		tl := tool("x_"+strings.ReplaceAll(c.name, " ", "_"), terms.Hints{})
		schema := `{"type":"object","additionalProperties":false,"properties":{` + c.schema + `}}`
		tl.OutputSchema = json.RawMessage(schema)
		tl.ValidateOutput = validator(t, schema)
		r := ended(newServer(t, helloDoor(), nil), tl, terms.Answer{CallID: "C1",
			Outcome: terms.Succeeded, Output: terms.Output{Hits: c.hits, JSON: json.RawMessage(
				`{"content":[{"type":"text","text":"its own text"}],"structured":` + c.structured +
					`}`)}})
		got, said := string(must(json.Marshal(r.StructuredContent))), text(&r.CallToolResult)
		if r.IsError != (c.says != "") || r.IsError != (r.StructuredContent == nil) ||
			r.IsError != (r.sum.Outcome == terms.Failed) || !strings.Contains(said, c.says) ||
			!strings.Contains(said, "its own text") || !strings.Contains(got, c.fields) {
			t.Errorf("%s: isError %v, %s, %.200s\n%.300s", c.name, r.IsError, r.sum.Outcome, got,
				said)
		}
		if r.IsError && (r.sum.Error.Code != "result_unfit" ||
			!strings.Contains(said, "what it did stays done")) {
			t.Errorf("%s: %+v\n%s", c.name, r.sum.Error, said)
		}
		if r.StructuredContent != nil && fits(tl, r.StructuredContent) != nil {
			t.Errorf("%s: %.300s does not fit", c.name, got)
		}
	}
}

// Without the option no schema is listed and no structured content is sent. A result is held to the
// schema all the same.
func TestOutputSchemasAreListedWhereAsked(t *testing.T) {
	tl := tool("x_typed", terms.Hints{})
	schema := `{"type":"object","properties":{"n":{"type":"integer"}}}`
	tl.OutputSchema, tl.ValidateOutput = json.RawMessage(schema), validator(t, schema)
	for _, asked := range []bool{false, true} {
		s := newServer(t, helloDoor(), func(o *Options) { o.OutputSchemas = asked })
		d, err := face(tl, s.opts.OutputSchemas)
		if err != nil || (d.(*mcp.Tool).OutputSchema != nil) != asked {
			t.Errorf("%v: %+v, %v", asked, d, err)
		}
		for _, n := range []string{"1", `"x"`} {
			r := ended(s, tl, terms.Answer{CallID: "C1", Outcome: terms.Succeeded,
				Output: terms.Output{JSON: json.RawMessage(`{"content":[],"structured":{"n":` + n +
					`}}`)}})
			if good := n == "1"; r.IsError == good ||
				(r.StructuredContent != nil) != (asked && good) ||
				good && !strings.Contains(text(&r.CallToolResult), `{"n":1}`) {
				t.Errorf("%v, %s: %+v", asked, n, r.CallToolResult)
			}
		}
	}
}

// validator holds values to a schema.
func validator(t *testing.T, schema string) func(any) error {
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(v any) error { return r.Validate(v) }
}

func TestARefusalSaysWhatHelps(t *testing.T) {
	for ids, want := range map[string]string{
		"freeze": "Ask the operator to thaw", "freeze rate": "Ask the operator to thaw",
		"readonly": "only reads for now", "journal.unavailable": "Tell the operator",
		"rate": "make the same call again", "protected": "no approval changes that",
		"budget": "next day", "approval.denied": "do not make it again", "grant": "No role",
		"args": "change what the rules name",
	} {
		if got := whatNow(&terms.Refused{Failed: strings.Fields(ids)}); !strings.Contains(
			got,
			want,
		) {
			t.Errorf("%s: %q, want %q", ids, got, want)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{initialize,
		`{"method":"tools/call","params":{"arguments":{"vmid":103.0,"vmid":2}}}`, `{"a":1,"A":2}`,
		`[]`, `{"id":null}`, "{\"\xff\":1}", `{"id":9007199254740993}`,
		`{"jsonrpc":"2.0","id":"a","method":"m","params": {"a" : [1]} }`,
		`{"jsonrpc":"2.0","id":-7,"method":"m","params":null}`,
		`{"jsonrpc":"1.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		env, err := ReadEnvelope(data)
		if err != nil {
			return
		}
		// A message that passes must mean the same to a reader that keeps the first of equal keys,
		// ignores case or keeps the last: encoding/json does the last two, and a map tells the
		// exact keys.
		var loose struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(data, &exact); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		if err := json.Unmarshal(data, &loose); err != nil {
			t.Fatalf("accepted what does not decode: %v", err)
		}
		var method string
		if raw := exact["method"]; raw != nil {
			if err := json.Unmarshal(raw, &method); err != nil {
				t.Fatal(err)
			}
		}
		if method != loose.Method || method != env.Method ||
			!bytes.Equal(bytes.TrimSpace(exact["id"]), bytes.TrimSpace(loose.ID)) {
			t.Errorf("readers differ: %q %q %q", method, loose.Method, env.Method)
		}
		sameAsTheSDKReads(t, env, data)
	})
}

// sameAsTheSDKReads compares the message of an envelope with the SDK's own. The SDK reads no
// message that is nested more than 1,000 deep.
func sameAsTheSDKReads(t *testing.T, env Envelope, data []byte) {
	got, err := env.message(data)
	want, wantErr := jsonrpc.DecodeMessage(data)
	if (err == nil) != (wantErr == nil) && bytes.Count(data, []byte("{"))+bytes.Count(data,
		[]byte("[")) < 1_000 {
		t.Fatalf("%q: read with %v, by the SDK with %v", data, err, wantErr)
	}
	one, isRequest := got.(*jsonrpc.Request)
	two, wantRequest := want.(*jsonrpc.Request)
	if err != nil || wantErr != nil || !isRequest && !wantRequest {
		return
	}
	if isRequest != wantRequest || one.ID != two.ID || one.Method != two.Method ||
		!bytes.Equal(one.Params, two.Params) {
		t.Errorf("%q: read as %+v, by the SDK as %+v", data, one, two)
	}
}
