package http

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAClientOfEachEraSeesAndCallsItsTools(t *testing.T) {
	door := func() *fakeDoor {
		return &fakeDoor{
			Calls: map[string]func(context.Context, terms.Request) terms.Answer{
				"hello":    says(`{"content":[{"type":"text","text":"hi"}]}`),
				"red_stop": says(`{"content":[]}`),
				"n_typed":  says(`{"content":[],"structured":{"n":9007199254740993}}`),
			},
		}
	}
	everywhere(t, door, nil, func(t *testing.T, cs *mcp.ClientSession, d *fakeDoor) {
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if list.CacheScope != "private" && list.CacheScope != "" {
			t.Errorf("cache scope %q", list.CacheScope)
		}
		got := map[string]*mcp.Tool{}
		for _, tl := range list.Tools {
			got[tl.Name] = tl
		}
		if got["hidden"] != nil || len(got) != 3 {
			t.Errorf("tools %v, the hidden one must not be seen", got)
		}
		if a := got["hello"].Annotations; !a.ReadOnlyHint || *a.DestructiveHint ||
			*a.OpenWorldHint {
			t.Errorf("hello: %+v", a)
		}
		if a := got["red_stop"].Annotations; a.ReadOnlyHint || !*a.DestructiveHint {
			t.Errorf("red_stop: %+v", a)
		}
		if ins := cs.InitializeResult(); ins == nil ||
			!strings.Contains(ins.Instructions, "fixture (3)") ||
			!strings.Contains(ins.Instructions, "decision id") {
			t.Errorf("instructions do not tell what is offered: %+v", ins)
		}
		r, err := cs.CallTool(
			t.Context(),
			&mcp.CallToolParams{Name: "hello", Arguments: map[string]any{"vmid": 103}},
		)
		if err != nil || r.IsError || text(r) != "hi\n" {
			t.Fatalf("%v %+v", err, r)
		}
		if m := meta(t, r); m.Outcome != terms.Succeeded || m.CallID != "C1" || m.Tier != "green" ||
			!m.Untrusted ||
			m.Refused == nil {
			t.Errorf("meta %+v", m)
		}
		if a := d.Asked()[0]; string(a.Arguments) != `{"vmid":103}` ||
			(a.Principal.ID != "local" && a.Principal.ID != "demo") ||
			a.Source == "" {
			t.Errorf("the door was asked %+v with %s", a, a.Arguments)
		}
		r, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "n_typed"})
		if err != nil || text(r) != "{\"n\":9007199254740993}\n" {
			t.Errorf(
				"structured output is not repeated as text, numbers unchanged: %v %q",
				err,
				text(r),
			)
		}
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"})
		if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) ||
			wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("unknown tool: %v", err)
		}
	})
}

