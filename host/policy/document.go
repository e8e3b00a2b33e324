package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// MaxDocument is the size of the largest input document that is read, in bytes.
const MaxDocument = 4 << 20

// ErrForm is matched by errors that say that a document is not in the form of this version's input,
// so that today's rules cannot be held against it.
var ErrForm = errors.New("not an input of this version")

// A Document is an input document that somebody wrote or that the journal holds.
type Document struct{ in any }

// Parse reads a document strictly: duplicate, missing and unknown members, and values of another
// type, are errors. They match [ErrForm].
func Parse(data []byte) (*Document, error) {
	if _, err := abi.Decode(data, MaxDocument); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	v, err := ast.ValueFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	var d Document
	switch schema, _ := schemaOf(v); schema {
	case callSchema:
		d.in = &callInput{}
	case operationSchema:
		d.in = &operationInput{}
	case visibleSchema:
		d.in = &visibleInput{}
	default:
		return nil, fmt.Errorf("%w: schema %q is none of %s, %s, %s", ErrForm, schema, callSchema,
			operationSchema, visibleSchema)
	}
	if err := read("input", v, reflect.ValueOf(d.in).Elem()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	return &d, nil
}

// Input returns the value that is decided for a document. Its effective roles are those of this
// revision, whatever the document says.
func (r *Rules) Input(ctx context.Context, d *Document) (ast.Value, error) {
	who := &d.in.(interface{ base() *head }).base().Principal
	roles, err := r.Roles(ctx, gate.Principal{ID: who.ID, Auth: who.Auth, Roles: who.CredentialRoles,
		Narrowed: who.Narrowed})
	if err != nil {
		return nil, err
	}
	who.Roles = roles
	return term(reflect.ValueOf(d.in)).Value, nil
}

// Answer decides a value that [Rules.Input] returned, or one that was decided with this revision
// before. The decision holds no input.
func (r *Rules) Answer(ctx context.Context, input ast.Value) (gate.Decision, error) {
	_, entry := schemaOf(input)
	if entry == "" {
		return gate.Decision{}, errors.New("the input names no schema that this version knows")
	}
	d, err := r.answer(ctx, entry, input)
	d.Revision = r.Revision
	return d, err
}

// JSON returns the text of a Rego value, with sorted keys.
func JSON(v ast.Value) json.RawMessage { return appendJSON(nil, v, nil) }

// Entry returns the package below caponier.core that decides an input, or "".
func Entry(input ast.Value) string {
	_, entry := schemaOf(input)
	return entry
}

func (h *head) base() *head { return h }

func schemaOf(input ast.Value) (schema, entry string) {
	if doc, ok := input.(ast.Object); ok {
		if t := doc.Get(ast.InternedTerm("schema")); t != nil {
			schema = textOf(t)
		}
	}
	return schema, map[string]string{
		callSchema: "call", operationSchema: "operation", visibleSchema: "visible",
	}[schema]
}

// Members returns the names of the members that the input of an entry has.
func Members(entry string) (names []string) {
	t := map[string]reflect.Type{"call": reflect.TypeFor[callInput](),
		"operation": reflect.TypeFor[operationInput](), "visible": reflect.TypeFor[visibleInput]()}[entry]
	for _, m := range membersOf(t) {
		names = append(names, m.name)
	}
	return names
}
