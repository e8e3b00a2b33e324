package input

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

type (
	// Record is what the host recorded of its own doing.
	Record struct {
		Action string `json:"action"` // undo | snapshots
		Call   string `json:"call"`   // that is to be undone
		All    bool   `json:"all"`    // from before everybody's calls
		// null in the lookup phase, and for snapshots
		Undo *Undoable `json:"undo"`
	}
	Undoable struct {
		Owner string `json:"owner"` // who made the call, "" if the host kept nothing of it
		Bars  string `json:"bars"`  // why it cannot be undone now, "" if it can
	}
)

func recordOf(op abi.UndoSteps, u *abi.UndoStepsResponse) *Record {
	r := &Record{Action: "undo", Call: op.Call}
	if u != nil {
		r.Undo = &Undoable{u.Owner, u.Bars}
	}
	return r
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
