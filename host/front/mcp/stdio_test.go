package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives the tests: who starts one waits for it.
func TestMain(m *testing.M) {
	if ended := os.Getenv("FRONT_TEST_STDIO"); ended != "" {
		os.Exit(serveStdio(ended))
	}
	// the client's
	goleak.VerifyTestMain(
		m,
		goleak.IgnoreAnyFunction(
			"github.com/modelcontextprotocol/go-sdk/mcp.callSubscriptionsListen.func1",
		),
		goleak.Cleanup(func(code int) {
			http.DefaultClient.CloseIdleConnections()
			os.Exit(code)
		}),
	)
}

// serveStdio is a host in a process of its own whose only call ends when it is cancelled, and then
// leaves a file.
func serveStdio(ended string) int {
	o := Options{
		Principal: terms.Principal{ID: "p", Auth: "config"},
		KeepAlive: 20 * time.Millisecond,
	}
	s, err := New(
		o,
		&fakeDoor{
			Calls: map[string]func(context.Context, terms.Request) terms.Answer{
				"wait": func(ctx context.Context, _ terms.Request) terms.Answer {
					<-ctx.Done()
					time.Sleep(100 * time.Millisecond) // cleaning up on the node
					if err := os.WriteFile(ended, nil, 0o600); err != nil {
						panic(err)
					}
					return terms.Answer{CallID: "C1", Outcome: terms.Unknown, Err: ctx.Err()}
				},
			},
		},
	)
	if err == nil {
		err = s.SetTools([]*terms.Tool{tool("wait", terms.Hints{})})
	}
	if err == nil {
		err = s.Stdio(context.Background())
	}
	if err != nil {
		return 1
	}
	return 0
}

// A client that dies takes the other end of stdout and stderr with it. The calls must still end in
// order, and be journaled.
func TestABrokenPipeDoesNotKillTheHost(t *testing.T) {
	ended := filepath.Join(t.TempDir(), "ended")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FRONT_TEST_STDIO="+ended)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = outW, outW
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outW.Close()
	fmt.Fprintln(in, initialize)
	fmt.Fprintln(
		in,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait",`+
			`"_meta":{"progressToken":"p"}}}`,
	)
	for lines := bufio.NewScanner(outR); lines.Scan() &&
		!strings.Contains(lines.Text(), "still running"); {
	}
	outR.Close() // and stdin stays open: only writing tells the host
	err = cmd.Wait()
	if _, missing := os.Stat(ended); missing != nil {
		t.Errorf("the call did not end in order: %v; the host: %v", missing, err)
	}
	in.Close()
}

// TestOnlyTheFirstRequestIsAnsweredBeforeTheDoorIsOpen: the others wait, and none is lost when
// stdin ends before that; none is answered when the host stops instead. The tools come after the
// first answer, and the client, who has read no list, is not told that its list has changed.
func TestOnlyTheFirstRequestIsAnsweredBeforeTheDoorIsOpen(t *testing.T) {
	for _, opens := range []bool{true, false} {
		in, client := io.Pipe()
		answers, out := io.Pipe()
		ready := make(chan struct{})
		s, err := New(Options{Principal: terms.Principal{ID: "p", Auth: "config"}, Ready: ready,
			Stdin: in, Stdout: out}, &fakeDoor{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- s.Stdio(ctx); out.Close() }()
		fmt.Fprint(client, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
			`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c",`+
			`"version":"1"}}}`+"\n")
		lines := bufio.NewScanner(answers)
		if !lines.Scan() || !strings.Contains(lines.Text(), `"id":1`) {
			t.Fatalf("initialize: %s", lines.Text())
		}
		fmt.Fprint(client, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
			`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`+"\n")
		client.Close()
		time.AfterFunc(50*time.Millisecond, func() {
			if err := s.SetTools([]*terms.Tool{tool("look", terms.Hints{})}); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond) // the SDK tells of changes after 10 ms
			if opens {
				close(ready)
			} else {
				stop()
			}
		})
		var got string
		for lines.Scan() {
			got += lines.Text()
		}
		if strings.Contains(got, `"id":2,"result"`) != opens ||
			strings.Contains(got, "could not start") == opens ||
			strings.Contains(got, "list_changed") {
			t.Errorf("opens %v: %s", opens, got)
		}
		<-done
	}
}
