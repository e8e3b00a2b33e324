package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// part is one piece of content as an instance writes it: MCP's form, without _meta.
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

// partFields are the fields of each type of content, the required ones first.
var partFields = map[string][2]string{
	"text":          {"", "text"},
	"image":         {"data mimeType", ""},
	"audio":         {"data mimeType", ""},
	"resource_link": {"uri name", "title description mimeType size"},
	"resource":      {"resource", ""},
}

// checkFields reports a field that the type of content needs and that is missing, or that it does
// not have.
func (p part) checkFields() error {
	fields, known := partFields[p.Type]
	if !known {
		return fmt.Errorf("type %q is none of text, image, audio, resource, resource_link", p.Type)
	}
	required, optional := strings.Fields(fields[0]), strings.Fields(fields[1])
	for f, set := range map[string]bool{"text": p.Text != nil, "data": p.Data != "",
		"mimeType": p.MIMEType != "", "uri": p.URI != "", "name": p.Name != "",
		"title": p.Title != "", "description": p.Description != "", "size": p.Size != nil,
		"resource": p.Resource != nil} {
		switch needs := slices.Contains(required, f); {
		case needs && !set:
			return fmt.Errorf("%s needs %s", p.Type, f)
		case set && !needs && !slices.Contains(optional, f):
			return fmt.Errorf("%s has no %s", p.Type, f)
		}
	}
	if p.Annotations != nil {
		for _, a := range p.Annotations.Audience {
			if a != "user" && a != "assistant" {
				return fmt.Errorf("annotations: audience %q is neither user nor assistant", a)
			}
		}
		p.Annotations.LastModified = plaintext.Clean(p.Annotations.LastModified)
	}
	return nil
}

// convert checks a piece of content and returns the SDK's form of it. Its texts become slots of t.
func (p part) convert(t *truncation) (mcp.Content, error) {
	if err := p.checkFields(); err != nil {
		return nil, err
	}
	switch p.Type {
	case "image", "audio":
		data, err := base64.StdEncoding.Strict().DecodeString(p.Data)
		if err = errors.Join(err, checkMIME(p.MIMEType, p.Type+"/")); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if p.Type == "audio" {
			return &mcp.AudioContent{Data: data, MIMEType: p.MIMEType,
				Annotations: p.Annotations}, nil
		}
		return &mcp.ImageContent{Data: data, MIMEType: p.MIMEType, Annotations: p.Annotations}, nil
	case "resource_link":
		c := &mcp.ResourceLink{URI: p.URI, Name: plaintext.Clean(p.Name),
			Title: plaintext.Clean(p.Title), MIMEType: p.MIMEType, Size: p.Size,
			Annotations: p.Annotations}
		t.add(p.Description, func(s string) { c.Description = s })
		return c, errors.Join(checkURI(p.URI), checkMIME(p.MIMEType, ""))
	case "resource":
		r, err := p.Resource.convert(t)
		return &mcp.EmbeddedResource{Resource: r, Annotations: p.Annotations}, err
	}
	c := &mcp.TextContent{Annotations: p.Annotations}
	if p.Text != nil { // omitted for an empty one
		t.add(*p.Text, func(s string) { c.Text = s })
	}
	return c, nil
}

func (e *embedded) convert(t *truncation) (*mcp.ResourceContents, error) {
	if err := errors.Join(checkURI(e.URI), checkMIME(e.MIMEType, "")); err != nil {
		return nil, err
	}
	r := &mcp.ResourceContents{URI: e.URI, MIMEType: e.MIMEType}
	switch {
	case e.Text != nil && e.Blob != nil:
		return nil, errors.New("a resource has text or blob, not both")
	case e.Text != nil:
		t.add(*e.Text, func(s string) { r.Text = s })
	case e.Blob != nil: // omitted for an empty one
		var err error
		if r.Blob, err = base64.StdEncoding.Strict().DecodeString(*e.Blob); err != nil {
			return nil, fmt.Errorf("blob: %w", err)
		}
	}
	return r, nil
}

// checkURI wants an absolute URI of plain characters, and none that a client might execute.
func checkURI(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || plaintext.Clean(s) != s || len(s) > 2048 {
		return fmt.Errorf("uri %q is not an absolute URI of at most 2048 plain characters",
			cut(s, 100))
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
	if kind, _, err := mime.ParseMediaType(s); err != nil || plaintext.Clean(s) != s ||
		!strings.HasPrefix(kind, prefix) || !strings.Contains(kind, "/") {
		return fmt.Errorf("mimeType %q is not a media type %s…", cut(s, 100), prefix)
	}
	return nil
}
