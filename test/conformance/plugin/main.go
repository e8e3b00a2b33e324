// Command plugin offers, from inside the sandbox, the fixtures of the official MCP conformance
// suite that a plugin can offer.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

// png is one red pixel, wav no sound at all.
var png, wav = decode(
	"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ" +
		"AAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==",
),
	decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

type none struct{}

type message struct {
	Message string `json:"message,omitempty" doc:"what the user is asked"`
}

func hints(imports ...string) sdk.Hints {
	return sdk.Hints{
		ReadOnly:   true,
		Idempotent: true,
		Imports:    imports,
		Budget:     10 * time.Second,
		Runs:       "nothing on any node",
	}
}

// shows is a tool that always answers the same.
func shows(name, doc string, content ...sdk.Content) sdk.Tool {
	return sdk.NewTool(name, doc, hints(),
		func(*sdk.Call, none) (sdk.Result, error) { return sdk.Result{Content: content}, nil })
}

func resource(uri, text string) sdk.Content {
	b, err := json.Marshal(sdk.ResourceContent{URI: uri, MIMEType: "text/plain", Text: text})
	if err != nil {
		panic(err)
	}
	return sdk.Content{Type: "resource", Resource: b}
}

// asks is a tool that puts one question and says what came back.
func asks(name, doc, key, schema string, say func(sdk.Answer) string) sdk.Tool {
	return sdk.NewTool(name, doc, hints("ask"), func(c *sdk.Call, in message) (string, error) {
		if in.Message == "" {
			in.Message = "Please answer"
		}
		a, err := sdk.Ask(c, key, in.Message, json.RawMessage(schema))
		if err != nil {
			return "", err
		}
		return say(a), nil
	})
}

func form(props, required string) string {
	return `{"type":"object","properties":{` + props + `},"required":[` + required + `]}`
}

func said(a sdk.Answer) string {
	b, _ := json.Marshal(a.Content) // decoded from JSON, so it encodes
	return fmt.Sprintf("Elicitation result: action=%s, content=%s", a.Action, b)
}

func field(a sdk.Answer, name string) string {
	var m map[string]any
	b, _ := json.Marshal(a.Content)
	if json.Unmarshal(b, &m) != nil {
		return ""
	}
	return fmt.Sprint(m[name])
}

var image = sdk.Content{Type: "image", Data: png, MIMEType: "image/png"}

const name = `"name":{"type":"string"}`

