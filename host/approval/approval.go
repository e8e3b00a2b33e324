// Package approval asks people about the calls that lack only a confirmation.
package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Options say who may approve, where, and for how long. Zero fields have the defaults that their
// comments name.
type Options struct {
	// how long a call waits for a person before its answer says that it waits: 45s
	Wait time.Duration `koanf:"wait"`
	// how long a request stays open, and then how long a yes may be used: 15m
	Expires time.Duration `koanf:"expires"`
	// requests of one principal that may wait at a time: 5
	PerPrincipal int `koanf:"-"`
	// bytes of a request; what is longer nobody would read, so it is refused: 64 KiB
	MaxDetail int `koanf:"-"`
	// names of people who may approve; empty is the account that `caponier approvals` runs as, and
	// no page
	Approvers []string `koanf:"approvers"`
	// loopback host:port of the web page; empty serves none
	Listen string `koanf:"listen"`
	// how people reach the page, such as https://approve.example.org behind a proxy; empty is
	// http://LISTEN
	URL string `koanf:"url"`
	// how long somebody stays signed in on the page: 8h
	Session time.Duration `koanf:"-"`
	Webhook Webhook       `koanf:"webhook"`

	// Looks are tools that only read, such as get_guest_status: on the page an approver may run
	// them on the request's targets, as the principal of that name.
	Looks []string `koanf:"looks"`

	// signs links and sessions; made with mode 0600 when it is needed first
	KeyFile string           `koanf:"-"`
	Poll    time.Duration    `koanf:"-"` // between looks at a waiting request: 200ms
	Now     func() time.Time `koanf:"-"` // nil for time.Now
	// for the webhook; nil for one without redirects, proxies or cookies
	Client  *http.Client `koanf:"-"`
	Log     *slog.Logger `koanf:"-"` // nil for slog.Default
	Journal gate.Journal `koanf:"-"` // has every answer before it counts; nil takes none
	Users   Users        `koanf:"-"` // of clients; nil asks none
	// Look reads the present state of what a request is about, each reading decided for that
	// approver; nil reads nothing.
	Look func(ctx context.Context, approver string, d Detail) []Reading `koanf:"-"`
}

// Users asks the user of the client that makes the call of ctx, who is whom the client says. CanAsk
// says whether that is possible. Ask returns "approve" or "deny" for what that user answered about
// this very request, "asked" when the answer is to come with the same call made again, and anything
// else when the user cannot be asked or did not answer.
type Users interface {
	CanAsk(ctx context.Context) bool
	Ask(ctx context.Context, request, message string) string
}

// Reading is what a tool read. Text is the machine's.
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

