// Package fronttest has a door and tools for the tests of the front.
package fronttest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Door answers calls by the functions of Calls; a tool without one is invisible.
type Door struct {
	Calls map[string]func(context.Context, terms.Request) terms.Answer

	mu    sync.Mutex // guards asked
	asked []terms.Request
}

func (d *Door) Call(ctx context.Context, r terms.Request) terms.Answer {
	d.mu.Lock()
	d.asked = append(d.asked, r)
	f := d.Calls[r.Tool.Name]
	d.mu.Unlock()
	if f == nil {
		return terms.Answer{CallID: "C1", Outcome: terms.Refusal, Err: &terms.Refused{Kind: "call",
			Failed: []string{"grant"}, DecisionID: "D1"}}
	}
	return f(ctx, r)
}

// Visible hides guest 103, the node hidden, and tools without a function or of another principal.
func (d *Door) Visible(_ context.Context, p terms.Principal, _ string, t *terms.Tool,
	on terms.Targets) bool {
	if slices.Contains(on.VMIDs, "103") || slices.Contains(on.Nodes, "hidden") {
		return false
	}
	return d.Calls[t.Name] != nil && !strings.HasPrefix(t.Name, "secret_"+p.ID) &&
		p.ID != "nothing"
}

// Asked returns the requests so far.
func (d *Door) Asked() []terms.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// Says answers with an output.
func Says(out string) func(context.Context, terms.Request) terms.Answer {
	return func(context.Context, terms.Request) terms.Answer {
		return terms.Answer{CallID: "C1", Outcome: terms.Succeeded, Tier: terms.Green,
			Output: terms.Output{JSON: json.RawMessage(out)}}
	}
}

// Fails answers with an error.
func Fails(err error, o terms.Outcome) func(context.Context, terms.Request) terms.Answer {
	return func(context.Context, terms.Request) terms.Answer {
		return terms.Answer{CallID: "C1", Outcome: o, Err: err}
	}
}

// Blocks waits for its context and reports on cancelled that it has ended.
func Blocks(started, cancelled chan<- error) func(context.Context, terms.Request) terms.Answer {
	return func(ctx context.Context, _ terms.Request) terms.Answer {
		started <- nil
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return terms.Answer{CallID: "C1", Outcome: terms.Unknown, Err: ctx.Err()}
	}
}

// Hello is a door with the tool hello.
func Hello() *Door {
	return &Door{Calls: map[string]func(context.Context, terms.Request) terms.Answer{
		"hello": Says(`{"content":[{"type":"text","text":"hi"}]}`)}}
}

// Tool returns a tool of the plugin fixture.
func Tool(name string, h terms.Hints) *terms.Tool {
	return &terms.Tool{Kind: "tool", Name: name, Hints: h,
		Plugin: terms.Plugin{Name: "fixture", Version: "1", Digest: "sha256:00"},
		InputSchema: json.RawMessage(`{"type":"object","properties":{"vmid":{"type":"integer"}},` +
			`"additionalProperties":false}`)}
}

// Tools returns a tool for each function of the door, and one that is hidden. A name that begins
// with red_ is destructive; one that ends with _typed has an output schema.
func (d *Door) Tools() []*terms.Tool {
	tools := []*terms.Tool{Tool("hidden", terms.Hints{})}
	for name := range d.Calls {
		h := terms.Hints{ReadOnly: true}
		if strings.HasPrefix(name, "red_") {
			h = terms.Hints{Destructive: true}
		}
		t := Tool(name, h)
		if strings.HasSuffix(name, "_typed") {
			t.OutputSchema = json.RawMessage(
				`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
			t.ValidateOutput = func(v any) error {
				if m, ok := v.(map[string]any); !ok || m["n"] == nil {
					return errors.New("n is missing")
				}
				return nil
			}
		}
		tools = append(tools, t)
	}
	return tools
}

// Writer logs to a test while it runs; a call that outlives its test on purpose has no log.
type Writer struct {
	t *testing.T

	mu   sync.Mutex // guards over
	over bool
}

// NewWriter returns a Writer that ends with the test.
func NewWriter(t *testing.T) *Writer {
	w := &Writer{t: t}
	t.Cleanup(func() { w.mu.Lock(); defer w.mu.Unlock(); w.over = true })
	return w
}

func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Logf("%s", p)
	}
	return len(p), nil
}

// Eventually waits for something that happens soon.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