func init() {
	tools := []sdk.Tool{
		shows("test_simple_text", "Answers with one piece of text.",
			sdk.Text("This is a simple text response for testing.")),
		shows("test_image_content", "Answers with one image of one pixel.", image),
		shows("test_audio_content", "Answers with audio that holds no sound.",
			sdk.Content{Type: "audio", Data: wav, MIMEType: "audio/wav"}),
		shows("test_embedded_resource", "Answers with an embedded text resource.",
			resource("test://embedded-resource", "This is an embedded resource content.")),
		shows("test_multiple_content_types", "Answers with text, an image and a resource.",
			sdk.Text("Multiple content types test:"), image,
			resource("test://mixed-content-resource", `{"test":"data","value":123}`)),
		sdk.NewTool(
			"test_error_handling",
			"Always fails, with a message.",
			hints(),
			func(*sdk.Call, none) (string, error) {
				return "", &sdk.Error{
					Code:    "intended",
					Message: "This tool intentionally returns an error for testing",
				}
			},
		),
		sdk.NewTool(
			"test_tool_with_progress",
			"Reports progress three times, then ends.",
			hints(),
			func(c *sdk.Call, _ none) (string, error) {
				for _, done := range []float64{0, 50, 100} {
					sdk.Progress(c, done, 100, fmt.Sprintf("Completed step %g of 100", done))
				}
				return "done", nil
			},
		),
		shows("test_streaming_elicitation", "Answers without asking anybody anything.",
			sdk.Text("only a result")),
		shows("test_refused", "Has no tier, so nobody may see or call it.",
			sdk.Text("policy let this through")),
		asks(
			"test_elicitation",
			"Asks the user for a name and says the answer.",
			"username",
			form(
				`"username":{"type":"string","description":"User's response"},
					"email":{"type":"string","description":"User's email address"}`,
				`"username","email"`,
			),
			said,
		),
		asks(
			"test_elicitation_sep1034_defaults",
			"Asks with a default for every kind of field.",
			"defaults",
			form(
				`"name":{"type":"string","default":"John Doe"},
			"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
			"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
			"verified":{"type":"boolean","default":true}`,
				``,
			),
			said,
		),
		asks(
			"test_elicitation_sep1330_enums",
			"Asks with every way of giving a choice.",
			"enums",
			form(`"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
			"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},
				{"const":"value2","title":"Second Option"},
				{"const":"value3","title":"Third Option"}]},
			"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],
				"enumNames":["Option One","Option Two","Option Three"]},
			"untitledMulti":{"type":"array",
				"items":{"type":"string","enum":["option1","option2","option3"]}},
			"titledMulti":{"type":"array","items":{"anyOf":[
				{"const":"value1","title":"First Choice"},
				{"const":"value2","title":"Second Choice"},
				{"const":"value3","title":"Third Choice"}]}}`, ``),
			said,
		),
		asks("test_input_required_result_elicitation", "Asks for a name and greets.", "user_name",
			form(name, `"name"`),
			func(a sdk.Answer) string { return "Hello, " + field(a, "name") + "!" }),
		asks("test_input_required_result_request_state",
			"Asks for a confirmation that carries state.", "confirm",
			form(`"ok":{"type":"boolean"}`, `"ok"`), func(sdk.Answer) string { return "state-ok" }),
		asks("test_input_required_result_tampered_state",
			"Asks for a confirmation whose state must be whole.", "confirm",
			form(`"ok":{"type":"boolean"}`, `"ok"`), func(sdk.Answer) string { return "state-ok" }),
		sdk.NewTool(
			"test_input_required_result_multi_round",
			"Asks twice, one question after the other.",
			hints("ask"),
			func(c *sdk.Call, _ none) (string, error) {
				who, err := sdk.Ask(c, "step1", "Step 1: What is your name?",
					json.RawMessage(form(name, `"name"`)))
				if err != nil {
					return "", err
				}
				colour, err := sdk.Ask(c, "step2", "Step 2: What is your favorite color?",
					json.RawMessage(form(`"color":{"type":"string"}`, `"color"`)))
				if err != nil {
					return "", err
				}
				return field(who, "name") + " likes " + field(colour, "color"), nil
			},
		),
		sdk.NewResource(
			"test://static-text",
			"static-text",
			"A static text resource for testing.",
			"text/plain",
			hints(),
			func(c *sdk.Call) ([]sdk.ResourceContent, error) {
				return []sdk.ResourceContent{
					{
						URI:      c.URI,
						MIMEType: "text/plain",
						Text:     "This is the content of the static text resource.",
					},
				}, nil
			},
		),
		sdk.NewResource(
			"test://static-binary",
			"static-binary",
			"A static binary resource for testing.",
			"image/png",
			hints(),
			func(c *sdk.Call) ([]sdk.ResourceContent, error) {
				return []sdk.ResourceContent{{URI: c.URI, MIMEType: "image/png", Blob: png}}, nil
			},
		),
		sdk.NewResource(
			"test://watched-resource",
			"watched-resource",
			"A resource that clients may watch.",
			"text/plain",
			hints(),
			func(c *sdk.Call) ([]sdk.ResourceContent, error) {
				return []sdk.ResourceContent{
					{URI: c.URI, MIMEType: "text/plain", Text: "Watched resource content"},
				}, nil
			},
		),
		sdk.NewResourceTemplate(
			"test://template/{id}/data",
			"template",
			"A resource for every id.",
			"application/json",
			hints(),
			func(c *sdk.Call, in struct {
				ID string `json:"id" doc:"Which one"`
			}) ([]sdk.ResourceContent, error) {
				b, err := json.Marshal(map[string]any{
					"id":           in.ID,
					"templateTest": true,
					"data":         "Data for ID: " + in.ID,
				})
				return []sdk.ResourceContent{
					{URI: c.URI, MIMEType: "application/json", Text: string(b)},
				}, err
			},
		),
		says("test_simple_prompt", "A simple prompt without arguments.",
			sdk.Text("This is a simple prompt for testing.")),
		says("test_prompt_with_image", "A prompt that shows an image.", image,
			sdk.Text("Please analyze the image above.")),
		sdk.NewPrompt(
			"test_prompt_with_arguments",
			"A prompt with two required arguments.",
			hints(),
			func(_ *sdk.Call, in struct {
				Arg1 string `json:"arg1" doc:"First test argument"`
				Arg2 string `json:"arg2" doc:"Second test argument"`
			}) (string, []sdk.Message, error) {
				return "", user(
					sdk.Text(
						fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", in.Arg1,
							in.Arg2),
					),
				), nil
			},
		),
		sdk.NewPrompt(
			"test_prompt_with_embedded_resource",
			"A prompt that embeds the resource that is named.",
			hints(),
			func(_ *sdk.Call, in struct {
				ResourceURI string `json:"resourceUri" doc:"URI of the resource to embed"`
			}) (string, []sdk.Message, error) {
				return "", user(resource(in.ResourceURI, "Embedded resource content for testing."),
					sdk.Text("Please process the embedded resource above.")), nil
			},
		),
		sdk.NewPrompt(
			"test_input_required_result_prompt",
			"A prompt that asks for its context first.",
			hints("ask"),
			func(c *sdk.Call, _ none) (string, []sdk.Message, error) {
				a, err := sdk.Ask(c, "user_context", "What context should the prompt use?",
					json.RawMessage(form(`"context":{"type":"string"}`, `"context"`)))
				if err != nil {
					return "", nil, err
				}
				return "", user(sdk.Text("Context: " + field(a, "context"))), nil
			},
		),
	}
	sdk.Serve("conformance", "1.0.0", tools...)
}

func says(name, doc string, content ...sdk.Content) sdk.Tool {
	return sdk.NewPrompt(name, doc, hints(),
		func(*sdk.Call, none) (string, []sdk.Message, error) { return "", user(content...), nil })
}

func user(content ...sdk.Content) (list []sdk.Message) {
	for _, c := range content {
		list = append(list, sdk.Message{Role: "user", Content: c})
	}
	return list
}

func main() {}
