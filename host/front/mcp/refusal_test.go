package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/front/fronttest"
	"github.com/caponier-mcp/caponier/host/terms"
)

// A refusal is told once, in at most 600 bytes, with what was refused, why, and what would work.
func TestARefusalIsToldOnceAndShortly(t *testing.T) {
	long := "a very long reason " + strings.Repeat("é ", 600)
	for name, c := range map[string]struct {
		refused terms.Refused
		want    []string
		never   []string
	}{
		"one reason": {terms.Refused{Kind: "call", Failed: []string{"grant"},
			Denied: []terms.Reason{{ID: "grant", Msg: "No role grants tool:x."}}},
			[]string{"No role grants tool:x (grant)", "No role of this principal"}, nil},
		"an operation": {terms.Refused{Kind: "operation", Op: "ssh_exec", Failed: []string{"bound"},
			Denied: []terms.Reason{{ID: "bound", Msg: "ssh.service is red"}}},
			[]string{"Operation ssh_exec", "ssh.service is red (bound)"}, nil},
		"a check without a reason": {terms.Refused{Kind: "call",
			Failed: []string{"policy.undefined"}},
			[]string{"checks: policy.undefined"}, nil},
		"long reasons": {terms.Refused{Kind: "call", Failed: []string{"args", "rate"},
			Denied: []terms.Reason{{ID: "args", Msg: long},
				{ID: "rate", Msg: strings.ToUpper(long)}}},
			[]string{"a very long reason é", "(args)", "(rate)", "change what the rules name"},
			nil},
		"a person's no": {terms.Refused{Kind: "call", Failed: []string{"approval.denied"},
			NeedsApproval: true,
			Denied: []terms.Reason{{ID: "approval.denied",
				Msg: "ann said no to this call"}}},
			[]string{"A person said no", "do not make it again"},
			[]string{"change what", "same call again", "confirmation is missing"}},
		"protected": {terms.Refused{Kind: "call", Failed: []string{"protected"},
			NeedsApproval: true},
			[]string{"no approval changes that"}, []string{"confirmation is missing", "again"}},
		"black": {terms.Refused{Kind: "call", Failed: []string{"tier"},
			Decision: terms.Decision{Tier: terms.Black}},
			[]string{"Tier black never runs"}, []string{"unchanged", "again"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.refused.DecisionID = "0123456789ABCDEFGHIJKLMNOP"
			got := refusalText(&c.refused)
			for _, part := range append(c.want, "Decision "+c.refused.DecisionID) {
				if !strings.Contains(got, part) {
					t.Errorf("no %q in %q", part, got)
				}
			}
			for _, part := range c.never {
				if strings.Contains(got, part) {
					t.Errorf("%q in %q", part, got)
				}
			}
			if len(got) > maxRefusal {
				t.Errorf("%d bytes: %q", len(got), got)
			}
			for _, ofCall := range []bool{true, false} {
				a := terms.Answer{CallID: "C1", Outcome: terms.Refusal, Err: &c.refused}
				if !ofCall { // an operation of a call whose plugin repeats what it was told
					a = terms.Answer{CallID: "C1", Outcome: terms.Failed,
						Refused: []*terms.Refused{&c.refused}, Output: terms.Output{Code: 1,
							JSON: must(json.Marshal(map[string]any{"error": map[string]any{
								"code": "refused", "message": "listing: " + c.refused.Error()}}))}}
				}
				s := newServer(t, helloDoor(), nil)
				r := ended(s, tool("hello", terms.Hints{}), a)
				wire := string(must(json.Marshal(&r.CallToolResult)))
				if !r.IsError || r.StructuredContent != nil {
					t.Errorf("isError %v, structuredContent %v", r.IsError, r.StructuredContent)
				}
				if n := strings.Count(wire, c.want[0]); n != 1 {
					t.Errorf("%q is told %d times: %s", c.want[0], n, wire)
				}
				if n := strings.Count(text(&r.CallToolResult), "outcome "); n != 1 {
					t.Errorf("the outcome is told %d times: %s", n, wire)
				}
			}
		})
	}
}

