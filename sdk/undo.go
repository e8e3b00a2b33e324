package sdk

import (
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

// UndoStep takes one step of a call back, as [UndoSteps] returns it.
type UndoStep struct {
	Node   string
	Did    string   // the step, for people
	Argv   []string // the command to run, or none
	Remove string   // the file to remove
	Write  string   // the file to write, with Data and Mode
	Data   []byte
	Mode   string
	None   string // why nothing takes it back
}

// UndoSteps returns the tool of a call of the same principal, and what takes back its steps, in
// the order in which that has to be done. The host refuses what it cannot take back.
func UndoSteps(c *Call, call string) (tool string, steps []UndoStep, err error) {
	var r abi.UndoStepsResponse
	_, err = do(c, imports.UndoSteps, abi.UndoSteps{Call: call}, &r)
	for _, s := range r.Steps {
		data, bad := s.Bytes()
		if bad != nil {
			return "", nil, &OpError{Code: "bad_response",
				Message: "the host's response has broken base64"}
		}
		steps = append(steps, UndoStep{s.Node, s.Did, s.Argv, s.Remove, s.Write, data, s.Mode,
			s.None})
	}
	return r.Tool, steps, err
}

// Snapshot is one that the host took of a guest before a call changed the guest.
type Snapshot = abi.Snapshot

// Snapshots lists those from before the principal's calls, or with all from before everybody's,
// where the site allows that.
func Snapshots(c *Call, all bool) ([]Snapshot, error) {
	var r abi.SnapshotsResponse
	_, err := do(c, imports.Snapshots, abi.Snapshots{All: all}, &r)
	return r.Snapshots, err
}
