package mcp

import (
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Error codes of the host lie between -32000 and -32019, since MCP reserves those below, and avoid
// -32002 to -32005, which SDKs use themselves.
const (
	codeBudget    = -32001
	codeStopping  = -32010
	codeCancelled = -32012
	codeNobody    = -32013
	codeRefused   = -32014 // of resources and prompts, as is the next; a tool's result says so
	codeFailed    = -32015
	codeBusy      = -32016
)

var errBusy = &jsonrpc.Error{Code: codeBusy, Message: "the host is busy with as many requests as " +
	"it accepts at a time; nothing was done, try again in a moment"}

var errStopping = errors.New("the host is stopping")

// missing returns the error for a thing that does not exist. A thing that the caller may not see
// gets the same one.
func missing(kind, key string) error {
	if kind == "resource" {
		return mcp.ResourceNotFoundError(key)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
		Message: fmt.Sprintf("unknown %s %q", kind, key)}
}
