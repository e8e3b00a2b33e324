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
)

const lookFirst = "it may have been done: look before you repeat it"

// failed is an operation that had no effect on the node, or whose effect is known and named in the
// message.
func failed(code, format string, args ...any) *gate.OpError {
	return &gate.OpError{Code: code, Message: fmt.Sprintf(format, args...), Outcome: gate.Failed}
}

// unknown is an operation whose request was sent and that may have been done.
func unknown(code, format string, args ...any) *gate.OpError {
	e := failed(code, format, args...)
	e.Outcome = gate.Unknown
	return e
}

// stopped says why ctx ended: its time is over, or its caller cancelled it.
func stopped(ctx context.Context) (code, why string) {
	budget := (*gate.BudgetError)(nil)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(context.Cause(ctx), &budget) {
		return "timeout", "timed out"
	}
	return "cancelled", "the call was cancelled"
}

// fileError says what went wrong with a path. It returns a *gate.OpError as it is.
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
		code, why = "permission", "permission denied to the login user"
	case errors.Is(err, fs.ErrExist):
		code, why = "exists", "it exists; set overwrite to replace it"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code, why = "disk_full", "no space is left on the disk"
	case lostConnection(err):
		code, why = "lost", "the connection to the node was lost"
	}
	return failed(code, "%s %q: %s", what, path, why)
}

// lostConnection reports whether err says that a session ended, and nothing else.
func lostConnection(err error) bool {
	for _, e := range []error{sftp.ErrSSHFxConnectionLost, sftp.ErrSSHFxNoConnection, errProtocol,
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

type result[T any] struct {
	v   T
	err error
}

// await waits for the worker that p belongs to, but no longer than ctx. The error of a worker that
// is given up says what it did, why it was given up, and unsent or sent.
func await[T any](
	ctx context.Context, p *pledge, done <-chan result[T], what, unsent, sent string,
) (none T, err error) {
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	code, why := stopped(ctx)
	if p.giveUp() {
		return none, failed(code, "%s: %s; %s", what, why, unsent)
	}
	select { // it may have ended at the same moment
	case r := <-done:
		return r.v, r.err
	default:
		return none, unknown(code, "%s: %s; %s", what, why, sent)
	}
}
