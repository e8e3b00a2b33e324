package sdk

import (
	"encoding/json"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
)

// Content is one piece of a result, as in MCP: Type is text, image, audio, resource or
// resource_link.
type Content struct {
	Type        string          `json:"type"`
	Text        string          `json:"text,omitempty"`
	Data        []byte          `json:"data,omitempty"`
	MIMEType    string          `json:"mimeType,omitempty"`
	URI         string          `json:"uri,omitempty"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Resource    json.RawMessage `json:"resource,omitempty"`
}

// Text is text content.
func Text(s string) Content { return Content{Type: "text", Text: s} }

// Result is an Out with full control of the content. Structured must encode as a JSON object, or be
// nil.
type Result struct {
	Content        []Content
	Structured     any
	SpentUSDMicros int64 // what this call cost, in millionths of a dollar
}

type output struct {
	Content        []Content  `json:"content"`
	Structured     any        `json:"structured,omitempty"`
	Error          *abi.Error `json:"error,omitempty"`
	SpentUSDMicros int64      `json:"spent_usd_micros,omitempty"`

	Contents    []ResourceContent `json:"contents,omitempty"`
	Description string            `json:"description,omitempty"`
	Messages    []Message         `json:"messages,omitempty"`
}

type encoded []byte // valid JSON that this package wrote

// encode writes the output. What is structured content already, as JSON, is not encoded again.
func (o output) encode() ([]byte, error) {
	if _, done := o.Structured.(encoded); o.Structured != nil && !done {
		b, err := json.Marshal(o.Structured)
		if err != nil {
			return nil, err
		}
		o.Structured = encoded(b)
	}
	return codec.Encode(o)
}

// WriteJSON writes what the tags of output say. Structured is [encoded], or nil.
func (o output) WriteJSON(w *codec.Writer) {
	w.Open('{')
	w.Key("content")
	if o.Content == nil {
		w.Null()
	} else {
		list(w, o.Content)
	}
	if structured, there := o.Structured.(encoded); there {
		w.Key("structured")
		w.Raw(structured)
	}
	if e := o.Error; e != nil {
		w.Key("error")
		w.Open('{')
		w.Key("code")
		w.Text(e.Code)
		w.Key("message")
		w.Text(e.Message)
		text(w, "suggestion", e.Suggestion)
		w.Close('}')
	}
	if o.SpentUSDMicros != 0 {
		w.Key("spent_usd_micros")
		w.Int(o.SpentUSDMicros)
	}
	if len(o.Contents) > 0 {
		w.Key("contents")
		list(w, o.Contents)
	}
	text(w, "description", o.Description)
	if len(o.Messages) > 0 {
		w.Key("messages")
		list(w, o.Messages)
	}
	w.Close('}')
}

func (c Content) WriteJSON(w *codec.Writer) {
	w.Open('{')
	w.Key("type")
	w.Text(c.Type)
	text(w, "text", c.Text)
	blob(w, "data", c.Data)
	text(w, "mimeType", c.MIMEType)
	text(w, "uri", c.URI)
	text(w, "name", c.Name)
	text(w, "description", c.Description)
	if len(c.Resource) > 0 {
		w.Key("resource")
		w.Checked(c.Resource)
	}
	w.Close('}')
}

func (c ResourceContent) WriteJSON(w *codec.Writer) {
	w.Open('{')
	w.Key("uri")
	w.Text(c.URI)
	text(w, "mimeType", c.MIMEType)
	text(w, "text", c.Text)
	blob(w, "blob", c.Blob)
	w.Close('}')
}

func (m Message) WriteJSON(w *codec.Writer) {
	w.Open('{')
	w.Key("role")
	w.Text(m.Role)
	w.Key("content")
	m.Content.WriteJSON(w)
	w.Close('}')
}

func list[T codec.Value](w *codec.Writer, all []T) {
	w.Open('[')
	for _, v := range all {
		w.Elem()
		v.WriteJSON(w)
	}
	w.Close(']')
}

// text writes a member that is absent when it is empty; blob too.
func text(w *codec.Writer, key, s string) {
	if s != "" {
		w.Key(key)
		w.Text(s)
	}
}

func blob(w *codec.Writer, key string, b []byte) {
	if len(b) > 0 {
		w.Key(key)
		w.Base64(b)
	}
}

// question is an [abi.Ask] whose schema is JSON already.
type question struct {
	key, message string
	schema       []byte
}

func (q question) WriteJSON(w *codec.Writer) {
	w.Open('{')
	w.Key("key")
	w.Text(q.key)
	w.Key("message")
	w.Text(q.message)
	w.Key("schema")
	w.Raw(q.schema)
	w.Close('}')
}
