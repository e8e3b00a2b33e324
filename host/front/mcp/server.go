// Package mcp connects the Model Context Protocol to the gate. Tools, resources and prompts become
// calls; what a call asks goes to the client's user.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/observe"
)

// Door is what the server needs of the gate. Its methods must be safe for concurrent use.
type Door interface {
	Call(context.Context, gate.Request) gate.Answer
	Visible(ctx context.Context, p gate.Principal, source string, t *gate.Tool,
		on gate.Targets) bool
}

var _ Door = (*gate.Door)(nil)

// Options of a Server. Zero means the default that the comment names.
type Options struct {
	MaxChars int `koanf:"max_chars"` // characters of text in a result: 25,000
	// bytes of a plugin's output; a longer one is the plugin's error: 8 MiB
	MaxOutput int `koanf:"-"`
	// bytes of an HTTP body or a line on stdin: 4 MiB
	MaxBody int64 `koanf:"-"`
	// calls at a time, of which one principal may have half: 64
	MaxCalls int `koanf:"-"`
	// between progress notifications while a call runs: 5s
	KeepAlive time.Duration `koanf:"-"`
	// for running calls to end when the host stops: 10s, the most
	StopTimeout time.Duration `koanf:"-"`
	// the site's own text for agents, after the generated instructions
	Guidance string `koanf:"guidance"`

	Version   string         `koanf:"-"` // of the host: dev
	Principal gate.Principal `koanf:"-"` // the caller over stdio
	// the tier of a tool for annotations; nil judges by the tool's own hints
	Tier func(context.Context, gate.Principal, *gate.Tool) gate.Tier `koanf:"-"`

	Meter *observe.Meter `koanf:"-"` // nil for one of its own
	Log   *slog.Logger   `koanf:"-"` // nil for slog.Default
	// closed when the door is open: until then only the first request of a client is answered, and
	// all others wait; nil for at once
	Ready  <-chan struct{} `koanf:"-"`
	Stdin  io.Reader       `koanf:"-"` // nil for os.Stdin
	Stdout io.Writer       `koanf:"-"` // nil for os.Stdout
	// changes the SDK's options and server, for the conformance suite; nil in the product
	Extend Extension `koanf:"-"`
}

// Extension changes the SDK's options before the server is made, and the server afterwards.
type Extension func(*mcp.ServerOptions) func(*mcp.Server)

// Validate reports a field that cannot be used, and what to write instead.
func (o Options) Validate() error {
	if o.MaxChars < 0 {
		return errors.New("front.max_chars: must not be negative; omit it for the default")
	}
	if o.StopTimeout > 10*time.Second {
		return fmt.Errorf("front.stop_timeout: %s is over the limit of 10s", o.StopTimeout)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MaxChars = cmp.Or(o.MaxChars, 25_000)
	o.MaxOutput = cmp.Or(o.MaxOutput, 8<<20)
	o.MaxBody = cmp.Or(o.MaxBody, 4<<20)
	o.MaxCalls = cmp.Or(o.MaxCalls, 64)
	o.KeepAlive = cmp.Or(o.KeepAlive, 5*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Second)
	o.Version = cmp.Or(o.Version, "dev")
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Meter == nil {
		o.Meter = observe.NewMeter(o.Version)
	}
	if o.Ready == nil {
		ready := make(chan struct{})
		close(ready)
		o.Ready = ready
	}
	if o.Tier == nil {
		o.Tier = func(_ context.Context, _ gate.Principal, t *gate.Tool) gate.Tier {
			return tierOfHints(t.Hints)
		}
	}
	return o
}

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
	offer offers       // replaced as a whole, never changed
}

var errStopping = errors.New("the host is stopping")

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
		opts: o, door: door, log: o.Log, offer: offers{},
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
	s.sdk.AddSendingMiddleware(s.boundQuestions)
	return s, nil
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
	gate.Principal
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
