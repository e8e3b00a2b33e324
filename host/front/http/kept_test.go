package http

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

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
			Calls: map[string]func(context.Context, gate.Request) gate.Answer{"long": says(out)},
		},
		func(o *opts) { o.MaxChars = 30 },
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
