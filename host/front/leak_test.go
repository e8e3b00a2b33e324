package front

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives the tests: who starts one waits for it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.callSubscriptionsListen.func1"), // the client's
		goleak.Cleanup(func(code int) {
			http.DefaultClient.CloseIdleConnections()
			os.Exit(code)
		}))
}
