package http

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	mcpfront "github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func blockingDoor() (*fakeDoor, chan error, chan error) {
	started, cancelled := make(chan error, 10), make(chan error, 10)
	return &fakeDoor{
		Calls: map[string]func(context.Context, terms.Request) terms.Answer{
			"wait":  blocks(started, cancelled),
			"hello": says(`{"content":[]}`),
		},
	}, started, cancelled
}

func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not within 30 s", what)
	}
	return v
}

func TestACancelledCallIsCancelledOnEveryTransport(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			door, started, cancelled := blockingDoor()
			cs := connect(t, newServer(t, door, nil), nil)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { soon(t, "start", started); cancel() }()
			if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "wait"}); !errors.Is(
				err,
				context.Canceled,
			) {
				t.Errorf("call ended with %v", err)
			}
			soon(t, "the door hears of it", cancelled)
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"}); err != nil {
				t.Errorf("the connection is not usable afterwards: %v", err)
			}
		})
	}
}

func TestAClientThatIsGoneCancelsItsCalls(t *testing.T) {
	wait := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"%s}}`
	for name, version := range map[string]string{"http 2025": "2025-11-25",
		"http 2026": "2026-07-28"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			door, started, cancelled := blockingDoor()
			url, _ := serve(t, newServer(t, door, nil))
			body, headers := fmt.Sprintf(
				wait,
				"",
			), http.Header{
				"Content-Type":         {"application/json"},
				"Accept":               {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {version},
			}
			if version == mcpfront.StatelessVersions()[0] {
				body = fmt.Sprintf(wait, ","+modernMeta)
				headers.Set("Mcp-Method", "tools/call")
				headers.Set("Mcp-Name", "wait")
			} else {
				res, err := http.DefaultClient.Do(
					must(http.NewRequest("POST", url+"/mcp",
						strings.NewReader(initialize))).WithContext(t.Context()))
				if err == nil { // without the headers it is refused
					res.Body.Close()
				}
				req := must(http.NewRequest("POST", url+"/mcp", strings.NewReader(initialize)))
				req.Header = headers.Clone()
				if res, err = http.DefaultClient.Do(req); err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				headers.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
			}
			ctx, hangUp := context.WithCancel(t.Context())
			req := must(
				http.NewRequestWithContext(ctx, "POST", url+"/mcp", strings.NewReader(body)),
			)
			req.Header = headers
			go func() { soon(t, "start", started); hangUp() }()
			if res, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			soon(t, "the door hears of it", cancelled)
		})
	}
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		door, started, cancelled := blockingDoor()
		in, lines, ended := rawStdio(t, newServer(t, door, nil), t.Context())
		fmt.Fprintln(in, initialize)
		soon(t, "initialized", lines)
		fmt.Fprintf(in, wait+"\n", "")
		soon(t, "start", started)
		in.Close()
		soon(t, "the door hears of it", cancelled)
		if err := soon(t, "Stdio returns", ended); err != nil {
			t.Error(err)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// rawStdio runs Stdio and gives what a client without an SDK would hold.
func rawStdio(
	t *testing.T,
	s *host,
	ctx context.Context,
) (in io.WriteCloser, lines <-chan string, ended <-chan error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.in.Reader, s.out.Writer = inR, outW
	out, end := make(chan string, 100), make(chan error, 1)
	go func() { end <- s.Stdio(ctx); outW.Close() }()
	go func() {
		defer close(out)
		for sc := bufio.NewScanner(outR); sc.Scan(); {
			out <- sc.Text()
		}
	}()
	t.Cleanup(func() { inW.Close() })
	return inW, out, end
}

func TestABadLineIsAnsweredAndTheSessionGoesOn(t *testing.T) {
	s := newServer(t, helloDoor(), func(o *opts) { o.MaxBody = 4096 })
	in, lines, ended := rawStdio(t, s, t.Context())
	for _, c := range []struct{ line, want string }{
		{"hello", `"id":null,"error":{"code":-32700`},
		{"Content-Length: 52\r", `-32700`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","method":"initialize"}`,
			`"id":7,"error":{"code":-32600`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "batches"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", "UTF-8"},
		{`{"jsonrpc":"1.0","id":8,"method":"ping"}`, `"id":8,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":9,"method":"` + strings.Repeat("x", 10_000) + `"}`,
			"over the limit of 4096"},
		{`{"jsonrpc":"2.0","id":10,"method":"ping"} {}`, "more after"},
		{"\n\n" + `{"jsonrpc":"2.0","id":"ok","method":"ping"}`, `"id":"ok","result":{}`},
		{initialize, `"protocolVersion":"2025-11-25"`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"hello"}}`, `"text":"hi"`},
	} {
		if _, err := fmt.Fprintln(in, c.line); err != nil {
			t.Fatal(err)
		}
		if got := soon(t, "answer to "+c.line[:min(len(c.line), 40)], lines); !strings.Contains(
			got,
			c.want,
		) {
			t.Errorf("%.60q: got %s, want %s", c.line, got, c.want)
		} else if !json.Valid([]byte(got)) {
			t.Errorf("stdout is not JSON: %s", got)
		}
	}
	in.Close()
	if err := soon(t, "Stdio returns", ended); err != nil {
		t.Error(err)
	}
}

func TestWhatAShellPipesInIsAnsweredBeforeTheEnd(t *testing.T) {
	door := &fakeDoor{
		Calls: map[string]func(context.Context, terms.Request) terms.Answer{
			"slow": func(ctx context.Context, r terms.Request) terms.Answer {
				select {
				case <-time.After(200 * time.Millisecond):
				case <-ctx.Done():
				}
				return says(`{"content":[{"type":"text","text":"slowly"}]}`)(ctx, r)
			},
		},
	}
	in, lines, ended := rawStdio(t, newServer(t, door, nil), t.Context())
	fmt.Fprintln(in, initialize)
	// no newline either
	fmt.Fprint(in, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow"}}`)
	in.Close()
	soon(t, "initialized", lines)
	if got := soon(t, "answer", lines); !strings.Contains(got, "slowly") {
		t.Errorf("got %s", got)
	}
	if err := soon(t, "Stdio returns", ended); err != nil {
		t.Error(err)
	}
}

func TestStoppingCancelsCallsAndStillAnswersThem(t *testing.T) {
	t.Run("stdio", func(t *testing.T) {
		door, started, cancelled := blockingDoor()
		ctx, stop := context.WithCancel(t.Context())
		in, lines, ended := rawStdio(t, newServer(t, door, nil), ctx)
		fmt.Fprintln(in, initialize)
		soon(t, "initialized", lines)
		fmt.Fprintln(in, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}`)
		soon(t, "start", started)
		stop()
		if cause := soon(t, "cancel", cancelled); !strings.Contains(cause.Error(),
			"the host is stopping") {
			t.Errorf("cause %v", cause)
		}
		if got := soon(t, "answer", lines); !strings.Contains(got, "the host is stopping") ||
			!strings.Contains(got, "outcome is unknown") {
			t.Errorf("got %s", got)
		}
		if err := soon(t, "Stdio returns", ended); err != nil {
			t.Error(err)
		}
	})
	t.Run("http, with open streams", func(t *testing.T) {
		door, started, _ := blockingDoor()
		s := newServer(t, door, nil)
		url, stop := serve(t, s)
		var clients []*mcp.ClientSession
		for _, version := range []string{"", "2025-11-25"} { // with a listen and a GET stream
			cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"},
				&mcp.ClientOptions{ToolListChangedHandler: func(context.Context,
					*mcp.ToolListChangedRequest) {
				}}).
				Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp",
					MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer cs.Close()
			clients = append(clients, cs)
		}
		var wg sync.WaitGroup
		for _, cs := range clients {
			wg.Go(func() {
				r, err := cs.CallTool(
					context.WithoutCancel(t.Context()),
					&mcp.CallToolParams{Name: "wait"},
				)
				// A client of 2025 gives all up when it reads the end of its GET stream, which the
				// host closes after the answer, before it reads the answer on another connection.
				if err != nil && strings.Contains(err.Error(), "standalone SSE stream") {
					return
				}
				if err != nil || !strings.Contains(text(r), "the host is stopping") {
					t.Errorf("%s: %v %v", cs.InitializeResult().ProtocolVersion, err, r)
				}
			})
			soon(t, "start", started)
		}
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 20*time.Second {
			t.Errorf("stopped after %s: %v", time.Since(began), err)
		}
		wg.Wait()
	})
	t.Run("http, with a call that does not listen", func(t *testing.T) {
		started, release := make(chan error, 1), make(chan error)
		door := &fakeDoor{
			Calls: map[string]func(context.Context, terms.Request) terms.Answer{
				"deaf": func(context.Context, terms.Request) terms.Answer {
					started <- nil
					<-release
					return terms.Answer{}
				},
			},
		}
		defer close(release)
		s := newServer(t, door, func(o *opts) { o.StopTimeout = 500 * time.Millisecond })
		l := must(listen())
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.web.Serve(ctx, l) }()
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + l.Addr().String() + "/mcp"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer cs.Close()
		go func() {
			_, _ = cs.CallTool(context.WithoutCancel(t.Context()),
				&mcp.CallToolParams{Name: "deaf"})
		}()
		soon(t, "start", started)
		stop()
		if err := soon(t, "Serve returns", ended); err == nil ||
			!strings.Contains(err.Error(), "did not end") {
			t.Errorf("got %v", err)
		}
	})
}

func TestProgressOfAPluginAndSignsOfLife(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alive := make(chan struct{}) // closed when the client got a sign of life
			door := &fakeDoor{
				Calls: map[string]func(context.Context, terms.Request) terms.Answer{
					"steps": func(ctx context.Context, r terms.Request) terms.Answer {
						for i := range 4 { // a sign of life before the first is less than 1
							r.Progress(float64(1+i), 5, fmt.Sprintf("step\x1b[1m %d", i))
						}
						r.Progress(2, 5, "backwards")
						select {
						case <-alive:
						case <-time.After(20 * time.Second):
						}
						r.Progress(5, 5, "last")
						return says(`{"content":[]}`)(ctx, r)
					},
				},
			}
			var mu sync.Mutex
			var got []string
			signs, last := 0, -1.0
			cs := connect(
				t,
				newServer(t, door, func(o *opts) { o.KeepAlive = 50 * time.Millisecond }),
				&mcp.ClientOptions{
					ProgressNotificationHandler: func(_ context.Context,
						r *mcp.ProgressNotificationClientRequest) {
						mu.Lock()
						defer mu.Unlock()
						if r.Params.Progress <= last {
							t.Errorf("progress went from %v to %v", last, r.Params.Progress)
						}
						last = r.Params.Progress
						if r.Params.Message != "still running" {
							got = append(got, r.Params.Message)
						} else if signs++; signs == 1 {
							close(alive)
						}
					},
				},
			)
			p := &mcp.CallToolParams{Name: "steps"}
			p.SetProgressToken("tok")
			if _, err := cs.CallTool(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			eventually(
				t,
				"all progress",
				func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(got) > 0 &&
						got[len(got)-1] == "last"
				},
			)
			mu.Lock()
			defer mu.Unlock()
			if all := strings.Join(got, ","); all != "step 0,step 1,step 2,step 3,last" ||
				signs == 0 {
				t.Errorf("got %s and %d signs of life", all, signs)
			}
			// without a token
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheListChangesOnlyWhenItDoes(t *testing.T) {
	for _, version := range []string{"", "2025-11-25"} {
		door := helloDoor()
		s := newServer(t, door, nil)
		changed := make(chan bool, 10)
		cs := overHTTP(
			t,
			s,
			&mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
					changed <- true
				},
			},
			version,
		)
		same := []*terms.Tool{
			tool("hello", terms.Hints{ReadOnly: true}),
			tool("hidden", terms.Hints{}),
		}
		same[0].Plugin.Digest = "sha256:11" // a new build with the same face
		if err := s.SetTools(same); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			t.Errorf("%q: told of a change that nobody can see", version)
		case <-time.After(200 * time.Millisecond):
		}
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"}); err != nil ||
			door.Asked()[0].Tool.Plugin.Digest != "sha256:11" {
			t.Errorf("%v: calls still go to the old build", err)
		}
		if err := s.SetTools(same[:1]); err != nil {
			t.Fatal(err)
		}
		soon(t, "told of the change, "+version, changed)
		s.Changed()
		soon(t, "told of another policy, "+version, changed)
		cs.Close()
	}
}
