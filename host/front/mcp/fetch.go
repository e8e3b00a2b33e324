package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
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
	f, err := s.fetch(ctx, req, tool, uri, args, rounds{req.Params.RequestState,
		req.Params.InputResponses, req.ClientCapabilities(), req.ProtocolVersion()})
	if err != nil {
		return nil, err
	}
	res := &mcp.ReadResourceResult{InputRequests: f.asks, RequestState: f.state,
		Meta: mcp.Meta{metaCall: f.sum}}
	if f.asks != nil {
		return res, nil
	}
	t := &truncation{}
	res.Contents = []*mcp.ResourceContents{}
	for i, c := range f.out.Contents {
		r, err := c.convert(t)
		if err != nil {
			return nil, s.broken(tool, f.sum, fmt.Errorf("contents[%d]: %w", i, err))
		}
		res.Contents = append(res.Contents, r)
	}
	if t.fit(s.opts.MaxChars) {
		f.sum.Truncated = true
		res.Meta[metaCall] = f.sum
	}
	return res, nil
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
	f, err := s.fetch(ctx, req, tool, name, args, rounds{req.Params.RequestState,
		req.Params.InputResponses, req.ClientCapabilities(), req.ProtocolVersion()})
	if err != nil {
		return nil, err
	}
	res := &mcp.GetPromptResult{InputRequests: f.asks, RequestState: f.state,
		Meta: mcp.Meta{metaCall: f.sum}}
	if f.asks != nil {
		return res, nil
	}
	t := &truncation{}
	t.add(f.out.Description, func(text string) { res.Description = text })
	for i, m := range f.out.Messages {
		c, err := m.Content.convert(t)
		if err == nil && m.Role != "user" && m.Role != "assistant" {
			err = fmt.Errorf("role %q is neither user nor assistant", plaintext.Clean(m.Role))
		}
		if err != nil {
			return nil, s.broken(tool, f.sum, fmt.Errorf("messages[%d]: %w", i, err))
		}
		res.Messages = append(res.Messages, &mcp.PromptMessage{Role: mcp.Role(m.Role), Content: c})
	}
	t.fit(s.opts.MaxChars)
	return res, nil
}

// fetched is the answer of a resource or prompt, or the questions to be answered first.
type fetched struct {
	out   *output
	sum   summary
	asks  mcp.InputRequestMap
	state string
}

// fetch calls a resource or prompt. Their results cannot say that they failed, so that every
// failure is a protocol error with the summary as data.
func (s *Server) fetch(ctx context.Context, req mcp.Request, tool *gate.Tool, key string,
	args []byte, rs rounds) (f fetched, err error) {
	r, err := s.request(req, tool, key, args, rs)
	if err != nil {
		return f, err
	}
	a, err := s.run(ctx, r)
	if err != nil {
		return f, err
	}
	res := s.result(r, a)
	f.out, f.sum = res.out, res.sum
	f.asks, f.state, err = s.questions(r.asking, a, res.out != nil)
	if err != nil || f.asks != nil {
		return f, err
	}
	if res.hidden {
		return f, missing(tool.Kind, key)
	}
	if res.IsError {
		return f, failure(f.sum)
	}
	return f, nil
}

func (s *Server) broken(tool *gate.Tool, sum summary, err error) error {
	s.explain(tool, badOutput(err), nil, &sum)
	return failure(sum)
}
