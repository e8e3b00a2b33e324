package files

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"syscall"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/pkg/sftp"
)

// Error says what went wrong with a path. It returns a *terms.OpError as it is.
func Error(what, path string, err error) error {
	op := (*terms.OpError)(nil)
	if err == nil {
		return nil
	}
	code, why := "failed", err.Error()
	switch {
	case errors.As(err, &op):
		return op
	case errors.Is(err, fs.ErrNotExist):
		code, why = "not_found", "it, or a directory on the way to it, does not exist"
	case errors.Is(err, fs.ErrPermission):
		code, why = "permission", "permission denied to the login user"
	case errors.Is(err, fs.ErrExist):
		code, why = "exists", "it exists; set overwrite to replace it"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code, why = "disk_full", "no space is left on the disk"
	case Lost(err):
		code, why = "lost", "the connection to the node was lost"
	}
	return effect.Failed(code, "%s %q: %s", what, path, why)
}

// Lost reports whether err says that a session ended, and nothing else.
func Lost(err error) bool {
	for _, e := range []error{sftp.ErrSSHFxConnectionLost, sftp.ErrSSHFxNoConnection, errProtocol,
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
