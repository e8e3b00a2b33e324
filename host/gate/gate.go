// Package gate is the one way to an effect. It decides each tool call, and each operation of a
// running tool. It journals the decision, and then acts on the very value that was decided.
//
// It holds the vocabulary that the other packages share. It imports only sdk/abi, the wire. The
// only function that reaches a [Runner] or an [Executor] is pass; a test over all of host holds
// that.
package gate

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Kind is what a question is about.
type Kind int

const (
	KindCall      Kind = iota + 1 // may this principal call this tool with these arguments?
	KindOperation                 // may this call do this operation?
	KindVisible                   // may this principal see this tool or node in a list?
	KindPlan                      // may a person be asked about this plan of a call?
)

// Phase is how much is known when an operation is decided.
type Phase int

const (
	PhaseEffect Phase = iota // the facts are known, or the operation needs none
	PhaseLookup              // names only: may the facts be looked up?
)

func (p Phase) String() string {
	if p == PhaseLookup {
		return "lookup"
	}
	return "effect"
}

// Tier is the risk class that policy assigns. The zero value is no tier and ranks above black.
type Tier int

const (
	NoTier Tier = iota
	Green       // runs
	Yellow      // runs, and is logged as a warning
	Red         // needs a confirmation
	Black       // never runs
)

var tierNames = [...]string{"", "green", "yellow", "red", "black"}

func (t Tier) String() string {
	if t < NoTier || t > Black {
		return ""
	}
	return tierNames[t]
}

// ParseTier returns the tier of a name, or NoTier.
func ParseTier(s string) Tier {
	for i, n := range tierNames {
		if n == s {
			return Tier(i)
		}
	}
	return NoTier
}

// Outcome is how a call or an operation ended.
type Outcome string

const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
	Unknown   Outcome = "unknown" // sent, but no answer: never retried above green
	Refusal   Outcome = "refused" // of calls: nothing was executed
	Waits     Outcome = "waiting" // for an approval, an answer to an ask, or a fact
	Planned   Outcome = "planned" // of operations: recorded in a plan, not executed
)

// Principal is the authenticated caller.
type Principal struct {
	ID    string   `json:"id"`
	Roles []string `json:"roles"`
	Auth  string   `json:"auth"` // config | token | oidc; host for the host itself
	// Narrowed says that the roles are all that may hold, even when there are none.
	Narrowed bool `json:"narrowed,omitempty"`
}

// Node is an entry of the inventory.
type Node struct {
	Name, Cluster, Host, User string
	Port                      int
	Default                   bool
	Aliases                   []string // other entries that are the same machine
}

// Targets are what a call acts on, each in canonical form, sorted, without repeats.
type Targets struct {
	Nodes      []string `json:"nodes"`
	VMIDs      []string `json:"vmids"`
	Services   []string `json:"services"`
	Hosts      []string `json:"hosts"`
	Paths      []string `json:"paths"`
	GuestPaths []string `json:"guest_paths"`
	LocalPaths []string `json:"local_paths"`
}

// Command is command text lowered to argv lists. The zero value is not parsed; policy refuses it.
type Command struct {
	Form  string `json:"form"`  // argv | script
	Arg   string `json:"arg"`   // the argument of the call that holds it, "" in an operation
	Guest bool   `json:"guest"` // for the shell inside a guest, not for the node's
	Text  string `json:"text"`  // the argument as given, "" in an operation
	Lowered
	Nested   []Nested `json:"nested"`
	Rendered string   `json:"-"` // what runs if it is allowed
}

// Lowered is command text as argv lists, in order. Features names the joiners, and what could not
// be lowered.
type Lowered struct {
	Parsed   bool     `json:"parsed"`
	Error    string   `json:"error"` // why it was not parsed
	Features []string `json:"features"`
	Calls    []Simple `json:"calls"`
}

// Simple is one simple command. Static means that no shell expands any of its words.
type Simple struct {
	Argv   []string `json:"argv"`
	Static bool     `json:"static"`
}

