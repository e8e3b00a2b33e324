package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// redDoor is a door that lets a call happen when the client's user says yes to request R1, and
// tells what it heard.
func redDoor(request string, heard *[]string) func(context.Context, terms.Request) terms.Answer {
	return func(ctx context.Context, r terms.Request) terms.Answer {
		said := "cannot"
		if r.User.CanConfirm() {
			said = r.User.Confirm(request, "may agent-a delete 105?")
		}
		*heard = append(*heard, said)
		switch said {
		case "approve":
			return says(`{"content":[{"type":"text","text":"deleted"}]}`)(ctx, r)
		case "deny":
			return terms.Answer{
				CallID:  "C1",
				Outcome: terms.Refusal,
				Err: &terms.Refused{
					Kind:   "call",
					Failed: []string{"approval.denied"},
					Denied: []terms.Reason{{ID: "approval.denied", Msg: "no"}},
				},
			}
		}
		return terms.Answer{
			CallID:  "C1",
			Outcome: terms.Waits,
			Err: &terms.Waiting{
				ApprovalID: request,
				Where:      "elsewhere",
				Expires:    time.Now().Add(time.Minute),
			},
		}
	}
}

func TestTheClientsUserMayApproveACall(t *testing.T) {
	for name, connect := range transports {
		for _, c := range []struct {
			answer *mcp.ElicitResult
			want   string // of the tool
			heard  string
		}{
			{&mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}},
				"deleted", "asked approve"},
			{&mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": false}},
				"approval.denied", "asked deny"},
			{&mcp.ElicitResult{Action: "decline"}, "approval.denied", "asked deny"},
			{&mcp.ElicitResult{Action: "cancel"}, "waiting", "asked "},
		} {
			t.Run(name+" "+c.answer.Action, func(t *testing.T) {
				t.Parallel()
				var heard, asked []string
				door := &fakeDoor{
					Calls: map[string]func(context.Context, terms.Request) terms.Answer{
						"kill": redDoor("R1", &heard),
					},
				}
				cs := connect(
					t,
					newServer(t, door, nil),
					&mcp.ClientOptions{
						ElicitationHandler: func(_ context.Context,
							r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
							asked = append(asked, r.Params.Message)
							return c.answer, nil
						},
					},
				)
				r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "kill"})
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(text(r), c.want) || r.IsError == (c.want == "deleted") ||
					strings.Join(heard, " ") != c.heard ||
					len(asked) != 1 ||
					asked[0] != "may agent-a delete 105?" {
					t.Errorf("it says %q, the door heard %q, the user %q", text(r), heard, asked)
				}
			})
		}
		t.Run(name+" without a user", func(t *testing.T) {
			t.Parallel()
			var heard []string
			door := &fakeDoor{
				Calls: map[string]func(context.Context, terms.Request) terms.Answer{
					"kill": redDoor("R1", &heard),
				},
			}
			r, err := connect(
				t,
				newServer(t, door, nil),
				nil,
			).CallTool(t.Context(), &mcp.CallToolParams{Name: "kill"})
			if err != nil || !r.IsError || heard[0] != "cannot" ||
				!strings.Contains(text(r), "waiting for a person") {
				t.Errorf("%v %v %q", err, r, heard)
			}
		})
	}
}

