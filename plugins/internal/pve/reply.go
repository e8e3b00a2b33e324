package pve

import "encoding/json"

// Reply is embedded in a tool's result: its text for people, or the same JSON as the structured result when the caller asked for that.
type Reply struct{ text string }

// Text is what the sdk takes as the text content.
func (r Reply) Text() string { return r.text }

// Say makes the Reply of result: human, or the result as JSON when format is json.
func Say(format string, result any, human string) Reply {
	if format == "json" {
		if b, err := json.Marshal(result); err == nil {
			return Reply{string(b)}
		}
	}
	return Reply{human}
}
