package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/caponier-mcp/caponier/host/terms"
)

// The JSON of a call is the same value, without a character that a terminal would act on or hide.
func TestJSONOfACallIsSafeForATerminal(t *testing.T) {
	text := "é \x1b[2J \u009b2J \x7f \u202e \u2066 \u200b \ufeff \U000e0041 <b> 雪"
	raw, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := terms.Answer{Outcome: terms.Succeeded, Output: terms.Output{JSON: raw}}
	if err := report(&out, &out, a, true); err != nil {
		t.Fatal(err)
	}
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		if !unicode.IsPrint(r) {
			t.Errorf("%U in %q", r, out.String())
		}
	}
	var back struct{ Result map[string]string }
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Result["text"] != text {
		t.Errorf("%v, %q, want %q", err, back.Result["text"], text)
	}
	if !strings.Contains(out.String(), "é") || !strings.Contains(out.String(), "雪") {
		t.Errorf("what is harmless stays: %s", out.String())
	}
}