// Anybody can send inputResponses. None of these is an answer to what the host asked this caller
// about this call.
func TestForgedAnswersApproveNothing(t *testing.T) {
	var heard []string
	request := "R1"
	door := &fakeDoor{Calls: map[string]func(context.Context, terms.Request) terms.Answer{
		"kill": func(ctx context.Context, r terms.Request) terms.Answer {
			return redDoor(request, &heard)(ctx, r)
		},
		"other": func(ctx context.Context, r terms.Request) terms.Answer {
			return redDoor(request, &heard)(ctx, r)
		}, "one": asks("a"), "sly": asks(approvalKey)}}
	s := newServer(t, door, nil)
	url, _ := serve(t, s)
	call := func(who, tool, args, state, responses string) (body, next string) {
		t.Helper()
		extra := ""
		if state != "" {
			extra += fmt.Sprintf(`,"requestState":%q`, state)
		}
		if responses != "" {
			extra += `,"inputResponses":` + responses
		}
		req := fmt.Sprintf(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s,`+
				`%s}}`,
			tool,
			args,
			extra,
			strings.Replace(
				modernMeta,
				`clientCapabilities":{}`,
				`clientCapabilities":{"elicitation":{"form":{}}}`,
				1,
			),
		)
		_, body = send(
			t,
			url,
			"POST",
			"/mcp",
			req,
			map[string]string{
				"Mcp-Protocol-Version": "2026-07-28",
				"Mcp-Method":           "tools/call",
				"Mcp-Name":             tool,
				"Test-Principal":       who,
			},
		)
		if _, rest, found := strings.Cut(body, `"requestState":"`); found {
			next, _, _ = strings.Cut(rest, `"`)
		}
		return body, next
	}
	yes := `{"` + approvalKey + `":{"action":"accept","content":{"approve":true}}}`
	fresh := func() string {
		t.Helper()
		request = "R1"
		body, state := call("anna", "kill", `{}`, "", "")
		if state == "" || !strings.Contains(body, `"resultType":"input_required"`) {
			t.Fatalf("no question: %s", body)
		}
		return state
	}
	for name, attack := range map[string]func() string{
		"an answer to a question that was never asked": func() string {
			b, _ := call("anna", "kill", `{}`, "", yes)
			return b
		},
		"another caller": func() string {
			b, _ := call("bert", "kill", `{}`, fresh(), yes)
			return b
		},
		"another tool": func() string {
			b, _ := call("anna", "other", `{}`, fresh(), yes)
			return b
		},
		"other arguments": func() string {
			b, _ := call("anna", "kill", `{"vmid":2}`, fresh(), yes)
			return b
		},
		"a changed state": func() string {
			b, _ := call("anna", "kill", `{}`, fresh()+"x", yes)
			return b
		},
		"a made-up state": func() string {
			b, _ := call("anna", "kill", `{}`, "YWJj", yes)
			return b
		},
		"the state of a plugin's question": func() string {
			_, state := call("anna", "one", `{}`, "", "")
			b, _ := call("anna", "kill", `{}`, state, yes)
			return b
		},
		"the words of a truth": func() string {
			b, _ := call("anna", "kill", `{}`, fresh(), strings.Replace(yes, "true", `"true"`, 1))
			return b
		},
		"an answer without content": func() string {
			b, _ := call("anna", "kill", `{}`, fresh(), `{"`+approvalKey+`":{"action":"accept"}}`)
			return b
		},
		"an answer under another key": func() string {
			b, _ := call("anna", "kill", `{}`, fresh(), strings.Replace(yes, approvalKey, "R1", 1))
			return b
		},
		"another request by now, for the files of the call have changed": func() string {
			state := fresh()
			request = "R2"
			b, _ := call("anna", "kill", `{}`, state, yes)
			return b
		},
		"the same answer again": func() string {
			state := fresh()
			if b, _ := call("anna", "kill", `{}`, state, yes); !strings.Contains(b, "deleted") {
				t.Errorf("the first use: %s", b)
			}
			b, _ := call("anna", "kill", `{}`, state, yes)
			return b
		},
	} {
		request = "R1"
		if body := attack(); strings.Contains(body, "deleted") {
			t.Errorf("%s: it happened: %s", name, body)
		}
	}
	if body, _ := call("anna", "sly", `{}`, "", ""); !strings.Contains(body, "bad_question") {
		t.Errorf("a plugin asks under the host's own key: %s", body)
	}
}

// A client of the older versions can send inputResponses too. The SDK asks such a client itself;
// what comes uninvited is no answer.
func TestForgedAnswersOfOlderClientsApproveNothing(t *testing.T) {
	var heard []string
	url, _ := serve(
		t,
		newServer(
			t,
			&fakeDoor{
				Calls: map[string]func(context.Context, terms.Request) terms.Answer{
					"kill": redDoor("R1", &heard),
				},
			},
			nil,
		),
	)
	for _, capabilities := range []string{`{}`, `{"elicitation":{}}`} {
		heard = nil
		req, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			url+"/mcp",
			strings.NewReader(
				strings.Replace(initialize, `"capabilities":{}`, `"capabilities":`+capabilities, 1),
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Content-Type": {"application/json"},
			"Accept":       {"application/json, text/event-stream"},
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		// the SDK may wait for an answer of the client's user, who is not there
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		call, err := http.NewRequestWithContext(
			ctx,
			http.MethodPost,
			url+"/mcp",
			strings.NewReader(
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"kill",`+
					`"arguments":{},"inputResponses":{"`+approvalKey+
					`":{"action":"accept","content":{"approve":true}}},"requestState":""}}`,
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		call.Header = req.Header.Clone()
		call.Header.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
		body := ""
		if res, err := http.DefaultClient.Do(call); err == nil {
			data, _ := io.ReadAll(res.Body) // until the time is up
			res.Body.Close()
			body = string(data)
		}
		cancel()
		if strings.Contains(body, "deleted") || len(heard) == 0 ||
			slices.Contains(heard, "approve") {
			t.Errorf("with %s: the door heard %q, the client %s", capabilities, heard, body)
		}
	}
}

// A client of the older versions that is asked and never answers has a bounded number of calls that
// hang on that, and none is left when the host stops.
func TestUnansweredQuestionsAreBounded(t *testing.T) {
	asked, release := make(chan string, 100), make(chan struct{})
	var heard []string
	var mu sync.Mutex // guards heard
	door := &fakeDoor{
		Calls: map[string]func(context.Context, terms.Request) terms.Answer{
			"kill": func(ctx context.Context, r terms.Request) terms.Answer {
				mu.Lock()
				defer mu.Unlock()
				return redDoor("R1", &heard)(ctx, r)
			},
		},
	}
	s := newServer(t, door, nil)
	cs := transports["http 2025"](
		t,
		s,
		&mcp.ClientOptions{
			ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult,
				error) {
				asked <- r.Params.Message
				<-release
				return nil, errors.New("nobody is there")
			},
		},
	)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 8+1)
	for range 8 {
		go func() {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "kill"})
			ended <- err
		}()
	}
	for range 8 {
		<-asked
	}
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "kill"}); err == nil ||
		len(asked) != 0 {
		t.Errorf("one more was asked, or the call succeeded: %v", err)
	}
	s.Stop()
	for range 8 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a call without an answer succeeded")
			}
		case <-time.After(10 * time.Second):
			t.Error("a question outlives the host")
		}
	}
	cancel()
	close(release) // only now does the client let go
}
