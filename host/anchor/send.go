package anchor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"log/syslog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/trusted"
	"golang.org/x/mod/sumdb/note"
)

const sendTime = 10 * time.Second // for one sink

// Options name the places that receive anchors. The zero value publishes none.
type Options struct {
	Key    string        `koanf:"key" path:"true"`  // file of the signing key
	Every  time.Duration `koanf:"every"`            // 0: a minute
	File   string        `koanf:"file" path:"true"` // they are appended to it
	URL    string        `koanf:"url"`              // they are posted to it
	Syslog string        `koanf:"syslog"`           // local, udp://HOST:PORT or tcp://HOST:PORT
}

// Validate returns an error that names the key that is wrong.
func (o Options) Validate() error {
	sinks := o.File != "" || o.URL != "" || o.Syslog != ""
	u, err := url.Parse(o.URL)
	_, _, wrong := syslogAddress(o.Syslog)
	switch {
	case sinks != (o.Key != ""):
		return errors.New("anchors.key: a key and a place for anchors (file, url or syslog) are " +
			"set together; `caponier audit key FILE` makes a key")
	case o.Every < 0 || o.Every > 0 && o.Every < time.Second:
		return fmt.Errorf("anchors.every: %s is under 1s", o.Every)
	case o.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == ""):
		return fmt.Errorf("anchors.url: %q is not an HTTP URL", o.URL)
	case o.Syslog != "" && wrong != nil:
		return fmt.Errorf("anchors.syslog: %w", wrong)
	}
	return nil
}

func syslogAddress(s string) (network, address string, err error) {
	if s == "local" {
		return "", "", nil
	}
	network, address, ok := strings.Cut(s, "://")
	if !ok || network != "udp" && network != "tcp" || address == "" {
		return "", "", fmt.Errorf("%q is not local, udp://HOST:PORT or tcp://HOST:PORT", s)
	}
	return network, address, nil
}

// Publisher sends anchors of one journal. It is not safe for concurrent use.
type Publisher struct {
	o      Options
	signer note.Signer
	last   audit.Tip // as it was sent everywhere
	now    func() time.Time
}

// New returns a publisher, or nil if no place for anchors is set. The key must be a file that only
// this account can read.
func New(o Options) (*Publisher, error) {
	if err := o.Validate(); err != nil || o.Key == "" {
		return nil, err
	}
	secret, err := trusted.Read(o.Key, maxNote)
	if err != nil {
		return nil, fmt.Errorf("anchors.key: %w", err)
	}
	if info, err := os.Stat(o.Key); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("anchors.key: other accounts can read %s: chmod 600 %s", o.Key,
			o.Key)
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(secret)))
	if err != nil {
		return nil, fmt.Errorf("anchors.key: %s: %w", o.Key, err)
	}
	o.Every = cmp.Or(o.Every, time.Minute)
	return &Publisher{o: o, signer: signer, now: time.Now}, nil
}

// Run publishes the end of the chain at once and then as often as the options say. It returns when
// ctx ends. If a place fails, Run logs the error and tries again with the next anchor.
func (p *Publisher) Run(ctx context.Context, tip func(context.Context) (audit.Tip, error)) {
	tick := time.NewTicker(p.o.Every)
	defer tick.Stop()
	for {
		if err := p.Publish(ctx, tip); err != nil && ctx.Err() == nil {
			slog.Warn("publishing an anchor of the journal", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Publish sends the end of the chain everywhere, unless that was done already.
func (p *Publisher) Publish(ctx context.Context, tip func(context.Context) (audit.Tip, error),
) error {
	at, err := tip(ctx)
	if err != nil || at == p.last {
		return err
	}
	msg, err := sign(Anchor{Time: p.now(), Tip: at}, p.signer)
	if err != nil {
		return err
	}
	err = errors.Join(p.toFile(msg), p.toURL(ctx, msg), p.toSyslog(msg))
	if err == nil {
		p.last = at
	}
	return err
}

func (p *Publisher) toFile(msg []byte) error {
	if p.o.File == "" {
		return nil
	}
	f, err := os.OpenFile(p.o.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(msg)
	return errors.Join(err, f.Sync(), f.Close())
}

func (p *Publisher) toURL(ctx context.Context, msg []byte) error {
	if p.o.URL == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.o.URL, bytes.NewReader(msg))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", p.o.URL, resp.Status)
	}
	return nil
}

func (p *Publisher) toSyslog(msg []byte) error {
	if p.o.Syslog == "" {
		return nil
	}
	network, address, err := syslogAddress(p.o.Syslog)
	if err != nil {
		return err
	}
	w, err := syslog.Dial(network, address, syslog.LOG_NOTICE|syslog.LOG_AUTH, "caponier")
	if err != nil {
		return err
	}
	err = w.Notice(marker + base64.StdEncoding.EncodeToString(msg))
	return errors.Join(err, w.Close())
}
