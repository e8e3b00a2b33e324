package front

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// offers are the tools, resources and prompts that are offered, by kind and what clients call them
// by.
type offers map[offerKey]offered

type offerKey struct{ kind, key string }

// offered is one of them with the description that clients were given, which tells whether a new
// one differs.
type offered struct {
	*gate.Tool
	face any // *mcp.Tool, *mcp.Resource, *mcp.ResourceTemplate or *mcp.Prompt
	wire []byte
	args map[string]argument
}

func keyOf(t *gate.Tool) offerKey {
	if t.Kind == "resource" {
		return offerKey{t.Kind, t.URI}
	}
	return offerKey{t.Kind, t.Name}
}

// find gives the tool, resource or prompt as it is now, or nil.
func (s *Server) find(kind, key string) *gate.Tool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.offer[offerKey{kind, key}].Tool
}

// resource gives the resource that a URI names. Of those with arguments exactly one must be meant.
func (s *Server) resource(uri string) (t *gate.Tool, args map[string]any) {
	if t = s.find("resource", uri); t != nil && t.Match == nil {
		return t, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	t = nil
	for k, o := range s.offer {
		if k.kind != "resource" || o.Match == nil {
			continue
		}
		texts, meant := o.Match(uri)
		if !meant {
			continue
		}
		if t != nil {
			s.log.Error(
				"a URI means more than one resource, so it is served as none",
				"uri",
				clean(uri),
				"plugin",
				t.Plugin.Name,
				"other",
				o.Plugin.Name,
			)
			return nil, nil
		}
		t, args = o.Tool, o.Texts(texts)
	}
	return t, args
}

// SetTools offers these tools, resources and prompts and no others. Clients hear of it only when
// something that they can see changed. On an error nothing has changed.
func (s *Server) SetTools(tools []*gate.Tool) error {
	next := offers{}
	scratch := mcp.NewServer(
		&mcp.Implementation{Name: "scratch"},
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)},
	)
	for _, t := range tools {
		what := fmt.Sprintf("%s %s of plugin %s", t.Kind, t.Name, t.Plugin.Name)
		face, err := describe(t)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		k := keyOf(t)
		if first := next[k].Tool; first != nil {
			return fmt.Errorf(
				"%s: plugins %s and %s both have it; take one of them out of plugins.lock",
				what,
				first.Plugin.Name,
				t.Plugin.Name,
			)
		}
		if err := try(func() { s.add(scratch, face) }); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		wire, err := json.Marshal(face)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		next[k] = offered{t, face, wire, argumentsOf(t.InputSchema)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.offer {
		if next[k].Tool == nil {
			switch k.kind {
			case "tool":
				s.mcp.RemoveTools(k.key)
			case "resource":
				s.mcp.RemoveResources(k.key)
				s.mcp.RemoveResourceTemplates(k.key)
			case "prompt":
				s.mcp.RemovePrompts(k.key)
			}
		}
	}
	for k, o := range next {
		if !bytes.Equal(s.offer[k].wire, o.wire) {
			s.add(s.mcp, o.face)
		}
	}
	s.offer, s.guestNames = next, guestNames(next)
	return nil
}

// Changed tells clients that their lists may differ now although nothing else is offered, as after
// a change of policy.
func (s *Server) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := map[string]bool{}
	for k, o := range s.offer {
		if !told[k.kind] { // offering one again as it is makes the SDK tell
			s.add(s.mcp, o.face)
			told[k.kind] = true
		}
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

// try finds out what the SDK panics about.
func try(add func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	add()
	return nil
}

// describe gives a description without annotations, which depend on who asks.
func describe(t *gate.Tool) (any, error) {
	if n := len(t.Name); n == 0 || n > 128 ||
		strings.Trim(
			t.Name,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.",
		) != "" {
		return nil, errors.New("the name must be 1 to 128 of A-Z a-z 0-9 . _ -")
	}
	title, text := clean(t.Title), clean(t.Description)
	switch t.Kind {
	case "tool":
		d := &mcp.Tool{Name: t.Name, Title: title, Description: text}
		if len(t.InputSchema) > 0 {
			d.InputSchema = public(t.InputSchema)
		}
		if len(t.OutputSchema) > 0 {
			d.OutputSchema = public(t.OutputSchema)
		}
		return d, nil
	case "resource":
		if strings.HasPrefix(t.URI, "caponier:") {
			return nil, fmt.Errorf("uri %q: this scheme is the host's own", t.URI)
		}
		if t.Match != nil {
			return &mcp.ResourceTemplate{
				URITemplate: t.URI,
				Name:        t.Name,
				Title:       title,
				Description: text,
				MIMEType:    t.MIME,
			}, nil
		}
		return &mcp.Resource{
				URI:         t.URI,
				Name:        t.Name,
				Title:       title,
				Description: text,
				MIMEType:    t.MIME,
			}, errors.Join(
				checkURI(t.URI),
				checkMIME(t.MIME, ""),
			)
	case "prompt":
		args, err := promptArguments(t.InputSchema)
		return &mcp.Prompt{Name: t.Name, Title: title, Description: text, Arguments: args}, err
	}
	return nil, fmt.Errorf("kind %q is none of tool, resource, prompt", t.Kind)
}

// promptArguments lists what a prompt's schema asks for: MCP gives prompts no schema.
func promptArguments(schema json.RawMessage) ([]*mcp.PromptArgument, error) {
	var s struct {
		Properties map[string]struct {
			Title       string `json:"title"`
			Description string `json:"description"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if len(schema) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("input schema: %w", err)
	}
	var args []*mcp.PromptArgument
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		args = append(
			args,
			&mcp.PromptArgument{
				Name:        name,
				Title:       clean(p.Title),
				Description: clean(p.Description),
				Required:    slices.Contains(s.Required, name),
			},
		)
	}
	slices.SortStableFunc(args, func(a, b *mcp.PromptArgument) int { // the required ones first
		return cmp.Compare(boolInt(b.Required), boolInt(a.Required))
	})
	return args, nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// read is the handler of every resource, prompt that of every prompt. Both go through the door like
// a tool.
func (s *Server) read(
	ctx context.Context,
	req *mcp.ReadResourceRequest,
) (*mcp.ReadResourceResult, error) {
	tool, given := s.resource(req.Params.URI)
	if tool == nil { // taken away since the SDK looked, or no argument could be written so
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	var args []byte
	if tool.Match != nil {
		var err error
		if args, err = json.Marshal(given); err != nil {
			return nil, fmt.Errorf("arguments of resource %s: %w", tool.Name, err)
		}
	}
	out, asks, state, err := s.fetch(
		ctx,
		req,
		tool,
		args,
		rounds{
			req.Params.RequestState,
			req.Params.InputResponses,
			req.ClientCapabilities(),
			req.ProtocolVersion(),
		},
	)
	if err != nil {
		return nil, err
	}
	if asks != nil {
		return &mcp.ReadResourceResult{
			InputRequests: asks,
			RequestState:  state,
			Meta:          mcp.Meta{metaCall: out.sum},
		}, nil
	}
	res := &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{}}
	for i, c := range out.Contents {
		r, err := c.convert(out.chars)
		if err != nil {
			return nil, s.broken(tool, out, fmt.Errorf("contents[%d]: %w", i, err))
		}
		res.Contents = append(res.Contents, r)
	}
	if note := out.chars.notice(); note != "" {
		res.Contents = append(
			res.Contents,
			&mcp.ResourceContents{URI: req.Params.URI, MIMEType: "text/plain", Text: note},
		)
	}
	res.Meta = mcp.Meta{metaCall: out.sum}
	return res, nil
}

func (s *Server) prompt(
	ctx context.Context,
	req *mcp.GetPromptRequest,
) (*mcp.GetPromptResult, error) {
	tool := s.find("prompt", req.Params.Name)
	if tool == nil {
		return nil, unknown("prompt", req.Params.Name)
	}
	var given any = req.Params.Arguments
	if tool.Texts != nil {
		given = tool.Texts(req.Params.Arguments)
	}
	args, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("arguments of prompt %s: %w", tool.Name, err)
	}
	if req.Params.Arguments == nil {
		args = nil
	}
	out, asks, state, err := s.fetch(
		ctx,
		req,
		tool,
		args,
		rounds{
			req.Params.RequestState,
			req.Params.InputResponses,
			req.ClientCapabilities(),
			req.ProtocolVersion(),
		},
	)
	if err != nil {
		return nil, err
	}
	if asks != nil {
		return &mcp.GetPromptResult{
			InputRequests: asks,
			RequestState:  state,
			Meta:          mcp.Meta{metaCall: out.sum},
		}, nil
	}
	res := &mcp.GetPromptResult{Description: out.chars.take(out.Description)}
	for i, m := range out.Messages {
		c, err := m.Content.convert(out.chars)
		if err == nil && m.Role != "user" && m.Role != "assistant" {
			err = fmt.Errorf("role %q is neither user nor assistant", clean(m.Role))
		}
		if err != nil {
			return nil, s.broken(tool, out, fmt.Errorf("messages[%d]: %w", i, err))
		}
		res.Messages = append(res.Messages, &mcp.PromptMessage{Role: mcp.Role(m.Role), Content: c})
	}
	res.Meta = mcp.Meta{metaCall: out.sum}
	return res, nil
}

// fetch calls a resource or prompt. These have no result that says that they failed, so every
// failure is a protocol error with the summary as data.
func (s *Server) fetch(
	ctx context.Context,
	req mcp.Request,
	tool *gate.Tool,
	args []byte,
	r rounds,
) (*output, mcp.InputRequestMap, string, error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, nil, "", err
	}
	asking, err := s.asking(who, tool, args, r)
	if err != nil {
		return nil, nil, "", err
	}
	a, stopped, err := s.through(ctx, who, tool, args, asking, nil)
	if err != nil {
		return nil, nil, "", err
	}
	res, out, sum := s.result(who, tool, a, stopped)
	if asks, state, err := s.confirmation(asking, a.Err); err != nil || asks != nil {
		return &output{sum: sum}, asks, state, err
	}
	if out != nil {
		s.came(who, a, args, nil)
		if asks, state, err := s.questions(asking, a.Output.Code); err != nil || asks != nil {
			return out, asks, state, err
		}
	}
	if res.IsError {
		return nil, nil, "", failure(sum)
	}
	return out, nil, "", nil
}

func (s *Server) broken(tool *gate.Tool, out *output, err error) error {
	s.explain(
		tool,
		&gate.PluginError{Code: "plugin_protocol", Message: "the plugin's output: " + err.Error()},
		nil,
		&out.sum,
	)
	return failure(out.sum)
}
