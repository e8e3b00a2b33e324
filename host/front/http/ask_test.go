package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	mcpfront "github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var nameForm = map[string]any{
	"type":       "object",
	"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": float64(1)}},
	"required":   []any{"name"},
}

// asks is a guest that asks a question for each key and, once all are answered, says the answers.
func asks(keys ...string) func(context.Context, terms.Request) terms.Answer {
	return func(ctx context.Context, r terms.Request) terms.Answer {
		var got []string
		for _, key := range keys {
			q := terms.Question{
				Call: &terms.Call{User: r.User},
				Op:   abi.Ask{Key: key, Message: "who\x1b[1m?", Schema: nameForm},
			}
			res, err := mcpfront.Asker{}.Execute(ctx, q, terms.Decision{})
			if errors.Is(err, terms.ErrPending) { // what a guest says of it does not count
				return terms.Answer{
					CallID:  "C1",
					Outcome: terms.Waits,
					Output: terms.Output{
						Code: 1,
						JSON: json.RawMessage(`{"error":{"code":"any","message":"word"}}`),
					},
				}
			}
			if op := (*terms.OpError)(nil); errors.As(err, &op) {
				return terms.Answer{
					CallID:  "C1",
					Outcome: terms.Failed,
					Output: terms.Output{
						Code: 1,
						JSON: json.RawMessage(
							fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, op.Code, op.Message),
						),
					},
				}
			}
			var said struct {
				Action  string
				Content map[string]any
			}
			if err := json.Unmarshal(must(json.Marshal(res.Value)), &said); err != nil {
				panic(err)
			}
			got = append(got, fmt.Sprint(said.Action, " ", said.Content["name"]))
		}
		return says(
			fmt.Sprintf(
				`{"content":[{"type":"text","text":%q}]}`,
				fmt.Sprint(strings.Join(got, ", "), " in round ", r.Round),
			),
		)(
			ctx,
			r,
		)
	}
}

func TestAQuestionReachesTheUserAndItsAnswerThePlugin(t *testing.T) {
	for name, connect := range transports {
		for _, c := range []struct {
			tool, want string
			answer     *mcp.ElicitResult
		}{
			{"one", "accept anna in round 2",
				&mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "anna"}}},
			{"one", "decline <nil> in round 2", &mcp.ElicitResult{Action: "decline"}},
			{"two", "accept anna, accept anna in round 3",
				&mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "anna"}}},
		} {
			t.Run(name+" "+c.tool+" "+c.answer.Action, func(t *testing.T) {
				t.Parallel()
				door := &fakeDoor{
					Calls: map[string]func(context.Context, terms.Request) terms.Answer{
						"one": asks("a"),
						"two": asks("a", "b"),
					},
				}
				var asked []string
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
				r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool})
				if err != nil {
					t.Fatal(err)
				}
				// the older versions allow one round
				if c.tool == "two" && strings.HasSuffix(name, "2025") {
					if !r.IsError || !strings.Contains(text(r), "cannot ask its user") {
						t.Errorf("second round on an older version: %s", text(r))
					}
					return
				}
				if strings.TrimSpace(text(r)) != c.want || len(asked) == 0 ||
					asked[0] != "A plugin asks: who?" {
					t.Errorf("got %q after asking %q", text(r), asked)
				}
			})
		}
		t.Run(name+" without a user", func(t *testing.T) {
			t.Parallel()
			door := &fakeDoor{
				Calls: map[string]func(context.Context, terms.Request) terms.Answer{
					"one": asks("a"),
				},
			}
			r, err := connect(
				t,
				newServer(t, door, nil),
				nil,
			).CallTool(t.Context(), &mcp.CallToolParams{Name: "one"})
			if err != nil || !r.IsError || !strings.Contains(text(r), "unavailable") {
				t.Errorf("%v %v", err, r)
			}
		})
	}
}

func TestAnswersCountOnlyForTheQuestionThatTheyAnswer(t *testing.T) {
	s := newServer(
		t,
		&fakeDoor{
			Calls: map[string]func(context.Context, terms.Request) terms.Answer{
				"one":   asks("a"),
				"other": asks("a"),
			},
		},
		nil,
	)
	url, _ := serve(t, s)
	call := func(who, tool, args, state, responses string) (status int, body string, next string) {
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
		status, body = send(
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
		return status, body, next
	}
	accept := `{"a":{"action":"accept","content":{"name":"anna"}}}`
	fresh := func() string {
		_, body, state := call("anna", "one", `{}`, "", "")
		if state == "" || !strings.Contains(body, `"resultType":"input_required"`) {
			t.Fatalf("no question: %s", body)
		}
		return state
	}
	if _, body, state := call("anna", "one", `{}`, "", accept); state == "" ||
		strings.Contains(body, "accept anna") {
		t.Errorf("an answer to a question that was never asked counts: %s", body)
	}
	for name, c := range map[string]struct{ who, tool, args, change string }{
		"another caller":  {"bert", "one", `{}`, ""},
		"another tool":    {"anna", "other", `{}`, ""},
		"other arguments": {"anna", "one", `{"vmid":2}`, ""},
		"a changed state": {"anna", "one", `{}`, "x"},
		"a made-up state": {"anna", "one", `{}`, "!"},
	} {
		state := fresh()
		if c.change == "!" {
			state = "YWJj"
		} else {
			state += c.change
		}
		if status, body, _ := call(c.who, c.tool, c.args, state, accept); status != 400 ||
			!strings.Contains(body, "-32602") ||
			!strings.Contains(body, "requestState") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	state := fresh()
	if _, body, _ := call("anna", "one", ` { } `, state, accept); !strings.Contains(
		body,
		"accept anna",
	) {
		t.Errorf("the right answer does not count: %s", body)
	}
	if status, body, _ := call("anna", "one", `{}`, state, accept); status != 400 ||
		strings.Contains(body, "accept anna") {
		t.Errorf("an answer counts twice: %d %s", status, body)
	}
	for name, responses := range map[string]string{
		"no answer":               "",
		"the answer of another":   `{"b":{"action":"accept","content":{"name":"anna"}}}`,
		"an answer that is wrong": `{"a":{"action":"accept","content":{"name":7}}}`,
		"an answer too short":     `{"a":{"action":"accept","content":{"name":""}}}`,
		"an answer with more": `{"a":{"action":"accept","content":{"name":"anna",` +
			`"admin":true}}}`,
		"an action that is none": `{"a":{"action":"approve","content":{"name":"anna"}}}`,
	} {
		if _, body, next := call("anna", "one", `{}`, fresh(), responses); next == "" {
			t.Errorf("%s: not asked again: %s", name, body)
		}
	}
}
