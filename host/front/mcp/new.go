package mcp

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// New returns a server without tools; SetTools sets them.
func New(o Options, door Door) (*Server, error) {
	if door == nil {
		return nil, errors.New("mcp: New needs a Door")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Server{
		opts: o, door: door, log: o.Log,
		calls:    fair.New(o.MaxCalls, fair.Half(o.MaxCalls)),
		others:   fair.New(o.MaxCalls, fair.Half(o.MaxCalls)),
		elicited: fair.New(math.MaxInt, maxAsks),
	}
	s.root, s.stop = context.WithCancelCause(context.Background())
	mo := &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{ // without logging, which the SDK would add
			Tools:     &mcp.ToolCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{ListChanged: true},
			Prompts:   &mcp.PromptCapabilities{ListChanged: true},
		},
		// Every list depends on the caller.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.CacheScope = "private"
		},
	}
	extend := func(*mcp.Server) {}
	if o.Extend != nil {
		extend = o.Extend(mo)
	}
	s.sdk = mcp.NewServer(
		&mcp.Implementation{Name: "caponier", Title: "Caponier", Version: o.Version}, mo)
	extend(s.sdk)
	s.sdk.AddReceivingMiddleware(s.guard, s.personal)
	s.sdk.AddSendingMiddleware(s.boundQuestions, s.tellChanges)
	return s, nil
}

// guard is the outermost middleware: a panic ends its request and not the process, and clients get
// no error that was not written for them.
func (s *Server) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("the handler of a request panicked", "method", method, "panic", p,
					"stack", string(debug.Stack()))
				s.opts.Meter.Panicked()
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the " +
					"host failed while it handled this request; its outcome is unknown: check " +
					"the state before you repeat it"}
			}
		}()
		res, err = next(ctx, method, req)
		var wire *jsonrpc.Error
		switch {
		case err == nil || errors.As(err, &wire):
			return res, err
		case ctx.Err() != nil:
			return nil, &jsonrpc.Error{Code: codeCancelled, Message: "cancelled"}
		}
		s.log.Error("a request failed", "method", method, "error", err)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
			Message: "internal error; the host's log has the cause"}
	}
}

// counted are the methods that the shares of calls count, and those that wait without work.
var counted = []string{"tools/call", "resources/read", "prompts/get", "subscriptions/listen"}

// await waits for the door, unless the request needs neither policy nor tools.
func (s *Server) await(ctx context.Context, method string) error {
	if strings.HasPrefix(method, "notifications/") ||
		slices.Contains([]string{"initialize", "ping", "server/discover"}, method) {
		return nil
	}
	select {
	case <-s.opts.Ready:
		return nil
	default:
	}
	select {
	case <-s.opts.Ready:
		return nil
	case <-s.root.Done():
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
			Message: "the host is stopping, or could not start; its log has the cause"}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listWait is how long a request that is no call waits for its turn: many clients start at once.
const listWait = 2 * time.Second

// personal gives every caller its own view, and every principal its share of requests that are no
// calls: lists, pings, notifications. Calls that wait do not delay these.
func (s *Server) personal(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		who, err := callerOf(req)
		if err != nil {
			return nil, err
		}
		if who.Begins != nil {
			who.Begins()
		}
		if err := s.await(ctx, method); err != nil {
			return nil, err
		}
		if !slices.Contains(counted, method) {
			wait, cancel := context.WithTimeout(ctx, listWait)
			err := s.others.Acquire(wait, who.ID)
			cancel()
			if err != nil {
				s.opts.Meter.Refused("busy")
				return nil, errBusy
			}
			defer s.others.Release(who.ID)
		}
		res, err := next(ctx, method, req)
		if err != nil {
			return nil, err
		}
		switch r := res.(type) {
		case *mcp.ListToolsResult:
			r.Tools = s.visibleTools(ctx, who, r.Tools)
		case *mcp.ListResourcesResult:
			r.Resources = slices.DeleteFunc(r.Resources,
				func(d *mcp.Resource) bool { return !s.shows(ctx, who, "resource", d.URI) })
		case *mcp.ListResourceTemplatesResult:
			r.ResourceTemplates = slices.DeleteFunc(r.ResourceTemplates,
				func(d *mcp.ResourceTemplate) bool {
					return !s.shows(ctx, who, "resource", d.URITemplate)
				})
		case *mcp.ListPromptsResult:
			r.Prompts = slices.DeleteFunc(r.Prompts,
				func(d *mcp.Prompt) bool { return !s.shows(ctx, who, "prompt", d.Name) })
		case *mcp.InitializeResult:
			r.Instructions = s.instructions(ctx, who)
		case *mcp.DiscoverResult:
			r.Instructions = s.instructions(ctx, who)
		}
		return res, nil
	}
}
