package memo

import "github.com/open-policy-agent/opa/v1/ast"

// typed are the built-in functions that ask for the type of a value alone.
var typed = map[string]bool{
	"is_array": true, "is_boolean": true, "is_null": true, "is_number": true, "is_object": true,
	"is_set": true, "is_string": true,
}

// typesOnly returns the expressions of a rule that bind a member of the input to a variable of the
// compiler's, which nothing uses but one question for its type:
//
//	__local0__ = input.id; is_string(__local0__)
func typesOnly(r *ast.Rule) map[*ast.Expr]ast.Ref {
	uses, asked := map[ast.Var]int{}, map[ast.Var]bool{}
	ast.WalkVars(r, func(v ast.Var) bool { uses[v]++; return false })
	ast.WalkExprs(r, func(e *ast.Expr) bool {
		if v, ok := operand(e, 0).(ast.Var); ok && e.IsCall() && typed[e.Operator().String()] {
			asked[v] = true
		}
		return false
	})
	found := map[*ast.Expr]ast.Ref{}
	ast.WalkExprs(r, func(e *ast.Expr) bool {
		if !e.IsEquality() || len(e.With) > 0 || e.Negated {
			return false
		}
		v, isVar := operand(e, 0).(ast.Var)
		ref, isRef := operand(e, 1).(ast.Ref)
		if isVar && isRef && v.IsGenerated() && asked[v] && uses[v] == 2 &&
			ref.HasPrefix(ast.InputRootRef) && ref.IsGround() {
			found[e] = ref
		}
		return false
	})
	return found
}

func operand(e *ast.Expr, i int) ast.Value {
	if t := e.Operand(i); t != nil {
		return t.Value
	}
	return nil
}
