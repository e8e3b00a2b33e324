package plan

import (
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/reverse"
	"github.com/caponier-mcp/caponier/host/terms"
)

const schema = "caponier.plan/1"

// plan is what a call would do above green, in order. It is JSON for programs and for the journal;
// Text is for people. Values of redacted arguments are masked in all that can be read, and
// are bound by digests.
type plan struct {
	Schema    string        `json:"schema"`
	Call      string        `json:"call"` // id of the dry run
	Made      time.Time     `json:"made"`
	Principal string        `json:"principal"`
	Tool      string        `json:"tool"`
	Plugin    terms.Plugin  `json:"plugin"`
	Arguments string        `json:"arguments"` // their digest
	Tier      string        `json:"tier"`      // of the call
	Targets   terms.Targets `json:"targets"`
	Steps     []step        `json:"steps"`
	Whole     bool          `json:"complete"` // the steps are all that the call does above green
	Ends      string        `json:"ends"`     // "" for a complete plan, or where it ends and why
	Sum       string        `json:"digest"`   // of all that the plan binds

	next int // index of the first step that was not taken
}

// step is an operation above green as it was decided, or one that was refused.
type step struct {
	Op      string         `json:"op"`
	Node    string         `json:"node"`
	Does    string         `json:"does"` // in one line
	Tier    string         `json:"tier"`
	Allowed bool           `json:"allowed"`
	Refused []terms.Reason `json:"refused"`
	Undo    reverse.Way    `json:"undo"`
	Command *input.Command `json:"command,omitempty"`
	File    *input.File    `json:"file,omitempty"`
	HTTP    *input.Request `json:"http,omitempty"`
	Blob    *input.Blob    `json:"blob,omitempty"`
	// Touches is what the step is the first to touch, as the node said at Looked.
	Touches []terms.Touched `json:"touches"`
	Looked  time.Time       `json:"looked"`
	// SHA256 is the digest of the request and its facts. Names that the host creates in each run
	// are replaced with numbers.
	SHA256 string `json:"sha256"`

	path string // that it names, in the same form
}
