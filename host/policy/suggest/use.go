// Package suggest says which powers the journal shows to be of use. It writes nothing.
package suggest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown/cache"
)

// use is what a question needs of a role, as core/use.rego says.
type use struct {
	Tool     string     `json:"tool"` // as a role lists it
	Tier     string     `json:"tier"`
	Roles    []string   `json:"roles"` // those that grant all of it
	Nodes    []string   `json:"nodes"`
	Commands []string   `json:"commands"`
	Entries  [][]string `json:"entries"` // paths in the site's data that were of use
	Named    struct {
		Guests   []string `json:"guests"`
		Hosts    []string `json:"hosts"`
		Paths    []string `json:"paths"`
		Services []string `json:"services"`
	} `json:"named"`
	Pointed bool `json:"pointed"` // the role may list guests or services
}

// question is a recorded question, in today's form.
type question struct {
	terms.Record
	Head    *input.Head
	Targets terms.Targets
	// Approved says how its call was confirmed: approved, argument or none.
	Approved string
	doc      any
}

// read returns a recorded question. Its errors match [input.ErrForm] where it is of another form.
func read(rec terms.Record) (q question, err error) {
	if len(rec.Input) == 0 || rec.Revision == "" {
		return q, fmt.Errorf("%w: policy was not asked", input.ErrForm)
	}
	q.Record = rec
	if q.doc, err = input.Parse(rec.Input); err != nil {
		return q, err
	}
	switch doc := q.doc.(type) {
	case *input.Call:
		q.Head, q.Targets, q.Approved = &doc.Head, doc.Targets, doc.Confirmation.State
	case *input.Operation:
		q.Head, q.Targets, q.Approved = &doc.Head, doc.Parent.Targets,
			doc.Parent.Confirmation.State
	default:
		return q, fmt.Errorf("%w: is neither a call nor an operation", input.ErrForm)
	}
	if q.Head.Principal.ID != rec.Principal || q.Head.Tool.Name != rec.Tool {
		return q, fmt.Errorf("%w: the record names another caller or tool than its question",
			input.ErrForm)
	}
	return q, nil
}

// An asker asks one policy about recorded questions.
type asker struct {
	*load.Candidate
	query    rego.PreparedEvalQuery
	patterns cache.InterQueryValueCache
}

func newAsker(ctx context.Context, c *load.Candidate) (*asker, error) {
	q, err := rego.New(rego.Query("data.caponier.core.use.of"), rego.Compiler(c.Rules.Compiler),
		rego.Store(c.Rules.Store), rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	limit := 4096
	return &asker{c, q, cache.NewInterQueryValueCache(ctx, &cache.Config{
		InterQueryBuiltinValueCache: cache.InterQueryBuiltinValueCacheConfig{MaxNumEntries: &limit},
	})}, err
}

// decide answers a question with this policy. An error of the policy is a refusal.
func (a *asker) decide(ctx context.Context, q question) (terms.Decision, ast.Value) {
	in, err := a.Rules.Input(ctx, q.doc)
	if err == nil {
		var d terms.Decision
		if d, err = a.Rules.Answer(ctx, in); err == nil {
			return d, in
		}
	}
	return terms.Decision{Failed: []string{"policy.error"},
		Denied: []terms.Reason{{ID: "policy.error", Msg: err.Error()}}}, in
}

// use returns what a question that this policy allows makes use of.
func (a *asker) use(ctx context.Context, in ast.Value) (u use, err error) {
	rs, err := a.query.Eval(ctx, rego.EvalParsedInput(in),
		rego.EvalInterQueryBuiltinValueCache(a.patterns))
	if err != nil {
		return u, err
	}
	if len(rs) != 1 {
		return u, errors.New("core/use.rego has no answer")
	}
	v, err := ast.InterfaceToValue(rs[0].Expressions[0].Value)
	if err != nil {
		return u, err
	}
	return u, value.Read("use", v, &u)
}

// each calls f with every record, on all processors at once, until f fails.
func each(ctx context.Context, records iter.Seq[terms.Record],
	f func(context.Context, terms.Record) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan terms.Record, 64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for rec := range work {
				if err := f(ctx, rec); err != nil {
					cancel(fmt.Errorf("decision %s: %w", rec.ID, err))
				}
			}
		})
	}
	for rec := range records {
		select {
		case work <- rec:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// decided reports whether policy was asked about a call or an operation of a principal.
func decided(rec terms.Record) bool {
	return rec.Type != "outcome" && (rec.Kind == "call" || rec.Kind == "operation") &&
		rec.Principal != "host"
}
