package front

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// maxNesting is the depth of structured output.
const maxNesting = 64

// output is what a guest wrote as the answer of a tool, a resource or a prompt.
type output struct {
	Content     []part          `json:"content"`
	Structured  json.RawMessage `json:"structured"`
	Error       *toolError      `json:"error"`
	Spent       int64           `json:"spent_usd_micros"`
	Contents    []embedded      `json:"contents"`
	Description string          `json:"description"`
	Messages    []struct {
		Role    string `json:"role"`
		Content part   `json:"content"`
	} `json:"messages"`

	content    []mcp.Content
	structured any
	chars      *budget
	sum        summary
}

// whole is all that there is to read, cleaned and not cut; "" of an output that could not be read.
func (out *output) whole() string {
	if out == nil {
		return ""
	}
	var all []string
	for _, p := range out.Content {
		switch {
		case p.Text != nil:
			all = append(all, clean(*p.Text))
		case p.Resource != nil && p.Resource.Text != nil:
			all = append(all, clean(*p.Resource.Text))
		}
	}
	if len(all) == 0 && len(out.Structured) > 0 {
		all = append(all, clean(string(out.Structured)))
	}
	return strings.Join(all, "\n")
}

// of checks that a guest answered as what it was asked for.
func (out *output) of(kind string) error {
	isTool := len(out.Content) > 0 || len(out.Structured) > 0
	isResource := len(out.Contents) > 0
	isPrompt := len(out.Messages) > 0 || out.Description != ""
	if isTool && kind != "tool" || isResource && kind != "resource" ||
		isPrompt && kind != "prompt" {
		return fmt.Errorf("it is not the output of a %s", kind)
	}
	return nil
}

// part is one piece of content as a guest writes it: MCP's form, without _meta.
type part struct {
	Type        string           `json:"type"`
	Text        *string          `json:"text"`
	Data        string           `json:"data"`
	MIMEType    string           `json:"mimeType"`
	URI         string           `json:"uri"`
	Name        string           `json:"name"`
	Title       string           `json:"title"`
	Description string           `json:"description"`
	Size        *int64           `json:"size"`
	Resource    *embedded        `json:"resource"`
	Annotations *mcp.Annotations `json:"annotations"`
}

type embedded struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType"`
	Text     *string `json:"text"`
	Blob     *string `json:"blob"`
}

// decode reads a guest's output strictly: what is not in the contract makes the whole output a
// broken promise. Numbers of structured output pass unchanged.
func (s *Server) decode(tool *gate.Tool, raw gate.Output, chars *budget) (*output, error) {
	bad := func(format string, args ...any) error {
		return &gate.PluginError{
			Code:    "plugin_protocol",
			Message: "the plugin's output: " + fmt.Errorf(format, args...).Error(),
		}
	}
	var out output
	if err := strictly(raw.JSON, s.opts.MaxOutput, &out); err != nil {
		return nil, bad("%w", err)
	}
	for i, p := range out.Content {
		c, err := p.convert(chars)
		if err != nil {
			return nil, bad("content[%d]: %w", i, err)
		}
		out.content = append(out.content, c)
	}
	switch {
	case raw.Code == 0 && out.Error != nil:
		return nil, bad("it holds an error but the tool said that it succeeded")
	case raw.Code != 0 && out.Error == nil:
		return nil, bad("the tool said that it failed, without an error")
	case out.Error == nil:
		if err := out.of(tool.Kind); err != nil {
			return nil, bad("%w", err)
		}
	default:
		e := out.Error
		if e.Code == "" || e.Message == "" {
			return nil, bad("error: code and message must not be empty")
		}
		e.Code, e.Message, e.Suggestion = (&budget{left: 64}).take(
			e.Code,
		), chars.take(
			e.Message,
		), chars.take(
			e.Suggestion,
		)
		// the SDK for plugins repeats the message there
		out.content = slices.DeleteFunc(out.content, func(c mcp.Content) bool {
			text, isText := c.(*mcp.TextContent)
			return isText && text.Text == e.Message
		})
		return &out, nil
	}
	if len(out.Structured) == 0 || string(out.Structured) == "null" {
		if tool.ValidateOutput != nil {
			return nil, bad("structured is missing, which the tool's output schema promises")
		}
		return &out, nil
	}
	if tool.ValidateOutput != nil {
		var v any
		if err := json.Unmarshal(out.Structured, &v); err != nil {
			return nil, bad("structured: %w", err)
		}
		if err := tool.ValidateOutput(v); err != nil {
			return nil, bad("structured does not fit the tool's output schema: %w", err)
		}
	}
	if err := out.structure(&budget{left: s.opts.MaxChars}, chars); err != nil {
		return nil, bad("structured: %w", err)
	}
	return &out, nil
}

// structure cleans structured output, and writes it as text too when the guest gave nothing else to
// read.
func (out *output) structure(own, chars *budget) error {
	d := json.NewDecoder(bytes.NewReader(out.Structured))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	v, err := cleanValue(v, own, 0)
	if err != nil {
		return err
	}
	out.structured = v
	if len(out.content) == 0 {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		out.content = []mcp.Content{&mcp.TextContent{Text: chars.take(string(text))}}
	}
	if own.cut > 0 && chars.cut == 0 {
		chars.cut, chars.total = own.cut, own.total
	}
	return nil
}

