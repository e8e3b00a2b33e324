package sdk

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// TestTheOutputIsWhatItsTagsSay: the host reads it by the same names.
func TestTheOutputIsWhatItsTagsSay(t *testing.T) {
	content := Content{"resource", "<a>", []byte{0, 255}, "m", "u", "n", "d\n",
		json.RawMessage(`{"uri":"x"}`)}
	for _, o := range []output{
		{},
		{Content: []Content{}},
		{Content: []Content{content, {}}, Structured: map[string]any{"a": 1, "b": []any{}},
			SpentUSDMicros: 5},
		{Content: []Content{Text("a")}, Error: &abi.Error{Code: "a", Message: "b"}},
		{Error: &abi.Error{Suggestion: "c"}},
		{Contents: []ResourceContent{{"u", "m", "t", []byte("b")}, {}}},
		{Description: "d", Messages: []Message{{"user", content}, {}}},
	} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(o); err != nil {
			t.Fatal(err)
		}
		if got, err := o.encode(); err != nil || string(got)+"\n" != want.String() {
			t.Errorf("%s, %v, want %s", got, err, &want)
		}
	}
}

func TestABrokenResourceIsAnError(t *testing.T) {
	for _, raw := range []string{`{`, `{}{}`, `x`} {
		o := output{Content: []Content{{Type: "resource", Resource: json.RawMessage(raw)}}}
		if b, err := o.encode(); err == nil {
			t.Errorf("%s becomes %s", raw, b)
		}
	}
	o := output{Structured: func() {}}
	if b, err := o.encode(); err == nil {
		t.Errorf("a function becomes %s", b)
	}
}
