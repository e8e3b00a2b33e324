package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

// A tool is run for each guest of a request, or for each node, with nothing but what the request
// names. One that needs more is not run.
func TestLookArgsNameTheTargetsAlone(t *testing.T) {
	guest := `{"properties":{"vmid":{"type":"integer","x-caponier-target":"vmid"},"node":{"type":"string","x-caponier-target":"node"},"force":{"type":"boolean"}},"required":["vmid"]}`
	for name, tt := range map[string]struct {
		schema  string
		targets gate.Targets
		want    string
	}{
		"each guest, on the one node":          {guest, gate.Targets{VMIDs: []string{"105", "106"}, Nodes: []string{"pve1"}}, `{"node":"pve1","vmid":105} {"node":"pve1","vmid":106}`},
		"no node where it is not clear":        {guest, gate.Targets{VMIDs: []string{"105"}, Nodes: []string{"pve1", "pve2"}}, `{"vmid":105}`},
		"a number as text":                     {strings.Replace(guest, "integer", "string", 1), gate.Targets{VMIDs: []string{"105"}}, `{"vmid":"105"}`},
		"each node, for a tool without guests": {`{"properties":{"n":{"type":"string","x-caponier-target":"node"}},"required":["n"]}`, gate.Targets{VMIDs: []string{"105"}, Nodes: []string{"pve1", "pve2"}}, `{"n":"pve1"} {"n":"pve2"}`},
		"nothing, for a tool that needs more":  {strings.Replace(guest, `["vmid"]`, `["vmid","force"]`, 1), gate.Targets{VMIDs: []string{"105"}}, ``},
		"nothing about nothing":                {guest, gate.Targets{Paths: []string{"/etc/hosts"}}, ``},
		"nothing, for a tool without targets":  {`{"properties":{"q":{"type":"string"}}}`, gate.Targets{VMIDs: []string{"105"}, Nodes: []string{"pve1"}}, ``},
		"nothing, for a broken schema":         {`[`, gate.Targets{VMIDs: []string{"105"}}, ``},
	} {
		var got []string
		for _, a := range lookArgs(&gate.Tool{InputSchema: json.RawMessage(tt.schema)}, tt.targets) {
			got = append(got, string(a))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestAReadingIsTextOrWhyThereIsNone(t *testing.T) {
	for name, tt := range map[string]struct {
		a    gate.Answer
		want string
	}{
		"what was read":       {gate.Answer{Outcome: gate.Succeeded, Output: gate.Output{JSON: json.RawMessage(`{"content":[{"type":"text","text":"stopped\u001b[2J"}]}`)}}, `false "stopped\n"`},
		"a refusal":           {gate.Answer{Outcome: gate.Refusal, Err: &gate.Refused{Kind: "call", Failed: []string{"identity"}, DecisionID: "D"}}, `true "call refused by policy: checks that did not hold: identity.  Decision D"`},
		"a tool that failed":  {gate.Answer{Outcome: gate.Failed, Output: gate.Output{Code: 1, JSON: json.RawMessage(`{"error":{"code":"x","message":"no such guest"}}`)}}, `true "no such guest"`},
		"an unknown outcome":  {gate.Answer{Outcome: gate.Unknown}, `true ""`},
		"more than is needed": {gate.Answer{Outcome: gate.Succeeded, Output: gate.Output{JSON: json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("é", 5000) + `"}]}`)}}, ``},
	} {
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
