package policy

import (
	"encoding/json"
	"reflect"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/open-policy-agent/opa/v1/ast"
)

// What the tests in package policy_test see of this package; they import load, which imports it.

const Masked, MinSecret = masked, minSecret

// InputOf returns the input of a question, as a value and as the journal would hold it unmasked.
func InputOf(q *gate.Question, roles []string) ast.Value {
	return term(reflect.ValueOf(document(q, roles))).Value
}

// Journaled returns what the journal holds of a question if a site redacts these arguments.
func Journaled(q *gate.Question, redact []string) (json.RawMessage, bool) {
	in := document(q, nil)
	return newMask(q.Call, redact).journaled(in, term(reflect.ValueOf(in)).Value)
}

// RequestOf returns query, header names and body digest of the HTTP request of a question.
func RequestOf(q *gate.Question) (query string, headers []string, digest string) {
	r := document(q, nil).(*operationInput).HTTP
	return r.Query, r.Headers, r.BodySHA256
}

func Digest(data []byte) string                       { return digest(data) }
func Hidden(text, secret string) string               { return hidden(text, secret) }
func ReadDecision(v ast.Value) (gate.Decision, error) { return decision(v) }

// Inputs are the types of the input documents.
func Inputs() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[callInput](), reflect.TypeFor[operationInput](),
		reflect.TypeFor[visibleInput]()}
}
