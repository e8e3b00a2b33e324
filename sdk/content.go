package sdk

import "encoding/json"

// ResourceContent is one piece of a resource: Text, or Blob when it is not text.
type ResourceContent struct {
	URI      string `json:"uri"`
	MIMEType string `json:"mimeType,omitempty"`
	Text     string `json:"text,omitempty"`
	Blob     []byte `json:"blob,omitempty"`
}

// Message is one message of a prompt. Role is user or assistant.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

// NewResource makes a resource of a function.
func NewResource(uri, name, doc, mime string, h Hints, fn func(*Call) ([]ResourceContent, error)) Tool {
	d := newDescription(name, doc, h)
	d.URI, d.MIME = uri, mime
	return Tool{kind: "resource", name: name, desc: d, run: func(c *Call, _ json.RawMessage) (output, error) {
		contents, err := fn(c)
		return output{Content: []Content{}, Contents: contents}, err
	}}
}

// NewPrompt makes a prompt of a function; the fields of In must be text.
func NewPrompt[In any](name, doc string, h Hints, fn func(*Call, In) (string, []Message, error)) Tool {
	t := NewTool(name, doc, h, func(c *Call, in In) (Result, error) { return Result{}, nil })
	t.kind = "prompt"
	t.run = func(c *Call, args json.RawMessage) (output, error) {
		var in In
		if err := decode(args, &in); err != nil {
			return output{}, &inputError{err}
		}
		text, messages, err := fn(c, in)
		return output{Content: []Content{}, Description: text, Messages: messages}, err
	}
	return t
}
