// Package returned asks the rules in force what may go back to a client.
package returned

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/result"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Asker asks the rules that Rules returns, nil while there are none. It is safe for concurrent use.
type Asker struct {
	Rules  func() *policy.Rules
	latest atomic.Pointer[compiled]
}

var _ result.Policy = (*Asker)(nil)

// deadline is how long one answer may take.
const deadline = time.Second

// compiled is what depends on one revision of the policy.
type compiled struct {
	rules  *policy.Rules
	set    *result.Set
	always bool // a rule of the site decides on results
	known  memo.ByInput[result.Answer]
}

// Detectors implements result.Policy.
func (a *Asker) Detectors(ctx context.Context) (*result.Set, bool, error) {
	c, err := a.current(ctx)
	if err != nil {
		return nil, false, err
	}
	return c.set, c.always, nil
}

func (a *Asker) current(ctx context.Context) (*compiled, error) {
	r := a.Rules()
	if r == nil {
		return nil, errors.New("no policy is loaded")
	}
	if c := a.latest.Load(); c != nil && c.rules == r {
		return c, nil
	}
	v, err := r.Value(ctx, "detectors", ast.NewObject())
	if err != nil {
		return nil, fmt.Errorf("reading the site's detectors: %w", err)
	}
	patterns := map[string]any{}
	if err := value.Read("detectors", v, &patterns); err != nil {
		return nil, err
	}
	var all []result.Pattern
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		re, _ := patterns[name].(string) // "" is refused below
		all = append(all, result.Pattern{Name: name, RE: re})
	}
	c := &compiled{rules: r}
	if c.set, err = result.New(all...); err != nil {
		return nil, err
	}
	c.always = len(r.Compiler.GetRulesWithPrefix(
		ast.MustParseRef("data.caponier.site.result.deny"))) > 0
	c.known.Rule("result", memo.MembersOf(r.Compiler,
		ast.MustParseRef("data.caponier.core.result.answer")))
	a.latest.Store(c)
	return c, nil
}

// answer is the document of an answer.
type answer struct {
	Schema  string         `json:"schema"`
	Actions map[string]any `json:"actions"`
	Deny    []terms.Reason `json:"deny"`
}

// Returns implements result.Policy. Anything but one whole answer is an error.
func (a *Asker) Returns(ctx context.Context, r result.Returned) (result.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	c, err := a.current(ctx)
	if err != nil {
		return result.Answer{}, err
	}
	in, err := c.rules.Input(ctx, input.ResultOf(&r.Question, r.Bytes,
		input.Result{Exit: r.Exit, Saved: r.Saved, Hits: r.Hits}))
	if err != nil {
		return result.Answer{}, err
	}
	key := c.known.Key("result", in)
	if known, ok := c.known.Get(key); ok {
		return known, nil
	}
	v, err := c.rules.Value(ctx, "result", in)
	if err != nil {
		return result.Answer{}, err
	}
	var doc answer
	if err := value.Read("answer", v, &doc); err != nil {
		return result.Answer{}, err
	}
	if doc.Schema != "caponier.returned/1" {
		return result.Answer{}, fmt.Errorf("the answer has the schema %q", doc.Schema)
	}
	got := result.Answer{Actions: map[string]string{}, Denied: doc.Deny}
	for name, action := range doc.Actions {
		got.Actions[name], _ = action.(string) // "" refuses
	}
	c.known.Put(key, got)
	return got, nil
}
