package export

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
)

// sendTime is how long a sink may take for one batch.
const sendTime = 30 * time.Second

// errTooLarge says that a sink does not take a batch of this size: fewer events, or smaller ones,
// may pass.
var errTooLarge = errors.New("the batch is too large")

// later is an error of a sink that names the time after which to try again.
type later struct {
	error
	after time.Duration
}

// A sink takes events. It is used by one goroutine.
type sink interface {
	// encode returns the form in which the event is sent, nil for one that is not.
	encode(event) ([]byte, error)
	// send returns nil when the receiver has taken all of these. What is not sure is an error: it
	// is sent again. A refusal is an error for events that the receiver will never take.
	send(ctx context.Context, encoded [][]byte) error
}

// refusal counts events that a receiver took and said to have dropped.
type refusal struct {
	events int64
	why    string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the receiver dropped %d events: %s", r.events, r.why)
}

// lines appends JSON lines to a trusted file that is no link. It is opened for each batch, so that
// somebody else may rename or cut it at any time.
type lines struct{ file string }

func (lines) encode(e event) ([]byte, error) { return encode(e) }

func (l lines) send(_ context.Context, encoded [][]byte) error {
	f, err := os.OpenFile(l.file, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK|
		syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := trusted.Regular(l.file, info); err != nil {
		return err
	}
	var text []byte
	if size := info.Size(); size > 0 { // a batch that was cut off ends without a line feed
		last := make([]byte, 1)
		if n, _ := f.ReadAt(last, size-1); n == 1 && last[0] != '\n' {
			text = append(text, '\n')
		}
	}
	for _, e := range encoded {
		text = append(append(text, e...), '\n')
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err != nil { // what was written would come twice
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return f.Close()
}

// datagrams sends one message after the other to a local socket. A full queue is an error.
func datagrams(ctx context.Context, path string, messages [][]byte) error {
	d := net.Dialer{Timeout: sendTime}
	c, err := d.DialContext(ctx, "unixgram", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	for _, m := range messages {
		if _, err := c.Write(m); errors.Is(err, syscall.EMSGSIZE) {
			return errTooLarge
		} else if err != nil {
			return err
		}
	}
	return nil
}

// journald writes to the native socket of systemd's journal. A datagram that the socket took is not
// acknowledged further.
type journald struct {
	socket string
	limit  int
}

func (j journald) encode(e event) ([]byte, error) {
	data, err := encode(e)
	if err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=caponier\n"+
		"CAPONIER_EVENT=%s\n", e.says(), e.severity().syslog, data)
	for _, f := range e.fields() {
		if !strings.Contains(f[1], "\n") { // else it stands in CAPONIER_EVENT
			text = fmt.Appendf(text, "CAPONIER_%s=%s\n", strings.ToUpper(f[0]), f[1])
		}
	}
	if len(text) > j.limit {
		return text, errTooLarge
	}
	return text, nil
}

func (j journald) send(ctx context.Context, encoded [][]byte) error {
	return datagrams(ctx, j.socket, encoded)
}
