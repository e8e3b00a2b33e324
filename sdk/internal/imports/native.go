//go:build !wasip1

package imports

import "github.com/caponier-mcp/caponier/sdk/abi"

// Host answers the operations of a plugin that was built natively, for its tests; sdktest sets it.
// Without one, every operation is a bad request.
var Host func(name string, request []byte) (abi.Status, []byte)

// Notes receives what a natively built plugin logs or reports as progress; nil drops it.
var Notes func(name string, level int32, note []byte)

func ask(name string, request []byte) (abi.Status, []byte) {
	if Host == nil {
		return abi.BadRequest, []byte(
			`{"field":"import","message":"no host: test plugins with sdktest"}`,
		)
	}
	return Host(name, request)
}

func SSHExec(b []byte) (abi.Status, []byte)      { return ask("ssh_exec", b) }
func SSHScript(b []byte) (abi.Status, []byte)    { return ask("ssh_script", b) }
func Stage(b []byte) (abi.Status, []byte)        { return ask("stage", b) }
func SFTPStat(b []byte) (abi.Status, []byte)     { return ask("sftp_stat", b) }
func SFTPList(b []byte) (abi.Status, []byte)     { return ask("sftp_list", b) }
func SFTPRead(b []byte) (abi.Status, []byte)     { return ask("sftp_read", b) }
func SFTPWrite(b []byte) (abi.Status, []byte)    { return ask("sftp_write", b) }
func SFTPGet(b []byte) (abi.Status, []byte)      { return ask("sftp_get", b) }
func SFTPPut(b []byte) (abi.Status, []byte)      { return ask("sftp_put", b) }
func SFTPRemove(b []byte) (abi.Status, []byte)   { return ask("sftp_remove", b) }
func HTTPRequest(b []byte) (abi.Status, []byte)  { return ask("http_request", b) }
func BlobWrite(b []byte) (abi.Status, []byte)    { return ask("blob_write", b) }
func BlobRead(b []byte) (abi.Status, []byte)     { return ask("blob_read", b) }
func ListCommands(b []byte) (abi.Status, []byte) { return ask("list_commands", b) }
func Ask(b []byte) (abi.Status, []byte)          { return ask("ask", b) }
func UndoSteps(b []byte) (abi.Status, []byte)    { return ask("undo_steps", b) }
func Snapshots(b []byte) (abi.Status, []byte)    { return ask("snapshots", b) }

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
