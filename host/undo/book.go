package undo

import (
	"context"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/reverse"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Step is an operation of a call, with what takes it back.
type Step struct {
	Call      string      `json:"call"`
	N         int         `json:"n"` // 1 for the first of the call
	Principal string      `json:"principal"`
	Tool      string      `json:"tool"`
	Node      string      `json:"node"`
	Did       string      `json:"did"` // for people
	Back      reverse.Way `json:"back"`
	Before    State       `json:"before"` // of what it changes, with a file's bytes
	After     State       `json:"after"`  // until it has ended: as it will be if all goes well
	Mode      string      `json:"mode"`   // octal, of the file before
	Ended     string      `json:"ended"`  // "" while it runs or when the host was killed, else how
	Made      time.Time   `json:"made"`
	Expires   time.Time   `json:"expires"`
	MaxBytes  int64       `json:"max_bytes"` // of a file that was looked at
}

// Snapshot is one that the host took, or was about to take. Only these are ever removed.
type Snapshot struct {
	Cluster   string    `json:"cluster"`
	Node      string    `json:"node"` // that the host asked
	VMID      string    `json:"vmid"`
	Name      string    `json:"name"`
	Call      string    `json:"call"` // that it was taken for
	Principal string    `json:"principal"`
	Tool      string    `json:"tool"`
	Made      time.Time `json:"made"`
	Expires   time.Time `json:"expires"`
	Running   bool      `json:"running"` // the guest was, when it was taken
	Keep      int       `json:"-"`       // of this guest's, as the site said then
	Taken     bool      `json:"taken"`   // else it may not be there
	On        string    `json:"on"`      // node of the guest, when it was taken
	Program   string    `json:"program"` // pct or qm
}

// Book records snapshots. It must be safe for concurrent use.
type Book interface {
	// PutSnapshot adds a snapshot, or changes what is recorded of it. The record is on the disk
	// when it returns.
	PutSnapshot(context.Context, Snapshot) error
	// Snapshots lists them, the oldest first.
	Snapshots(context.Context) ([]Snapshot, error)
	RemoveSnapshot(context.Context, Snapshot) error

	// PutStep adds a step of a call, or changes what is recorded of it, as PutSnapshot does.
	PutStep(context.Context, Step) error
	// Steps lists those of a call in their order.
	Steps(ctx context.Context, call string) ([]Step, error)
	// RemoveSteps removes those that have expired.
	RemoveSteps(ctx context.Context, now time.Time) error
}

// Keeper executes operations, each after a snapshot of the guests that its decision names. It takes
// one of a guest for a call, before the first of these operations. No field may be nil.
type Keeper struct {
	terms.Executor
	Book Book
	// Call makes a call of a tool as the host.
	Call func(ctx context.Context, tool string, args any) terms.Answer
	Now  func() time.Time

	mu    sync.Mutex // guards what follows
	taken map[string]*once
	steps map[string]int // that were recorded, by call
}

// once is whether a snapshot of a guest was taken for a call.
type once struct {
	sync.Mutex
	done bool
}

// State is how a guest, a unit or a file is.
type State struct {
	// guest:101, unit:nginx.service or file:/path; "": nothing
	About  string            `json:"about"`
	Status string            `json:"status"` // running, stopped …; of a file its digest or absent
	Config string            `json:"config"` // digest of a guest's configuration
	Values map[string]string `json:"values,omitempty"`
	Mode   string            `json:"mode,omitempty"`
	Data   []byte            `json:"data,omitempty"`
}

// absent is the status of a file that is not there, and large that of one that is too large to be
// kept or compared.
const (
	absent = "absent"
	large  = "too large"
)

// same reports whether nothing differs. Of what is too large to compare nobody knows.
func (s State) same(o State) bool {
	return s.Status == o.Status && s.Config == o.Config && s.Status != large
}
