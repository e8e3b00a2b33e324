// Package policy answers the gate's questions in Rego.
package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/policy/plan"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Options say where the site's policy is.
type Options struct {
	// Site is the folder with the site's data.yaml and, if it has rules, their Rego and tests.
	Site string `koanf:"site" path:"true"`
	// Deadline is how long one decision may take before it is a refusal; 0 is 1s. A decision takes
	// well under a millisecond: this bounds a runaway rule, not a busy machine.
	Deadline time.Duration `koanf:"-"`
	// OnRevision is called with each revision before it decides anything, and with everything that
	// is needed to decide and explain with it again. When it fails, the revision is not taken. Nil
	// keeps nothing.
	OnRevision func(revision string, bundle []byte) error `koanf:"-"`
}

// Validate names what is missing.
func (o Options) Validate() error {
	switch {
	case o.Site == "":
		return errors.New("site: name the folder with the site's data.yaml, such as policies/site")
	case o.Deadline < 0 || o.Deadline > 10*time.Second:
		return fmt.Errorf("deadline: %s is not between 0 and 10s", o.Deadline)
	}
	return nil
}

// Engine decides with the newest good revision. Its methods may be called concurrently. The zero
// Engine refuses everything.
type Engine struct {
	options Options
	current atomic.Pointer[revision]
	reload  sync.Mutex // one reload at a time
}

var _ gate.Decider = (*Engine)(nil)

// New loads the site. Its error says which file and line must change.
func New(ctx context.Context, o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{options: o}
	return e, e.Reload(ctx)
}

// Reload reads the site again: build, check, run its tests, then change over at once. When anything
// is wrong the error says what, and the revision in force stays.
func (e *Engine) Reload(ctx context.Context) error {
	e.reload.Lock()
	defer e.reload.Unlock()
	files, err := siteFiles(e.options.Site)
	if err != nil {
		return err
	}
	next, err := build(ctx, files)
	if err != nil {
		return fmt.Errorf("policy of %s: %w", e.options.Site, err)
	}
	if now := e.current.Load(); now != nil && now.id == next.id {
		return nil
	}
	if e.options.OnRevision != nil {
		if err := e.options.OnRevision(next.id, next.bundle); err != nil {
			return fmt.Errorf("keeping policy revision %s: %w", next.id, err)
		}
	}
	e.current.Store(next)
	return nil
}

// Revision is the digest of everything that the decisions in force depend on, or "" when there is
// no policy.
func (e *Engine) Revision() string {
	if r := e.current.Load(); r != nil {
		return r.id
	}
	return ""
}

// Warnings names what the policy in force says about nodes that are in neither the inventory nor
// its own cluster_nodes: such an entry is a misspelt name, or one that protects and grants nothing.
func (e *Engine) Warnings(inventory []string) (found []string) {
	r := e.current.Load()
	if r == nil {
		return nil
	}
	known := append(textsAt(r.data, "site", "cluster_nodes"), inventory...)
	site, _ := r.data["site"].(map[string]any)
	ask := func(at, name string) {
		if name != "*" && !slices.Contains(known, name) {
			found = append(
				found,
				fmt.Sprintf(
					"%s: no node is called %q: neither the inventory nor cluster_nodes has it",
					at,
					name,
				),
			)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(part(part(site, "protected"), "nodes"))) {
		ask("protected/nodes", name)
	}
	services, _ := part(site, "protected")["services"].([]any)
	for _, v := range services {
		service, _ := v.(map[string]any)
		for _, name := range textsAt(map[string]any{"": service}, "", "nodes") {
			ask(fmt.Sprintf("protected/services/%v", service["service"]), name)
		}
	}
	for _, role := range slices.Sorted(maps.Keys(part(site, "roles"))) {
		for _, name := range textsAt(part(site, "roles"), role, "nodes") {
			ask("roles/"+role, name)
		}
	}
	return found
}

// Decide answers one question with one revision. An error is a refusal; the decision then holds the
// input all the same.
func (e *Engine) Decide(ctx context.Context, q gate.Question) (d gate.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = gate.Decision{Input: d.Input, Masked: d.Masked}, fmt.Errorf("panic: %v", p)
		}
	}()
	r := e.current.Load()
	if r == nil {
		return d, errors.New("no policy is loaded")
	}
	entry := entries[q.Kind]
	if entry == "" || q.Call == nil || q.Call.Tool == nil {
		return d, errors.New("the question has no kind, call or tool")
	}
	in := document(&q)
	hide := newMask(q.Call, r.redact)
	d.Revision = r.id
	d.Input, d.Masked = hide.journaled(in)
	limit := e.options.Deadline
	if limit == 0 {
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a, err := r.answer(ctx, entry, inputTerm(in).Value)
	if err != nil {
		return d, err
	}
	d = a.decision(d)
	if d.NeedsApproval {
		if d.Shown, err = abi.Encode(hide.shown(q.Call.Args.Value)); err != nil {
			return gate.Decision{Input: d.Input}, fmt.Errorf("showing the arguments: %w", err)
		}
	}
	for i := range d.Denied {
		d.Denied[i].Msg = hide.said(d.Denied[i].Msg)
	}
	return d, nil
}

