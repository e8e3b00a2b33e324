// Package terms is the vocabulary of the host: what its parts say to each other of a call.
//
// It holds the call, a question of policy, its decision and its record, and the interfaces of the
// parts that package gate uses. It does nothing itself.
package terms

import "slices"

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
func ParseTier(s string) Tier { return Tier(max(slices.Index(tierNames[:], s), 0)) }

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

// Hit counts what a detector found in a result. Action is what policy made of it.
type Hit struct {
	Detector string `json:"detector"`
	Count    int    `json:"count"`
	Action   string `json:"action"` // allow | mask | refuse
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

// StageDir is a directory on a node that belongs to one call.
type StageDir struct {
	Node string `json:"node"`
	Dir  string `json:"dir"`
}

// Guest is what its cluster says of a guest. One that it does not have has no kind.
type Guest struct {
	Name     string   `json:"name"` // "" while its node sends nothing
	Kind     string   `json:"kind"` // lxc | qemu
	Node     string   `json:"node"`
	Status   string   `json:"status"` // unknown while its node sends nothing
	Tags     []string `json:"tags"`
	Pool     string   `json:"pool"`
	Template bool     `json:"template"`
	HA       string   `json:"ha"`    // state of its high availability, "" for none
	AgeS     int64    `json:"age_s"` // since the host asked
	// Protection is Proxmox's own, on or off; "" where the guest's configuration was not read.
	Protection string `json:"protection"`
}
