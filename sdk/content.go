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
func NewResource(uri, name, doc, mime string, h Hints,
	fn func(*Call) ([]ResourceContent, error)) Tool {
	d := newDescription(name, doc, h)
	d.URI, d.MIME = uri, mime
	return Tool{
		kind: "resource",
		name: name,
		desc: d,
		run: func(c *Call, _ json.RawMessage) (output, error) {
			contents, err := fn(c)
			return output{Content: []Content{}, Contents: contents}, err
		},
	}
}

// NewResourceTemplate makes a resource whose URI has arguments, such as docs://{section}/{page}. In
// is a struct with a field for each of them, text or whole numbers, with the tags of [NewTool];
// none is optional. What a client may write for one is letters, digits and . _ ~ - alone.
func NewResourceTemplate[In any](uri, name, doc, mime string, h Hints,
	fn func(*Call, In) ([]ResourceContent, error)) Tool {
	t := NewTool(name, doc, h, func(*Call, In) (Result, error) { return Result{}, nil })
	t.kind, t.desc.URI, t.desc.MIME = "resource", uri, mime
	t.run = func(c *Call, args json.RawMessage) (output, error) {
		var in In
		if err := decode(args, &in); err != nil {
			return output{}, &inputError{err}
		}
		contents, err := fn(c, in)
		return output{Content: []Content{}, Contents: contents}, err
	}
	return t
}

// NewPrompt makes a prompt of a function; the fields of In must be text or whole numbers.
func NewPrompt[In any](name, doc string, h Hints,
	fn func(*Call, In) (string, []Message, error)) Tool {
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
