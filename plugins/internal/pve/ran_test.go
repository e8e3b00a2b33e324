package pve

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
)

func TestOutputThatIsNotUTF8IsMarked(t *testing.T) {
	r := NewRan("pve1", sdk.ExecResult{Stdout: []byte("\xff\xfebin"), Binary: true}, "")
	if !strings.Contains(r.Notice, "not UTF-8") || !strings.Contains(r.Human(), "[notice]") ||
		r.Stdout != "\uFFFDbin" {
		t.Errorf("%+v", r)
	}
	if r := NewRan("pve1", sdk.ExecResult{Stdout: []byte("é")}, ""); r.Notice != "" {
		t.Errorf("%+v", r)
	}
}
