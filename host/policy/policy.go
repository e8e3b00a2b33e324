// Package policy answers the gate's questions in Rego, with OPA's own evaluator.
//
// [Rules] are one revision of the policy, made by the package load. An [Engine] decides with the
// newest of them. Everything that is not one whole, consistent decision is an error, and the gate
// refuses what it has no decision for.
package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/caponier-mcp/caponier/host/policy/redact"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/cache"
)

// defaultDeadline is how long one decision may take. A decision takes a fraction of a millisecond;
// the deadline bounds a rule that does not end.
const defaultDeadline = time.Second

// Engine decides with the rules that it was given last. Its methods may be called concurrently.
// The zero Engine refuses everything.
type Engine struct {
	// Deadline is how long one decision may take; 0 is 1 second. It must not change once
	// the engine is in use.
	Deadline time.Duration
	current  atomic.Pointer[Rules]
}

var _ terms.Decider = (*Engine)(nil)

// Use makes r decide everything from now on.
func (e *Engine) Use(r *Rules) { e.current.Store(r) }

// Rules returns the rules in force, or nil.
func (e *Engine) Rules() *Rules { return e.current.Load() }

// Decide answers one question with one revision. An error is a refusal; the decision then holds the
// input all the same, where there is one.
func (e *Engine) Decide(ctx context.Context, q terms.Question) (d terms.Decision, err error) {
	r := e.current.Load()
	if r == nil {
		return d, errors.New("no policy is loaded")
	}
	return r.Decide(limited{ctx, time.Now().Add(cmp.Or(e.Deadline, defaultDeadline))}, q)
}

// limited is over after a time. Its Done is that of the context above: a timer would wake a thread
// for each decision, and what decides asks for Err.
type limited struct {
	context.Context
	until time.Time
}

func (l limited) Err() error {
	if time.Now().After(l.until) {
		return context.DeadlineExceeded
	}
	return l.Context.Err()
}

// asking ends an evaluation when its context is over. The evaluator asks before each expression.
type asking struct {
	ctx  context.Context
	n    uint
	over bool
}

func (a *asking) Cancel() { a.over = true }

func (a *asking) Cancelled() bool {
	if a.n++; a.n%64 == 0 && !a.over {
		a.over = a.ctx.Err() != nil
	}
	return a.over
}

// entries are the packages that decide, by the kind of question.
var entries = map[terms.Kind]string{
	terms.KindCall: "call", terms.KindOperation: "operation", terms.KindVisible: "visible",
	terms.KindPlan: "plan",
}

// Source is what [Compile] makes rules of. Compiler has compiled every module. Store holds the data
// and must not be written afterwards.
type Source struct {
	Revision string // digest of everything that the decisions depend on
	Compiler *ast.Compiler
	Store    storage.Store
	Redact   []string // names of arguments whose values are kept out of journal and messages
}

// Rules are one revision of the policy. They do not change, and their methods may be called
// concurrently.
type Rules struct {
	Source
	queries map[string]ast.Body // by entry
	txn     storage.Transaction // reads the store, and is never ended: the store does not change
	values  cache.InterQueryValueCache
	roles   memo.Of[[]string]       // by credential; see effectiveRoles
	visible memo.Of[terms.Decision] // by all that a decision on a list depends on
	allowed memo.ByInput[terms.Decision]
	rate    *memo.Members // that [rateRule] reads
}

// answerVar is bound to the value of a rule by its query.
const answerVar = ast.Var("answer")

