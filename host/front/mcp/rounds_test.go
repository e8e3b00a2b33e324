package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
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
	var s rounds
	now := time.Now()
	keep := func(who string) string {
		now = now.Add(time.Microsecond)
		return s.keep(round{Caller: who}, now)
	}
	take := func(state string, at time.Time) bool { _, ok := s.take(state, at); return ok }
	count := func(who string) int { n, _ := s.of(who); return n }
	theirs, oldest := keep("bert"), keep("anna")
	var states []string
	for range 2 * maxMine {
		states = append(states, keep("anna"))
	}
	if len(s.waiting) != maxMine+1 || count("anna") != maxMine {
		t.Errorf("%d wait, %d of them anna's", len(s.waiting), count("anna"))
	}
	for name, c := range map[string]struct {
		state string
		want  bool
	}{"another's": {theirs, true}, "the oldest": {oldest,
		false}, "one too old": {states[len(states)-maxMine-1], false},
		"the oldest that is kept":  {states[len(states)-maxMine], true},
		"the newest":               {states[len(states)-1], true},
		"one that was never given": {"AAAA", false}, "none": {"", false}} {
		if got := take(c.state, now); got != c.want || take(c.state, now) {
			t.Errorf("%s: it is taken: %v, and again: %v", name, got, got)
		}
	}
	if late := states[len(states)-2]; take(late, now.Add(askTime)) {
		t.Error("a round is taken after its time")
	}
	fill(&s, now)
	if s.room("carl", now) || !s.room("caller 0", now) {
		t.Error("when it is full there is room for a new caller, or none in place of one's own")
	}
	if keep("caller 0"); len(s.waiting) != maxRounds {
		t.Errorf("a question in place of one's own: %d wait", len(s.waiting))
	}
	if !s.room("carl", now.Add(askTime+1)) || len(s.waiting) != 0 {
		t.Errorf("old ones keep their room: %d", len(s.waiting))
	}
}

// fill makes rounds of many callers wait until there is no room.
func fill(s *rounds, now time.Time) {
	s.keep(round{Caller: "caller 0"}, now)
	for n := 0; len(s.waiting) < maxRounds; n++ {
		s.waiting[fmt.Sprint("state ", n)] = round{Caller: fmt.Sprint("caller ", n/maxMine),
			expires: now.Add(askTime)}
	}
}

// canAsk is a request of a client that can ask its user.
type canAsk struct{ mcp.Request }

func (canAsk) ProtocolVersion() string { return statelessVersions[0] }
func (canAsk) ClientCapabilities() *mcp.ClientCapabilities {
	return &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}
}

// A caller for whose question there is no room is as one whose client cannot ask.
func TestWithoutRoomForAQuestionTheClientIsNotAsked(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	who := Caller{Principal: terms.Principal{ID: "carl", Auth: "config"}}
	ask := func() *user {
		return must(s.user(t.Context(), canAsk{}, who, tool("hello", terms.Hints{}), nil, "", nil))
	}
	if !ask().can {
		t.Fatal("a client with room cannot be asked")
	}
	fill(&s.rounds, time.Now())
	u := ask()
	if u.can || u.CanConfirm() || u.Confirm("R1", "may it?") != "" {
		t.Error("a client without room is asked about an approval")
	}
	if _, err := u.Ask(abi.Ask{Key: "a", Message: "who?", Schema: nameForm}); err != errNobody {
		t.Errorf("a plugin's question: %v", err)
	}
}

// What was answered stays on the host until the call comes again, so it must be small.
func TestLongAnswersAreRefused(t *testing.T) {
	s := newServer(t, helloDoor(), nil)
	who := Caller{Principal: terms.Principal{ID: "carl", Auth: "config"}}
	u := must(s.user(t.Context(), canAsk{}, who, tool("hello", terms.Hints{}), nil, "", nil))
	u.answers["before"] = said{"accept", map[string]any{"name": strings.Repeat("x", maxAnswers)}}
	if _, err := u.Ask(abi.Ask{Key: "a", Message: "who?",
		Schema: nameForm}); err != terms.ErrPending {
		t.Fatal(err)
	}
	a := answer{Answer: terms.Answer{Output: terms.Output{Code: 1}}}
	res := &result{out: &output{}}
	if err := s.questions(t.Context(), u, a, res); err == nil ||
		!strings.Contains(err.Error(), "over the limit") {
		t.Errorf("%v", err)
	}
	if len(s.rounds.waiting) != 0 || res.asks != nil {
		t.Errorf("it waits: %+v", s.rounds.waiting)
	}
}

var nameForm = map[string]any{"type": "object", "required": []any{"name"},
	"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": float64(1)}}}
