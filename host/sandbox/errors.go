package sandbox

import (
	"fmt"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Codes of a *terms.PluginError.
const (
	codeTrap        = "plugin_trap"
	codeExit        = "plugin_exit"
	codeMemory      = "plugin_memory"
	codeProtocol    = "plugin_protocol"
	codeUnavailable = "plugin_unavailable"
)

func broken(code, format string, a ...any) error {
	return &terms.PluginError{Code: code, Message: fmt.Sprintf(format, a...)}
}
