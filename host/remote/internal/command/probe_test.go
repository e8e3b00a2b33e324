package command

import (
	"testing"

	"github.com/caponier-mcp/caponier/host/shell"
)

func TestProbeIsWhatCommandsLookLike(t *testing.T) {
	if want := "printf '<%s>' " + shell.Quote(probeWords); probeCommand != want {
		t.Errorf("the probe does not quote as commands are quoted:\n%s\n%s", probeCommand, want)
	}
}