// cleanValue cleans every string, which together may not be longer than the budget; the value keeps
// its shape.
func cleanValue(v any, b *budget, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("nested deeper than %d", maxNesting)
	}
	var err error
	switch v := v.(type) {
	case string:
		return b.take(v), nil
	case []any:
		for i := range v {
			if v[i], err = cleanValue(v[i], b, depth+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			if m[clean(k)], err = cleanValue(e, b, depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return v, nil
}

// strictly decodes exactly one JSON value of valid UTF-8 and of known fields into dst.
func strictly(data []byte, most int, dst any) error {
	switch {
	case len(data) == 0:
		return errors.New("is empty")
	case len(data) > most:
		return fmt.Errorf("%d bytes are over the limit of %d", len(data), most)
	case !utf8.Valid(data):
		return errors.New("is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("has more after its first JSON value")
	}
	return nil
}

// convert checks a piece of content and makes it the SDK's.
func (p part) convert(chars *budget) (mcp.Content, error) {
	has := map[string]bool{
		"text":        p.Text != nil,
		"data":        p.Data != "",
		"mimeType":    p.MIMEType != "",
		"uri":         p.URI != "",
		"name":        p.Name != "",
		"title":       p.Title != "",
		"description": p.Description != "",
		"size":        p.Size != nil,
		"resource":    p.Resource != nil,
	}
	only := func(required, optional string) error {
		for _, f := range strings.Fields(required) {
			if !has[f] {
				return fmt.Errorf("%s needs %s", p.Type, f)
			}
		}
		for f, set := range has {
			if set && !strings.Contains(" "+required+" "+optional+" ", " "+f+" ") {
				return fmt.Errorf("%s has no %s", p.Type, f)
			}
		}
		return nil
	}
	if a := p.Annotations; a != nil {
		for _, who := range a.Audience {
			if who != "user" && who != "assistant" {
				return nil, fmt.Errorf(
					"annotations: audience %q is neither user nor assistant",
					who,
				)
			}
		}
		a.LastModified = clean(a.LastModified)
	}
	switch p.Type {
	case "text":
		if err := only("", "text"); err != nil {
			return nil, err
		}
		text := ""
		if p.Text != nil { // left out for an empty one
			text = chars.take(*p.Text)
		}
		return &mcp.TextContent{Text: text, Annotations: p.Annotations}, nil
	case "image", "audio":
		if err := errors.Join(only("data mimeType", ""), checkMIME(p.MIMEType, p.Type+"/")); err != nil {
			return nil, err
		}
		data, err := base64.StdEncoding.Strict().DecodeString(p.Data)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if p.Type == "image" {
			return &mcp.ImageContent{
				Data:        data,
				MIMEType:    p.MIMEType,
				Annotations: p.Annotations,
			}, nil
		}
		return &mcp.AudioContent{Data: data, MIMEType: p.MIMEType, Annotations: p.Annotations}, nil
	case "resource_link":
		if err := errors.Join(only("uri name", "title description mimeType size"), checkURI(p.URI), checkMIME(p.MIMEType, "")); err != nil {
			return nil, err
		}
		return &mcp.ResourceLink{
			URI:         p.URI,
			Name:        clean(p.Name),
			Title:       clean(p.Title),
			Description: chars.take(p.Description),
			MIMEType:    p.MIMEType,
			Size:        p.Size,
			Annotations: p.Annotations,
		}, nil
	case "resource":
		if err := only("resource", ""); err != nil {
			return nil, err
		}
		r, err := p.Resource.convert(chars)
		return &mcp.EmbeddedResource{Resource: r, Annotations: p.Annotations}, err
	}
	return nil, fmt.Errorf("type %q is none of text, image, audio, resource, resource_link", p.Type)
}

func (e *embedded) convert(chars *budget) (*mcp.ResourceContents, error) {
	if err := errors.Join(checkURI(e.URI), checkMIME(e.MIMEType, "")); err != nil {
		return nil, err
	}
	r := &mcp.ResourceContents{URI: e.URI, MIMEType: e.MIMEType}
	switch {
	case e.Text != nil && e.Blob != nil:
		return nil, errors.New("a resource has text or blob, not both")
	case e.Text != nil:
		r.Text = chars.take(*e.Text)
		return r, nil
	case e.Blob == nil: // left out for an empty one
		return r, nil
	}
	var err error
	if r.Blob, err = base64.StdEncoding.Strict().DecodeString(*e.Blob); err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	return r, nil
}

// checkURI wants an absolute URI of plain characters, and none that a client might run.
func checkURI(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || clean(s) != s || len(s) > 2048 {
		return fmt.Errorf(
			"uri %q is not an absolute URI of at most 2048 plain characters",
			clean(s[:min(len(s), 100)]),
		)
	}
	switch strings.ToLower(u.Scheme) {
	case "javascript", "vbscript", "data":
		return fmt.Errorf("uri: scheme %s is not allowed", u.Scheme)
	}
	return nil
}

func checkMIME(s, prefix string) error {
	if s == "" {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(s); err != nil || clean(s) != s ||
		!strings.HasPrefix(kind, prefix) ||
		!strings.Contains(kind, "/") {
		return fmt.Errorf(
			"mimeType %q is not a media type %s…",
			clean(s[:min(len(s), 100)]),
			prefix,
		)
	}
	return nil
}
