package policy

import (
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/open-policy-agent/opa/v1/ast"
)

const decisionSchema = "caponier.decision/1"

// answer is the decision document.
type answer struct {
	Schema  string         `json:"schema"`
	Allow   bool           `json:"allow"`
	Tier    string         `json:"tier"`
	Failed  []string       `json:"failed"`
	Deny    []terms.Reason `json:"deny"`
	Confirm bool           `json:"confirm"`
	Units   []string       `json:"units"`
	Lacks   []string       `json:"lacks"`
	Guests  struct {
		VMIDs   []string `json:"vmids"`
		MaxAgeS int64    `json:"max_age_s"`
		Configs bool     `json:"configs"`
	} `json:"guests"`
	Obligations struct {
		TimeoutMS int64          `json:"timeout_ms"`
		MaxBytes  int64          `json:"max_bytes"`
		Redact    []string       `json:"redact"` // load reads it from the data
		Log       string         `json:"log"`
		Channels  []string       `json:"channels"`
		Approvers []string       `json:"approvers"`
		Needs     terms.Needs    `json:"needs"`
		Snapshot  terms.Snapshot `json:"snapshot"`
		Undo      terms.Keeping  `json:"undo"`
		Plan      bool           `json:"plan"`
		Argument  bool           `json:"argument"`
	} `json:"obligations"`
}

// decision reads a decision document. A member that is missing, unknown or of another type is an
// error, as is a decision that contradicts itself.
func decision(v ast.Value) (terms.Decision, error) {
	var a answer
	if err := value.Read("decision", v, &a); err != nil {
		return terms.Decision{}, err
	}
	tier, o := terms.ParseTier(a.Tier), a.Obligations
	timeout := time.Duration(o.TimeoutMS) * time.Millisecond
	var err error
	switch {
	case a.Schema != decisionSchema:
		err = fmt.Errorf("schema %q is not %s", a.Schema, decisionSchema)
	case tier == terms.NoTier:
		err = fmt.Errorf("%q is not a tier", a.Tier)
	case a.Allow && (tier == terms.Black || a.Confirm ||
		len(a.Failed)+len(a.Deny)+len(a.Units)+len(a.Lacks)+len(a.Guests.VMIDs) > 0):
		err = errors.New("it allows and refuses at once")
	case !a.Allow && len(a.Failed) == 0:
		err = errors.New("it refuses and names no check")
	case timeout < 0 || timeout.Milliseconds() != o.TimeoutMS || o.MaxBytes < 0 ||
		a.Guests.MaxAgeS < 0 || o.Snapshot.Keep < 0 || o.Snapshot.Days < 0 ||
		o.Undo.Days < 0 || o.Undo.MaxBytes < 0 || o.Needs.Approvers < 0:
		err = errors.New("an obligation is negative or too large")
	}
	if err != nil {
		return terms.Decision{}, err
	}
	// nil where it is empty
	a.Units, a.Lacks = append([]string(nil), a.Units...), append([]string(nil), a.Lacks...)
	return terms.Decision{
		Allow: a.Allow, Tier: tier, Failed: a.Failed, Denied: a.Deny, NeedsApproval: a.Confirm,
		Units: a.Units, Lacks: a.Lacks, Guests: a.Guests.VMIDs,
		GuestAge: time.Duration(a.Guests.MaxAgeS) * time.Second, GuestConfigs: a.Guests.Configs,
		Obligations: terms.Obligations{Timeout: timeout, MaxBytes: o.MaxBytes, Log: o.Log,
			Channels: o.Channels, Approvers: o.Approvers, Needs: o.Needs,
			Snapshot: o.Snapshot,
			Undo:     o.Undo, Plan: o.Plan, Argument: o.Argument},
	}, nil
}
