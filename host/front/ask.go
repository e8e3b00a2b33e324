package front

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxAsks    = 8 // questions of one call, over all its rounds
	askTime    = 10 * time.Minute
	maxPending = 10_000 // states that wait for an answer at a time
	maxMine    = 100    // of them those of one caller
)

// Asker is the gate's executor of ask. A question that is not answered yet is gate.ErrPending; the
// guest returns, the client is asked, and the same call comes again with the answers, is decided
// again and runs in a fresh guest.
type Asker struct{}

var _ gate.Executor = Asker{}

// Lookup finds nothing: a question has no facts.
func (Asker) Lookup(context.Context, gate.Question) (gate.Facts, error) { return gate.Facts{}, nil }

// End has nothing to free.
func (Asker) End(context.Context, *gate.Call) {}

// Execute answers with what the user has said in an earlier round. The error is gate.ErrPending, or
// a *gate.OpError with the code unavailable or bad_question.
func (Asker) Execute(ctx context.Context, q gate.Question, _ gate.Decision) (gate.Result, error) {
	op, isAsk := q.Op.(abi.Ask)
	a, _ := ctx.Value(askingKey{}).(*asking)
	if !isAsk || a == nil {
		return gate.Result{}, errNobody
	}
	return a.ask(op)
}

var errNobody = &gate.OpError{
	Code:    "unavailable",
	Message: "the caller's client cannot ask its user",
	Outcome: gate.Failed,
}

type askingKey struct{}

// asking is what one call asks and was answered.
type asking struct {
	// the client can ask its user, and may be asked in this round; there is room for its question
	can    bool
	sealed sealed
	args   []byte

	mu      sync.Mutex // guards the following
	answers map[string]said
	pending map[string]abi.Ask
	confirm confirming
}

// said is what a user said: action is accept, decline or cancel.
type said struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content,omitempty"`
}

