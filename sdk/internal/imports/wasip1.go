//go:build wasip1

package imports

import (
	"runtime"
	"unsafe"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// One import for each operation, each reached by one function, so that the linker keeps only the
// imports that a plugin uses.

//go:wasmimport caponier_v1 ssh_exec
func ssh_exec(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 ssh_script
func ssh_script(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 stage
func stage(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_stat
func sftp_stat(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_list
func sftp_list(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_read
func sftp_read(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_write
func sftp_write(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_get
func sftp_get(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_put
func sftp_put(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 sftp_remove
func sftp_remove(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 http_request
func http_request(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 blob_write
func blob_write(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 blob_read
func blob_read(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 list_commands
func list_commands(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 ask
func ask(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 undo_steps
func undo_steps(p unsafe.Pointer, n uint32) abi.Status

//go:wasmimport caponier_v1 snapshots
func snapshots(p unsafe.Pointer, n uint32) abi.Status

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

func SSHExec(b []byte) (abi.Status, []byte)      { return answer(ssh_exec(ptr(b), size(b))) }
func SSHScript(b []byte) (abi.Status, []byte)    { return answer(ssh_script(ptr(b), size(b))) }
func Stage(b []byte) (abi.Status, []byte)        { return answer(stage(ptr(b), size(b))) }
func SFTPStat(b []byte) (abi.Status, []byte)     { return answer(sftp_stat(ptr(b), size(b))) }
func SFTPList(b []byte) (abi.Status, []byte)     { return answer(sftp_list(ptr(b), size(b))) }
func SFTPRead(b []byte) (abi.Status, []byte)     { return answer(sftp_read(ptr(b), size(b))) }
func SFTPWrite(b []byte) (abi.Status, []byte)    { return answer(sftp_write(ptr(b), size(b))) }
func SFTPGet(b []byte) (abi.Status, []byte)      { return answer(sftp_get(ptr(b), size(b))) }
func SFTPPut(b []byte) (abi.Status, []byte)      { return answer(sftp_put(ptr(b), size(b))) }
func SFTPRemove(b []byte) (abi.Status, []byte)   { return answer(sftp_remove(ptr(b), size(b))) }
func HTTPRequest(b []byte) (abi.Status, []byte)  { return answer(http_request(ptr(b), size(b))) }
func BlobWrite(b []byte) (abi.Status, []byte)    { return answer(blob_write(ptr(b), size(b))) }
func BlobRead(b []byte) (abi.Status, []byte)     { return answer(blob_read(ptr(b), size(b))) }
func ListCommands(b []byte) (abi.Status, []byte) { return answer(list_commands(ptr(b), size(b))) }
func Ask(b []byte) (abi.Status, []byte)          { return answer(ask(ptr(b), size(b))) }
func UndoSteps(b []byte) (abi.Status, []byte)    { return answer(undo_steps(ptr(b), size(b))) }
func Snapshots(b []byte) (abi.Status, []byte)    { return answer(snapshots(ptr(b), size(b))) }

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
