// Package approval asks people about calls that lack only a confirmation.
package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/notify"
	"github.com/caponier-mcp/caponier/host/signin"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Channels on which a person may answer. The site's policy says which of them count.
const (
	Terminal = "cli"
	Web      = "web"
	Client   = "client" // the user of the client that asks
)

const callbackPath = "/approvals/oidc/callback"

// Session is one sign-in on the page, or a link that makes one.
type Session struct {
	ID      string    `json:"id"` // names it, and gives no access
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// Store keeps requests and sessions. All processes that share it must see each other's changes, and
// each method must be atomic among them. What began before the clock was set back is no more.
type Store interface {
	// Join returns the request with r.Key that waits, is approved or is denied and has not expired,
	// or else makes r. It returns ErrFull, without making r, when limit requests of r.Principal
	// wait.
	Join(ctx context.Context, r Request, limit int) (Request, error)
	// Decide answers a request that takes the answer. It returns ErrNone when there is none that
	// has not expired, ErrAnswered for one that does not take it, and ErrLacks for the second yes
	// of one person. Of answers at the same time each is taken or refused, as [Request.After] says.
	Decide(ctx context.Context, id string, v Verdict) (Request, error)
	// Consume uses up the approved request with that key: one caller gets it, the others ErrNone.
	Consume(ctx context.Context, key string) (Request, error)
	// Requests lists what has not expired, newest first. An empty id or state is any.
	Requests(ctx context.Context, id, state string) ([]Request, error)
	// Begin keeps a session, Sessions lists those that have not expired, newest first, and
	// EndSessions ends those with that id and that name, and counts them. An empty id or name is
	// any.
	Begin(ctx context.Context, s Session) error
	Sessions(ctx context.Context, id string) ([]Session, error)
	EndSessions(ctx context.Context, id, name string) (int64, error)
}

// Errors of a Store.
var (
	ErrNone     = errors.New("there is no such request, or it has expired")
	ErrAnswered = errors.New("it no longer waits")
	ErrLacks    = errors.New("the site's policy wants more for a yes")
	ErrFull     = errors.New("too many requests wait already")
)

// Approvals asks and records what was answered. It is safe for concurrent use.
type Approvals struct {
	opt     Options
	store   Store
	sending sync.WaitGroup
	people  *notify.Notifier
	oidc    *signin.Provider // nil for none
	stop    context.CancelFunc
	running context.Context // ends with Close: what it starts is not part of any call
}

var _ terms.Confirmer = (*Approvals)(nil)

// New makes Approvals. Close waits for what it sends.
func New(o Options, s Store) (*Approvals, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	a := &Approvals{opt: o.withDefaults(), store: s, people: notify.New(o.Notify)}
	if o.OIDC.Issuer != "" {
		a.oidc = signin.New(o.OIDC, a.opt.base()+callbackPath, o.Client, a.opt.Now)
	}
	a.running, a.stop = context.WithCancel(context.Background())
	return a, nil
}

// Close ends what is still being sent. It may be called again.
func (a *Approvals) Close() {
	a.stop()
	a.people.Close()
	a.sending.Wait()
}

// provider is the host of the identity provider, or "" when there is none.
func (a *Approvals) provider() string {
	if u, err := url.Parse(a.opt.OIDC.Issuer); err == nil && a.oidc != nil {
		return u.Host
	}
	return ""
}

// Requests lists what has not expired, newest first. An empty id or state is any.
func (a *Approvals) Requests(ctx context.Context, id, state string) ([]Request, error) {
	return a.store.Requests(ctx, id, state)
}

// bindingKeys returns a digest of all that an approval of the call is bound to, and one of all that
// but the plan. These are the principal, the plugin's bytes, the tool, the arguments (but for the
// confirmation flag), the targets, and the plan: a second dry run that comes to another plan is
// another request. The policy's revision is recorded, not bound: the call is decided again after
// the yes.
func bindingKeys(c *terms.Call) (key, call string, err error) {
	plan := ""
	if c.Plan != nil {
		if plan = c.Plan.Digest(); plan == "" {
			return "", "", errors.New("the plan of the call has no digest to bind an approval to")
		}
	}
	if c.Principal.ID == "" || c.Tool.Plugin.Digest == "" || c.Args.Digest == "" {
		return "", "", errors.New("the call has no principal, plugin digest or argument digest " +
			"to bind an approval to")
	}
	if call, err = bound(c, ""); err == nil {
		key, err = bound(c, plan)
	}
	return key, call, err
}

func bound(c *terms.Call, plan string) (string, error) {
	b, err := json.Marshal(struct {
		Schema            string
		Principal, Plugin string
		Kind, Tool, Args  string
		Targets           terms.Targets
		Files             map[string]string
		Plan              string
	}{"caponier.approval/3", c.Principal.ID, c.Tool.Plugin.Digest, c.Tool.Kind, c.Tool.Name,
		c.Args.Digest, c.Targets, c.Files, plan})
	if err != nil {
		return "", fmt.Errorf("digesting the call: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b)), nil
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