// Nested is command text inside another command, such as the X of bash -c X.
type Nested struct {
	Depth    int   `json:"depth"`    // 1 to 3
	Position []int `json:"position"` // call and argv index in its parent
	Lowered
}

// Args are the arguments of a call as the one decoded value.
type Args struct {
	Value   map[string]any
	JSON    json.RawMessage // what the plugin receives
	Digest  string          // SHA-256 of JSON without the confirmation argument
	Scalars map[string]any  // top-level booleans, integers, and strings of at most 256 bytes
	Omitted []string        // the names of all other arguments, sorted
}

// Confirmation is what stands behind a red call.
type Confirmation struct {
	State   string `json:"state"` // none | argument | approved | expired | mismatch
	By      string `json:"by"`
	Channel string `json:"channel"` // of an approval: cli | web | client
}

// Call is one tool call. Its fields do not change after its first decision, except Confirmation,
// Decided, Stages, Made and Plan, which only this package sets.
type Call struct {
	ID, Source   string // stdio | http | cli | host
	Principal    Principal
	Tool         *Tool
	Args         Args
	Targets      Targets
	Clusters     []string // of the target nodes
	Commands     []Command
	Confirmation Confirmation
	Files        map[string]string // SHA-256 of its local files, as they were when it arrived
	Nodes        []Node            // the inventory
	Decided      Decision          // of the call itself, once it is allowed
	Stages       []StageDir
	User         User     // nil if the client cannot ask one
	Made         []string // names that the host made for this call: of stages, of blobs
	Planning     bool     // operations above green are recorded, not executed
	Plan         Plan     // that operations above green are held to; nil: none
	current      func(context.Context) error
	spent        *atomic.Int64 // nanoseconds for which the host computed; nil: not counted
}

// StageDir is a directory on a node that belongs to one call.
type StageDir struct {
	Node string `json:"node"`
	Dir  string `json:"dir"`
}

// Facts are what was looked up before a decision. Pointers are nil where nothing was.
type Facts struct {
	Counts Counts
	File   *FileFacts
	Addrs  []Addr
	Units  []string   // every name of the command's units, as the node says; nil: not asked
	Plan   *PlanFacts // nil: the call is held to no plan
	Undo   *abi.UndoStepsResponse
	// Touches are what the operation touches and, of a planned call, what earlier ones on the node
	// do, as it says; nil: not looked up.
	Touches []Touched
}

// Touched is a guest, a node, a storage or a unit that an operation touches.
type Touched struct {
	About  string   `json:"about"`  // guest:101, node:pve1, storage:local or unit:nginx
	Name   string   `json:"name"`   // of a guest, as are kind, node, status and config
	Kind   string   `json:"kind"`   // lxc | qemu, "" if there is no such guest
	Node   string   `json:"node"`   // where it is
	Status string   `json:"status"` // running, stopped …
	Config string   `json:"config"` // digest of its configuration
	Also   []string `json:"also"`   // what else an effect on it touches, for people, sorted
}

// PlanFacts compare an operation with the plan of its call.
type PlanFacts struct {
	Digest   string `json:"digest"`   // of the plan
	Complete bool   `json:"complete"` // the plan names every operation above green
	Next     bool   `json:"next"`     // the operation is the plan's next step, byte for byte
	Left     bool   `json:"left"`     // the plan has a next step
	Want     string `json:"want"`     // the next step, for people
	// Rests are what has to be looked up again before that step, in the form of Touched.About.
	Rests []string `json:"rests"`
	// Changed says what of it is no more as it was when the call was planned; "" for nothing.
	Changed string `json:"changed"`
}

// Step is an operation of a planned call that was decided to be above green, or refused. It was not
// executed.
type Step struct {
	Question Question
	Decision Decision
}

