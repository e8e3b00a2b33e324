package redact

import (
	"strings"
	"testing"
)

func FuzzHiddenTextHoldsNoSecret(f *testing.F) {
	f.Add("a hunter2=x b", "hunter2")
	f.Add("\"x y\" xx", "x y")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if len(secret) < minSecret || strings.Contains(masked, secret) {
			return
		}
		got := hidden(text, secret)
		if strings.Contains(strings.ReplaceAll(got, masked, "\x00"), secret) &&
			!strings.Contains(secret, "\x00") {
			t.Errorf("%q in %q: %q", secret, text, got)
		}
		if !strings.Contains(text, secret) && got != text {
			t.Errorf("%q was changed to %q without %q in it", text, got, secret)
		}
	})
}
