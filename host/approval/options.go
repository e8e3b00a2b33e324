package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/notify"
	"github.com/caponier-mcp/caponier/host/signin"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Options say who may approve, where, and for how long. The zero value asks people with `caponier
// approvals` alone.
type Options struct {
	// how long a call waits for a person before its answer says that it waits: 45s
	Wait time.Duration `koanf:"wait"`
	// how long a request stays open, and then how long a yes may be used: 15m
	Expires time.Duration `koanf:"expires"`
	// requests of one principal that may wait at a time: 5
	PerPrincipal int `koanf:"-"`
	// bytes of a request without its plan as JSON, 64 KiB; a person would not read a longer one, so
	// it is refused
	MaxDetail int `koanf:"-"`
	// the names that may approve; none is the account that runs `caponier approvals`, and no page
	Approvers []string `koanf:"approvers"`
	// loopback host:port of the web page; empty serves none
	Listen string `koanf:"listen"`
	// the URL at which people reach the page, such as https://approve.example.org behind a proxy;
	// empty is http://LISTEN
	URL string `koanf:"url"`
	// how long a session of the page lasts: 8h
	Session time.Duration `koanf:"-"`
	Webhook Webhook       `koanf:"webhook"`
	// where people are told that a call waits; docs/approvals.md
	Notify []notify.Options `koanf:"notify"`
	// where approvers may sign in to the page, beside links
	OIDC signin.Options `koanf:"oidc"`

	// Looks are tools that only read, such as get_guest_status: on the page an approver may run
	// them on the request's targets, as the principal of that name.
	Looks []string `koanf:"looks"`

	// Viewers may see the console, and Freezers may freeze there, of the approvers: "*" is all of
	// them, none is nobody
	Viewers  []string `koanf:"console"`
	Freezers []string `koanf:"freezers"`
	// Console serves what is below /approvals/console to who is signed in. token makes the token of
	// a form with that path; that of a POST was checked. nil serves nothing there.
	Console func(w http.ResponseWriter, r *http.Request, who string,
		token func(path string) string) `koanf:"-"`

	Poll time.Duration    `koanf:"-"` // between looks at a waiting request: 200ms
	Now  func() time.Time `koanf:"-"` // nil for time.Now
	// for the webhook; nil for one without redirects, proxies or cookies
	Client  *http.Client  `koanf:"-"`
	Log     *slog.Logger  `koanf:"-"` // nil for slog.Default
	Journal terms.Journal `koanf:"-"` // has every answer before it counts; nil takes none
	// Look reads the present state of what a request is about, each reading decided for that
	// approver; nil reads nothing.
	Look func(ctx context.Context, approver string, d Detail) []Reading `koanf:"-"`
}

func (o Options) withDefaults() Options {
	o.Wait = cmp.Or(o.Wait, 45*time.Second)
	o.Expires = cmp.Or(o.Expires, 15*time.Minute)
	o.Session = cmp.Or(o.Session, 8*time.Hour)
	o.Poll = cmp.Or(o.Poll, 200*time.Millisecond)
	o.PerPrincipal = cmp.Or(o.PerPrincipal, 5)
	o.MaxDetail = cmp.Or(o.MaxDetail, 64<<10)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}
	}
	return o
}

// base is the URL of the page, or "" when there is none.
func (o Options) base() string {
	switch {
	case o.URL != "":
		return strings.TrimSuffix(o.URL, "/")
	case o.Listen != "":
		return "http://" + o.Listen
	}
	return ""
}

// Reading is what a tool read. A machine wrote Text.
type Reading struct {
	Tool, Text string
	Refused    bool // or failed: Text says why
}

// Webhook is told of every new request. It carries a link, never the authority to decide.
type Webhook struct {
	URL    string `koanf:"url"`                  // https, or http on loopback; empty tells nobody
	Secret string `koanf:"secret" secret:"true"` // key of the signature, at least 16 bytes
}

var approverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// Validate returns an error that names the key that is wrong.
func (o Options) Validate() error {
	for _, d := range []struct {
		name        string
		v, min, max time.Duration
	}{
		{"wait", o.Wait, time.Millisecond, 10 * time.Minute},
		{"expires", o.Expires, time.Second, 24 * time.Hour},
	} {
		if d.v != 0 && (d.v < d.min || d.v > d.max) {
			return fmt.Errorf("approval.%s: %s is not between %s and %s", d.name, d.v, d.min, d.max)
		}
	}
	for _, a := range o.Approvers {
		if !approverName.MatchString(a) {
			return fmt.Errorf("approval.approvers: %q is not a name: letters, digits and . _ @ -, "+
				"at most 64", a)
		}
	}
	if o.Listen != "" {
		if host, _, err := net.SplitHostPort(o.Listen); err != nil || !loopback(host) {
			return fmt.Errorf("approval.listen: %q is not a loopback host:port such as "+
				"127.0.0.1:8443; to reach the page from elsewhere, put a proxy with TLS before it "+
				"and name that in approval.url", o.Listen)
		}
		if len(o.Approvers) == 0 {
			return errors.New("approval.listen: the page needs approval.approvers: name who may " +
				"approve there")
		}
	}
	if err := o.console(); err != nil {
		return err
	}
	if err := checkURL(o.URL); err != nil {
		return fmt.Errorf("approval.url: %w", err)
	}
	if err := checkURL(o.Webhook.URL); err != nil {
		return fmt.Errorf("approval.webhook.url: %w", err)
	}
	if o.Webhook.URL != "" && len(o.Webhook.Secret) < 16 {
		return errors.New("approval.webhook.secret: needs at least 16 bytes; write it as " +
			"${file:PATH} or ${VAR}")
	}
	if err := o.OIDC.Validate(o.Approvers); err != nil {
		return fmt.Errorf("approval.oidc.%w", err)
	}
	if o.OIDC.Issuer != "" && o.Listen == "" {
		return errors.New("approval.oidc: there is no page; set approval.listen")
	}
	for i, n := range o.Notify {
		if err := n.Validate(); err != nil {
			return fmt.Errorf("approval.notify[%d].%w", i, err)
		}
	}
	return nil
}

// console returns an error if the console is for somebody who cannot sign in.
func (o Options) console() error {
	for key, names := range map[string][2][]string{"console": {o.Viewers, o.Approvers},
		"freezers": {o.Freezers, o.Viewers}} {
		for _, name := range names[0] {
			if name != "*" && !named(name, names[1]) {
				return fmt.Errorf("approval.%s: %q may not sign in, or not see the console: "+
					"approval.approvers and approval.console name who may", key, name)
			}
		}
	}
	if len(o.Viewers) > 0 && o.Listen == "" || len(o.Freezers) > 0 && len(o.Viewers) == 0 {
		return errors.New("approval.console: needs approval.listen, and approval.freezers needs " +
			"approval.console")
	}
	return nil
}

// named reports whether a list of names holds a name.
func named(name string, all []string) bool {
	return slices.Contains(all, name) || slices.Contains(all, "*")
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return nil
	case err != nil:
		return err
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q is not a URL such as https://approve.example.org", s)
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return fmt.Errorf("%q must be https, or http on loopback", s)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
