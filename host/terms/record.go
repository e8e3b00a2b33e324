package terms

import (
	"encoding/json"
	"time"
)

// Record is one line of the journal. It never holds file contents or outputs.
type Record struct {
	Type       string          `json:"type"` // intent | refused | outcome
	Time       time.Time       `json:"time"`
	ID         string          `json:"decision_id"`
	CallID     string          `json:"call_id"`
	Trace      string          `json:"traceparent,omitempty"`
	Kind       string          `json:"kind"` // call | operation | plan | approval
	Op         string          `json:"op,omitempty"`
	Phase      string          `json:"phase,omitempty"`
	Principal  string          `json:"principal"`
	Source     string          `json:"source,omitempty"`
	Plugin     Plugin          `json:"plugin"`
	Tool       string          `json:"tool"`
	Node       string          `json:"node,omitempty"`
	Tier       string          `json:"tier,omitempty"`
	Failed     []string        `json:"failed,omitempty"`
	Denied     []Reason        `json:"deny,omitempty"`
	Revision   string          `json:"revision,omitempty"`
	CallRev    string          `json:"call_revision,omitempty"` // that decided an operation's call
	Input      json.RawMessage `json:"input,omitempty"`
	Masked     bool            `json:"masked,omitempty"` // Input lacks part of what was decided
	Outcome    Outcome         `json:"outcome,omitempty"`
	Code       string          `json:"code,omitempty"` // why it failed, one word
	Exit       *int            `json:"exit,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`
	SHA256     string          `json:"sha256,omitempty"`
	DurationUS int64           `json:"duration_us,omitempty"`
	Refused    int             `json:"refused,omitempty"` // operations of the call
	Notes      *Notes          `json:"notes,omitempty"`
	Hits       []Hit           `json:"hits,omitempty"`    // in what went back, never their values
	Verdict    *Verdict        `json:"verdict,omitempty"` // of an approval
	Plan       string          `json:"plan,omitempty"`    // digest: made by the call, or binding it
}

// Verdict is what a person says about a call that waits.
type Verdict struct {
	Request string `json:"request"` // its id
	Approve bool   `json:"approve"`
	By      string `json:"by"`
	Channel string `json:"channel"`
	Ticket  string `json:"ticket,omitempty"`
	Note    string `json:"note,omitempty"`
}

// Notes count what an instance noted.
type Notes struct {
	Logs     int   `json:"logs"`
	Progress int   `json:"progress"`
	Dropped  int   `json:"dropped"`
	CPUTicks int64 `json:"cpu_ticks"`
}

// NewRecord returns the record of a question that was decided, as an intent or a refusal.
func NewRecord(q Question, dec Decision) Record {
	c := q.Call
	r := Record{Type: "intent", Time: q.Time, ID: q.ID, CallID: c.ID, Trace: c.Trace,
		Kind: "call", Principal: c.Principal.ID, Source: c.Source, Plugin: c.Tool.Plugin,
		Tool: c.Tool.Name, Tier: dec.Tier.String(), Failed: dec.Failed, Denied: dec.Denied,
		Revision: dec.Revision, Input: dec.Input, Masked: dec.Masked}
	if c.Plan != nil {
		r.Plan = c.Plan.Digest()
	}
	if !dec.Allow {
		r.Type = "refused"
	}
	if q.Kind == KindPlan {
		r.Kind = "plan"
	}
	if q.Kind == KindOperation {
		r.Kind, r.Op, r.Phase = "operation", q.Op.Import(), q.Phase.String()
		r.CallRev, r.Node = c.Decided.Revision, q.Op.NodeName()
	}
	return r
}
