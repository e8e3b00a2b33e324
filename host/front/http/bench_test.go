package http

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkCall compares a call through the front with one through a bare server of the SDK, in the
// same run: what the front costs. The door answers at once. Each client is one session.
func BenchmarkCall(b *testing.B) {
	for _, way := range []string{"stdio 2025", "http 2025", "http 2026"} {
		for _, clients := range []int{1, 16, 100} {
			if way == "stdio 2025" && clients > 1 {
				continue
			}
			for _, bare := range []bool{true, false} {
				name := "front"
				if bare {
					name = "bare SDK"
				}
				b.Run(
					fmt.Sprintf("%s/%d clients/%s", way, clients, name),
					func(b *testing.B) { benchCall(b, way, clients, bare) },
				)
			}
		}
	}
}

func benchCall(b *testing.B, way string, clients int, bare bool) {
	s := newServer(b, helloDoor(), func(o *opts) { o.MaxSessions = 200 })
	sdk := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	sdk.AddTool(
		&mcp.Tool{Name: "hello", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hi"}}}, nil
		},
	)
	version, h := "2025-11-25", s.web.handler()
	if way == "http 2026" {
		version = ""
	}
	if bare {
		h = mcp.NewStreamableHTTPHandler(
			func(*http.Request) *mcp.Server { return sdk },
			&mcp.StreamableHTTPOptions{Stateless: version == ""},
		)
	}
	web := httptest.NewServer(h)
	defer web.Close()
	var sessions []*mcp.ClientSession
	for range clients {
		var t mcp.Transport = &mcp.StreamableClientTransport{Endpoint: web.URL + "/mcp",
			DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: &http.Transport{}}}
		if way == "stdio 2025" {
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			t = &mcp.IOTransport{Reader: outR, Writer: inW}
			if bare {
				if _, err := sdk.Connect(b.Context(), &mcp.IOTransport{Reader: inR, Writer: outW},
					nil); err != nil {
					b.Fatal(err)
				}
			} else {
				s.in.Reader, s.out.Writer = inR, outW
				go func() { _ = s.Stdio(context.Background()); outW.Close() }()
			}
		}
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
			Connect(b.Context(), t, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			b.Fatal(err)
		}
		defer cs.Close()
		sessions = append(sessions, cs)
	}
	var next atomic.Int64
	took := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, cs := range sessions {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				began := time.Now()
				if r, err := cs.CallTool(context.Background(),
					&mcp.CallToolParams{Name: "hello"}); err != nil ||
					r.IsError {
					b.Errorf("%v %v", err, r)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