func TestEveryEndOfACallIsConvertedOnPurpose(t *testing.T) {
	refused := &terms.Refused{
		DecisionID: "D1",
		Kind:       "call",
		Failed:     []string{"target.protected"},
		Denied:     []terms.Reason{{ID: "protected.vmid", Msg: "103 is protected\x1b[31m"}},
	}
	door := func() *fakeDoor {
		return &fakeDoor{Calls: map[string]func(context.Context, terms.Request) terms.Answer{
			"args": fails(
				&terms.InvalidArguments{
					Tool: "args",
					Err:  errors.New(`/vmid: number 103.0 is not in its plain form`),
				},
				terms.Refusal,
			),
			"refused": fails(refused, terms.Refusal),
			"waits": fails(
				&terms.Waiting{
					ApprovalID: "A1",
					Where:      "caponier approvals approve A1",
					Expires:    time.Now().Add(time.Hour),
				},
				terms.Waits,
			),
			"traps": fails(
				&terms.PluginError{Code: "plugin_trap", Message: "unreachable"},
				terms.Failed,
			),
			"leaks": fails(
				errors.New("dial /home/op/.ssh/id_ed25519: passphrase hunter2"),
				terms.Failed,
			),
			"budget": fails(
				&terms.BudgetError{
					Tool:            "budget",
					CallID:          "C1",
					Limit:           1500 * time.Millisecond,
					MayHaveExecuted: true,
				},
				terms.Unknown,
			),
			"panics": func(context.Context, terms.Request) terms.Answer {
				panic("secret in a panic")
			},
			"swallows": func(context.Context, terms.Request) terms.Answer {
				a := says(`{"content":[{"type":"text","text":"all fine"}]}`)(nil, terms.Request{})
				op := *refused
				op.Kind, op.Op = "operation", "ssh_exec"
				a.Refused = []*terms.Refused{&op}
				return a
			},
			"unwritten": func(context.Context, terms.Request) terms.Answer {
				a := says(`{"content":[{"type":"text","text":"done"}]}`)(nil, terms.Request{})
				a.JournalFailed = true
				return a
			},
			"toolerr": func(context.Context, terms.Request) terms.Answer {
				return terms.Answer{
					CallID:  "C1",
					Outcome: terms.Failed,
					Output: terms.Output{
						Code: 1,
						JSON: json.RawMessage(
							`{"error":{"code":"stopped","message":"container 101 is ` +
								`stopped","suggestion":"Start it first."}}`,
						),
					},
				}
			},
			"refused_typed": fails(refused, terms.Refusal),
		}}
	}
	want := map[string]struct {
		isError bool
		texts   []string
		code    string
		outcome terms.Outcome
	}{
		"args": {
			true,
			[]string{"103.0 is not in its plain form", "Nothing was executed"},
			"invalid_arguments",
			terms.Refusal,
		},
		"refused": {
			true,
			[]string{"103 is protected", "protected.vmid", "target.protected", "Decision D1"},
			"refused",
			terms.Refusal,
		},
		"refused_typed": {true, []string{"103 is protected"}, "refused", terms.Refusal},
		"waits": {
			true,
			[]string{"approvals approve A1", "same call again", "expires"},
			"waiting",
			terms.Waits,
		},
		"traps": {true, []string{"plugin_trap", "unreachable"}, "plugin_trap", terms.Failed},
		"leaks": {true, []string{"internal"}, "internal", terms.Failed},
		"swallows": {
			false,
			[]string{"all fine", "A part of this call was refused", "ssh_exec refused by policy",
				"D1"},
			"",
			terms.Succeeded,
		},
		"unwritten": {false, []string{"done", "journal_failed"}, "", terms.Succeeded},
		"toolerr": {
			true,
			[]string{"container 101 is stopped (stopped). Start it first."},
			"stopped",
			terms.Failed,
		},
	}
	everywhere(t, door, nil, func(t *testing.T, cs *mcp.ClientSession, _ *fakeDoor) {
		for name, w := range want {
			r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, m := text(r), meta(t, r)
			for _, part := range w.texts {
				if !strings.Contains(got, part) {
					t.Errorf("%s: text lacks %q: %q", name, part, got)
				}
			}
			if strings.Contains(got, "hunter2") || strings.ContainsRune(got, 0x1b) {
				t.Errorf("%s: leaks: %q", name, got)
			}
			if r.IsError != w.isError || m.Outcome != w.outcome || m.CallID != "C1" ||
				(m.Error == nil) != (w.code == "") ||
				m.Error != nil && m.Error.Code != w.code {
				t.Errorf("%s: isError %v, meta %+v", name, r.IsError, m)
			}
			if r.StructuredContent != nil && w.isError {
				t.Errorf("%s: an error has structuredContent %v", name, r.StructuredContent)
			}
			if data := string(must(json.Marshal(r))); m.Error != nil &&
				m.Error.Code != "internal" &&
				m.Error.Code != "plugin_trap" && strings.Count(data, w.texts[0]) > 1 {
				t.Errorf("%s: %q is told more than once: %s", name, w.texts[0], data)
			}
			if (name == "swallows" || strings.HasPrefix(name, "refused")) &&
				(len(m.Refused) != 1 || m.Refused[0].DecisionID != "D1" ||
					m.Refused[0].Deny[0] != "protected.vmid") {
				t.Errorf("%s: refused %+v", name, m.Refused)
			}
			if m.JournalFailed != (name == "unwritten") {
				t.Errorf("%s: journal_failed %v", name, m.JournalFailed)
			}
		}
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "budget"})
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != -32001 ||
			!strings.Contains(string(wire.Data), `"kind":"budget"`) ||
			!strings.Contains(string(wire.Data), `"limit_ms":1500`) ||
			!strings.Contains(string(wire.Data), `"may_have_executed":true`) ||
			!strings.Contains(string(wire.Data), `"call_id":"C1"`) ||
			!strings.Contains(string(wire.Data), `"tool":"budget"`) {
			t.Errorf("budget: %v %+v", err, wire)
		}
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "panics"})
		if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInternalError ||
			strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "check the state before you repeat") {
			t.Errorf("panics: %v", err)
		}
		if r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "unwritten"}); err != nil ||
			r.IsError {
			t.Errorf("the process does not serve on after a panic: %v", err)
		}
	})
}
