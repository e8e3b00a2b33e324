//go:build conformance

package front

// This file is in no build that people use. It offers what the official conformance suite wants to
// see and plugins may never have: sampling, roots, logging, and a look at single requests.
// Everything else that the suite calls is a Wasm plugin in test/conformance/plugin, behind the
// door.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var fixtureTools = map[string]struct {
	schema string
	call   func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)
}{
	"test_tool_with_logging": {
		``,
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for _, line := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
				if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: line}); err != nil {
					return nil, err
				}
			}
			return spoken("logged"), nil
		},
	},
	"test_logging_tool": {
		``,
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return spoken(
					"logged",
				), r.Session.Log(
					ctx,
					&mcp.LoggingMessageParams{Level: "info", Data: "a line"},
				)
		},
	},
	"test_sampling": {
		`{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`,
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Prompt string }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			got, err := r.Session.CreateMessage(ctx, sample(in.Prompt))
			if err != nil {
				return nil, err
			}
			return spoken(fmt.Sprintf("LLM response: %s", must1(json.Marshal(got.Content)))), nil
		},
	},
	"test_input_required_result_sampling":   {``, wants("capital_question")},
	"test_input_required_result_list_roots": {``, wants("client_roots")},
	"test_input_required_result_multiple_inputs": {
		``,
		wants("user_name", "greeting", "client_roots"),
	},
	"test_input_required_result_capabilities": {
		``,
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var keys []string
			if c := r.ClientCapabilities(); c != nil {
				for key, has := range map[string]bool{"user_name": c.Elicitation != nil, "greeting": c.Sampling != nil, "client_roots": c.RootsV2 != nil} {
					if has {
						keys = append(keys, key)
					}
				}
			}
			if len(keys) == 0 {
				return spoken("nothing can be asked"), nil
			}
			return wants(keys...)(ctx, r)
		},
	},
	"test_missing_capability": {
		``,
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
				return spoken("sampling is there"), nil
			}
			return nil, &jsonrpc.Error{
				Code:    mcp.CodeMissingRequiredClientCapabilities,
				Message: "sampling is missing",
				Data:    json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
			}
		},
	},
	"test_x_mcp_header": {
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer","x-mcp-header":"Level"}}}`,
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return spoken("ok"), nil
		},
	},
	"test_reconnection": {
		``,
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Extra.CloseSSEStream != nil {
				r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
			}
			time.Sleep(100 * time.Millisecond)
			return spoken("reconnected"), nil
		},
	},
	"json_schema_2020_12_tool": {
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
		"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
		"additionalProperties":false}`,
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return spoken("called with " + string(r.Params.Arguments)), nil
		},
	},
	"test_trigger_tool_change":   {``, nil},
	"test_trigger_prompt_change": {``, nil},
	"transient":                  {``, nil},
}

func isFixture(key string) bool {
	_, native := fixtureTools[key]
	return native || key == "transient_prompt"
}

func spoken(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func sample(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}},
		MaxTokens: 100,
	}
}

func must1(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// wants asks the client for all of the keys and goes on when all are there.
func wants(
	keys ...string,
) func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		missing := mcp.InputRequestMap{}
		for _, key := range keys {
			switch key {
			case "client_roots":
				missing[key] = &mcp.ListRootsParams{}
			case "user_name":
				missing[key] = &mcp.ElicitParams{
					Mode:    "form",
					Message: "What is your name?",
					RequestedSchema: json.RawMessage(
						`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`,
					),
				}
			default:
				missing[key] = sample("What is the capital of France?")
			}
		}
		for _, key := range keys {
			if r.Params.InputResponses[key] != nil {
				delete(missing, key)
			}
		}
		if len(missing) == 0 {
			return spoken(
				fmt.Sprintf("answered: %s", must1(json.Marshal(r.Params.InputResponses))),
			), nil
		}
		return &mcp.CallToolResult{InputRequests: missing, RequestState: "fixture"}, nil
	}
}

func fixtures(o *mcp.ServerOptions) func(*mcp.Server) {
	o.Capabilities.Logging = &mcp.LoggingCapabilities{}
	o.SubscribeHandler = func(context.Context, *mcp.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *mcp.UnsubscribeRequest) error { return nil }
	o.Capabilities.Resources.Subscribe = true
	return func(s *mcp.Server) {
		add := func(name, schema string, call mcp.ToolHandler) {
			if schema == "" {
				schema = `{"type":"object"}`
			}
			s.AddTool(
				&mcp.Tool{
					Name:        name,
					Description: "A fixture of the conformance suite.",
					InputSchema: json.RawMessage(schema),
				},
				call,
			)
		}
		for name, f := range fixtureTools {
			switch name {
			case "transient":
			case "test_trigger_tool_change":
				add(
					name,
					"",
					func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						add(
							"transient",
							"",
							func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
								return spoken("transient"), nil
							},
						)
						return spoken("changed"), nil
					},
				)
			case "test_trigger_prompt_change":
				add(
					name,
					"",
					func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						s.AddPrompt(
							&mcp.Prompt{
								Name:        "transient_prompt",
								Description: "A fixture of the conformance suite.",
							},
							func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
								return &mcp.GetPromptResult{}, nil
							},
						)
						return spoken("changed"), nil
					},
				)
			default:
				add(name, f.schema, f.call)
			}
		}
	}
}
