// Package egress sends the HTTP requests of plugins to the addresses that were decided.
package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var _ gate.Executor = (*Egress)(nil)

// Rate is a count of the last 60 seconds, and when there is room for one more.
type Rate struct {
	Count int64
	Free  time.Time
}

// Ledger counts and keeps the day's budgets. Count counts one more of each key and returns their
// rates; Reserve is contracted by host/store.
type Ledger interface {
	Count(ctx context.Context, keys ...string) (counts []Rate, giveBack func(), err error)
	Reserve(ctx context.Context, principal string,
		micros, limit int64) (settle func(ctx context.Context, spent int64) error, err error)
}

// Keeper keeps a body for a principal and returns the id of the blob.
type Keeper interface {
	Keep(ctx context.Context, principal, name, mime string, data []byte) (id string, err error)
}

// Options is the table [egress]. Which hosts may be reached is the site's policy, not
// configuration.
type Options struct {
	// of a request that names none: name look-up, connection, body and all redirects, 30s
	Timeout time.Duration `koanf:"timeout"`
	// bytes of a response body after decompression, 10 MiB
	MaxBody int64 `koanf:"max_body"`
	PerHost int64 `koanf:"per_host"` // requests to one host in 60 s, 60
	// requests of one principal in 60 s, 300
	PerPrincipal int64 `koanf:"per_principal"`
	// of one principal, in millionths of a dollar; 0 sends nothing that costs
	USDMicrosPerDay int64 `koanf:"usd_micros_per_day"`
	// PEM certificates to trust beside the system's
	CAFile      string       `koanf:"ca_file" path:"true"`
	Credentials []Credential `koanf:"credentials"`
	Prices      []Price      `koanf:"prices"`

	Ledger Ledger `koanf:"-"`
	// nil: nothing can be saved
	Keeper Keeper `koanf:"-"`
	// nil for the system's
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error) `koanf:"-"`
}

const (
	maxTimeout = 2 * time.Minute // of a request that names one, unless the default is longer
	maxBody    = 64 << 20        // hard cap on Options.MaxBody
	memory     = 100 << 20       // bytes of response bodies at once, over all calls
)

func (o Options) withDefaults() Options {
	o.Timeout, o.MaxBody = cmp.Or(o.Timeout, 30*time.Second), cmp.Or(o.MaxBody, 10<<20)
	o.PerHost, o.PerPrincipal = cmp.Or(o.PerHost, 60), cmp.Or(o.PerPrincipal, 300)
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return o
}

// Validate returns an error that names the key that is wrong.
func (o Options) Validate() error {
	_, err := o.ready()
	return err
}

// ready returns o with its defaults, credentials and prices as they are used.
func (o Options) ready() (_ Options, err error) {
	o = o.withDefaults()
	switch {
	case o.Timeout < 0:
		return o, errors.New("egress.timeout: must not be negative")
	case o.MaxBody < 0 || o.MaxBody > maxBody:
		return o, errors.New("egress.max_body: want 1 byte to 64 MiB")
	case o.PerHost < 0:
		return o, errors.New("egress.per_host: must not be negative")
	case o.PerPrincipal < 0:
		return o, errors.New("egress.per_principal: must not be negative")
	case o.USDMicrosPerDay < 0:
		return o, errors.New("egress.usd_micros_per_day: must not be negative")
	}
	names := map[string]bool{}
	o.Credentials, o.Prices = slices.Clone(o.Credentials), slices.Clone(o.Prices)
	for i, c := range o.Credentials {
		if o.Credentials[i], err = c.ready(); err != nil {
			return o, fmt.Errorf("egress.credentials: %w", err)
		}
		if names[c.Name] {
			return o, fmt.Errorf("egress.credentials: %s is there twice", c.Name)
		}
		names[c.Name] = true
	}
	for i, p := range o.Prices {
		if o.Prices[i], err = p.ready(); err != nil {
			return o, fmt.Errorf("egress.prices: %w", err)
		}
	}
	return o, nil
}

// Egress does http_request. It is safe for concurrent use, and keeps nothing between two requests:
// no connections, no cookies.
type Egress struct {
	opts    Options
	roots   *x509.CertPool // nil for the system's
	secrets [][]byte
	room    *fair.Shares // bytes of bodies that may be in memory
}

// New returns an Egress. It reads CAFile.
func New(o Options) (*Egress, error) {
	o, err := o.ready()
	if err != nil {
		return nil, err
	}
	if o.Ledger == nil {
		return nil, errors.New("egress: New needs a Ledger")
	}
	e := &Egress{opts: o, secrets: forms(o.Credentials), room: fair.New(memory, memory)}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("egress.ca_file: %w", err)
		}
		if e.roots, err = x509.SystemCertPool(); err != nil {
			e.roots = x509.NewCertPool()
		}
		if !e.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("egress.ca_file: %s holds no certificates in PEM", o.CAFile)
		}
	}
	return e, nil
}

