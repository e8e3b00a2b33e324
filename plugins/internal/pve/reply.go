package pve

import "encoding/json"

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