// Compile makes rules. The compiler must hold the packages of caponier.core that are queried here.
func Compile(ctx context.Context, s Source) (*Rules, error) {
	r := &Rules{Source: s, queries: map[string]ast.Body{}}
	r.visible.Most = 16_384 // 45 tools on 200 nodes are 9,000
	for entry, rule := range map[string]string{
		"call":      "data.caponier.core.call.decision",
		"visible":   "data.caponier.core.visible.decision",
		"operation": "data.caponier.core.operation.decision",
		"plan":      "data.caponier.core.plan.decision",
		"listing":   "data.caponier.core.listing.allowed",
		"rate":      rateRule,
		"result":    "data.caponier.core.result.answer",
		"detectors": "data.caponier.core.result.detectors",
		"able":      "[c | some c in data.caponier.core.listing.able]",
		"held":      "[b | some b in data.caponier.core.listing.held]",
		"roles":     "[name | some name in data.caponier.core.roles.held]",
	} {
		body := ast.MustParseBody(string(answerVar) + " = " + rule)
		q, err := s.Compiler.QueryCompiler().Compile(body)
		if err != nil {
			return nil, fmt.Errorf("compiling the query for %s: %w", rule, err)
		}
		r.queries[entry] = q
	}
	var err error
	if r.txn, err = s.Store.NewTransaction(ctx); err != nil {
		return nil, err
	}
	apart := r.timeless(ctx)
	for kind, refs := range map[string][]ast.Ref{"operation": apart, "plan": apart,
		"call": append(apart, ast.MustParseRef(rateRule))} {
		r.allowed.Rule(kind, memo.MembersOf(s.Compiler,
			ast.MustParseRef("data.caponier.core."+kind+".allowed"), refs...))
	}
	r.rate = memo.MembersOf(s.Compiler, ast.MustParseRef(rateRule))
	// OPA's own cache of patterns holds 100, fewer than the command grammar has.
	limit := 4096
	r.values = cache.NewInterQueryValueCache(ctx, &cache.Config{
		InterQueryBuiltinValueCache: cache.InterQueryBuiltinValueCacheConfig{MaxNumEntries: &limit},
	})
	return r, nil
}

// timeless returns the rule that reads the time for the hours of roles, if the data say that no
// role has any: then it is undefined, whatever the time.
func (r *Rules) timeless(ctx context.Context) []ast.Ref {
	timed, err := r.Store.Read(ctx, r.txn, storage.MustParsePath("/derived/timed"))
	if err != nil || timed != false && timed != ast.Boolean(false) {
		return nil
	}
	return []ast.Ref{ast.MustParseRef("data.caponier.core.scope.moment")}
}

// Decide answers one question. It sets no deadline of its own.
func (r *Rules) Decide(ctx context.Context, q terms.Question) (d terms.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			d = terms.Decision{Input: d.Input, Masked: d.Masked}
			err = fmt.Errorf("deciding panicked: %v", p)
		}
	}()
	entry := entries[q.Kind]
	if entry == "" || q.Call == nil || q.Call.Tool == nil {
		return d, errors.New("the question has no kind, call or tool")
	}
	if q.Kind == terms.KindVisible {
		return r.decideVisible(ctx, q)
	}
	return r.decide(ctx, entry, q)
}

// decideVisible remembers its answers: lists ask the same for each tool and node again and again.
// A rule about time would not be seen here, and core has none for lists.
func (r *Rules) decideVisible(ctx context.Context, q terms.Question) (terms.Decision, error) {
	c := q.Call
	// in Go syntax, in which no two values are alike
	key := fmt.Sprintf("%#v %#v %q %q %q %#v %#v %#v", c.Principal, c.Source, c.Tool.Kind,
		c.Tool.Name, c.Tool.Plugin.Digest, c.Targets, q.Mode, q.Facts.Guests)
	if d, known := r.visible.Get(key); known {
		return d, nil
	}
	d, err := r.decide(ctx, "visible", q)
	if err == nil {
		d.Input = nil // which is not journaled, and has the time
		r.visible.Put(key, d)
	}
	return d, err
}

func (r *Rules) decide(ctx context.Context, entry string, q terms.Question) (
	d terms.Decision, err error) {
	roles, rolesErr := r.effectiveRoles(ctx, q.Call.Principal)
	in, hide := input.Of(&q, roles), redact.New(q.Call, r.Redact)
	d.Revision = r.Revision
	d.Input, d.Masked = hide.Journaled(in)
	if rolesErr != nil {
		return d, rolesErr
	}
	a, err := r.once(ctx, entry, in)
	if err != nil {
		return d, err
	}
	a.Revision, a.Input, a.Masked = d.Revision, d.Input, d.Masked
	if a.NeedsApproval {
		if a.Shown, err = abi.Encode(hide.Shown(q.Call.Args.Value)); err != nil {
			return d, fmt.Errorf("showing the arguments: %w", err)
		}
	}
	for i := range a.Denied {
		a.Denied[i].Msg = hide.Said(a.Denied[i].Msg)
	}
	return a, nil
}

