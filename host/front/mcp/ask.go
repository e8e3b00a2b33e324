package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// confirmKey is the question whether a call may happen. No plugin's question can have this key.
	confirmKey = "caponier.approval"
)

// statelessVersions are the protocol versions in which the client repeats a call with the answers
// to its questions.
var statelessVersions = []string{"2026-07-28"}

// StatelessVersions returns the protocol versions without sessions.
func StatelessVersions() []string { return slices.Clone(statelessVersions) }

// Asker is the gate's executor of ask: it puts a plugin's question to the call's user.
type Asker struct{}

var _ terms.Executor = Asker{}

// Lookup finds nothing: a question has no facts.
func (Asker) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{},
		nil
}

// End has nothing to free.
func (Asker) End(context.Context, *terms.Call) {}

// Execute returns what the call's user answers.
func (Asker) Execute(_ context.Context, q terms.Question, _ terms.Decision) (terms.Result, error) {
	op, isAsk := q.Op.(abi.Ask)
	if !isAsk || q.Call.User == nil {
		return terms.Result{}, errNobody
	}
	return q.Call.User.Ask(op)
}

var errNobody = terms.Fail("unavailable", "the caller's client cannot ask its user")

var _ terms.User = (*user)(nil)

// CanConfirm reports whether the user can be asked to approve the call, or has been.
func (u *user) CanConfirm() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.can || u.confirmed != ""
}

// Confirm puts the approval of the call to the user.
func (u *user) Confirm(request, message string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case request == "":
		return ""
	case u.confirmed == request:
		u.confirmed = ""
		yes, isBool := u.verdict.Content["approve"].(bool)
		switch {
		case u.verdict.Action == "accept" && isBool && yes:
			return "approve"
		case u.verdict.Action == "accept" && isBool, u.verdict.Action == "decline":
			return "deny"
		}
		return "" // dismissed, or no answer to what was asked: do not ask again at once
	case !u.can:
		return ""
	}
	u.request, u.message = request, message
	return "asked"
}

