package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

func TestAReadingIsTextOrWhyThereIsNone(t *testing.T) {
	for name, tt := range map[string]struct {
		a    gate.Answer
		want string
	}{
		"what was read": {gate.Answer{Outcome: gate.Succeeded,
			Output: gate.Output{JSON: json.RawMessage(
				`{"content":[{"type":"text","text":"stopped\u001b[2J"}]}`)}}, `false "stopped\n"`},
		"a refusal": {gate.Answer{Outcome: gate.Refusal,
			Err: &gate.Refused{Kind: "call", Failed: []string{"identity"}, DecisionID: "D"}},
			`true "call refused by policy: checks that did not hold: identity.  Decision D"`},
		"a tool that failed": {gate.Answer{Outcome: gate.Failed,
			Output: gate.Output{Code: 1, JSON: json.RawMessage(
				`{"error":{"code":"x","message":"no such guest"}}`)}}, `true "no such guest"`},
		"an unknown outcome": {gate.Answer{Outcome: gate.Unknown}, `true ""`},
		"more than is needed": {gate.Answer{Outcome: gate.Succeeded,
			Output: gate.Output{JSON: json.RawMessage(`{"content":[{"type":"text","text":"` +
				strings.Repeat("é", 5000) + `"}]}`)}}, ``}} {
		r := reading("t", tt.a)
		if tt.want == "" {
			if len([]rune(r.Text)) > 4020 || !strings.HasSuffix(r.Text, "(cut)") {
				t.Errorf("%s: %d characters", name, len([]rune(r.Text)))
			}
		} else if got := fmt.Sprintf("%v %q", r.Refused, r.Text); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