// Validate fills in defaults and says which key cannot be meant.
func (o *Options) Validate() error {
	for _, d := range []struct {
		name         string
		v            *time.Duration
		or, min, max time.Duration
	}{{"wait", &o.Wait, 45 * time.Second, time.Millisecond, 10 * time.Minute}, {"expires", &o.Expires, 15 * time.Minute, time.Second, 24 * time.Hour},
		{"session", &o.Session, 8 * time.Hour, time.Minute, 24 * time.Hour}, {"poll", &o.Poll, 200 * time.Millisecond, time.Millisecond, time.Second}} {
		if *d.v == 0 {
			*d.v = d.or
		}
		if *d.v < d.min || *d.v > d.max {
			return fmt.Errorf(
				"approval.%s: %s is not between %s and %s",
				d.name,
				*d.v,
				d.min,
				d.max,
			)
		}
	}
	if o.PerPrincipal == 0 {
		o.PerPrincipal = 5
	}
	if o.MaxDetail == 0 {
		o.MaxDetail = 64 << 10
	}
	if o.PerPrincipal < 1 || o.PerPrincipal > 1000 || o.MaxDetail < 1<<10 || o.MaxDetail > 1<<20 {
		return errors.New(
			"approval.per_principal: want 1 to 1000; approval.max_detail: want 1024 to 1048576",
		)
	}
	for _, a := range o.Approvers {
		if !approverName.MatchString(a) {
			return fmt.Errorf(
				"approval.approvers: %q is not a name: letters, digits and . _ @ -, at most 64",
				a,
			)
		}
	}
	if o.Listen != "" {
		if host, _, err := net.SplitHostPort(o.Listen); err != nil || !loopback(host) {
			return fmt.Errorf(
				"approval.listen: %q is not a loopback host:port such as 127.0.0.1:8443; to reach the page from elsewhere, put a proxy with TLS before it and name that in approval.url",
				o.Listen,
			)
		}
		if len(o.Approvers) == 0 {
			return errors.New(
				"approval.listen: the page needs approval.approvers: name who may approve there",
			)
		}
	}
	if err := checkURL(o.URL); err != nil {
		return fmt.Errorf("approval.url: %w", err)
	}
	if err := checkURL(o.Webhook.URL); err != nil {
		return fmt.Errorf("approval.webhook.url: %w", err)
	}
	if o.Webhook.URL != "" && len(o.Webhook.Secret) < 16 {
		return errors.New(
			"approval.webhook.secret: needs at least 16 bytes; write it as ${file:PATH} or ${VAR}",
		)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return nil
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

// States of a request.
const (
	Waiting   = "waiting"
	Approved  = "approved"
	Denied    = "denied"
	Used      = "used"
	Cancelled = "cancelled"
)

// Request is a question to a person about one call.
type Request struct {
	ID        string          `json:"id"`
	Key       string          `json:"key"` // a digest of all that the approval is bound to
	Principal string          `json:"principal"`
	Tool      string          `json:"tool"`
	State     string          `json:"state"`
	Created   time.Time       `json:"created"`
	Expires   time.Time       `json:"expires"` // of the question, then of the answer
	TTL       time.Duration   `json:"ttl_ns"`  // how long each of them lasts
	Revision  string          `json:"policy_revision"`
	Detail    json.RawMessage `json:"detail"`
	Decided   time.Time       `json:"decided,omitzero"` // zero while waiting
	By        string          `json:"by,omitempty"`
	Channel   string          `json:"channel,omitempty"`
	Note      string          `json:"note,omitempty"`
}

// Channels on which a person may answer. The site's policy says which of them count.
const (
	Terminal = "cli"
	Web      = "web"
	Client   = "client" // the user of the client that asks
)

// Verdict is what a person says.
type Verdict = gate.Verdict

// Store keeps requests. All processes that share it must see each other's changes, and each method
// must be atomic among them.
type Store interface {
	// Join returns the request with r.Key that waits, is approved or is denied and has not expired,
	// or else makes r. It returns ErrFull, without making r, when limit requests of r.Principal
	// wait.
	Join(ctx context.Context, r Request, limit int) (Request, error)
	// Decide answers a waiting request, once. It returns ErrNone when there is none that is still
	// good, and ErrAnswered for one that was answered or cancelled.
	Decide(ctx context.Context, id string, v Verdict) (Request, error)
	// Consume uses up the approved request with that key: one caller gets it, the others ErrNone.
	Consume(ctx context.Context, key string) (Request, error)
	// Requests lists what has not expired, newest first. An empty id or state is any.
	Requests(ctx context.Context, id, state string) ([]Request, error)
	// Burn uses a nonce, once. It must be remembered until then.
	Burn(ctx context.Context, nonce string, until time.Time) error
}

var (
	ErrNone     = errors.New("there is no such request, or it has expired")
	ErrAnswered = errors.New("it no longer waits")
	ErrFull     = errors.New("too many requests wait already")
)

// Approvals asks and records what was answered. It is safe for concurrent use.
type Approvals struct {
	opt     Options
	store   Store
	sending sync.WaitGroup
	stop    context.CancelFunc
	running context.Context // ends with Close: what it starts is not part of any call
}

var _ gate.Confirmer = (*Approvals)(nil)

// New makes Approvals. Close waits for what it sends.
func New(o Options, s Store) (*Approvals, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	a := &Approvals{opt: o, store: s}
	a.running, a.stop = context.WithCancel(context.Background())
	return a, nil
}

// Close ends what is still being sent to the webhook. It may be called again.
func (a *Approvals) Close() {
	a.stop()
	a.sending.Wait()
}

// base is how people reach the page, or "" when there is none.
func (o *Options) base() string {
	switch {
	case o.URL != "":
		return strings.TrimSuffix(o.URL, "/")
	case o.Listen != "":
		return "http://" + o.Listen
	}
	return ""
}

// Requests lists what has not expired, newest first. An empty id or state is any.
func (a *Approvals) Requests(ctx context.Context, id, state string) ([]Request, error) {
	return a.store.Requests(ctx, id, state)
}

// Key is a digest of all that an approval of the call is bound to: who asks, which plugin's bytes,
// which tool, which arguments (but for the confirmation flag) and what they act on. The policy's
// revision is recorded, not bound: the call is decided again after the yes.
func Key(c *gate.Call) (string, error) {
	bound, err := json.Marshal(struct {
		Schema            string
		Principal, Plugin string
		Kind, Tool, Args  string
		Targets           gate.Targets
		Files             map[string]string
	}{"caponier.approval/2", c.Principal.ID, c.Tool.Plugin.Digest, c.Tool.Kind, c.Tool.Name, c.Args.Digest, c.Targets, c.Files})
	if err != nil {
		return "", fmt.Errorf("digesting the call: %w", err)
	}
	if c.Principal.ID == "" || c.Tool.Plugin.Digest == "" || c.Args.Digest == "" {
		return "", errors.New(
			"the call has no principal, plugin digest or argument digest to bind an approval to",
		)
	}
	sum := sha256.Sum256(bound)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// newID has 80 random bits in letters and digits that are easy to tell apart when they are read
// aloud.
func newID() string {
	const letters = "abcdefghjkmnpqrstuvwxyz023456789" // 32
	var b [16]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = letters[b[i]%32]
	}
	return string(b[:])
}
