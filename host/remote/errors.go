package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// failed is an operation that had no effect on the node, or whose effect is known and named in the
// message.
func failed(code, format string, args ...any) *gate.OpError {
	return &gate.OpError{Code: code, Message: fmt.Sprintf(format, args...), Outcome: gate.Failed}
}

// unknown is an operation whose request was sent and whose end nobody saw.
func unknown(code, format string, args ...any) *gate.OpError {
	e := failed(code, format, args...)
	e.Outcome = gate.Unknown
	return e
}

// stopped says why ctx ended: in time or by its caller.
func stopped(ctx context.Context) (code, why string) {
	budget := (*gate.BudgetError)(nil)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(context.Cause(ctx), &budget) {
		return "timeout", "the time for it was over"
	}
	return "cancelled", "the call was cancelled"
}

// fileError names what went wrong with a path. It leaves an *gate.OpError as it is.
func fileError(what, path string, err error) error {
	op := (*gate.OpError)(nil)
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
		code, why = "permission", "the login user may not"
	case errors.Is(err, fs.ErrExist):
		code, why = "exists", "it is there already; set overwrite to replace it"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code, why = "disk_full", "no space is left on the disk"
	case lostConnection(err):
		code, why = "lost", "the connection to the node was lost"
	}
	return failed(code, "%s %q: %s", what, path, why)
}

func lostConnection(err error) bool {
	return errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, sftp.ErrSSHFxNoConnection) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNRESET)
}

// refusedChannel reports whether the node refused to open one more channel: nothing was sent on it,
// so that trying again is safe.
func refusedChannel(err error) bool {
	e := (*ssh.OpenChannelError)(nil)
	return errors.As(err, &e)
}
