package export

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
)

// syslog sends messages of RFC 5424: to a local socket, or over TCP or TLS with octet counting (RFC
// 6587, RFC 5425). Syslog has no answers. So each batch has a connection of its own, and counts as
// taken once the receiver has closed it, which it does when it has read to the end. A receiver that
// is killed after it read a batch and before it stored the batch loses it. A local socket only says
// that its queue took a message.
type syslog struct {
	network, address string
	tls              *tls.Config
	instance         string
	limit            int
}

// facility is authpriv, whose file only administrators read on most systems.
const facility = 10

func (s syslog) encode(e event) ([]byte, error) {
	data, err := encode(e)
	if err != nil {
		return nil, err
	}
	// Names hold printable ASCII without spaces.
	name := func(v string, most int) string {
		v = strings.Map(func(r rune) rune {
			if r <= ' ' || r > '~' {
				return -1
			}
			return r
		}, v)
		if v == "" {
			return "-"
		}
		return v[:min(len(v), most)]
	}
	text := fmt.Appendf(nil, "<%d>1 %s %s caponier %d %s - %s", facility*8+e.severity().syslog,
		e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), name(e.Instance, 255), os.Getpid(),
		name(e.Type, 32), data)
	if len(text) > s.limit {
		return text, errTooLarge
	}
	return text, nil
}

func (s syslog) send(ctx context.Context, encoded [][]byte) error {
	if s.network == "unix" {
		return datagrams(ctx, s.address, encoded)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	var c net.Conn
	var err error
	if s.network == "tls" {
		c, err = (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.address)
	} else {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", s.address)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	var all []byte
	for _, m := range encoded {
		all = append(fmt.Appendf(all, "%d ", len(m)), m...)
	}
	if _, err := c.Write(all); err != nil {
		return err
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	// Whatever the receiver says is read until it closes: it may be what ends TLS.
	if _, err := io.Copy(io.Discard, io.LimitReader(c, 64<<10)); err != nil {
		return fmt.Errorf("the receiver did not close the connection, so it may not have read "+
			"everything: %w", err)
	}
	return nil
}

// tls returns how the receiver proves who it is, and with what this host does.
func (s SinkOptions) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		pem, err := trusted.Read(s.CAFile, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file: " + s.CAFile + " holds no certificate in PEM")
		}
	}
	if s.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
