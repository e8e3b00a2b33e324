package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxAsks = 8 // questions of one call, over all its rounds
	askTime = 10 * time.Minute

	// confirmKey is the question whether a call may happen. No plugin's question can have this key.
	confirmKey = "caponier.approval"
)

// statelessVersions are the protocol versions in which the client repeats a call with the answers
// to its questions.
var statelessVersions = []string{"2026-07-28"}

// StatelessVersions returns the protocol versions without sessions.
func StatelessVersions() []string { return slices.Clone(statelessVersions) }

// Asker is the gate's executor of ask, and puts approvals to the user of a call's client. A
// question that is not answered yet is gate.ErrPending: the instance returns, the client is asked,
// and the same call comes again with the answers, is decided again and runs in a new instance.
type Asker struct{}

var _ gate.Executor = Asker{}

// Lookup finds nothing: a question has no facts.
func (Asker) Lookup(context.Context, gate.Question) (gate.Facts, error) { return gate.Facts{}, nil }

// End has nothing to free.
func (Asker) End(context.Context, *gate.Call) {}

// Execute returns what the user has answered in an earlier round. The error is gate.ErrPending, or
// a *gate.OpError with the code unavailable or bad_question.
func (Asker) Execute(ctx context.Context, q gate.Question, _ gate.Decision) (gate.Result, error) {
	op, isAsk := q.Op.(abi.Ask)
	a, _ := ctx.Value(askingKey{}).(*asking)
	if !isAsk || a == nil {
		return gate.Result{}, errNobody
	}
	return a.ask(op)
}

// CanAsk reports whether the call's client can put a question to its user, or has done so.
func (Asker) CanAsk(ctx context.Context) bool {
	a, _ := ctx.Value(askingKey{}).(*asking)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.can || a.confirm.answered != ""
}

// Ask puts the approval of a call to the user of its client. It returns "approve" or "deny" if the
// user said so about this request in the round before, "asked" if the client is being asked, and ""
// if no answer can be had.
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
		return "" // dismissed, or no answer to what was asked: do not ask again at once
	}
	if !a.can {
		return ""
	}
	a.confirm.request, a.confirm.message = request, message
	return "asked"
}

var errNobody = &gate.OpError{Code: "unavailable",
	Message: "the caller's client cannot ask its user", Outcome: gate.Failed}

type askingKey struct{}

// asking is what one call asks and was answered.
type asking struct {
	// the client can ask its user, may be asked in this round, and there is room for the question
	can    bool
	sealed sealed
	args   []byte

	mu      sync.Mutex // guards the following
	answers map[string]said
	pending map[string]abi.Ask
	confirm confirming
}

// confirming is what one call asks and was answered about being approved. The answer counts once,
// for the request that was asked about.
type confirming struct {
	request, message string // to be asked
	answered         string // the request that the client's user was asked about before
	answer           said
}

// said is what a user answered: action is accept, decline or cancel.
type said struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content,omitempty"`
}

func (a *asking) ask(op abi.Ask) (gate.Result, error) {
	bad := func(format string, args ...any) (gate.Result, error) {
		return gate.Result{}, &gate.OpError{Code: "bad_question",
			Message: fmt.Sprintf(format, args...), Outcome: gate.Failed}
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
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, answered := a.answers[op.Key]; answered {
		if r.Action != "accept" || form.Validate(r.Content) == nil {
			return gate.Result{Value: r}, nil
		}
		delete(a.answers, op.Key) // the question differs, or the answer does not fit: ask again
	}
	if !a.can {
		return gate.Result{}, errNobody
	}
	if len(a.pending)+len(a.answers) >= maxAsks {
		return bad("a call may ask at most %d questions", maxAsks)
	}
	a.pending[op.Key] = op
	return gate.Result{}, gate.ErrPending
}

// rounds is what a request says of the rounds before it.
type rounds struct {
	state     string
	responses mcp.InputResponseMap
	caps      *mcp.ClientCapabilities
	version   string
}

var errState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState was not " +
	"given to this call, was used already or has expired; make the call again without it"}

// asking opens the rounds of a call. Answers count only for what this very call asked the same
// caller before, since any client can send answers.
func (s *Server) asking(who Caller, tool *gate.Tool, args []byte, r rounds) (*asking, error) {
	want := sealed{Round: 1, Caller: who.owner(),
		Tool: tool.Kind + ":" + tool.Name + "@" + tool.Plugin.Digest}
	a := &asking{sealed: want, args: args, answers: map[string]said{},
		pending: map[string]abi.Ask{},
		can: r.caps != nil && r.caps.Elicitation != nil &&
			(r.caps.Elicitation.Form != nil || r.caps.Elicitation.URL == nil) &&
			s.seals.room(want.Caller, time.Now())}
	if r.state == "" {
		return a, nil
	}
	got, ok := s.seals.unseal(r.state, time.Now())
	if !ok || got.Caller != want.Caller || got.Tool != want.Tool || got.Args != digestOf(args) {
		return nil, errState
	}
	if got.Answers != nil {
		a.answers = got.Answers
	}
	// After an approval alone the instance has not run.
	if a.sealed.Round = got.Round; len(got.Asked) > 0 {
		a.sealed.Round++
	}
	for _, key := range got.Asked {
		if e, isAnswer := r.responses[key].(*mcp.ElicitResult); isAnswer && e != nil &&
			slices.Contains([]string{"accept", "decline", "cancel"}, e.Action) {
			a.answers[key] = said{e.Action, e.Content}
		}
	}
	if e, isAnswer := r.responses[confirmKey].(*mcp.ElicitResult); isAnswer && e != nil &&
		got.Approval != "" {
		a.confirm.answered, a.confirm.answer = got.Approval, said{e.Action, e.Content}
	}
	// The SDK asks clients of older versions itself, once; a second question would go out as an
	// empty success.
	a.can = a.can && slices.Contains(statelessVersions, r.version)
	return a, nil
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
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// questions returns what must be asked before the call can go on: whether it may happen, or what
// the plugin asked. It returns nothing if the instance went on without an answer. What the instance
// says of its failure does not count: it failed because the host had told it to return.
func (s *Server) questions(a *asking, ended answer, hasOutput bool) (mcp.InputRequestMap, string,
	error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asks, next := mcp.InputRequestMap{}, a.sealed
	next.Args, next.Answers = digestOf(a.args), a.answers
	waiting := (*gate.Waiting)(nil)
	switch c := a.confirm; {
	case hasOutput && len(a.pending) > 0 && ended.Output.Code != 0:
		for key, op := range a.pending {
			asks[key] = &mcp.ElicitParams{Mode: "form", RequestedSchema: op.Schema,
				Message: "A plugin asks: " + cut(op.Message, 4000)}
			next.Asked = append(next.Asked, key)
		}
	case c.request != "" && errors.As(ended.Err, &waiting) && waiting.ApprovalID == c.request:
		next.Approval = c.request
		asks[confirmKey] = &mcp.ElicitParams{Mode: "form", RequestedSchema: approvalForm,
			Message: plaintext.Clean(c.message)}
	default:
		return nil, "", nil
	}
	state, err := s.seals.seal(next, time.Now())
	return asks, state, err
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
