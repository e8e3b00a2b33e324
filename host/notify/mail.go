package notify

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/smtp"
	"net/url"
	"strings"
	"time"
)

// mail sends by SMTP (RFC 5321): smtp:// with STARTTLS, which only a server on the loopback need
// not offer, or smtps:// with TLS from the start.
type mail struct {
	at             *url.URL
	user, password string
	from           string
	to             []string
	tls            *tls.Config // nil: the system's
}

func (m mail) send(ctx context.Context, n Notice) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return m.over(conn, n)
}

func (m mail) over(conn net.Conn, n Notice) error {
	c, err := smtp.NewClient(conn, m.host())
	if err != nil {
		return err
	}
	if err := m.introduce(c); err != nil {
		return err
	}
	if err := c.Mail(m.from); err != nil {
		return err
	}
	for _, to := range m.to {
		if err := c.Rcpt(to); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	_, err = w.Write(m.message(n, time.Now()))
	return errors.Join(err, w.Close(), c.Quit())
}

func (m mail) host() string { return m.at.Hostname() }

func (m mail) config() *tls.Config {
	c := &tls.Config{}
	if m.tls != nil {
		c = m.tls.Clone()
	}
	c.ServerName, c.MinVersion = m.host(), tls.VersionTLS12
	return c
}

// connect ends with ctx, whatever the server does.
func (m mail) connect(ctx context.Context) (net.Conn, error) {
	port := cmp.Or(m.at.Port(), map[string]string{"smtp": "587", "smtps": "465"}[m.at.Scheme])
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(m.host(), port))
	if err != nil {
		return nil, err
	}
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until)
	}
	if m.at.Scheme == "smtps" {
		conn = tls.Client(conn, m.config())
	}
	return conn, nil
}

// introduce encrypts, and then logs in.
func (m mail) introduce(c *smtp.Client) error {
	if ok, _ := c.Extension("STARTTLS"); ok && m.at.Scheme == "smtp" {
		if err := c.StartTLS(m.config()); err != nil {
			return fmt.Errorf("STARTTLS: %w", err)
		}
	} else if m.at.Scheme == "smtp" && !loopback(m.host()) {
		return refused{errors.New("it offers no STARTTLS: mail is sent encrypted, or to the " +
			"loopback")}
	}
	if m.user == "" {
		return nil
	}
	// PlainAuth itself refuses a connection without TLS, but to the loopback
	if err := c.Auth(smtp.PlainAuth("", m.user, m.password, m.host())); err != nil {
		return refused{fmt.Errorf("logging in: %w", err)}
	}
	return nil
}

// message is plain text of RFC 5322. Only the sentence holds what others wrote, on one line.
func (m mail) message(n Notice, now time.Time) []byte {
	lines := []string{
		"From: " + m.from,
		"To: " + strings.Join(m.to, ", "),
		"Subject: " + mime.QEncoding.Encode("utf-8", "A call waits for approval"),
		"Date: " + now.Format(time.RFC1123Z),
		"Message-ID: <caponier-" + oneLine(n.key()) + "@" + m.host() + ">",
		"Auto-Submitted: auto-generated",
		"MIME-Version: 1.0",
		"Content-Type: text/plain; charset=utf-8",
		"Content-Transfer-Encoding: 8bit",
		"",
		oneLine(n.text()),
		"",
		n.open(),
		"",
	}
	return []byte(strings.Join(lines, "\r\n"))
}
