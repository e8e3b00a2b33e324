//go:build !wasip1

package imports

import "github.com/caponier-mcp/caponier/sdk/abi"

// Host answers the operations of a plugin that was built natively, for its tests; sdktest sets it.
// Without one, every operation is a bad request.
var Host func(name string, request []byte) (abi.Status, []byte)

// Notes receives what a natively built plugin logs or reports as progress; nil drops it.
var Notes func(name string, level int32, note []byte)

func request(name string, b []byte) (abi.Status, []byte) {
	if Host == nil {
		return abi.BadRequest, []byte(
			`{"field":"import","message":"no host: test plugins with sdktest"}`,
		)
	}
	return Host(name, b)
}

func Log(level int32, b []byte) {
	if Notes != nil {
		Notes("log", level, b)
	}
}

func Note(b []byte) {
	if Notes != nil {
		Notes("progress", 0, b)
	}
}
