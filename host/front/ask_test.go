package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var nameForm = map[string]any{
	"type":       "object",
	"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": float64(1)}},
	"required":   []any{"name"},
}

// asks is a guest that asks a question for each key and, once all are answered, says the answers.
func asks(keys ...string) func(context.Context, gate.Request) gate.Answer {
	return func(ctx context.Context, r gate.Request) gate.Answer {
		var got []string
		for _, key := range keys {
			res, err := Asker{}.Execute(
				ctx,
				gate.Question{Op: abi.Ask{Key: key, Message: "who\x1b[1m?", Schema: nameForm}},
				gate.Decision{},
			)
			if errors.Is(err, gate.ErrPending) { // what a guest says of it does not count
				return gate.Answer{
					CallID:  "C1",
					Outcome: gate.Waits,
					Output: gate.Output{
						Code: 1,
						JSON: json.RawMessage(`{"error":{"code":"any","message":"word"}}`),
					},
				}
			}
			if op := (*gate.OpError)(nil); errors.As(err, &op) {
				return gate.Answer{
					CallID:  "C1",
					Outcome: gate.Failed,
					Output: gate.Output{
						Code: 1,
						JSON: json.RawMessage(
							fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, op.Code, op.Message),
						),
					},
				}
			}
			got = append(
				got,
				fmt.Sprint(res.Value.(said).Action, " ", res.Value.(said).Content["name"]),
			)
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
			{"one", "accept anna in round 2", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "anna"}}},
			{"one", "decline <nil> in round 2", &mcp.ElicitResult{Action: "decline"}},
			{"two", "accept anna, accept anna in round 3", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "anna"}}},
		} {
			t.Run(name+" "+c.tool+" "+c.answer.Action, func(t *testing.T) {
				t.Parallel()
				door := &fakeDoor{
					calls: map[string]func(context.Context, gate.Request) gate.Answer{
						"one": asks("a"),
						"two": asks("a", "b"),
					},
				}
				var asked []string
				cs := connect(
					t,
					newServer(t, door, nil),
					&mcp.ClientOptions{
						ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
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
				calls: map[string]func(context.Context, gate.Request) gate.Answer{"one": asks("a")},
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
			calls: map[string]func(context.Context, gate.Request) gate.Answer{
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
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s,%s}}`,
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
		"an answer with more":     `{"a":{"action":"accept","content":{"name":"anna","admin":true}}}`,
		"an action that is none":  `{"a":{"action":"approve","content":{"name":"anna"}}}`,
	} {
		if _, body, next := call("anna", "one", `{}`, fresh(), responses); next == "" {
			t.Errorf("%s: not asked again: %s", name, body)
		}
	}
}

func TestFormsAreFlat(t *testing.T) {
	prop := func(p string) string { return `{"type":"object","properties":{"p":` + p + `}}` }
	for schema, good := range map[string]bool{
		prop(`{"type":"string"}`): true,
		prop(`{"type":"string","enum":["a"],"enumNames":["A"],"default":"a","title":"T"}`): true,
		prop(`{"type":"string","oneOf":[{"const":"a","title":"A"}]}`):                      true,
		prop(`{"type":"array","items":{"type":"string","enum":["a"]},"minItems":1}`):       true,
		prop(`{"type":"integer","minimum":1}`):                                             true,
		prop(`{"type":"array","items":{"type":"string"}}`):                                 false,
		prop(`{"type":"object"}`):                                                          false,
		prop(`{"type":"string","$ref":"http://x"}`):                                        false,
		prop(`{"type":"string","description":"\u202e"}`):                                   false,
		prop(`{}`):                          false,
		`{"type":"object","properties":{}}`: false,
		`{"type":"string"}`:                 false,
		`{"type":"object","properties":{"p":{"type":"string"}},"allOf":[]}`: false,
	} {
		var v map[string]any
		if err := json.Unmarshal([]byte(schema), &v); err != nil {
			t.Fatal(err)
		}
		if err := checkForm(v); (err == nil) != good {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestOneCallersQuestionsLeaveTheOthersTheirs(t *testing.T) {
	var s seals
	now := time.Now()
	seal := func(who string) string { return must(s.seal(sealed{Caller: who}, now)) }
	open := func(state string, at time.Time) bool { _, ok := s.unseal(state, at); return ok }
	theirs, oldest := seal("bert"), seal("anna")
	var states []string
	for range maxPending + maxMine {
		states = append(states, seal("anna"))
	}
	if s.all != maxMine+1 || len(s.open["anna"]) != maxMine {
		t.Errorf("%d wait, %d of them anna's", s.all, len(s.open["anna"]))
	}
	for name, c := range map[string]struct {
		state string
		want  bool
	}{"another's": {theirs, true}, "the oldest": {oldest, false}, "one too old": {states[len(states)-maxMine-1], false}, "the oldest that is kept": {states[len(states)-maxMine], true}, "the newest": {states[len(states)-1], true}} {
		if got := open(c.state, now); got != c.want || open(c.state, now) {
			t.Errorf("%s: it opens: %v, and again: %v", name, got, got)
		}
	}
	if late := states[len(states)-2]; open(late, now.Add(askTime)) {
		t.Error("a state opens after its time")
	}
	for n := 0; s.all < maxPending; n++ {
		seal(fmt.Sprint("caller ", n/maxMine))
	}
	if s.room("carl", now) || !s.room("caller 0", now) {
		t.Error("when it is full there is room for a new caller, or none in place of one's own")
	}
	if seal("caller 0"); s.all != maxPending {
		t.Errorf("a question in place of one's own: %d wait", s.all)
	}
	if !s.room("carl", now.Add(askTime+1)) || s.all != 0 || len(s.open) != 0 {
		t.Errorf("old ones keep their room: %d of %d callers", s.all, len(s.open))
	}
}

func TestWithoutRoomForAQuestionTheOtherChannelsStay(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			var heard []string
			s := newServer(
				t,
				&fakeDoor{
					calls: map[string]func(context.Context, gate.Request) gate.Answer{
						"kill": redDoor("R1", &heard),
						"one":  asks("a"),
					},
				},
				nil,
			)
			for n := range maxPending {
				must(s.seals.seal(sealed{Caller: fmt.Sprint(n / maxMine)}, time.Now()))
			}
			cs := connect(
				t,
				s,
				&mcp.ClientOptions{
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return nil, errors.New("there was no room to ask")
					},
				},
			)
			r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "kill"})
			if err != nil || meta(t, r).Error.Code != "waiting" || meta(t, r).ApprovalID != "R1" ||
				heard[0] != "cannot" {
				t.Errorf("a red call: %v, %v, the door heard %q", err, r, heard)
			}
			if r, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "one"}); err != nil ||
				!strings.Contains(text(r), "unavailable") {
				t.Errorf("a plugin's question: %v, %v", err, r)
			}
		})
	}
}

func FuzzState(f *testing.F) {
	var s seals
	good, err := s.seal(sealed{Caller: "a"}, time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, state string) {
		if _, ok := s.unseal(state, time.Time{}); ok && state != good {
			t.Errorf("%q was never sealed", state)
		}
	})
}
