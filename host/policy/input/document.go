package input

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Max is the size of the largest document that is read, in bytes.
const Max = 4 << 20

// ErrForm is matched by errors that say that a document is not in the form of this version's input,
// so that today's rules cannot be held against it.
var ErrForm = errors.New("not an input of this version")

// Parse reads a document that somebody wrote, or that the journal holds: it returns a *Call, an
// *Operation, a *plan or a *visible. Duplicate, missing and unknown members, and values of another
// type, are errors that match [ErrForm].
func Parse(data []byte) (any, error) {
	if _, err := abi.Decode(data, Max); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	v, err := ast.ValueFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	var doc any
	switch schema := schemaOf(v); schema {
	case callSchema:
		doc = &Call{}
	case operationSchema:
		doc = &Operation{}
	case visibleSchema:
		doc = &visible{}
	case planSchema:
		doc = &plan{}
	default:
		return nil, fmt.Errorf("%w: schema %q is none of %s, %s, %s, %s", ErrForm, schema,
			callSchema, operationSchema, planSchema, visibleSchema)
	}
	if err := value.Read("input", v, doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	return doc, nil
}

// Who returns the principal of a document, to be changed.
func Who(doc any) *Principal {
	return &doc.(interface{ head() *Head }).head().Principal
}

func (h *Head) head() *Head { return h }

// Entry returns the package below caponier.core that decides an input, or "".
func Entry(input ast.Value) string {
	return map[string]string{
		callSchema: "call", operationSchema: "operation", visibleSchema: "visible",
		planSchema: "plan",
	}[schemaOf(input)]
}

func schemaOf(input ast.Value) string {
	if doc, ok := input.(ast.Object); ok {
		if t := doc.Get(ast.InternedTerm("schema")); t != nil {
			return value.Text(t)
		}
	}
	return ""
}

// Of returns the input of a question: *Call, *Operation, *plan or *visible.
// Roles are the effective ones.
func Of(q *terms.Question, roles []string) any {
	c, t := q.Call, q.Time.UTC()
	h := Head{
		ID: q.ID, Kind: c.Tool.Kind, Source: c.Source, Plugin: c.Tool.Plugin, Mode: q.Mode,
		Planning: c.Planning,
		Time:     Clock{t.UnixMilli(), t.Hour(), t.Minute(), int(t.Weekday())},
		Principal: Principal{c.Principal.ID, c.Principal.Auth, roles, c.Principal.Roles,
			c.Principal.Narrowed},
		Tool: Tool{c.Tool.Name, c.Tool.Imports, c.Tool.Commands, c.Tool.TargetKinds, c.Tool.Hints},
	}
	if q.Facts.Guests != nil {
		h.Guests = &q.Facts.Guests
	}
	a := Args{c.Args.Digest, len(c.Args.JSON), c.Args.Scalars, c.Args.Omitted}
	switch q.Kind {
	case terms.KindCall:
		h.Schema = callSchema
		return &Call{h, a, c.Targets, nodesOf(c), commandsOf(c.Commands), c.Confirmation,
			q.Facts.Counts}
	case terms.KindOperation:
		h.Schema = operationSchema
		in := &Operation{Head: h, Args: a, Phase: q.Phase.String(), Nodes: nodesOf(c)}
		in.Parent = Parent{c.ID, c.Tool.Name, c.Decided.Tier.String(), c.Targets, c.Clusters,
			commandsOf(c.Commands), c.Stages, c.Confirmation, c.Decided.Revision}
		if q.Op != nil {
			in.operation(q)
		}
		return in
	case terms.KindPlan:
		return planOf(h, a, q)
	}
	h.Schema = visibleSchema
	return &visible{h, c.Targets}
}
