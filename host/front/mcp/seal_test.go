package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

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
		if _, err := newForm(v); (err == nil) != good {
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

// A caller for whose question there is no room is as one whose client cannot ask.
func TestWithoutRoomForAQuestionTheClientIsNotAsked(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	caps := &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}
	who := Caller{Principal: gate.Principal{ID: "carl", Auth: "config"}}
	ask := func() *asking {
		return must(s.asking(who, tool("hello", gate.Hints{}), nil, rounds{caps: caps}))
	}
	if !ask().can {
		t.Fatal("a client with room cannot be asked")
	}
	for n := range maxPending {
		must(s.seals.seal(sealed{Caller: fmt.Sprint(n / maxMine)}, time.Now()))
	}
	a := ask()
	ctx := context.WithValue(t.Context(), askingKey{}, a)
	if a.can || (Asker{}).CanAsk(ctx) || (Asker{}).Ask(ctx, "R1", "may it?") != "" {
		t.Error("a client without room is asked about an approval")
	}
	if _, err := a.ask(abi.Ask{Key: "a", Message: "who?", Schema: nameForm}); err != errNobody {
		t.Errorf("a plugin's question: %v", err)
	}
}

var nameForm = map[string]any{"type": "object", "required": []any{"name"},
	"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": float64(1)}}}

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
