package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// read is the handler of every resource and prompt that of every prompt. Both go through the door
// like a tool.
func (s *Server) read(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult,
	error) {
	uri := req.Params.URI
	tool, given := s.resource(uri)
	if tool == nil { // removed since the SDK looked, or no argument could be written so
		return nil, missing("resource", uri)
	}
	var args []byte
	if tool.Match != nil {
		var err error
		if args, err = json.Marshal(given); err != nil {
			return nil, fmt.Errorf("arguments of resource %s: %w", tool.Name, err)
		}
	}
	res, err := s.fetch(ctx, req, tool, uri, args, req.Params.RequestState,
		req.Params.InputResponses)
	if err != nil {
		return nil, err
	}
	out := &mcp.ReadResourceResult{InputRequests: res.asks, RequestState: res.state,
		Meta: res.Meta}
	if res.asks != nil {
		return out, nil
	}
	t := &truncation{}
	out.Contents = []*mcp.ResourceContents{}
	for i, c := range res.out.Contents {
		r, err := c.convert(t)
		if err != nil {
			return nil, s.broken(tool, res.sum, fmt.Errorf("contents[%d]: %w", i, err))
		}
		out.Contents = append(out.Contents, r)
	}
	if t.fit(s.opts.MaxChars) {
		res.sum.Truncated = true
		out.Meta[metaCall] = res.sum
	}
	return out, nil
}

func (s *Server) prompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult,
	error) {
	name := req.Params.Name
	tool := s.find("prompt", name)
	if tool == nil {
		return nil, missing("prompt", name)
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
	res, err := s.fetch(ctx, req, tool, name, args, req.Params.RequestState,
		req.Params.InputResponses)
	if err != nil {
		return nil, err
	}
	out := &mcp.GetPromptResult{InputRequests: res.asks, RequestState: res.state, Meta: res.Meta}
	if res.asks != nil {
		return out, nil
	}
	t := &truncation{}
	t.add(res.out.Description, func(text string) { out.Description = text })
	for i, m := range res.out.Messages {
		c, err := m.Content.convert(t)
		if err == nil && m.Role != "user" && m.Role != "assistant" {
			err = fmt.Errorf("role %q is neither user nor assistant", plaintext.Clean(m.Role))
		}
		if err != nil {
			return nil, s.broken(tool, res.sum, fmt.Errorf("messages[%d]: %w", i, err))
		}
		out.Messages = append(out.Messages, &mcp.PromptMessage{Role: mcp.Role(m.Role), Content: c})
	}
	t.fit(s.opts.MaxChars)
	return out, nil
}

// fetch calls a resource or prompt. Their results cannot say that they failed, so that every
// failure is a protocol error with the summary as data.
func (s *Server) fetch(ctx context.Context, req incoming, tool *terms.Tool, key string,
	args []byte, state string, responses mcp.InputResponseMap) (*result, error) {
	r, err := s.request(ctx, req, tool, key, args, state, responses)
	if err != nil {
		return nil, err
	}
	res, err := s.do(ctx, r)
	if err == nil && res.asks == nil && res.IsError {
		return nil, failure(res.sum)
	}
	return res, err
}

func (s *Server) broken(tool *terms.Tool, sum summary, err error) error {
	s.explain(tool, badOutput(err), nil, &sum)
	return failure(sum)
}
