package front

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

// Wherever a text is cut, what is shown is the beginning of the clean one: whole characters, no
// part of an escape.
func FuzzTake(f *testing.F) {
	f.Add("a\x1b[31mé\u202eb\x1b]0;t\x07😀\xff", 3)
	f.Add("\x1b[1;3", 1)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = max(most%100, 0)
		b := &budget{left: most}
		got, whole := b.take(s), clean(s)
		n := utf8.RuneCountInString(whole)
		if !strings.HasPrefix(whole, got) || !utf8.ValidString(got) ||
			utf8.RuneCountInString(got) != min(n, most) ||
			clean(got) != got ||
			(b.cut > 0) != (n > most) ||
			b.cut+utf8.RuneCountInString(got) != n {
			t.Errorf("%q of %q at %d, %d cut", got, whole, most, b.cut)
		}
		if rest := skip(whole, utf8.RuneCountInString(got)); got+rest != whole {
			t.Errorf("%q and %q are not %q", got, rest, whole)
		}
	})
}

func decoded(t *testing.T, tl *gate.Tool, code int, out string) *mcp.CallToolResult {
	t.Helper()
	s := newServer(t, helloDoor(), func(o *Options) { o.MaxChars = 20; o.MaxOutput = 100_000 })
	o := gate.Succeeded
	if code != 0 {
		o = gate.Failed
	}
	r, _, _ := s.result(
		caller{},
		tl,
		gate.Answer{
			CallID:  "C1",
			Outcome: o,
			Output:  gate.Output{Code: code, JSON: json.RawMessage(out)},
		},
		nil,
	)
	return r
}

func TestEveryKindOfContentArrives(t *testing.T) {
	r := decoded(
		t,
		tool("x", gate.Hints{}),
		0,
		`{"content":[{"type":"text","text":"a\u001b[31mb","annotations":{"audience":["user"],"priority":1}},{"type":"image","data":"aGk=","mimeType":"image/png"},
		{"type":"audio","data":"aGk=","mimeType":"audio/wav"},{"type":"resource","resource":{"uri":"test://r","mimeType":"text/plain","text":"inner"}},
		{"type":"resource","resource":{"uri":"test://b","blob":"aGk="}},{"type":"resource_link","uri":"caponier://blob/1","name":"full","size":3}],"structured":{"k\u001b[1m":"v\u202e","big":12345678901234567890}}`,
	)
	if r.IsError || len(r.Content) != 6 {
		t.Fatalf("%s", text(r))
	}
	got := string(must(json.Marshal(r)))
	for _, part := range []string{`"text":"ab"`, `"audience":["user"]`, `"type":"image","mimeType":"image/png","data":"aGk="`, `"type":"audio"`, `"text":"inner"`, `"blob":"aGk="`, `"uri":"caponier://blob/1"`, `"k":"v"`, `"big":12345678901234567890`} {
		if !strings.Contains(got, part) {
			t.Errorf("lacks %s: %s", part, got)
		}
	}
}

