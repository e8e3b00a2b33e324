//go:build !conformance

package front

import "github.com/modelcontextprotocol/go-sdk/mcp"

// fixtures are for the conformance suite alone; this build has none.
func fixtures(*mcp.ServerOptions) func(*mcp.Server) { return func(*mcp.Server) {} }

func isFixture(string) bool { return false }