// Counts of one principal include the question that is being decided. The Retry fields are the
// seconds until one call less counts.
type Counts struct {
	Calls60s       int64 `json:"calls_60s"`
	ToolCalls60s   int64 `json:"tool_calls_60s"`
	TargetCalls60s int64 `json:"target_calls_60s"` // of the target that was called most
	CallsRetryS    int64 `json:"calls_retry_s"`
	ToolRetryS     int64 `json:"tool_retry_s"`
	TargetRetryS   int64 `json:"target_retry_s"`
	USDMicrosToday int64 `json:"usd_micros_today"`
}

// FileFacts describe a path on a node, and the local file of a transfer.
type FileFacts struct {
	RealPath   string `json:"real_path"` // for a new file: its directory's, joined with its name
	Exists     bool   `json:"exists"`
	Type       string `json:"type"` // file dir symlink fifo socket device other; "" if none exists
	Bytes      int64  `json:"bytes"`
	Mode       uint32 `json:"mode"` // permission bits
	LocalBytes int64  `json:"local_bytes"`
}

// Addr is a resolved address with the class that the host assigns to it.
type Addr struct {
	IP    string `json:"ip"`
	Class string `json:"class"`
}

// Mode is the state of the whole host, read at each decision.
type Mode struct {
	ReadOnly bool     `json:"read_only"`
	Freezes  []Freeze `json:"freezes"`
}

// Freeze stops what it names: everything, a principal, a tool or a node.
type Freeze struct {
	Kind   string `json:"kind"` // all | principal | tool | node
	Name   string `json:"name"` // "" for all
	Reason string `json:"reason"`
}

// Question is what a [Decider] answers. It must not be kept or changed.
type Question struct {
	ID    string
	Kind  Kind
	Call  *Call
	Op    abi.Op   // of KindOperation, as are Node, Cmd and Phase
	Node  *Node    // nil where the operation runs on no node
	Cmd   *Command // of ssh_exec and ssh_script
	Phase Phase
	Steps []Step   // of KindPlan, whose Call.Plan is the plan
	Units []string // of PhaseLookup: the units whose names are asked for
	Lacks []string // of PhaseLookup: what is to be looked up, in the form of Touched.About
	Facts Facts
	Mode  Mode
	Time  time.Time
	// Progress reports to the client how far an operation is. It may be nil, and is not decided on.
	Progress func(done, total float64, message string)
}

// Reason is one thing that policy says against a question.
type Reason struct {
	ID  string `json:"id"`
	Msg string `json:"msg"`
}

// Obligations bind the executor of an allowed question. Zero fields leave the host's own limits.
type Obligations struct {
	Timeout   time.Duration
	MaxBytes  int64
	Log       string
	Channels  []string // on which a person may confirm: cli | web | client
	Approvers []string // who may on the first two; "*" is every approver that the host knows
	Snapshot  Snapshot
	Undo      Keeping
	Plan      bool // of a call: it has to be planned before it runs
	Argument  bool // a tool's own confirmation argument is enough
}

// Keeping says whether the host records what takes an operation back, and keeps what it replaces.
type Keeping struct {
	Record, Optional bool  // Optional: it goes on where it cannot keep that
	Days, MaxBytes   int64 // MaxBytes: of a file
}

// Snapshot says of which guests the host takes a snapshot before it executes an operation.
type Snapshot struct {
	VMIDs      []string // none: it takes none
	Optional   bool     // it goes on where it can take none
	Keep, Days int      // how many of a guest it keeps, for how long
}

// Decision is the answer to a question. The zero Decision denies.
type Decision struct {
	Allow         bool
	Tier          Tier
	Failed        []string // ids of the checks that did not hold
	Denied        []Reason
	NeedsApproval bool     // the confirmation is the only check that did not hold
	Units         []string // all that it lacks is what its node calls these units, and Lacks
	Lacks         []string // all that it lacks is what these are, as its node says, and Units
	Obligations   Obligations
	Revision      string          // of the policy
	Input         json.RawMessage // the policy input as decided, masked, for the journal
	Masked        bool            // Input lacks something, so that it cannot be decided again
	Shown         json.RawMessage // the call's arguments, masked, for an approver
}
