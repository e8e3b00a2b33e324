package sandbox

import (
	"context"
	"fmt"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Ready waits until the tool's plugin is compiled, which counts against nobody's budget. What went wrong with it is for Run to say.
func (s *Sandbox) Ready(ctx context.Context, t *gate.Tool) error {
	p := s.plugin(t.Plugin.Digest)
	if p == nil {
		return &gate.PluginError{Code: "plugin_unavailable", Message: fmt.Sprintf("plugin %s is not loaded", t.Plugin.Name)}
	}
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
