package effect

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// A caller that gives up learns whether the request was sent: Failed is said only if it never will
// be.
func TestACallerThatGivesUpLearnsWhatTheWorkerDid(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		sent    bool
		result  *Result[int]
		outcome terms.Outcome // "" for the worker's own result
		words   string
	}{
		"nothing was sent":                    {false, nil, terms.Failed, "not sent"},
		"it was sent":                         {true, nil, terms.Unknown, "perhaps done"},
		"it was sent and has ended meanwhile": {true, &Result[int]{Value: 7}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, done := &Pledge{}, make(chan Result[int], 1)
			if c.sent && !p.Send() {
				t.Fatal("the first worker may send")
			}
			if c.result != nil {
				done <- *c.result
			}
			v, err := Await(gone, p, done, "working", "not sent", "perhaps done")
			if c.outcome == "" {
				if err != nil || v != c.result.Value {
					t.Errorf("got %d, %v", v, err)
				}
				return
			}
			op := (*terms.OpError)(nil)
			if !errors.As(err, &op) || op.Outcome != c.outcome || op.Code != "cancelled" ||
				!strings.Contains(op.Message, c.words) {
				t.Errorf("got %v, want %s that says %q", err, c.outcome, c.words)
			}
			if !c.sent && p.Send() {
				t.Error("the worker sends what its caller was told will never be sent")
			}
		})
	}
}

func TestAPanicIsAnError(t *testing.T) {
	_, err := Guarded(func() (int, error) { panic("broken data") })
	if !errors.Is(err, ErrPanic) || !strings.Contains(err.Error(), "broken data") {
		t.Errorf("got %v", err)
	}
}