func TestManyRefusedPartsAreNotAllExplained(t *testing.T) {
	a := terms.Answer{CallID: "C1", Outcome: terms.Succeeded,
		Output: terms.Output{JSON: []byte(`{"content":[{"type":"text","text":"done"}]}`)}}
	for i := range 50 {
		a.Refused = append(a.Refused, &terms.Refused{Kind: "operation", Op: "ssh_exec",
			DecisionID: fmt.Sprint("D", i), Failed: []string{"bound"}})
	}
	r := ended(newServer(t, helloDoor(), nil), tool("hello", terms.Hints{}), a)
	got := text(&r.CallToolResult)
	if strings.Count(got, "was refused.") != maxRefusals ||
		!strings.Contains(got, "47 more parts of this call were refused") {
		t.Errorf("got %s", got)
	}
}

// What a caller may not see answers as what does not exist, whether it is called, read or got, and
// whatever the arguments. The attempt still goes through the door, which journals it.
func TestHiddenAndMissingCannotBeToldApart(t *testing.T) {
	invalid := &terms.InvalidArguments{Tool: "x", Err: fmt.Errorf("/vmid: missing")}
	for _, no := range []error{&terms.Refused{Kind: "call", Failed: []string{"grant"}}, invalid} {
		door := &visibleDoor{Door: *fronttest.Hello()}
		for _, name := range []string{"hid_tool", "hid_prompt", "hid_res"} {
			door.Calls[name] = fronttest.Fails(no, terms.Refusal)
		}
		s := newServer(t, fronttest.Hello(), nil)
		s.door = door
		schema := json.RawMessage(`{"type":"object"}`)
		if err := s.SetTools([]*terms.Tool{tool("hid_tool", terms.Hints{}),
			{Kind: "prompt", Name: "hid_prompt", InputSchema: schema},
			{Kind: "resource", Name: "hid_res", URI: "x://hid_res", InputSchema: schema},
		}); err != nil {
			t.Fatal(err)
		}
		cs := overStdio(t, s, nil)
		ask := func(method, name string) string {
			var err error
			switch method {
			case "call":
				_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
			case "get":
				_, err = cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name})
			case "read":
				_, err = cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "x://" + name})
			case "complete":
				_, err = cs.Complete(t.Context(), &mcp.CompleteParams{
					Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: name},
					Argument: mcp.CompleteParamsArgument{Name: "a"}})
			}
			return strings.ReplaceAll(fmt.Sprintf("%+v", err), name, "NAME")
		}
		for method, name := range map[string]string{"call": "hid_tool", "get": "hid_prompt",
			"read": "hid_res", "complete": "hid_prompt"} {
			hidden, missing := ask(method, name), ask(method, "not_there")
			if hidden != missing || missing == "<nil>" {
				t.Errorf("%s: hidden %q, missing %q", method, hidden, missing)
			}
		}
		if n := len(door.Asked()); n != 3 {
			t.Errorf("the door was asked %d times: each attempt is journaled there", n)
		}
	}
}

// visibleDoor hides everything that begins with hid_.
type visibleDoor struct{ fronttest.Door }

func (d *visibleDoor) Visible(_ context.Context, _ terms.Principal, _ string, t *terms.Tool,
	_ terms.Targets) bool {
	return !strings.HasPrefix(t.Name, "hid_")
}

// A running call stops when its caller would not be admitted any more, or its tool is gone.
func TestACallIsCurrentWhileItsCallerAndToolAre(t *testing.T) {
	var revoked error
	s := newServer(t, helloDoor(), nil)
	who := Caller{Current: func(context.Context) error { return revoked }}
	current := s.current(&request{who: who, tool: s.find("tool", "hello")})
	if err := current(t.Context()); err != nil {
		t.Errorf("nothing changed: %v", err)
	}
	revoked = fmt.Errorf("the token was revoked")
	if err := current(t.Context()); err != revoked {
		t.Errorf("a revoked token: %v", err)
	}
	revoked = nil
	if err := s.SetTools(nil); err != nil {
		t.Fatal(err)
	}
	if err := current(t.Context()); err == nil || !strings.Contains(err.Error(), "not offered") {
		t.Errorf("a tool that is gone: %v", err)
	}
}
