package mcp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options of a Server. Zero means the default that the comment names.
type Options struct {
	MaxChars int `koanf:"max_chars"` // characters of text in a result: 25,000
	// bytes of a plugin's output; a longer one is the plugin's error: 8 MiB
	MaxOutput int `koanf:"-"`
	// bytes of an HTTP body or a line on stdin: 4 MiB
	MaxBody int64 `koanf:"-"`
	// calls at a time, of which one principal may have half: 64
	MaxCalls int `koanf:"-"`
	// between progress notifications while a call runs: 5s
	KeepAlive time.Duration `koanf:"-"`
	// for running calls to end when the host stops: 10s, the most
	StopTimeout time.Duration `koanf:"-"`
	// the site's own text for agents, after the generated instructions
	Guidance string `koanf:"guidance"`

	Version   string          `koanf:"-"` // of the host: dev
	Principal terms.Principal `koanf:"-"` // the caller over stdio
	// the decision of lists about a tool, for its tier and how it is approved; nil judges by the
	// tool's own hints
	Listing func(context.Context, terms.Principal, *terms.Tool) terms.Decision `koanf:"-"`
	// whether a tool is listed although it is an alias of another one; nil lists none
	Lists func(*terms.Tool) bool `koanf:"-"`
	// lists output schemas. Results are held to them in any case, and with this they are in
	// structuredContent beside the text
	OutputSchemas bool `koanf:"-"`

	// keeps what calls ask where several hosts share it; nil for this process alone
	Rounds Rounds `koanf:"-"`

	Meter *observe.Meter `koanf:"-"` // nil for one of its own
	Log   *slog.Logger   `koanf:"-"` // nil for slog.Default
	// closed when the door is open: until then only the first request of a client and pings are
	// answered, and all others wait; nil for at once
	Ready  <-chan struct{} `koanf:"-"`
	Stdin  io.Reader       `koanf:"-"` // nil for os.Stdin
	Stdout io.Writer       `koanf:"-"` // nil for os.Stdout
	// changes the SDK's options and server, for the conformance suite; nil in the product
	Extend Extension `koanf:"-"`
}

// Extension changes the SDK's options before the server is made, and the server afterwards.
type Extension func(*mcp.ServerOptions) func(*mcp.Server)

// Validate reports a field that cannot be used, and what to write instead.
func (o Options) Validate() error {
	if o.MaxChars < 0 {
		return errors.New("front.max_chars: must not be negative; omit it for the default")
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MaxChars = cmp.Or(o.MaxChars, 25_000)
	o.MaxOutput = cmp.Or(o.MaxOutput, 8<<20)
	o.MaxBody = cmp.Or(o.MaxBody, 4<<20)
	o.MaxCalls = cmp.Or(o.MaxCalls, 64)
	o.KeepAlive = cmp.Or(o.KeepAlive, 5*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Second)
	o.Version = cmp.Or(o.Version, "dev")
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Meter == nil {
		o.Meter = observe.NewMeter(o.Version)
	}
	if o.Ready == nil {
		ready := make(chan struct{})
		close(ready)
		o.Ready = ready
	}
	if o.Listing == nil {
		o.Listing = func(_ context.Context, _ terms.Principal, t *terms.Tool) terms.Decision {
			return terms.Decision{Tier: tierOfHints(t.Hints)}
		}
	}
	if o.Lists == nil {
		o.Lists = func(*terms.Tool) bool { return false }
	}
	return o
}

// tierOfHints judges a tool by its own hints, which count only where they make the tool look worse
// than no hint would.
func tierOfHints(h terms.Hints) terms.Tier {
	switch {
	case h.Destructive:
		return terms.Red
	case h.ReadOnly:
		return terms.Green
	}
	return terms.Yellow
}
