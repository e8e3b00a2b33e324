package approval

import (
	"encoding/json"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Request is a question to a person about one call.
type Request struct {
	ID        string          `json:"id"`
	Key       string          `json:"key"` // a digest of all that the approval is bound to
	Principal string          `json:"principal"`
	Tool      string          `json:"tool"`
	State     string          `json:"state"`
	Created   time.Time       `json:"created"`
	Expires   time.Time       `json:"expires"` // of the question, then of the answer
	TTL       time.Duration   `json:"ttl_ns"`  // how long each of them lasts
	Revision  string          `json:"policy_revision"`
	Detail    json.RawMessage `json:"detail"`
	Decided   time.Time       `json:"decided,omitzero"` // zero while waiting
	By        string          `json:"by,omitempty"`
	Channel   string          `json:"channel,omitempty"`
	Note      string          `json:"note,omitempty"`
	// how many persons have to say yes, and each one's yes
	Need    int         `json:"need"`
	Answers []terms.Yes `json:"answers"`
}

// Verdict is a person's answer.
type Verdict = terms.Verdict

// States of a request.
const (
	Waiting  = "waiting"
	Approved = "approved"
	Denied   = "denied"
	Used     = "used"
)
