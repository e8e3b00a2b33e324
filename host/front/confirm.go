package front

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// confirmKey is the question whether a call may happen. No plugin's question can have it, nor be
// taken for it.
const confirmKey = "caponier.approval"

// confirming is what one call asks and was told about being approved. The answer counts for the
// request that was asked about, once.
type confirming struct {
	request, message string // to be asked
	answered         string // the request that the client's user was asked about before
	answer           said
}

// CanAsk says whether the call's client can put a question to its user, or has done so.
func (Asker) CanAsk(ctx context.Context) bool {
	a, _ := ctx.Value(askingKey{}).(*asking)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.can || a.confirm.answered != ""
}

// Ask puts the approval of a call to the user of its client: "approve" or "deny" is what that user
// said about this request in the round before, "asked" that the client is being asked, and "" that
// nobody answers.
func (Asker) Ask(ctx context.Context, request, message string) string {
	a, _ := ctx.Value(askingKey{}).(*asking)
	if a == nil || request == "" {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := &a.confirm; c.answered == request {
		given := c.answer
		c.answer = said{}
		yes, isBool := given.Content["approve"].(bool)
		switch {
		case given.Action == "accept" && isBool && yes:
			return "approve"
		case given.Action == "accept" && isBool, given.Action == "decline":
			return "deny"
		}
		return "" // dismissed, or no answer to what was asked: asking at once again would only nag
	}
	if !a.can {
		return ""
	}
	a.confirm.request, a.confirm.message = request, message
	return "asked"
}

// approvalForm is what the user of a client fills in.
var approvalForm = map[string]any{
	"type":     "object",
	"required": []any{"approve"},
	"properties": map[string]any{
		"approve": map[string]any{
			"type":        "boolean",
			"title":       "Approve this one call",
			"description": "true lets exactly this call happen, once; false refuses it",
			"default":     false,
		}},
}

// confirmation gives the question whether the call may happen, or nothing when its client was not
// asked.
func (s *Server) confirmation(a *asking, waits error) (mcp.InputRequestMap, string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting := (*gate.Waiting)(nil); a.confirm.request == "" || !errors.As(waits, &waiting) ||
		waiting.ApprovalID != a.confirm.request {
		return nil, "", nil
	}
	next := a.sealed
	next.Args, next.Answers, next.Approval = digestOf(a.args), a.answers, a.confirm.request
	state, err := s.seals.seal(next, time.Now())
	return mcp.InputRequestMap{
		confirmKey: &mcp.ElicitParams{
			Mode:            "form",
			Message:         clean(a.confirm.message),
			RequestedSchema: approvalForm,
		},
	}, state, err
}

// elicited counts the questions to users of older clients that are not answered, by session.
type elicited struct {
	mu sync.Mutex // guards of
	of map[mcp.Session]int
}

func (e *elicited) begin(s mcp.Session) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[s] >= maxAsks {
		return false
	}
	if e.of == nil {
		e.of = map[mcp.Session]int{}
	}
	e.of[s]++
	return true
}

func (e *elicited) end(s mcp.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[s]--; e.of[s] == 0 {
		delete(e.of, s)
	}
}

// bounded ends a question to the user of an older client, whose request stays open meanwhile, with
// the host and with its time; and a session, of which there are only so many, has no more of them
// than one call may ask. A client that never answers costs nothing more.
func (s *Server) bounded(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method != "elicitation/create" {
			return next(ctx, method, req)
		}
		session := req.GetSession()
		if !s.elicited.begin(session) {
			s.seen.refused.WithLabelValues("busy").Inc()
			return nil, &jsonrpc.Error{
				Code:    codeBusy,
				Message: "your user has not answered what was asked before; nothing was done",
			}
		}
		defer s.elicited.end(session)
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		defer context.AfterFunc(s.root, cancel)()
		return next(ctx, method, req)
	}
}
