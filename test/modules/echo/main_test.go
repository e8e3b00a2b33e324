package main

import (
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

func TestEcho(t *testing.T) {
	h := sdktest.New(t)
	h.SSHExec = func(node string, argv []string, o sdk.ExecOptions) (sdk.ExecResult, error) {
		if node != "pve1" || argv[0] != "cat" {
			t.Errorf("asked for %v on %s, want cat on the default node", argv, node)
		}
		return sdk.ExecResult{Stdout: o.Stdin}, nil
	}
	out, err := h.Call("echo", `{"text":"héllo","times":2}`)
	if err != nil || out.Error != nil {
		t.Fatal(err, out.Error)
	}
	if want := `{"text":"HÉLLO","times":2}`; string(out.Structured) != want ||
		len(h.Requests) != 2 {
		t.Errorf("got %s after %d operations, want %s after 2", out.Structured, len(h.Requests),
			want)
	}
	h.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult, error) {
		return sdk.ExecResult{}, &sdk.Refused{
			DecisionID: "D1",
			Failed:     []string{"tier"},
			Deny:       []sdk.Reason{{ID: "tier.unknown", Msg: "no tier"}},
		}
	}
	if out, _ := h.Call("echo", `{"times":1}`); out.Error == nil || out.Error.Code != "refused" ||
		out.Error.Message != "refused by policy: no tier (decision D1)" {
		t.Errorf("a refusal became %+v", out.Error)
	}
	if _, err := h.Call("echo", `{"times":-1}`); err == nil {
		t.Error("an argument below its minimum was passed to the tool")
	}
	if _, err := h.Call("echo", `{"loud":true}`); err == nil {
		t.Error("an unknown argument was passed to the tool")
	}
}
