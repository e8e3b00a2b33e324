package pve

import (
	"encoding/json"

	"github.com/caponier-mcp/caponier/sdk"
)

// Reply is embedded in a tool's result. It holds the text for people, or the structured result as
// JSON if the caller asked for that.
type Reply struct{ text string }

// Text returns the text content.
func (r Reply) Text() string { return r.text }

// Human returns the Reply of a tool that has no response_format.
func Human(text string) Reply { return Reply{text} }

// Say returns the Reply of result: human, or the result as JSON if format is json.
func Say(format string, result any, human string) Reply {
	if format == "json" {
		if b, err := json.Marshal(result); err == nil {
			return Reply{string(b)}
		}
	}
	return Reply{human}
}

// Tool returns the result of fn as text and as structure, without an output schema. The output
// schemas of all tools together would be most of what a client has to read at its start.
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
