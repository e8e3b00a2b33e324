package mcp

import (
	"sync"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// request is a call of a tool, a resource or a prompt. Key is what the client calls it.
type request struct {
	who  Caller
	tool *terms.Tool
	key  string
	args []byte
	from string // traceparent
	plan bool   // only plan it
	user *user
	show *progress
}

// answer is how a call ended. Stopped is why its context ended before the call did.
type answer struct {
	terms.Answer
	stopped error
}

// user is the user of one call's client. A question without an answer is pending: the instance
// returns, the client is asked, and the same call comes again with the answers, is decided again
// and runs in a new instance.
type user struct {
	// the client can ask, may be asked in this round, and there is room for the question
	can  bool
	call round // names the call and its round

	mu      sync.Mutex // guards the following
	answers map[string]said
	pending map[string]abi.Ask
	// the approval that the client is to ask for
	request, message string
	// the request that the client was asked to approve before, and the answer, which counts once
	confirmed string
	verdict   said
}

// said is what a user answered: action is accept, decline or cancel.
type said struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content,omitempty"`
}

// incoming is a request of a call of any kind.
type incoming interface {
	mcp.Request
	ClientCapabilities() *mcp.ClientCapabilities
	ProtocolVersion() string
}

// progress sends what a plugin reports to the client, and a sign of life while it reports nothing.
// Reports go through a queue and are dropped when it is full, so that a client that does not read
// cannot stop the plugin.
type progress struct {
	queue chan mcp.ProgressNotificationParams
	ended chan struct{}
}