// Input returns the value that is decided for a document of package input. Its effective roles are
// set to those of this revision, whatever the document says.
func (r *Rules) Input(ctx context.Context, doc any) (ast.Value, error) {
	who := input.Who(doc)
	roles, err := r.effectiveRoles(ctx, terms.Principal{ID: who.ID, Auth: who.Auth,
		Roles: who.CredentialRoles, Narrowed: who.Narrowed})
	if err != nil {
		return nil, err
	}
	who.Roles = roles
	return value.Of(doc), nil
}

// Answer decides a value that [Rules.Input] returned, or one that was decided with this revision
// before. The decision holds no input.
func (r *Rules) Answer(ctx context.Context, in ast.Value) (terms.Decision, error) {
	entry := input.Entry(in)
	if entry == "" {
		return terms.Decision{}, errors.New("the input names no schema that this version knows")
	}
	d, err := r.once(ctx, entry, in)
	d.Revision = r.Revision
	return d, err
}

// Value returns the value of the rule of an entry about a value that [Rules.Input] returned.
func (r *Rules) Value(ctx context.Context, entry string, in ast.Value) (ast.Value, error) {
	return r.eval(ctx, entry, in)
}

// effectiveRoles returns, sorted, the roles that the site and the credential give a principal
// together. Rego says which; it says the same as long as the revision holds, so the answer is
// remembered.
func (r *Rules) effectiveRoles(ctx context.Context, p terms.Principal) (roles []string, err error) {
	key := fmt.Sprintf("%q %q %t %q", p.ID, p.Auth, p.Narrowed, p.Roles)
	if roles, known := r.roles.Get(key); known {
		return roles, nil
	}
	in := map[string]input.Principal{"principal": {ID: p.ID, Auth: p.Auth,
		CredentialRoles: p.Roles, Narrowed: p.Narrowed}}
	v, err := r.eval(ctx, "roles", value.Of(in))
	if err == nil {
		err = value.Read("roles", v, &roles)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the roles of %s: %w", p.ID, err)
	}
	r.roles.Put(key, roles)
	return roles, nil
}

// rateRule alone reads the counts of calls, which no two calls have in common.
const rateRule = "data.caponier.core.check.rate.ok"

// once answers as [Rules.answer], and asks about the same thing once, where that is allowed. What
// refuses, and what a rule decides by the time, by counts or by anything else that differs, is
// asked anew. A decision shares its lists with others. The input is a document or its Rego value.
func (r *Rules) once(ctx context.Context, entry string, in any) (terms.Decision, error) {
	key := r.allowed.Key(entry, in)
	if d, known := r.allowed.Get(key); known && (entry != "call" || r.rateHolds(ctx, in)) {
		return d, nil
	}
	d, err := r.answer(ctx, entry, value.Of(in))
	if err == nil && d.Allow {
		r.allowed.Put(key, d)
	}
	return d, err
}

// rateHolds reports what the key leaves out.
func (r *Rules) rateHolds(ctx context.Context, in any) bool {
	v, err := r.eval(ctx, "rate", r.rate.Of(in))
	return err == nil && ast.Boolean(true).Equal(v)
}

// answer evaluates one entry. Anything but one whole, consistent decision is an error.
func (r *Rules) answer(ctx context.Context, entry string, in ast.Value) (terms.Decision, error) {
	v, err := r.eval(ctx, entry, in)
	if err != nil {
		return terms.Decision{}, err
	}
	d, err := decision(v)
	if err != nil {
		return terms.Decision{}, fmt.Errorf("the decision is malformed: %w", err)
	}
	return d, nil
}

// eval returns the value of the rule of an entry. An undefined rule is an error, as is a built-in
// function that fails.
func (r *Rules) eval(ctx context.Context, entry string, in ast.Value) (v ast.Value, err error) {
	err = topdown.NewQuery(r.queries[entry]).
		WithCompiler(r.Compiler).
		WithStore(r.Store).
		WithTransaction(r.txn).
		WithInput(ast.NewTerm(in)).
		WithCancel(&asking{ctx: ctx}).
		WithStrictBuiltinErrors(true).
		WithInterQueryBuiltinValueCache(r.values).
		Iter(ctx, func(result topdown.QueryResult) error {
			v = result[answerVar].Value
			return nil
		})
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("deciding took too long: %w", context.Cause(ctx))
	case err != nil:
		return nil, err
	case v == nil:
		return nil, errors.New("the decision is undefined")
	}
	return v, nil
}
