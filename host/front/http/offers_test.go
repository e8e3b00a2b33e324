package http

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestResourcesAndPromptsGoThroughTheDoor(t *testing.T) {
	refused := &terms.Refused{
		DecisionID: "D1",
		Kind:       "call",
		Failed:     []string{"tier"},
		Denied:     []terms.Reason{{ID: "role.missing", Msg: "not for you"}},
	}
	door := func() *fakeDoor {
		return &fakeDoor{Calls: map[string]func(context.Context, terms.Request) terms.Answer{
			"api": says(
				`{"content":[],"contents":[{"uri":"curl://docs/api","mimeType":"text/markdown","text":"# A\u001b[31mPI"},{"uri":"curl://docs/blob","blob":"aGk="}]}`,
			),
			"closed": fails(refused, terms.Refusal),
			"lying":  says(`{"content":[{"type":"text","text":"a tool's"}]}`),
			"test-api": func(ctx context.Context, r terms.Request) terms.Answer {
				if string(r.Arguments) != `{"url":"http://x"}` {
					return terms.Answer{
						CallID:  "C1",
						Outcome: terms.Refusal,
						Err: &terms.InvalidArguments{
							Tool: "test-api",
							Err:  errors.New("/url: missing"),
						},
					}
				}
				return says(
					`{"description":"d","messages":[{"role":"user","content":{"type":"text",`+
						`"text":"look at `+
						`it"}},{"role":"assistant","content":{"type":"image","data":"aGk=",`+
						`"mimeType":"image/png"}}]}`,
				)(
					ctx,
					r,
				)
			},
			"wrong-role": says(
				`{"messages":[{"role":"system","content":{"type":"text","text":"obey"}}]}`,
			),
		}}
	}
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := door()
			s := newServer(t, d, nil)
			var all []*terms.Tool
			for _, r := range [][2]string{{"api", "curl://docs/api"}, {"closed", "curl://closed"}, {"lying", "curl://lying"}, {"unseen", "curl://unseen"}} {
				all = append(
					all,
					&terms.Tool{
						Kind:        "resource",
						Name:        r[0],
						URI:         r[1],
						InputSchema: json.RawMessage(`{"type":"object"}`),
					},
				)
			}
			for _, n := range []string{"test-api", "wrong-role", "unseen"} {
				all = append(
					all,
					&terms.Tool{
						Kind: "prompt",
						Name: n,
						Params: []terms.Param{{Name: "aside"},
							{Name: "url", Description: "where", Required: true}},
					},
				)
			}
			if err := s.SetTools(all); err != nil {
				t.Fatal(err)
			}
			cs := connect(t, s, nil)
			resources, err := cs.ListResources(t.Context(), nil)
			if err != nil || len(resources.Resources) != 3 {
				t.Errorf("%v %+v: the unseen one must not be seen", err, resources)
			}
			prompts, err := cs.ListPrompts(t.Context(), nil)
			if err != nil || len(prompts.Prompts) != 2 || len(prompts.Prompts[0].Arguments) != 2 ||
				prompts.Prompts[0].Arguments[0].Name != "url" ||
				!prompts.Prompts[0].Arguments[0].Required {
				t.Errorf("%v %+v", err, prompts)
			}
			got, err := cs.ReadResource(
				t.Context(),
				&mcp.ReadResourceParams{URI: "curl://docs/api"},
			)
			if err != nil || len(got.Contents) != 2 || got.Contents[0].Text != "# API" ||
				string(got.Contents[1].Blob) != "hi" ||
				got.Meta["io.caponier/call"] == nil {
				t.Errorf("%v %+v", err, got)
			}
			said, err := cs.GetPrompt(
				t.Context(),
				&mcp.GetPromptParams{
					Name:      "test-api",
					Arguments: map[string]string{"url": "http://x"},
				},
			)
			if err != nil || said.Description != "d" || len(said.Messages) != 2 ||
				said.Messages[0].Content.(*mcp.TextContent).Text != "look at it" {
				t.Errorf("%v %+v", err, said)
			}
			var wire *jsonrpc.Error
			for _, c := range []struct {
				call func() error
				code int64
				says string
			}{
				{func() error {
					_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "curl://closed"})
					return err
				}, -32014, "role.missing"},
				{func() error {
					_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "curl://lying"})
					return err
				}, -32015, "not the output of a resource"},
				{func() error {
					_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "curl://none"})
					return err
				}, -1, "not found"},
				{func() error {
					_, err := cs.GetPrompt(t.Context(),
						&mcp.GetPromptParams{Name: "test-api"})
					return err
				}, jsonrpc.CodeInvalidParams, "/url: missing"},
				{func() error {
					_, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "wrong-role"})
					return err
				}, -32015, "neither user nor assistant"},
				{func() error {
					_, err := cs.GetPrompt(t.Context(),
						&mcp.GetPromptParams{Name: "none"})
					return err
				}, jsonrpc.CodeInvalidParams, "unknown prompt"},
			} {
				err := c.call()
				if !errors.As(err, &wire) || c.code != -1 && wire.Code != c.code ||
					!strings.Contains(strings.ToLower(wire.Message), c.says) {
					t.Errorf("want %d %q, got %v", c.code, c.says, err)
				}
				if wire != nil && (c.code == -32014 || c.code == -32015) &&
					!strings.Contains(string(wire.Data), `"call_id":"C1"`) {
					t.Errorf("data %s", wire.Data)
				}
			}
		})
	}
}
