// Package imports calls the functions that the host provides to a module, one for each operation.
package imports

// Describe and Call are the module's two exported functions, without its memory between them.
// Package sdk sets them.
var (
	Describe func() ([]byte, error)
	Call     func(input []byte) (code int32, output []byte)
)

// Reset makes the next sdk.Serve the first one, for tests of package sdk. Package sdk sets it.
var Reset func()
