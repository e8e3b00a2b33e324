//go:build wasip1

package imports

import (
	"runtime"
	"unsafe"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

//go:wasmimport caponier_v1 input_len
func input_len() uint32

//go:wasmimport caponier_v1 input_read
func input_read(p unsafe.Pointer, n uint32) uint32

//go:wasmimport caponier_v1 output_write
func output_write(p unsafe.Pointer, n uint32) uint32

//go:wasmimport caponier_v1 resp_len
func resp_len() uint32

//go:wasmimport caponier_v1 resp_read
func resp_read(p unsafe.Pointer, n uint32) uint32

//go:wasmimport caponier_v1 log
func log(level uint32, p unsafe.Pointer, n uint32)

//go:wasmimport caponier_v1 progress
func progress(p unsafe.Pointer, n uint32)

func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
func size(b []byte) uint32        { return uint32(len(b)) }

// answer yields first: the host has worked while this guest's collector could not.
func answer(s abi.Status) (abi.Status, []byte) {
	runtime.Gosched()
	b := make([]byte, resp_len())
	return s, b[:resp_read(ptr(b), size(b))]
}

// ReadInput returns the whole input of the call.
func ReadInput() []byte {
	b := make([]byte, input_len())
	return b[:input_read(ptr(b), size(b))]
}

// WriteOutput appends to the output of the call.
func WriteOutput(b []byte) bool { return output_write(ptr(b), size(b)) == 0 }

func Log(level int32, b []byte) { log(uint32(level), ptr(b), size(b)) }
func Note(b []byte)             { progress(ptr(b), size(b)) }
