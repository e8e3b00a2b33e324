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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Options say who may approve, where, and for how long. Zero fields have the defaults that their comments name.
type Options struct {
	Wait         time.Duration `koanf:"wait"`          // how long a call waits for a person before its answer says that it waits: 45s
	Expires      time.Duration `koanf:"expires"`       // how long a request stays open, and then how long a yes may be used: 15m
	PerPrincipal int           `koanf:"per_principal"` // requests of one principal that may wait at a time: 5
	MaxDetail    int           `koanf:"max_detail"`    // bytes of a request; what is longer nobody would read, so it is refused: 64 KiB
	Approvers    []string      `koanf:"approvers"`     // names of people who may approve; empty is the account that `caponier approvals` runs as, and no page
	Listen       string        `koanf:"listen"`        // loopback host:port of the web page; empty serves none
	URL          string        `koanf:"url"`           // how people reach the page, such as https://approve.example.org behind a proxy; empty is http://LISTEN
	Session      time.Duration `koanf:"session"`       // how long somebody stays signed in on the page: 8h
	Webhook      Webhook       `koanf:"webhook"`

	KeyFile string           `koanf:"-"` // signs links and sessions; made with mode 0600 when it is needed first
	Poll    time.Duration    `koanf:"-"` // between looks at a waiting request: 200ms
	Now     func() time.Time `koanf:"-"` // nil for time.Now
	Client  *http.Client     `koanf:"-"` // for the webhook; nil for one without redirects, proxies or cookies
	Log     *slog.Logger     `koanf:"-"` // nil for slog.Default
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
			return fmt.Errorf("approval.%s: %s is not between %s and %s", d.name, *d.v, d.min, d.max)
		}
	}
	if o.PerPrincipal == 0 {
		o.PerPrincipal = 5
	}
	if o.MaxDetail == 0 {
		o.MaxDetail = 64 << 10
	}
	if o.PerPrincipal < 1 || o.PerPrincipal > 1000 || o.MaxDetail < 1<<10 || o.MaxDetail > 1<<20 {
		return errors.New("approval.per_principal: want 1 to 1000; approval.max_detail: want 1024 to 1048576")
	}
	for _, a := range o.Approvers {
		if !approverName.MatchString(a) {
			return fmt.Errorf("approval.approvers: %q is not a name: letters, digits and . _ @ -, at most 64", a)
		}
	}
	if o.Listen != "" {
		if host, _, err := net.SplitHostPort(o.Listen); err != nil || !loopback(host) {
			return fmt.Errorf("approval.listen: %q is not a loopback host:port such as 127.0.0.1:8443; to reach the page from elsewhere, put a proxy with TLS before it and name that in approval.url", o.Listen)
		}
		if len(o.Approvers) == 0 {
			return errors.New("approval.listen: the page needs approval.approvers: name who may approve there")
		}
	}
	if err := checkURL(o.URL); err != nil {
		return fmt.Errorf("approval.url: %w", err)
	}
	if err := checkURL(o.Webhook.URL); err != nil {
		return fmt.Errorf("approval.webhook.url: %w", err)
	}
	if o.Webhook.URL != "" && len(o.Webhook.Secret) < 16 {
		return errors.New("approval.webhook.secret: needs at least 16 bytes; write it as ${file:PATH} or ${VAR}")
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

// Verdict is what a person says.
type Verdict struct {
	Approve           bool
	By, Channel, Note string
}

// Store keeps requests. All processes that share it must see each other's changes, and each method must be atomic among them.
type Store interface {
	// Join returns the request with r.Key that waits, is approved or is denied and has not expired, or else makes r. It returns ErrFull, without making r, when
	// limit requests of r.Principal wait.
	Join(ctx context.Context, r Request, limit int) (Request, error)
	// Decide answers a waiting request, once. It returns ErrNone when there is none that is still good.
	Decide(ctx context.Context, id string, v Verdict) (Request, error)
	// Consume uses up the approved request with that key: one caller gets it, the others ErrNone.
	Consume(ctx context.Context, key string) (Request, error)
	// Requests lists what has not expired, newest first. An empty id or state is any.
	Requests(ctx context.Context, id, state string) ([]Request, error)
	// Burn uses a nonce, once. It must be remembered until then.
	Burn(ctx context.Context, nonce string, until time.Time) error
}

var (
	ErrNone = errors.New("there is no such request, or it has expired")
	ErrFull = errors.New("too many requests wait already")
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

// Confirm waits for a person's answer about the call, at most Options.Wait. It returns a confirmation that stands for a yes, used up now; one whose state is
// expired; *gate.Waiting when nobody has decided yet; or *gate.Refused.
func (a *Approvals) Confirm(ctx context.Context, c *gate.Call, d gate.Decision) (gate.Confirmation, error) {
	detail, err := newDetail(c, d, a.opt.MaxDetail)
	if err != nil {
		return gate.Confirmation{}, refusal(c, d, "approval.detail", err.Error())
	}
	key, err := Key(c)
	if err != nil {
		return gate.Confirmation{}, refusal(c, d, "approval.detail", err.Error())
	}
	patience := time.NewTimer(a.opt.Wait)
	defer patience.Stop()
	for {
		id := newID()
		r, err := a.store.Join(ctx, Request{ID: id, Key: key, Principal: c.Principal.ID, Tool: c.Tool.Name, TTL: a.opt.Expires, Revision: d.Revision, Detail: detail}, a.opt.PerPrincipal)
		switch {
		case ctx.Err() != nil:
			return gate.Confirmation{}, fmt.Errorf("waiting for an approval: %w", context.Cause(ctx))
		case errors.Is(err, ErrFull):
			return gate.Confirmation{}, refusal(c, d, "approval.flood", fmt.Sprintf("%d of your requests wait for a person already, which is the most; have one decided, or wait until one expires", a.opt.PerPrincipal))
		case err != nil:
			return gate.Confirmation{}, a.broken(c, d, err)
		}
		if r.ID == id {
			a.announce(r)
		}
		switch r.State {
		case Waiting:
			expired, err := a.await(ctx, patience.C, r.ID)
			switch {
			case errors.Is(err, errPatience):
				return gate.Confirmation{}, &gate.Waiting{ApprovalID: r.ID, Where: a.where(r.ID), Expires: r.Expires}
			case ctx.Err() != nil:
				return gate.Confirmation{}, fmt.Errorf("waiting for approval %s: %w", r.ID, context.Cause(ctx))
			case err != nil:
				return gate.Confirmation{}, a.broken(c, d, err)
			case expired:
				return gate.Confirmation{State: "expired"}, nil
			}
		case Approved:
			used, err := a.store.Consume(ctx, key)
			switch {
			case errors.Is(err, ErrNone): // another call took it, or it has expired: this one needs its own
				continue
			case err != nil:
				return gate.Confirmation{}, a.broken(c, d, err)
			}
			if err := a.mayUse(used, c.Principal.ID); err != nil {
				return gate.Confirmation{}, refusal(c, d, "approval.approver", err.Error())
			}
			return gate.Confirmation{State: "approved", By: used.By}, nil
		case Denied:
			msg := fmt.Sprintf("%s said no to this call at %s", r.By, r.Decided.UTC().Format("15:04:05 MST"))
			if r.Note != "" {
				msg += ": " + Visible(r.Note)
			}
			return gate.Confirmation{}, refusal(c, d, "approval.denied", msg)
		default:
			return gate.Confirmation{}, a.broken(c, d, fmt.Errorf("request %s has the state %q", r.ID, r.State))
		}
	}
}

var errPatience = errors.New("nobody has decided yet")

// await returns when the request no longer waits, and says whether it has expired.
func (a *Approvals) await(ctx context.Context, patience <-chan time.Time, id string) (expired bool, err error) {
	look := time.NewTicker(a.opt.Poll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-patience:
			return false, errPatience
		case <-look.C:
		}
		list, err := a.store.Requests(ctx, id, "")
		if err != nil {
			return false, err
		}
		if len(list) == 0 {
			return true, nil
		}
		if list[0].State != Waiting {
			return false, nil
		}
	}
}

func refusal(c *gate.Call, d gate.Decision, id, msg string) *gate.Refused {
	return &gate.Refused{DecisionID: c.ID, Kind: "call", Failed: []string{id}, Denied: []gate.Reason{{ID: id, Msg: msg}}, Decision: d}
}

// broken logs what went wrong and tells the client no more than that nobody could be asked.
func (a *Approvals) broken(c *gate.Call, d gate.Decision, err error) error {
	a.opt.Log.Error("nobody could be asked to approve a call", "call", c.ID, "tool", c.Tool.Name, "error", err)
	return refusal(c, d, "approval.unavailable", "nobody can be asked to approve it: the host cannot keep the request, and its log says why")
}

// where tells whoever made the call how a person can decide. It gives no authority.
func (a *Approvals) where(id string) string {
	s := "a person can decide with: caponier approvals show " + id
	if base := a.opt.base(); base != "" {
		s += ", or at " + base + "/approvals/" + id
	}
	return s
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

// Decide records a person's answer. Who asks may not answer, and nobody may who is not listed.
func (a *Approvals) Decide(ctx context.Context, id string, v Verdict) (Request, error) {
	if err := a.Known(v.By); err != nil {
		return Request{}, err
	}
	if len(v.Note) > 1000 {
		return Request{}, errors.New("the note is longer than 1000 bytes")
	}
	list, err := a.store.Requests(ctx, id, "")
	if err != nil {
		return Request{}, err
	}
	if id == "" || len(list) != 1 {
		return Request{}, fmt.Errorf("approval %s: %w", Visible(id), ErrNone)
	}
	if strings.EqualFold(v.By, list[0].Principal) {
		return Request{}, fmt.Errorf("approval %s: %s asks for it and may not give it", id, v.By)
	}
	r, err := a.store.Decide(ctx, id, v)
	if err != nil {
		return Request{}, err
	}
	a.opt.Log.Info("approval decided", "id", r.ID, "state", r.State, "by", r.By, "channel", r.Channel, "principal", r.Principal, "tool", r.Tool)
	return r, nil
}

// Known says whether somebody may approve at all.
func (a *Approvals) Known(name string) error {
	if !approverName.MatchString(name) {
		return fmt.Errorf("%q is not a name that can approve", name)
	}
	if len(a.opt.Approvers) > 0 && !slices.Contains(a.opt.Approvers, name) {
		return fmt.Errorf("%s may not approve: add the name to approvers in [approval]", name)
	}
	return nil
}

// Listed says whether the configuration names who may approve. Where it does not, only the account that the command runs as may.
func (a *Approvals) Listed() bool { return len(a.opt.Approvers) > 0 }

// mayUse holds a yes against the configuration in force when it is used: whoever lost the right meanwhile has no more say.
func (a *Approvals) mayUse(r Request, asker string) error {
	if strings.EqualFold(r.By, asker) || r.By == "" {
		return errors.New("who asks for an approval may not give it")
	}
	if err := a.Known(r.By); err != nil {
		return fmt.Errorf("the approval of %s does not count: %w", r.ID, err)
	}
	return nil
}

// Requests lists what has not expired, newest first. An empty id or state is any.
func (a *Approvals) Requests(ctx context.Context, id, state string) ([]Request, error) {
	return a.store.Requests(ctx, id, state)
}

// Key is a digest of all that an approval of the call is bound to: who asks, which plugin's bytes, which tool, which arguments (but for the confirmation
// flag) and what they act on. The policy's revision is recorded, not bound: the call is decided again after the yes.
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
		return "", errors.New("the call has no principal, plugin digest or argument digest to bind an approval to")
	}
	sum := sha256.Sum256(bound)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// newID has 80 random bits in letters and digits that are easy to tell apart when they are read aloud.
func newID() string {
	const letters = "abcdefghjkmnpqrstuvwxyz023456789" // 32
	var b [16]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = letters[b[i]%32]
	}
	return string(b[:])
}