func TestOutputAgainstTheContractIsThePluginsFault(t *testing.T) {
	typed := tool("x_typed", gate.Hints{})
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
		tool            *gate.Tool
	}{
		{"nothing", ``, "is empty", 0, nil},
		{"not JSON", `hello`, "invalid character", 0, nil},
		{"two values", `{}{}`, "more after", 0, nil},
		{"a list", `[]`, "cannot unmarshal array", 0, nil},
		{"unknown field", `{"contens":[]}`, `unknown field "contens"`, 0, nil},
		{"_meta of its own", `{"content":[{"type":"text","text":"a","_meta":{"io.caponier/call":{}}}]}`, "unknown field", 0, nil},
		{"not UTF-8", "{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}", "UTF-8", 0, nil},
		{"too large", `{"structured":"` + strings.Repeat("x", 100_000) + `"}`, "over the limit of 100000", 0, nil},
		{"too deep", `{"structured":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, "nested deeper", 0, nil},
		{"unknown kind", `{"content":[{"type":"video"}]}`, `content[0]: type "video"`, 0, nil},
		{"what a resource answers", `{"contents":[{"uri":"a:b","text":"x"}]}`, "not the output of a tool", 0, nil},
		{"text with data", `{"content":[{"type":"text","text":"a","data":"aGk="}]}`, "text has no data", 0, nil},
		{"image that is no image", `{"content":[{"type":"image","data":"aGk=","mimeType":"text/html"}]}`, "media type image/", 0, nil},
		{"bad base64", `{"content":[{"type":"image","data":"a","mimeType":"image/png"}]}`, "base64", 0, nil},
		{"relative link", `{"content":[{"type":"resource_link","uri":"x","name":"n"}]}`, "absolute URI", 0, nil},
		{"script link", `{"content":[{"type":"resource_link","uri":"JavaScript:alert(1)","name":"n"}]}`, "not allowed", 0, nil},
		{"text and blob", `{"content":[{"type":"resource","resource":{"uri":"a:b","text":"","blob":""}}]}`, "not both", 0, nil},
		{"made-up audience", `{"content":[{"type":"text","text":"a","annotations":{"audience":["root"]}}]}`, "audience", 0, nil},
		{"error in a success", `{"error":{"code":"a","message":"b"}}`, "said that it succeeded", 0, nil},
		{"failure without error", `{"content":[]}`, "without an error", 1, nil},
		{"error without a message", `{"error":{"code":"a","message":""}}`, "must not be empty", 1, nil},
		{"promised structure missing", `{"content":[]}`, "structured is missing", 0, typed},
		{"promised structure broken", `{"structured":{"n":"1"}}`, "n is not a number", 0, typed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.tool == nil {
				c.tool = tool("x", gate.Hints{})
			}
			s := newServer(t, helloDoor(), func(o *Options) { o.MaxOutput = 100_000 })
			r, _, _ := s.result(
				caller{},
				c.tool,
				gate.Answer{
					CallID:  "C1",
					Outcome: gate.Succeeded,
					Output:  gate.Output{Code: c.code, JSON: json.RawMessage(c.out)},
				},
				nil,
			)
			if m := meta(t, r); !r.IsError || m.Error == nil || m.Error.Code != "plugin_protocol" ||
				!strings.Contains(m.Error.Message, c.says) ||
				m.Outcome != gate.Failed {
				t.Errorf("%+v %+v", m, m.Error)
			}
		})
	}
}

func TestLongOutputIsCutAndSaysSo(t *testing.T) {
	long := strings.Repeat("é", 50)
	r := decoded(
		t,
		tool("x", gate.Hints{}),
		0,
		`{"content":[{"type":"text","text":"`+long+`"},{"type":"text","text":"more"}],"structured":{"out":"`+long+`"}}`,
	)
	got := text(r)
	if !strings.HasPrefix(got, strings.Repeat("é", 20)+"\n") ||
		!strings.Contains(got, "20 of 54 characters shown, 34 left out") ||
		!strings.Contains(got, "head, tail or grep") {
		t.Errorf("got %s", got)
	}
	if s := string(must(json.Marshal(r.StructuredContent))); s != `{"out":"`+strings.Repeat(
		"é",
		20,
	)+`"}` {
		t.Errorf("structured: %s", s)
	}
	r = decoded(t, tool("x", gate.Hints{}), 1, `{"error":{"code":"big","message":"`+long+`"}}`)
	if got := text(r); !strings.Contains(got, "left out") ||
		strings.Contains(got, strings.Repeat("é", 21)) {
		t.Errorf("an error's text is not cut: %s", got)
	}
}

func TestTheRestOfALongResultIsForItsCallerAlone(t *testing.T) {
	long := strings.Repeat("é\x1b[1mx", 40) // 80 characters once it is cleaned
	out := string(
		must(
			json.Marshal(
				map[string]any{"content": []any{map[string]any{"type": "text", "text": long}}},
			),
		),
	)
	s := newServer(
		t,
		&fakeDoor{
			calls: map[string]func(context.Context, gate.Request) gate.Answer{"long": says(out)},
		},
		func(o *Options) { o.MaxChars = 30 },
	)
	url, _ := serve(t, s)
	connect := func(who string) *mcp.ClientSession {
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: asPrincipal{who}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cs.Close() })
		return cs
	}
	anna, bert := connect("anna"), connect("bert")
	r, err := anna.CallTool(t.Context(), &mcp.CallToolParams{Name: "long"})
	if err != nil {
		t.Fatal(err)
	}
	link, isLink := r.Content[1].(*mcp.ResourceLink)
	if !isLink || !strings.Contains(text(r), link.URI) {
		t.Fatalf("no link to the rest: %s", text(r))
	}
	var all string
	for uri := link.URI; uri != ""; {
		got, err := anna.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			t.Fatal(err)
		}
		all += got.Contents[0].Text
		if uri = ""; len(got.Contents) > 1 {
			uri = got.Contents[1].URI
		}
	}
	if all != strings.Repeat("éx", 40) {
		t.Errorf("read %q", all)
	}
	for name, read := range map[string]func() error{
		"another caller": func() error {
			_, err := bert.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
			return err
		},
		"past the end": func() error {
			_, err := anna.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: strings.TrimSuffix(link.URI, "0") + "81"})
			return err
		},
		"odd number": func() error {
			_, err := anna.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: strings.TrimSuffix(link.URI, "0") + "+1"})
			return err
		},
		"below the start": func() error {
			_, err := anna.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: strings.TrimSuffix(link.URI, "0") + "-1"})
			return err
		},
	} {
		if err := read(); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), "not found") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheRestOfAResultIsReadOnlyWhileItMightBeAskedFor(t *testing.T) {
	long := says(
		string(
			must(
				json.Marshal(
					map[string]any{
						"content": []any{
							map[string]any{"type": "text", "text": strings.Repeat("x", 99)},
						},
					},
				),
			),
		),
	)
	for name, change := range map[string]func(*Server, *fakeDoor){
		"nothing changes":         func(*Server, *fakeDoor) {},
		"the tool is frozen":      func(_ *Server, d *fakeDoor) { d.frozen = []string{"long"} },
		"the caller is frozen":    func(_ *Server, d *fakeDoor) { d.frozen = []string{"local"} },
		"its node is frozen":      func(_ *Server, d *fakeDoor) { d.frozen = []string{"pve2"} },
		"another node is frozen":  func(_ *Server, d *fakeDoor) { d.frozen = []string{"pve3", "other", "bert"} },
		"the role is taken away":  func(_ *Server, d *fakeDoor) { delete(d.calls, "long") },
		"the tool is taken away":  func(s *Server, _ *fakeDoor) { _ = s.SetTools(nil) },
		"nothing is offered anew": func(s *Server, _ *fakeDoor) { s.Changed() },
	} {
		door := &fakeDoor{}
		door.calls = map[string]func(context.Context, gate.Request) gate.Answer{
			"long": func(ctx context.Context, r gate.Request) gate.Answer {
				a := long(ctx, r)
				a.Nodes = []string{"pve1", "pve2"}
				return a
			},
		}
		s := newServer(t, door, func(o *Options) { o.MaxChars = 30 })
		cs := overStdio(t, s, nil, "")
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "long"})
		if err != nil {
			t.Fatal(err)
		}
		door.mu.Lock()
		change(s, door)
		door.mu.Unlock()
		got, err := cs.ReadResource(
			t.Context(),
			&mcp.ReadResourceParams{URI: r.Content[1].(*mcp.ResourceLink).URI},
		)
		if may := strings.HasPrefix(name, "nothing") || strings.HasPrefix(name, "another"); may != (err == nil) ||
			!may && !strings.Contains(strings.ToLower(err.Error()), "not found") {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	k := kept{most: 100}
	now := time.Now()
	if uri := k.keep(keptText{owner: "a", text: strings.Repeat("x", 26)}, now); uri != "" {
		t.Error("one text may take more than a quarter")
	}
	var ids []string
	for range 6 {
		ids = append(
			ids,
			strings.TrimSuffix(
				strings.TrimPrefix(
					k.keep(keptText{owner: "a", text: strings.Repeat("x", 25)}, now),
					keptPrefix,
				),
				"/0",
			),
		)
	}
	for i, id := range ids {
		if _, found := k.get("a", id, now); found != (i >= 2) {
			t.Errorf("text %d: found %v", i, found)
		}
	}
	if _, found := k.get("a", ids[5], now.Add(keptTime)); found || k.bytes != 100 {
		t.Errorf("an old text is found, or %d bytes are kept", k.bytes)
	}
	k.keep(keptText{owner: "a", text: "y"}, now.Add(2*keptTime))
	if k.bytes != 1 || len(k.byID) != 1 || len(k.order) != 1 {
		t.Errorf("old texts stay: %d bytes, %d", k.bytes, len(k.byID))
	}
}

func FuzzOutput(f *testing.F) {
	for _, s := range []string{`{"content":[{"type":"text","text":"a"}]}`, `{"structured":{"a":[1,2.5,null,true,"x\u001b["]}}`, `{"error":{"code":"a","message":"b"}}`, `{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"aGk="}}]}`} {
		f.Add(s, 0)
		f.Add(s, 1)
	}
	s, err := New(Options{}, helloDoor())
	if err != nil {
		f.Fatal(err)
	}
	tl := tool("x", gate.Hints{})
	f.Fuzz(func(t *testing.T, out string, code int) {
		r, _, _ := s.result(
			caller{},
			tl,
			gate.Answer{
				CallID:  "C1",
				Outcome: gate.Succeeded,
				Output:  gate.Output{Code: code, JSON: json.RawMessage(out)},
			},
			nil,
		)
		wire, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("a result that cannot be sent: %v", err)
		}
		var back mcp.CallToolResult
		if err := json.Unmarshal(wire, &back); err != nil {
			t.Fatalf("a result that cannot be read: %v\n%s", err, wire)
		}
		if got := text(&back); plaintext.Clean(got) != got {
			t.Fatalf("%q leaves %q", out, got)
		}
	})
}
