package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/caponier-mcp/caponier/host/front/fronttest"
	mcpfront "github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/terms"
)

func TestMain(m *testing.M) {
	// the client's
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/modelcontextprotocol/go-sdk/mcp.callSubscriptionsListen.func1"),
		goleak.Cleanup(func(code int) {
			http.DefaultClient.CloseIdleConnections()
			os.Exit(code)
		}))
}

type fakeDoor = fronttest.Door

var (
	says      = fronttest.Says
	fails     = fronttest.Fails
	blocks    = fronttest.Blocks
	tool      = fronttest.Tool
	helloDoor = fronttest.Hello
)

type (
	mcpOptions     = mcpfront.Options
	observeOptions = observe.Options
)

// opts are the options of a host.
type opts struct {
	mcpOptions
	Options
	observeOptions
	Log *slog.Logger
}

// host is a server with both of its transports.
type host struct {
	*mcpfront.Server
	web *Server
	in  *swapped
	out *swapped
}

// swapped is one end of stdio that is set when the server exists already.
type swapped struct {
	io.Reader
	io.Writer
}

func newServer(t testing.TB, door *fakeDoor, change func(*opts)) *host {
	t.Helper()
	h := &host{in: &swapped{}, out: &swapped{}}
	o := opts{Log: slog.New(slog.DiscardHandler)}
	if t, is := t.(*testing.T); is {
		o.Log = slog.New(slog.NewTextHandler(fronttest.NewWriter(t), nil))
	}
	o.Principal, o.Identity = terms.Principal{ID: "local", Auth: "config"}, fixedIdentity{}
	o.Stdin, o.Stdout = h.in, h.out
	o.Health = func() observe.Health {
		return observe.Health{SSHConnected: true, PolicyRevision: "rev1", LockChecksum: "sum1"}
	}
	if change != nil {
		change(&o)
	}
	o.mcpOptions.Log, o.Options.Log, o.observeOptions.Log = o.Log, o.Log, o.Log
	o.mcpOptions.Meter = observe.NewMeter("test")
	o.observeOptions.Meter = o.mcpOptions.Meter
	told, err := observe.New(o.observeOptions)
	if err != nil {
		t.Fatal(err)
	}
	if h.Server, err = mcpfront.New(o.mcpOptions, door); err != nil {
		t.Fatal(err)
	}
	if err := h.SetTools(door.Tools()); err != nil {
		t.Fatal(err)
	}
	if h.web, err = New(o.Options, h.Server, told); err != nil {
		t.Fatal(err)
	}
	return h
}

// open returns the number of open sessions.
func (h *host) open() int {
	used, _ := h.web.sessions.Held()
	return used
}

// numbers are the metrics as their own address serves them.
func (h *host) numbers() string {
	w := httptest.NewRecorder()
	h.web.meter.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// refusals is the sum of the metric over all reasons.
func (h *host) refusals() (n float64) {
	for _, line := range strings.Split(h.numbers(), "\n") {
		var reason string
		var count float64
		if rest, is := strings.CutPrefix(line, `caponier_refused_requests_total{reason="`); is {
			reason, rest, _ = strings.Cut(rest, `"} `)
			if _, err := fmt.Sscan(rest, &count); err != nil || reason == "" {
				panic(line)
			}
			n += count
		}
	}
	return n
}

// fixedIdentity lets every caller in as the principal that a header names.
type fixedIdentity struct{ proves bool }
type fixedKey struct{}

func (fixedIdentity) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Test-Principal")
		if id == "" {
			id = "demo"
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fixedKey{},
			terms.Principal{ID: id, Auth: "config"})))
	})
}

func (fixedIdentity) Principal(ctx context.Context) (terms.Principal, bool) {
	p, ok := ctx.Value(fixedKey{}).(terms.Principal)
	return p, ok
}

func (fixedIdentity) Metadata() ([]string, http.Handler) {
	return []string{"/.well-known/x"}, http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "published") })
}

func (fixedIdentity) Current(context.Context) error  { return nil }
func (fixedIdentity) Admitted(context.Context) error { return nil }
func (f fixedIdentity) Authenticates() bool          { return f.proves }

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// serve runs Serve on loopback until the test ends and returns its URL.
func serve(t testing.TB, s *host) (url string, stop func() error) {
	t.Helper()
	l := must(listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.web.Serve(ctx, l) }()
	var once sync.Once
	var result error
	stop = func() error { once.Do(func() { cancel(); result = <-ended }); return result }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + l.Addr().String(), stop
}

// transports are the ways in: each returns a connected client of the version that it names.
var transports = map[string]func(*testing.T, *host, *mcp.ClientOptions) *mcp.ClientSession{
	"stdio 2026": func(t *testing.T, s *host, o *mcp.ClientOptions) *mcp.ClientSession {
		return overStdio(t, s, o, "")
	},
	"stdio 2025": func(t *testing.T, s *host, o *mcp.ClientOptions) *mcp.ClientSession {
		return overStdio(t, s, o, "2025-11-25")
	},
	"http 2026": func(t *testing.T, s *host, o *mcp.ClientOptions) *mcp.ClientSession {
		return overHTTP(t, s, o, "")
	},
	"http 2025": func(t *testing.T, s *host, o *mcp.ClientOptions) *mcp.ClientSession {
		return overHTTP(t, s, o, "2025-11-25")
	},
}

func overStdio(t *testing.T, s *host, o *mcp.ClientOptions, version string) *mcp.ClientSession {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.in.Reader, s.out.Writer = inR, outW
	ended := make(chan error, 1)
	go func() { ended <- s.Stdio(context.Background()); outW.Close() }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"},
		o).Connect(t.Context(),
		&mcp.IOTransport{Reader: outR, Writer: inW},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		// something was told to a client that had gone
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Stdio: %v", err)
		}
	})
	return cs
}

func overHTTP(t *testing.T, s *host, o *mcp.ClientOptions, version string) *mcp.ClientSession {
	url, _ := serve(t, s)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"},
		o).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url + "/mcp"},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

func everywhere(t *testing.T, door func() *fakeDoor, change func(*opts),
	check func(*testing.T, *mcp.ClientSession, *fakeDoor)) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := door()
			check(t, connect(t, newServer(t, d, change), nil), d)
		})
	}
}

func text(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			b.WriteString(tc.Text + "\n")
		}
	}
	return b.String()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	fronttest.Eventually(t, what, is)
}

// approvalKey is the question whether a call may happen.
const approvalKey = "caponier.approval"

// callMeta is what a result says of its call, for programs.
type callMeta struct {
	Outcome terms.Outcome `json:"outcome"`
	CallID  string        `json:"call_id"`
	Tier    string        `json:"tier"`
	Refused []struct {
		Failed     []string `json:"failed"`
		Deny       []string `json:"deny"`
		DecisionID string   `json:"decision_id"`
	} `json:"refused"`
	ApprovalID string `json:"approval_id"`
	Error      *struct {
		Code string `json:"code"`
	} `json:"error"`
	JournalFailed bool `json:"journal_failed"`
	Untrusted     bool `json:"untrusted"`
	Truncated     bool `json:"truncated"`
}

func meta(t *testing.T, r *mcp.CallToolResult) (s callMeta) {
	t.Helper()
	if err := json.Unmarshal(must(json.Marshal(r.Meta["io.caponier/call"])), &s); err != nil {
		t.Fatal(err)
	}
	return s
}
