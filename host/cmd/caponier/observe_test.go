package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

func TestAReadingIsTextOrWhyThereIsNone(t *testing.T) {
	for name, tt := range map[string]struct {
		a    terms.Answer
		want string
	}{
		"what was read": {terms.Answer{Outcome: terms.Succeeded,
			Output: terms.Output{JSON: json.RawMessage(
				`{"content":[{"type":"text","text":"stopped\u001b[2J"}]}`)}}, `false "stopped\n"`},
		"a refusal": {terms.Answer{Outcome: terms.Refusal,
			Err: &terms.Refused{Kind: "call", Failed: []string{"identity"}, DecisionID: "D"}},
			`true "call refused by policy: checks that did not hold: identity.  Decision D"`},
		"a tool that failed": {terms.Answer{Outcome: terms.Failed,
			Output: terms.Output{Code: 1, JSON: json.RawMessage(
				`{"error":{"code":"x","message":"no such guest"}}`)}}, `true "no such guest"`},
		"an unknown outcome": {terms.Answer{Outcome: terms.Unknown}, `true ""`},
		"more than is needed": {terms.Answer{Outcome: terms.Succeeded,
			Output: terms.Output{JSON: json.RawMessage(`{"content":[{"type":"text","text":"` +
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
