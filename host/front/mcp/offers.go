package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SetTools offers these tools, resources and prompts and no others. Clients are notified only of
// changes that they can see; the first tools are none. On an error nothing has changed.
func (s *Server) SetTools(tools []*terms.Tool) error {
	next := offers{}
	scratch := mcp.NewServer(&mcp.Implementation{Name: "scratch"},
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	for _, t := range tools {
		o, err := s.describe(t, scratch)
		if err != nil {
			return fmt.Errorf("%s %s of plugin %s: %w", t.Kind, t.Name, t.Plugin.Name, err)
		}
		k := keyOf(t)
		if first := next[k].Tool; first != nil {
			return fmt.Errorf("%s %s of plugin %s: plugin %s has it too; remove one of them from "+
				"plugins.lock", t.Kind, t.Name, t.Plugin.Name, first.Plugin.Name)
		}
		next[k] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first.Store(s.offer == nil)
	for k := range s.offer {
		if next[k].Tool == nil {
			switch k.kind {
			case "tool":
				s.sdk.RemoveTools(k.key)
			case "resource":
				s.sdk.RemoveResources(k.key)
				s.sdk.RemoveResourceTemplates(k.key)
			case "prompt":
				s.sdk.RemovePrompts(k.key)
			}
		}
	}
	for k, o := range next {
		if !bytes.Equal(s.offer[k].wire, o.wire) {
			s.add(s.sdk, o.face)
		}
	}
	s.offer = next
	return nil
}

// Changed notifies clients that their lists may differ although the offers are the same, as after a
// change of policy.
func (s *Server) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first.Store(false)
	told := map[string]bool{}
	for k, o := range s.offer {
		if !told[k.kind] { // adding one again as it is makes the SDK notify
			s.add(s.sdk, o.face)
			told[k.kind] = true
		}
	}
}

// tellChanges leaves out what the SDK would say of the first tools. An extension changes lists too.
func (s *Server) tellChanges(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if strings.HasSuffix(method, "/list_changed") && s.first.Load() && s.opts.Extend == nil {
			return nil, nil
		}
		return next(ctx, method, req)
	}
}

func (s *Server) add(to *mcp.Server, face any) {
	switch f := face.(type) {
	case *mcp.Tool:
		to.AddTool(f, s.call)
	case *mcp.Resource:
		to.AddResource(f, s.read)
	case *mcp.ResourceTemplate:
		to.AddResourceTemplate(f, s.read)
	case *mcp.Prompt:
		to.AddPrompt(f, s.prompt)
	}
}

// describe returns a tool with its description, which it adds to scratch first: the SDK panics on
// what it does not accept.
func (s *Server) describe(t *terms.Tool, scratch *mcp.Server) (o offered, err error) {
	o.Tool, o.unconfirmed = t, without(t.InputSchema, t.Confirm)
	if o.face, err = face(t, s.opts.OutputSchemas); err != nil {
		return o, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	s.add(scratch, o.face)
	o.wire, err = json.Marshal(o.face)
	return o, err
}

// face returns a description without annotations, which depend on the caller. typed adds the output
// schema.
func face(t *terms.Tool, typed bool) (any, error) {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	if n := len(t.Name); n == 0 || n > 128 || strings.Trim(t.Name, chars) != "" {
		return nil, errors.New("the name must be 1 to 128 of A-Z a-z 0-9 . _ -")
	}
	title, text := plaintext.Clean(t.Title), plaintext.Clean(t.Description)
	switch t.Kind {
	case "tool":
		d := &mcp.Tool{Name: t.Name, Title: title, Description: text}
		if len(t.InputSchema) > 0 {
			d.InputSchema = public(t.InputSchema)
		}
		if typed && len(t.OutputSchema) > 0 {
			d.OutputSchema = public(t.OutputSchema)
		}
		return d, nil
	case "resource":
		if strings.HasPrefix(t.URI, "caponier:") {
			return nil, fmt.Errorf("uri %q: this scheme is the host's own", t.URI)
		}
		if t.Match != nil {
			return &mcp.ResourceTemplate{URITemplate: t.URI, Name: t.Name, Title: title,
				Description: text, MIMEType: t.MIME}, nil
		}
		return &mcp.Resource{URI: t.URI, Name: t.Name, Title: title, Description: text,
			MIMEType: t.MIME}, errors.Join(checkURI(t.URI), checkMIME(t.MIME, ""))
	case "prompt":
		return &mcp.Prompt{Name: t.Name, Title: title, Description: text,
			Arguments: promptArguments(t.Params)}, nil
	}
	return nil, fmt.Errorf("kind %q is none of tool, resource, prompt", t.Kind)
}

// promptArguments lists what a prompt takes, the required ones first: MCP gives prompts no schema.
func promptArguments(params []terms.Param) []*mcp.PromptArgument {
	var args []*mcp.PromptArgument
	for _, p := range params {
		args = append(args, &mcp.PromptArgument{Name: p.Name, Title: plaintext.Clean(p.Title),
			Description: plaintext.Clean(p.Description), Required: p.Required})
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(args, func(a, b *mcp.PromptArgument) int {
		return cmp.Compare(rank[a.Required], rank[b.Required])
	})
	return args
}
