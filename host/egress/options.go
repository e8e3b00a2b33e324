package egress

import (
	"bytes"
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
)

// Rate is a count of the last 60 seconds, and the time at which one more is allowed.
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

// scrub replaces every secret of this host in what a server sent.
func (e *Egress) scrub(b []byte) []byte {
	for _, f := range e.secrets {
		if bytes.Contains(b, f) {
			b = bytes.ReplaceAll(b, f, []byte("[redacted]"))
		}
	}
	return b
}