// Lookup finds the addresses of the request's host. Nothing is sent to it.
func (e *Egress) Lookup(ctx context.Context, q gate.Question) (gate.Facts, error) {
	op, ok := q.Op.(abi.HTTPRequest)
	if !ok {
		return gate.Facts{}, fail("bad_request", "%s is not an HTTP request", q.Op.Import())
	}
	r, err := e.check(op, q.Call.Tool.Name)
	if err != nil {
		return gate.Facts{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout(op))
	defer cancel()
	addrs, err := e.resolve(ctx, r.host)
	return gate.Facts{Addrs: addrs}, err
}

// Execute sends an allowed request to one of the decided addresses. A redirect that is to be
// followed is the result's Next. The error is a *gate.OpError; its outcome is Unknown when a
// request that may have had an effect was sent and no answer came.
func (e *Egress) Execute(
	ctx context.Context, q gate.Question, d gate.Decision,
) (gate.Result, error) {
	op, ok := q.Op.(abi.HTTPRequest)
	if !ok || !d.Allow {
		return gate.Result{}, fail("refused", "%s was not allowed", q.Op.Import())
	}
	if len(q.Facts.Addrs) == 0 {
		return gate.Result{}, fail("changed",
			"the host of the request was not looked up before it was decided")
	}
	r, err := e.check(op, q.Call.Tool.Name)
	if err != nil {
		return gate.Result{}, err
	}
	r.addrs = q.Facts.Addrs
	ctx, cancel := context.WithTimeout(ctx, least(e.timeout(op), d.Obligations.Timeout))
	defer cancel()
	limit := least(d.Obligations.MaxBytes, e.opts.MaxBody)
	if !op.Save {
		limit = least(op.MaxBytes, limit, maxInline)
	}
	who := q.Call.Principal.ID
	// The caller may hold room that others wait for: it is refused rather than let wait.
	if !e.room.TryAcquireN(who, int(limit)) {
		return gate.Result{}, fail("busy",
			"other requests hold most of the %d bytes that responses may use; try again", memory)
	}
	defer e.room.ReleaseN(who, int(limit))
	if err := e.count(ctx, who, r.host); err != nil {
		return gate.Result{}, err
	}
	price, micros, err := e.price(r)
	if err != nil {
		return gate.Result{}, err
	}
	micros = max(micros, op.ReserveUSDMicros)
	settle, err := e.reserve(ctx, who, micros)
	if err != nil {
		return gate.Result{}, err
	}
	ans, sent, err := e.send(ctx, r, limit)
	if err != nil {
		if !sent {
			settle(0)
		}
		return gate.Result{}, err
	}
	settle(price.spent(ans.status, ans.body, micros))
	follow, yes, err := next(op, r.target, ans.status, ans.location)
	if err != nil {
		return gate.Result{}, err
	}
	if yes {
		if end, ok := ctx.Deadline(); ok { // the time is for all hops together
			follow.TimeoutMS = max(1, time.Until(end).Milliseconds())
		}
		return gate.Result{Next: follow, Bytes: int64(len(ans.body))}, nil
	}
	return e.result(ctx, q, op, ans)
}

// End has nothing to free: whatever a request holds is freed when it ends.
func (e *Egress) End(context.Context, *gate.Call) {}

func (e *Egress) count(ctx context.Context, principal, host string) error {
	rates, giveBack, err := e.opts.Ledger.Count(ctx, fmt.Sprintf("http host %q", host),
		fmt.Sprintf("http principal %q", principal))
	if err != nil || len(rates) != 2 {
		return fail("rate", "the count of requests cannot be kept: %v", err)
	}
	for i, limit := range []int64{e.opts.PerHost, e.opts.PerPrincipal} {
		if rates[i].Count > limit {
			giveBack()
			return fail("rate", "%s: more than %d requests in 60 seconds; come back at %s",
				[]string{"to " + host, "by " + principal}[i], limit,
				rates[i].Free.UTC().Format("15:04:05 MST"))
		}
	}
	return nil
}

func (e *Egress) timeout(op abi.HTTPRequest) time.Duration {
	if op.TimeoutMS <= 0 {
		return e.opts.Timeout
	}
	most := max(maxTimeout, e.opts.Timeout)
	return time.Duration(min(op.TimeoutMS, most.Milliseconds())) * time.Millisecond
}

// least is the smallest of those limits that are set.
func least[T int64 | time.Duration](limits ...T) (min T) {
	for _, l := range limits {
		if l > 0 && (min == 0 || l < min) {
			min = l
		}
	}
	return min
}

// fail is a request that had no effect, or whose effect is known and named in the message.
func fail(code, format string, args ...any) *gate.OpError {
	return &gate.OpError{Code: code, Message: fmt.Sprintf(format, args...), Outcome: gate.Failed}
}