func (a *asking) ask(op abi.Ask) (gate.Result, error) {
	fail := func(code, format string, args ...any) (gate.Result, error) {
		return gate.Result{}, &gate.OpError{
			Code:    code,
			Message: fmt.Sprintf(format, args...),
			Outcome: gate.Failed,
		}
	}
	if len(op.Key) == 0 || len(op.Key) > 64 || clean(op.Key) != op.Key || op.Key == confirmKey {
		return fail("bad_question", "key: want 1 to 64 plain characters, and not %s", confirmKey)
	}
	if len(op.Message) == 0 || len(op.Message) > 4000 {
		return fail("bad_question", "message: want 1 to 4000 bytes")
	}
	if err := checkForm(op.Schema); err != nil {
		return fail("bad_question", "schema: %s", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, answered := a.answers[op.Key]; answered {
		if r.Action != "accept" || fits(op.Schema, r.Content) == nil {
			return gate.Result{Value: r}, nil
		}
		delete(a.answers, op.Key) // the question is another one, or was answered wrong: ask again
	}
	if !a.can {
		return gate.Result{}, errNobody
	}
	if len(a.pending)+len(a.answers) >= maxAsks {
		return fail("bad_question", "a call may ask at most %d questions", maxAsks)
	}
	a.pending[op.Key] = op
	return gate.Result{}, gate.ErrPending
}

// sealed is what a call's state says. It leaves the host only encrypted, and comes back once.
type sealed struct {
	Caller  string          `json:"caller"`
	Tool    string          `json:"tool"` // kind, name and digest of its plugin
	Args    string          `json:"args"` // digest
	Nonce   string          `json:"nonce"`
	Expires time.Time       `json:"expires"`
	Round   int             `json:"round"` // that asked
	Asked   []string        `json:"asked"`
	Answers map[string]said `json:"answers"`
	// Approval is the request that the user was asked to approve, or "".
	Approval string `json:"approval"`
}

// seals keeps the key of a process's states and which of them are still good.
type seals struct {
	once sync.Once
	aead cipher.AEAD

	mu   sync.Mutex         // guards the following
	open map[string][]nonce // by caller, the oldest first
	all  int
}

type nonce struct {
	id      string
	expires time.Time
}

func (s *seals) cipher() cipher.AEAD {
	s.once.Do(func() {
		var key [32]byte
		rand.Read(key[:])
		block, err := aes.NewCipher(key[:])
		if err == nil {
			s.aead, err = cipher.NewGCMWithRandomNonce(block)
		}
		if err != nil { // the key has the right size
			panic(err)
		}
	})
	return s.aead
}

func (s *seals) seal(v sealed, now time.Time) (string, error) {
	v.Nonce, v.Expires = rand.Text(), now.Add(askTime)
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.open[v.Caller]; len(mine) >= maxMine || s.all >= maxPending && len(mine) > 0 {
		s.keep(v.Caller, mine[1:])
	}
	s.keep(v.Caller, append(s.open[v.Caller], nonce{v.Nonce, v.Expires}))
	return base64.RawURLEncoding.EncodeToString(s.cipher().Seal(nil, nil, plain, nil)), nil
}

// keep sets what a caller has open.
func (s *seals) keep(caller string, mine []nonce) {
	s.all += len(mine) - len(s.open[caller])
	if len(mine) == 0 {
		delete(s.open, caller)
		return
	}
	if s.open == nil {
		s.open = map[string][]nonce{}
	}
	s.open[caller] = mine
}

// room says whether the caller may be asked something: whoever has a question open may, in its
// place. Calls that run may go over the limit, by one each.
func (s *seals) room(caller string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxPending {
		for of, theirs := range s.open {
			s.keep(
				of,
				slices.DeleteFunc(theirs, func(n nonce) bool { return now.After(n.expires) }),
			)
		}
	}
	return s.all < maxPending || len(s.open[caller]) > 0
}

// unseal gives back what seal sealed, once.
func (s *seals) unseal(state string, now time.Time) (v sealed, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(state)
	if err != nil {
		return v, false
	}
	plain, err := s.cipher().Open(nil, nil, raw, nil)
	if err != nil || json.Unmarshal(plain, &v) != nil {
		return v, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.open[v.Caller]
	at := slices.IndexFunc(mine, func(n nonce) bool { return n.id == v.Nonce })
	if at < 0 {
		return v, false
	}
	s.keep(v.Caller, slices.Concat(mine[:at], mine[at+1:]))
	return v, now.Before(v.Expires)
}

// rounds is what a request says of the rounds before it, whatever its method.
type rounds struct {
	state     string
	responses mcp.InputResponseMap
	caps      *mcp.ClientCapabilities
	version   string
}

var errState = &jsonrpc.Error{
	Code:    jsonrpc.CodeInvalidParams,
	Message: "requestState is not one that this call was given, was used already or has expired; make the call again without it",
}

// asking opens the rounds of a call. Answers count only for what this very call asked the same
// caller before: anybody can send answers.
func (s *Server) asking(who caller, tool *gate.Tool, args []byte, r rounds) (*asking, error) {
	want := sealed{
		Round:  1,
		Caller: who.owner(),
		Tool:   tool.Kind + ":" + tool.Name + "@" + tool.Plugin.Digest,
	}
	a := &asking{
		sealed:  want,
		args:    args,
		answers: map[string]said{},
		pending: map[string]abi.Ask{},
		can: r.caps != nil && r.caps.Elicitation != nil &&
			(r.caps.Elicitation.Form != nil || r.caps.Elicitation.URL == nil) &&
			s.seals.room(want.Caller, time.Now()),
	}
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
	// not when only an approval was asked for: the guest has not run
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
	// The SDK asks clients of the older versions itself, once; a second question would go out as an
	// empty success.
	a.can = a.can && slices.Contains(statelessVersions, r.version)
	return a, nil
}

// digestOf is over the value of arguments, so that a client may write them in another order the
// second time. What the gate would refuse has a digest of its own.
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

// questions gives what must be asked before the call can go on, or nothing when the guest has gone
// on without. What the guest says of its failure does not count: it failed after the host had told
// it to return.
func (s *Server) questions(a *asking, code int) (mcp.InputRequestMap, string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 || code == 0 {
		return nil, "", nil
	}
	asks, next := mcp.InputRequestMap{}, a.sealed
	next.Args, next.Answers = digestOf(a.args), a.answers
	for key, op := range a.pending {
		asks[key] = &mcp.ElicitParams{
			Mode:            "form",
			Message:         "A plugin asks: " + (&budget{left: 4000}).take(op.Message),
			RequestedSchema: op.Schema,
		}
		next.Asked = append(next.Asked, key)
	}
	state, err := s.seals.seal(next, time.Now())
	return asks, state, err
}
