package input

import "reflect"

// Types are those of the documents, by the package that decides them.
var Types = map[string]reflect.Type{"call": reflect.TypeFor[Call](),
	"operation": reflect.TypeFor[Operation](), "visible": reflect.TypeFor[visible](),
	"plan": reflect.TypeFor[plan](), "listing": reflect.TypeFor[List](),
	"result": reflect.TypeFor[Result]()}
