// Package mcp connects the Model Context Protocol to the gate. Tools, resources and prompts become
// calls; what a call asks goes to the client's user.
package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Door is what the server needs of the gate. Its methods must be safe for concurrent use.
type Door interface {
	Call(context.Context, terms.Request) terms.Answer
	Visible(ctx context.Context, p terms.Principal, source string, t *terms.Tool,
		on terms.Targets) bool
}

var _ Door = (*gate.Door)(nil)

// Server answers MCP requests through a Door. It is safe for concurrent use.
type Server struct {
	opts Options
	door Door
	log  *slog.Logger
	sdk  *mcp.Server

	root context.Context // ends when the host stops; every call ends then
	stop context.CancelCauseFunc

	calls    *fair.Shares
	others   *fair.Shares // requests and notifications that are no calls
	elicited *fair.Shares // questions to users of older clients, by session
	rounds   rounds

	mu    sync.RWMutex // guards offer
	offer offers       // replaced as a whole, never changed; nil until the tools are set
	first atomic.Bool  // the tools were set once: nobody can have read other lists
}

// SDK returns the SDK's server, for transports.
func (s *Server) SDK() *mcp.Server { return s.sdk }

// Options returns the options with their defaults.
func (s *Server) Options() Options { return s.opts }

// Stop cancels all calls, for good.
func (s *Server) Stop() { s.stop(errStopping) }

// Stopped reports whether Stop was called.
func (s *Server) Stopped() bool { return s.root.Err() != nil }

// IgnoreBrokenPipe makes writes to a reader that has gone fail instead of ending the process in
// the middle of a call.
func IgnoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// Caller is the sender of one request. The transport sets it, never the client.
type Caller struct {
	terms.Principal
	Source string          // stdio | http
	Gone   context.Context // ends when an answer can no longer reach the client
	// reports whether the caller would still be admitted; nil means always
	Current func(context.Context) error
	// called once the request is decoded, before anything is done; nil for nothing
	Begins func()
}

const callerKey = "caponier.caller"

// owner names the caller wherever something is kept for it alone.
func (c Caller) owner() string { return c.Auth + ":" + c.ID }

// TokenInfo carries the caller in the form that the SDK hands to every handler. The UserID ties a
// session to its user.
func (c Caller) TokenInfo() *auth.TokenInfo {
	return &auth.TokenInfo{UserID: c.owner(), Extra: map[string]any{callerKey: c}}
}

// callerOf returns the caller that the transport set. Without one the request fails: an unknown
// caller must not do anything.
func callerOf(req mcp.Request) (Caller, error) {
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		if c, ok := extra.TokenInfo.Extra[callerKey].(Caller); ok && c.ID != "" {
			return c, nil
		}
	}
	return Caller{}, &jsonrpc.Error{Code: codeNobody, Message: "the host does not know the caller"}
}

// offers are the tools, resources and prompts of the server, by kind and by what clients call them.
type offers map[offerKey]offered

type offerKey struct{ kind, key string }

// offered is one of them with its description for clients. Wire is that as JSON, which tells
// whether a new one differs.
type offered struct {
	*terms.Tool
	face any // *mcp.Tool, *mcp.Resource, *mcp.ResourceTemplate or *mcp.Prompt
	wire []byte
	// the input schema without an optional confirmation argument; nil where there is none
	unconfirmed json.RawMessage
}

func keyOf(t *terms.Tool) offerKey {
	if t.Kind == "resource" {
		return offerKey{t.Kind, t.URI}
	}
	return offerKey{t.Kind, t.Name}
}

func (s *Server) offered() offers {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.offer
}

// find returns the tool, resource or prompt as it is now, or nil.
func (s *Server) find(kind, key string) *terms.Tool { return s.offered()[offerKey{kind, key}].Tool }

// resource returns the resource that a URI names. A URI that matches several templates names none.
func (s *Server) resource(uri string) (t *terms.Tool, args map[string]any) {
	if t = s.find("resource", uri); t != nil && t.Match == nil {
		return t, nil
	}
	t = nil
	for k, o := range s.offered() {
		if k.kind != "resource" || o.Match == nil {
			continue
		}
		texts, matches := o.Match(uri)
		if !matches {
			continue
		}
		if t != nil {
			s.log.Error("a URI matches more than one resource, so that none is served", "uri",
				plaintext.Clean(uri), "plugin", t.Plugin.Name, "other", o.Plugin.Name)
			return nil, nil
		}
		t, args = o.Tool, o.Texts(texts)
	}
	return t, args
}
