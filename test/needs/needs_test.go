package needs

import "testing"

// fake notes how a test ended.
type fake struct {
	testing.TB
	skipped, failed bool
}

func (f *fake) Helper()      {}
func (f *fake) Skip(...any)  { f.skipped = !f.failed } // Fatal ends a real test
func (f *fake) Fatal(...any) { f.failed = true }

func TestNothingSkipsInCI(t *testing.T) {
	for ci, skips := range map[string]bool{"": true, "true": false} {
		t.Setenv("CI", ci)
		f := &fake{}
		if path := Program(f, "no-such-program"); path != "" || f.skipped == f.failed ||
			f.skipped != skips {
			t.Errorf("CI=%q: skipped %v, failed %v", ci, f.skipped, f.failed)
		}
	}
	if path := Program(t, "no-such-program", "sh"); path == "" {
		t.Error("sh is not found")
	}
}
