package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/front/fronttest"
	"github.com/caponier-mcp/caponier/host/terms"
)

type fakeDoor = fronttest.Door

var (
	tool      = fronttest.Tool
	helloDoor = fronttest.Hello
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":` +
	`"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func newServer(t *testing.T, door *fakeDoor, change func(*Options)) *Server {
	t.Helper()
	o := Options{OutputSchemas: true, Principal: terms.Principal{ID: "local", Auth: "config"},
		Log: slog.New(slog.NewTextHandler(fronttest.NewWriter(t), nil))}
	if change != nil {
		change(&o)
	}
	s, err := New(o, door)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetTools(door.Tools()); err != nil {
		t.Fatal(err)
	}
	return s
}

// overStdio returns a client of the server of the newest protocol version.
func overStdio(t *testing.T, s *Server, o *mcp.ClientOptions) *mcp.ClientSession {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.opts.Stdin, s.opts.Stdout = inR, outW
	ended := make(chan error, 1)
	go func() { ended <- s.Stdio(context.Background()); outW.Close() }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"},
		o).Connect(t.Context(),
		&mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Stdio: %v", err)
		}
	})
	return cs
}

// ended converts how a call of the tool ended.
func ended(s *Server, t *terms.Tool, a terms.Answer) *result {
	who := Caller{Principal: terms.Principal{ID: "local"}, Gone: context.Background()}
	return s.result(&request{who: who, tool: t}, answer{Answer: a})
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
