package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// call is the handler of every tool.
func (s *Server) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	p := req.Params
	tool := s.find("tool", p.Name)
	if tool == nil { // removed since the SDK looked
		return nil, missing("tool", p.Name)
	}
	r, err := s.request(ctx, req, tool, p.Name, p.Arguments, p.RequestState, p.InputResponses)
	if err != nil {
		return nil, err
	}
	r.plan, _ = p.Meta[metaPlan].(bool)
	r.show = s.showProgress(ctx, req)
	res, err := s.do(ctx, r)
	if err != nil {
		return nil, err
	}
	if res.asks != nil {
		return &mcp.CallToolResult{InputRequests: res.asks, RequestState: res.state,
			Meta: res.Meta}, nil
	}
	return &res.CallToolResult, nil
}

// request opens a call for the caller that the transport set.
func (s *Server) request(ctx context.Context, req incoming, tool *terms.Tool, key string,
	args []byte, state string, responses mcp.InputResponseMap) (*request, error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, err
	}
	u, err := s.user(ctx, req, who, tool, args, state, responses)
	return &request{who: who, tool: tool, key: key, args: args, user: u,
		from: traceparent(req)}, err
}

// do takes a request through the door and converts how it ended. A refusal of what the caller may
// not see is the error for what does not exist.
func (s *Server) do(ctx context.Context, r *request) (*result, error) {
	a, err := s.run(ctx, r)
	if err != nil {
		return nil, err
	}
	res := s.result(r, a)
	if err := s.questions(ctx, r.user, a, res); err != nil {
		return nil, err
	}
	if res.asks == nil && res.hidden {
		return nil, missing(r.tool.Kind, r.key)
	}
	return res, nil
}

// run takes a request through the door, in a context that ends with the client, the host or the
// request. The error is for the client: the host is stopping or busy, or the call exceeded its
// budget, which is a protocol error of its own.
func (s *Server) run(ctx context.Context, r *request) (a answer, err error) {
	if s.Stopped() {
		r.show.end()
		return a, &jsonrpc.Error{Code: codeStopping,
			Message: "the host is stopping; nothing was done"}
	}
	if !s.calls.TryAcquire(r.who.ID) {
		r.show.end()
		s.opts.Meter.Refused("busy")
		return a, errBusy
	}
	defer s.calls.Release(r.who.ID)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.root, func() { cancel(context.Cause(s.root)) })()
	defer context.AfterFunc(r.who.Gone, func() { cancel(context.Cause(r.who.Gone)) })()

	began := time.Now()
	func() {
		defer r.show.end() // also when the door panics
		a.Answer = s.door.Call(ctx, terms.Request{Source: r.who.Source, Trace: r.from,
			Principal: r.who.Principal, Tool: r.tool, Arguments: r.args,
			Round: r.user.call.Number, User: r.user, Plan: r.plan, Current: s.current(r),
			Progress: r.show.report, Log: s.pluginLog(ctx, r.tool)})
	}()
	a.stopped = context.Cause(ctx)
	s.opts.Meter.Called(r.tool.Name, a.Outcome, time.Since(began))
	if over := (*terms.BudgetError)(nil); errors.As(a.Err, &over) {
		return a, overBudget(a, over)
	}
	return a, nil
}

// current returns the check that the gate makes before each decision of a call: its caller
// would still be admitted, and its tool is still offered.
func (s *Server) current(r *request) func(context.Context) error {
	return func(ctx context.Context) error {
		now := s.offered()[keyOf(r.tool)].Tool
		if now == nil || now.Plugin.Name != r.tool.Plugin.Name {
			return fmt.Errorf("%s %s is not offered any more", r.tool.Kind, r.tool.Name)
		}
		if r.who.Current == nil {
			return nil
		}
		return r.who.Current(ctx)
	}
}

func (s *Server) pluginLog(ctx context.Context, t *terms.Tool) func(int, string) {
	return func(level int, message string) {
		s.log.Log(ctx, slog.Level(level), "plugin: "+cut(message, 2000), t.Kind, t.Name,
			"plugin", t.Plugin.Name)
	}
}

func overBudget(a answer, over *terms.BudgetError) error {
	data, err := json.Marshal(map[string]any{"kind": "budget", "tool": over.Tool,
		"limit_ms": over.Limit.Milliseconds(), "may_have_executed": over.MayHaveExecuted,
		"call_id": a.CallID, "outcome": a.Outcome, "refused": summaries(a.Refused),
		"journal_failed": a.JournalFailed})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: codeBudget, Message: plaintext.Clean(over.Error()), Data: data}
}

// showProgress returns nil, which shows nothing, for a client that did not ask for progress.
func (s *Server) showProgress(ctx context.Context, req *mcp.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	p := &progress{make(chan mcp.ProgressNotificationParams, 64), make(chan struct{})}
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(s.opts.KeepAlive)
		defer tick.Stop()
		last := mcp.ProgressNotificationParams{Progress: -1}
		send := func(n mcp.ProgressNotificationParams) {
			if n.Progress <= last.Progress { // MCP: each must be larger than the one before
				return
			}
			last, n.ProgressToken = n, token
			if err := req.Session.NotifyProgress(ctx, &n); err != nil {
				s.log.Debug("progress did not reach the client", "error", err)
			}
			tick.Reset(s.opts.KeepAlive)
		}
		for {
			select {
			case n, more := <-p.queue:
				if !more {
					return
				}
				send(n)
			case <-tick.C: // a step so small that the plugin's own next one is larger
				send(mcp.ProgressNotificationParams{Progress: max(last.Progress, 0) + 0.001,
					Total: last.Total, Message: "still running"})
			}
		}
	}()
	return p
}

func (p *progress) report(done, total float64, message string) {
	if p == nil {
		return
	}
	n := mcp.ProgressNotificationParams{Progress: done, Total: total, Message: cut(message, 500)}
	select {
	case p.queue <- n:
	default:
	}
}

// end returns when everything that was reported has been sent: nothing may follow the answer. The
// gate reports nothing after its Call has returned.
func (p *progress) end() {
	if p != nil {
		close(p.queue)
		<-p.ended
	}
}
