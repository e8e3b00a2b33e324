package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

const (
	maxOffered = 100 // values of a completion, as MCP has it
	maxAsked   = 200 // values of one completion that policy is asked about
)

// complete offers values for an argument of a prompt or of a resource's URI: the choices of its
// schema, or the nodes of the inventory. Values that policy would not let the caller name are not
// offered.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult,
	error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, err
	}
	res := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	ref, name, begin := req.Params.Ref, req.Params.Argument.Name, req.Params.Argument.Value
	if ref == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "ref is missing"}
	}
	k := offerKey{"prompt", ref.Name}
	if ref.Type == "ref/resource" {
		k = offerKey{"resource", ref.URI}
	}
	o := s.offered()[k]
	switch {
	case ref.URI == keptTemplate, o.Tool == nil && s.opts.Extend != nil:
		return res, nil
	case o.Tool == nil || !s.sees(ctx, who, o.Tool):
		return nil, missing(k.kind, k.key)
	}
	at := slices.IndexFunc(o.Params, func(p gate.Param) bool { return p.Name == name })
	if at < 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(
			"%s %q has no argument %q", k.kind, k.key, plaintext.Clean(name))}
	}
	p := o.Params[at]
	values := p.Enum
	if len(values) == 0 && p.Target == "node" {
		values = s.opts.Nodes
	}
	asked := 0
	for _, v := range values {
		if !strings.HasPrefix(v, begin) {
			continue
		}
		if asked++; asked > maxAsked || len(res.Completion.Values) == maxOffered {
			res.Completion.HasMore = true
			break
		}
		if s.couldName(ctx, who, o.Tool, name, v) {
			res.Completion.Values = append(res.Completion.Values, v)
		}
	}
	return res, nil
}

// couldName reports whether policy shows the tool to the caller when this argument has this value.
func (s *Server) couldName(ctx context.Context, who Caller, t *gate.Tool, name, value string) bool {
	if t.Texts == nil || t.Derive == nil {
		return false
	}
	on, _, err := t.Derive(t.Texts(map[string]string{name: value}))
	return err == nil && s.door.Visible(ctx, who.Principal, who.Source, t, on)
}
