package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Codes of our own lie between -32000 and -32019, since MCP keeps those below, and avoid -32002 to
// -32005, which SDKs take for their own.
const (
	codeStopping  = -32010
	codeBudget    = -32001
	codeCancelled = -32012
	codeNobody    = -32013
	codeBusy      = -32016
	// of resources and prompts, as the next; a tool's call has a result that says so
	codeRefused = -32014
	codeFailed  = -32015
)

var errBusy = &jsonrpc.Error{
	Code:    codeBusy,
	Message: "the host is busy with as many calls as it takes at a time; nothing was done, try again in a moment",
}

// caller is who sent one request, put there by the transport and never by the client. Gone ends
// when an answer can no longer reach the client.
type caller struct {
	gate.Principal
	source string
	gone   context.Context
}

const callerKey = "caponier.caller"

// owner names the caller wherever something is kept for it alone.
func (c caller) owner() string { return c.Auth + ":" + c.ID }

// asToken carries the caller in the form in which the SDK hands it to every handler; with UserID
// set, it also ties a session to its user.
func (c caller) asToken() *auth.TokenInfo {
	return &auth.TokenInfo{UserID: c.owner(), Extra: map[string]any{callerKey: c}}
}

// callerOf fails for a request that came without a caller: then the transport is wired wrong, and
// nobody may do nothing.
func callerOf(req mcp.Request) (caller, error) {
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		if c, ok := extra.TokenInfo.Extra[callerKey].(caller); ok && c.ID != "" {
			return c, nil
		}
	}
	return caller{}, &jsonrpc.Error{
		Code:    codeNobody,
		Message: "the host does not know who is calling",
	}
}

// call is the handler of every tool.
func (s *Server) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, err
	}
	tool := s.find("tool", req.Params.Name)
	if tool == nil { // taken away since the SDK looked
		return nil, unknown("tool", req.Params.Name)
	}
	asking, err := s.asking(
		who,
		tool,
		req.Params.Arguments,
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
	a, stopped, err := s.through(
		ctx,
		who,
		tool,
		req.Params.Arguments,
		asking,
		s.showProgress(ctx, req),
	)
	if err != nil {
		return nil, err
	}
	res, out, sum := s.result(who, tool, a, stopped)
	asks, state, err := s.confirmation(asking, a.Err)
	if out != nil {
		s.came(who, a, req.Params.Arguments, out.Structured)
		asks, state, err = s.questions(asking, a.Output.Code)
	}
	if err != nil {
		return nil, err
	}
	if asks != nil {
		return &mcp.CallToolResult{
			InputRequests: asks,
			RequestState:  state,
			Meta:          mcp.Meta{metaCall: sum},
		}, nil
	}
	return res, nil
}

func unknown(kind, name string) error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidParams,
		Message: fmt.Sprintf("unknown %s %q", kind, name),
	}
}

// through takes a request through the door, in a context that ends with the client, the host or the
// request; stopped is why it ended before the call did. The error is for the client: the host is
// stopping, or the budget is spent, which is a protocol error of its own.
func (s *Server) through(
	ctx context.Context,
	who caller,
	tool *gate.Tool,
	args []byte,
	asking *asking,
	show *progress,
) (a gate.Answer, stopped error, err error) {
	if s.root.Err() != nil {
		show.end()
		return a, nil, &jsonrpc.Error{
			Code:    codeStopping,
			Message: "the host is stopping; nothing was done",
		}
	}
	if !s.running.begin(who, s.opts.MaxCalls) {
		show.end()
		s.seen.refused.WithLabelValues("busy").Inc()
		return a, nil, errBusy
	}
	defer s.running.end(who)
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, askingKey{}, asking))
	defer cancel(nil)
	defer context.AfterFunc(s.root, func() { cancel(context.Cause(s.root)) })()
	defer context.AfterFunc(who.gone, func() { cancel(context.Cause(who.gone)) })()

	began := time.Now()
	func() {
		defer show.end() // also when the door breaks
		a = s.door.Call(
			ctx,
			gate.Request{
				Source:    who.source,
				Principal: who.Principal,
				Tool:      tool,
				Arguments: args,
				Round:     asking.sealed.Round,
				Progress:  show.report,
				Log: func(level int, message string) {
					s.log.Log(
						ctx,
						slog.Level(level),
						"plugin: "+(&budget{left: 2000}).take(message),
						tool.Kind,
						tool.Name,
						"plugin",
						tool.Plugin.Name,
					)
				},
			},
		)
	}()
	stopped = context.Cause(ctx)
	s.seen.call(tool.Name, a.Outcome, time.Since(began))
	out := (*gate.BudgetError)(nil)
	if !errors.As(a.Err, &out) {
		return a, stopped, nil
	}
	data, err := json.Marshal(
		map[string]any{
			"kind":              "budget",
			"tool":              out.Tool,
			"limit_ms":          out.Limit.Milliseconds(),
			"may_have_executed": out.MayHaveExecuted,
			"call_id":           a.CallID,
			"outcome":           a.Outcome,
			"refused":           summaries(a.Refused),
			"journal_failed":    a.JournalFailed,
		},
	)
	if err != nil {
		return a, stopped, err
	}
	return a, stopped, &jsonrpc.Error{Code: codeBudget, Message: clean(out.Error()), Data: data}
}

// running counts what goes on at a time: calls, lists, sessions. What is over the limit is turned
// away at once: a queue would only make it late as well.
type running struct {
	mu  sync.Mutex // guards the following
	all int
	of  map[string]int // by principal
}

func (r *running) begin(who caller, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= most || r.of[who.ID] >= max(most/2, 1) {
		return false
	}
	if r.of == nil {
		r.of = map[string]int{}
	}
	r.all++
	r.of[who.ID]++
	return true
}

func (r *running) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

func (r *running) end(who caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.of[who.ID]--; r.of[who.ID] == 0 {
		delete(r.of, who.ID)
	}
}

// progress sends what a plugin reports to the client, and signs of life while it reports nothing. A
// client that does not read must not stop the plugin's clock from being looked at, so reports go
// through a queue, and are dropped when it is full.
type progress struct {
	queue chan mcp.ProgressNotificationParams
	ended chan struct{}
}

// showProgress gives nil, which shows nothing, for a client that did not ask for progress.
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
			if n.Progress <= last.Progress { // it must grow with each
				return
			}
			last = n
			n.ProgressToken = token
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
			case <-tick.C:
				// still running: so little further that the plugin's own next step comes after it
				send(
					mcp.ProgressNotificationParams{
						Progress: max(last.Progress, 0) + 0.001,
						Total:    last.Total,
						Message:  "still running",
					},
				)
			}
		}
	}()
	return p
}

func (p *progress) report(done, total float64, message string) {
	if p == nil {
		return
	}
	select {
	case p.queue <- mcp.ProgressNotificationParams{Progress: done, Total: total, Message: (&budget{left: 500}).take(message)}:
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