// entries are the decision's packages by the kind of question. A kind that is not here is refused.
var entries = map[gate.Kind]string{
	gate.KindCall:      "call",
	gate.KindOperation: "operation",
	gate.KindVisible:   "visible",
}

var encoders = planned(
	reflect.TypeFor[callInput](),
	reflect.TypeFor[operationInput](),
	reflect.TypeFor[visibleInput](),
)

func planned(types ...reflect.Type) map[reflect.Type]encoder {
	m := map[reflect.Type]encoder{}
	for _, t := range types {
		m[t] = encoderFor(t)
	}
	return m
}

func inputTerm(in any) *ast.Term {
	v := reflect.ValueOf(in).Elem()
	return encoders[v.Type()].term(v)
}

func inputJSON(in any) json.RawMessage {
	v := reflect.ValueOf(in).Elem()
	return encoders[v.Type()].json(make([]byte, 0, 2048), v)
}

// answer is the decision document, strictly.
type answer struct {
	Schema      string        `json:"schema"`
	Allow       bool          `json:"allow"`
	Tier        string        `json:"tier"`
	Failed      []string      `json:"failed"`
	Deny        []gate.Reason `json:"deny"`
	Confirm     bool          `json:"confirm"`
	Obligations struct {
		TimeoutMS int64    `json:"timeout_ms"`
		MaxBytes  int64    `json:"max_bytes"`
		Redact    []string `json:"redact"`
		Log       string   `json:"log"`
		Channels  []string `json:"channels"`
		Approvers []string `json:"approvers"`
	} `json:"obligations"`
}

// evaluator gives the value of a rule for an input, nil where it is undefined. An error of a
// built-in function is an error.
type evaluator interface {
	Eval(ctx context.Context, rule string, input ast.Value) (ast.Value, error)
}

// evaluatorOf is a variable so that the tests of this package can ask topdown each question too,
// and compare.
var evaluatorOf = func(ctx context.Context, r *revision) (evaluator, error) {
	o := plan.Options{Modules: r.modules, Data: r.data, Capabilities: r.caps}
	for _, entry := range entries {
		o.Entries = append(o.Entries, decisionRule(entry))
	}
	slices.Sort(o.Entries)
	return plan.New(ctx, o)
}

func decisionRule(entry string) string { return "caponier/core/" + entry + "/decision" }

// answer evaluates one entry point. Anything but one whole, consistent decision is an error.
func (r *revision) answer(
	ctx context.Context,
	entry string,
	input ast.Value,
) (a answer, err error) {
	v, err := r.rules.Eval(ctx, decisionRule(entry), input)
	switch {
	case ctx.Err() != nil:
		return a, fmt.Errorf("deciding took too long: %w", context.Cause(ctx))
	case err != nil:
		return a, err
	case v == nil:
		return a, errors.New("the decision is undefined")
	}
	if err := a.decode(v); err != nil {
		return a, fmt.Errorf("the decision is malformed: %w", err)
	}
	return a, nil
}

