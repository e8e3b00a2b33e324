//go:build wasip1

package sdk

import (
	"os"
	"runtime"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

const broken = -1 // neither ok nor an error that the tool gave: the host reports a protocol error

//go:wasmexport caponier_v1_describe
func exportDescribe() int32 {
	defer runtime.Gosched()
	b, err := describe()
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return broken
	}
	if !imports.WriteOutput(b) {
		return broken
	}
	return abi.CallOK
}

//go:wasmexport caponier_v1_call
func exportCall() int32 {
	// When an exported function returns, the other goroutines stand still, the collector's among
	// them: without yielding here, garbage is never freed.
	defer runtime.Gosched()
	code, out := call(imports.ReadInput())
	if !imports.WriteOutput(out) {
		return broken
	}
	return code
}
