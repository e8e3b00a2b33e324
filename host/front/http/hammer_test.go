package http

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asPrincipal sends every request as one principal, with a credential that nobody may ever see
// again.
type asPrincipal struct{ id string }

func (a asPrincipal) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Test-Principal", a.id)
	r.Header.Set("Authorization", "Bearer canary-"+a.id)
	return http.DefaultTransport.RoundTrip(r)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Many callers at once, in both eras, while the tools change: each sees and gets its own, and no
// credential comes back out.
func TestCallersAtOnceNeverMeet(t *testing.T) {
	echo := func(ctx context.Context, r terms.Request) terms.Answer {
		if r.Progress != nil {
			r.Progress(1, 2, "for "+r.Principal.ID)
		}
		r.Log(0, "called by "+r.Principal.ID)
		return says(
			fmt.Sprintf(`{"content":[{"type":"text","text":"for %s"}]}`, r.Principal.ID),
		)(
			ctx,
			r,
		)
	}
	door := &fakeDoor{
		Calls: map[string]func(context.Context, terms.Request) terms.Answer{"echo": echo},
	}
	var tools []*terms.Tool
	for i := range 8 {
		name := fmt.Sprintf("secret_p%d", i) // which that principal, of all, does not see
		door.Calls[name] = echo
		tools = append(tools, tool(name, terms.Hints{}))
	}
	tools = append(tools, tool("echo", terms.Hints{ReadOnly: true}))
	var logged lockedBuffer
	s := newServer(t, door, func(o *opts) {
		o.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if err := s.SetTools(tools); err != nil {
		t.Fatal(err)
	}
	url, _ := serve(t, s)
	stop := make(chan struct{})
	var changing, clients sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			list := tools
			if i%2 == 0 {
				list = append(tools[:len(tools):len(tools)], tool("comes_and_goes", terms.Hints{}))
			}
			if err := s.SetTools(list); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 8 {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			clients.Go(func() {
				me := fmt.Sprintf("p%d", i)
				cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"},
					&mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
						r *mcp.ProgressNotificationClientRequest) {
						if r.Params.Message != "for "+me {
							t.Errorf("%s heard of progress %s", me, r.Params.Message)
						}
					}}).
					Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp",
						HTTPClient: &http.Client{Transport: asPrincipal{me}}},
						&mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Error(err)
					return
				}
				defer cs.Close()
				for range 15 {
					p := &mcp.CallToolParams{Name: "echo"}
					p.SetProgressToken("same for all")
					r, err := cs.CallTool(t.Context(), p)
					if err != nil || text(r) != "for "+me+"\n" {
						t.Errorf("%s got %v %v", me, err, r)
						return
					}
					list, err := cs.ListTools(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					seen := map[string]bool{}
					for _, tl := range list.Tools {
						seen[tl.Name] = true
					}
					if seen["secret_"+me] || !seen["echo"] || len(seen) != 8 {
						t.Errorf("%s sees %v", me, seen)
					}
				}
			})
		}
	}
	clients.Wait()
	close(stop)
	changing.Wait()
	counted := s.numbers()
	if all := logged.b.String() + counted; strings.Contains(all, "canary") ||
		!strings.Contains(all, "called by p3") ||
		!strings.Contains(all, `caponier_calls_total{outcome="succeeded",tool="echo"} 240`) {
		t.Errorf("log and metrics hold a credential, or nothing: %.2000s", all)
	}
}