func (a *answer) decode(v ast.Value) error {
	f := fieldsOf(v)
	a.Schema, a.Allow, a.Tier, a.Confirm = f.text(
		"schema",
	), f.truth(
		"allow",
	), f.text(
		"tier",
	), f.truth(
		"confirm",
	)
	a.Failed = f.texts("failed")
	f.each("deny", func(d *ast.Term) {
		g := fieldsOf(d.Value)
		a.Deny = append(a.Deny, gate.Reason{ID: g.text("id"), Msg: g.text("msg")})
		f.fail(g.done())
	})
	g := fieldsOf(f.value("obligations"))
	a.Obligations.TimeoutMS, a.Obligations.MaxBytes, a.Obligations.Redact, a.Obligations.Log, a.Obligations.Channels, a.Obligations.Approvers = g.number(
		"timeout_ms",
	), g.number(
		"max_bytes",
	), g.texts(
		"redact",
	), g.text(
		"log",
	), g.texts(
		"channels",
	), g.texts(
		"approvers",
	)
	f.fail(g.done())
	if err := f.done(); err != nil {
		return err
	}
	switch tier := gate.ParseTier(a.Tier); {
	case a.Schema != "caponier.decision/1":
		return fmt.Errorf("schema %q is not caponier.decision/1", a.Schema)
	case tier == gate.NoTier:
		return fmt.Errorf("tier %q is no tier", a.Tier)
	case a.Allow && (tier == gate.Black || len(a.Failed)+len(a.Deny) > 0 || a.Confirm):
		return errors.New("it allows and refuses at once")
	case !a.Allow && len(a.Failed) == 0:
		return errors.New("it refuses and names no check")
	case a.Obligations.TimeoutMS < 0 || a.Obligations.MaxBytes < 0:
		return errors.New("an obligation is negative")
	}
	return nil
}

func (a answer) decision(d gate.Decision) gate.Decision {
	d.Allow, d.Tier, d.Failed, d.Denied, d.NeedsApproval = a.Allow, gate.ParseTier(
		a.Tier,
	), a.Failed, a.Deny, a.Confirm
	d.Obligations = gate.Obligations{
		Timeout:   time.Duration(a.Obligations.TimeoutMS) * time.Millisecond,
		MaxBytes:  a.Obligations.MaxBytes,
		Log:       a.Obligations.Log,
		Channels:  a.Obligations.Channels,
		Approvers: a.Obligations.Approvers,
	}
	return d
}

// fields reads the members of an object of the decision and remembers the first that is not as it
// must be.
type fields struct {
	doc  ast.Object
	left int // members that were not asked for yet
	err  error
}

func fieldsOf(v ast.Value) *fields {
	doc, ok := v.(ast.Object)
	if !ok {
		return &fields{ast.NewObject(), 0, fmt.Errorf("it is not an object but %v", v)}
	}
	return &fields{doc, doc.Len(), nil}
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fields) value(name string) ast.Value {
	f.left--
	if t := f.doc.Get(ast.InternedTerm(name)); t != nil {
		return t.Value
	}
	f.fail(fmt.Errorf("%s is missing", name))
	return nil
}

func field[T ast.Value](f *fields, name string) T {
	value := f.value(name)
	v, ok := value.(T)
	if !ok {
		f.fail(fmt.Errorf("%s is %v", name, value))
	}
	return v
}

func (f *fields) text(name string) string { return string(field[ast.String](f, name)) }
func (f *fields) truth(name string) bool  { return bool(field[ast.Boolean](f, name)) }

func (f *fields) each(name string, do func(*ast.Term)) {
	if list := field[*ast.Array](f, name); list != nil {
		list.Foreach(do)
	}
}

func (f *fields) texts(name string) (texts []string) {
	f.each(name, func(t *ast.Term) {
		s, ok := t.Value.(ast.String)
		if !ok {
			f.fail(fmt.Errorf("%s holds %v", name, t))
		}
		texts = append(texts, string(s))
	})
	return texts
}

func (f *fields) number(name string) int64 {
	n, ok := field[ast.Number](f, name).Int64()
	if !ok {
		f.fail(fmt.Errorf("%s is not a whole number", name))
	}
	return n
}

func (f *fields) done() error {
	if f.err == nil && f.left != 0 {
		return fmt.Errorf("there are %d members too many or too few", f.left)
	}
	return f.err
}
