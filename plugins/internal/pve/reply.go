package pve

import (
	"encoding/json"

	"github.com/caponier-mcp/caponier/sdk"
)

// Reply is embedded in a tool's result: its text for people, or the same JSON as the structured
// result when the caller asked for that.
type Reply struct{ text string }

// Text is what becomes the text content.
func (r Reply) Text() string { return r.text }

// Human makes the Reply of a tool that has no response_format.
func Human(text string) Reply { return Reply{text} }

// Say makes the Reply of result: human, or the result as JSON when format is json.
func Say(format string, result any, human string) Reply {
	if format == "json" {
		if b, err := json.Marshal(result); err == nil {
			return Reply{string(b)}
		}
	}
	return Reply{human}
}

// Tool gives a tool's result as text and as structure, without an output schema: those of all tools
// together would be most of what a client has to read before it can ask for anything.
func Tool[In any, Out interface{ Text() string }](
	fn func(*sdk.Call, In) (Out, error),
) func(*sdk.Call, In) (sdk.Result, error) {
	return func(c *sdk.Call, in In) (sdk.Result, error) {
		out, err := fn(c, in)
		if err != nil {
			return sdk.Result{}, err
		}
		return sdk.Result{Content: []sdk.Content{sdk.Text(out.Text())}, Structured: out}, nil
	}
}