// Ask puts a plugin's question to the user. The error is terms.ErrPending, or a *terms.OpError with
// the code unavailable or bad_question.
func (u *user) Ask(op abi.Ask) (terms.Result, error) {
	bad := func(format string, args ...any) (terms.Result, error) {
		return terms.Result{}, terms.Fail("bad_question", format, args...)
	}
	if len(op.Key) == 0 || len(op.Key) > 64 || plaintext.Clean(op.Key) != op.Key ||
		op.Key == confirmKey {
		return bad("key: want 1 to 64 plain characters, and not %s", confirmKey)
	}
	if len(op.Message) == 0 || len(op.Message) > 4000 {
		return bad("message: want 1 to 4000 bytes")
	}
	form, err := newForm(op.Schema)
	if err != nil {
		return bad("schema: %s", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if r, answered := u.answers[op.Key]; answered {
		if r.Action != "accept" || form.Validate(r.Content) == nil {
			return terms.Result{Value: r}, nil
		}
		delete(u.answers, op.Key) // the question differs, or the answer does not fit: ask again
	}
	if !u.can {
		return terms.Result{}, errNobody
	}
	if len(u.pending)+len(u.answers) >= maxAsks {
		return bad("a call may ask at most %d questions", maxAsks)
	}
	u.pending[op.Key] = op
	return terms.Result{}, terms.ErrPending
}

// user returns the user of a call's client. Answers count only for what this very call asked the
// same caller before, since any client can send answers.
func (s *Server) user(ctx context.Context, req incoming, who Caller, tool *terms.Tool, args []byte,
	state string, responses mcp.InputResponseMap) (*user, error) {
	u := &user{answers: map[string]said{}, pending: map[string]abi.Ask{},
		call: round{Number: 1, Caller: who.owner(), Args: digestOf(args),
			Tool: tool.Kind + ":" + tool.Name + "@" + tool.Plugin.Digest}}
	if c := req.ClientCapabilities(); c != nil && c.Elicitation != nil {
		u.can = (c.Elicitation.Form != nil || c.Elicitation.URL == nil) &&
			(s.opts.Rounds != nil || s.rounds.room(u.call.Caller, time.Now()))
	}
	if state == "" {
		return u, nil
	}
	before, found, err := s.taken(ctx, state)
	if err != nil {
		return nil, err
	}
	if !found || before.Caller != u.call.Caller || before.Tool != u.call.Tool ||
		before.Args != u.call.Args {
		return nil, errState
	}
	if err := json.Unmarshal(before.Answers, &u.answers); err != nil {
		return nil, err
	}
	// After an approval alone the instance has not run.
	if u.call.Number = before.Number; len(before.Asked) > 0 {
		u.call.Number++
	}
	for _, key := range before.Asked {
		e, isAnswer := responses[key].(*mcp.ElicitResult)
		if isAnswer && e != nil &&
			slices.Contains([]string{"accept", "decline", "cancel"}, e.Action) {
			u.answers[key] = said{e.Action, e.Content}
		}
	}
	e, isAnswer := responses[confirmKey].(*mcp.ElicitResult)
	if isAnswer && e != nil && before.Approval != "" {
		u.confirmed, u.verdict = before.Approval, said{e.Action, e.Content}
	}
	// The SDK asks clients of older versions itself, once; a second question would go out as an
	// empty success.
	u.can = u.can && slices.Contains(statelessVersions, req.ProtocolVersion())
	return u, nil
}

// digestOf digests the value of arguments, so that a client may write them in another order the
// second time.
func digestOf(args []byte) string {
	data := args
	if v, err := abi.Decode(args, 4<<20); err == nil {
		if canonical, err := abi.Encode(v); err == nil {
			data = canonical
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// questions sets what must be asked before the call can go on: whether it may happen, or what the
// plugin asked. It sets nothing if the instance went on without an answer. What the instance says
// of its failure does not count: it failed because the host had told it to return.
func (s *Server) questions(ctx context.Context, u *user, a answer, res *result) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	next, waiting := u.call, (*terms.Waiting)(nil)
	asks := mcp.InputRequestMap{}
	switch {
	case res.out != nil && len(u.pending) > 0 && a.Output.Code != 0:
		for key, op := range u.pending {
			asks[key] = &mcp.ElicitParams{Mode: "form", RequestedSchema: op.Schema,
				Message: "A plugin asks: " + cut(op.Message, 4000)}
			next.Asked = append(next.Asked, key)
		}
	case u.request != "" && errors.As(a.Err, &waiting) && waiting.ApprovalID == u.request:
		next.Approval = u.request
		asks[confirmKey] = &mcp.ElicitParams{Mode: "form", RequestedSchema: approvalForm,
			Message: plaintext.Clean(u.message)}
	default:
		return nil
	}
	var err error
	if next.Answers, err = json.Marshal(u.answers); err != nil {
		return err
	}
	if len(next.Answers) > maxAnswers {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the answers "+
			"are over the limit of %d bytes; make the call again without requestState", maxAnswers)}
	}
	res.state, err = s.kept(ctx, next)
	if err == nil {
		res.asks = asks
	}
	return err
}

// approvalForm is what the user of a client fills in.
var approvalForm = map[string]any{
	"type": "object", "required": []any{"approve"},
	"properties": map[string]any{"approve": map[string]any{
		"type": "boolean", "title": "Approve this one call", "default": false,
		"description": "true lets exactly this call happen, once; false refuses it"}},
}

// boundQuestions ends a question to the user of an older client, whose request stays open, with
// the host and after askTime. A session has at most maxAsks of them open.
func (s *Server) boundQuestions(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method != "elicitation/create" {
			return next(ctx, method, req)
		}
		session := fmt.Sprintf("%p", req.GetSession())
		if !s.elicited.TryAcquire(session) {
			s.opts.Meter.Refused("busy")
			return nil, &jsonrpc.Error{Code: codeBusy,
				Message: "your user has not answered the questions before; nothing was done"}
		}
		defer s.elicited.Release(session)
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		defer context.AfterFunc(s.root, cancel)()
		return next(ctx, method, req)
	}
}
