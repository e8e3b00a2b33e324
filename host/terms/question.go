package terms

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
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
	// every yes that the approval has; By and Channel are those of the last
	Answers []Yes `json:"answers"`
}

// Yes is a person's consent to a call. Ticket and Note are that person's words.
type Yes struct {
	By      string `json:"by"`
	Channel string `json:"channel"`
	Ticket  string `json:"ticket"`
	Note    string `json:"note"`
}

// Needs is what an approval takes beside one yes.
type Needs struct {
	Approvers int    `json:"approvers"` // different persons; 0 is 1
	Ticket    string `json:"ticket"`    // a pattern (RE2) of each one's ticket; "" for none
	Reason    bool   `json:"reason"`    // each one gives a reason, which is the note
}

// Request is a tool call as it arrived.
type Request struct {
	Source    string
	Trace     string // W3C traceparent of the client, or ""; not decided on
	Principal Principal
	Tool      *Tool
	Arguments []byte // a JSON object; empty or null for none
	Round     int    // 1 more each time that the call's questions were answered; 0 is 1
	Plan      bool   // only plan the call
	// Current reports why the call may not go on: its credential was revoked, or its tool left the
	// lock. It is asked before each decision. Nil: nothing can be revoked.
	Current  func(context.Context) error
	User     User                                      // nil if the client cannot ask one
	Progress func(done, total float64, message string) // may be nil
	Log      func(level int, message string)           // may be nil
}

// Call is one tool call. Its fields do not change after its first decision, except Confirmation,
// Decided, Stages, Blobs and Plan, which only package gate sets.
type Call struct {
	ID, Trace    string
	Source       string // stdio | http | cli | host
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
	Blobs        []string // that the host made for this call
	Planning     bool     // operations above green are recorded, not executed
	Plan         Plan     // that operations above green are held to; nil: none
}

// Node returns the entry of the inventory with this name, or nil.
func (c *Call) Node(name string) *Node {
	if i := slices.IndexFunc(c.Nodes, func(n Node) bool { return n.Name == name }); i >= 0 {
		return &c.Nodes[i]
	}
	return nil
}

// InOrder reports that the operations of a list run one after the other, in its order: the steps of
// a plan have an order, and two red operations on one guest would wait for each other's lease.
func (c *Call) InOrder() bool { return c.Planning || c.Plan != nil || len(c.Targets.VMIDs) > 0 }

// Rendered returns, by argument, the renderings of the command texts for guests that could be
// lowered. They are what such a command may run, since they are what was decided.
func (c *Call) Rendered() map[string]string {
	texts := map[string]string{}
	for _, cmd := range c.Commands {
		if cmd.Guest && cmd.Parsed {
			texts[cmd.Arg] = cmd.Rendered
		}
	}
	return texts
}

// User is the user of the client that makes a call. The client alone vouches for it. Answers
// come when the client makes the same call again.
type User interface {
	// Ask returns the answer to a plugin's question. The error is ErrPending or an *OpError.
	Ask(q abi.Ask) (Result, error)
	// CanConfirm reports whether the user can be asked to approve the call, or has been.
	CanConfirm() bool
	// Confirm returns "approve" or "deny" for what the user answered about this request,
	// "asked" while the client is to ask, and "" if no answer can be had.
	Confirm(request, message string) string
}

// Plan is what a call would do, as its dry run showed. Complete reports whether it names all of
// that, or else where it ends. Next compares an operation with the first step that is left, and
// Take takes that step. A Plan is JSON for programs, and belongs to one call: it is not safe
// for concurrent use.
type Plan interface {
	Digest() string
	Text() string // for people, without characters that do not show
	Complete() (ok bool, ends string)
	Next(q Question) PlanFacts
	Take()
}

// Result is that of an operation.
type Result struct {
	Value  any   // the response, a type of sdk/abi
	Bytes  int64 // moved or returned
	SHA256 string
	Exit   *int
	Stage  *StageDir // a directory that now belongs to the call
	Plan   bool      // the operation was recorded, and Value is what success would look like
	Next   abi.Op    // the operation that this one leads to, such as a redirect; decided by itself
	Hits   []Hit     // also beside an error
}

// Facts are what was looked up before a decision. Pointers are nil where nothing was.
type Facts struct {
	Counts Counts
	File   *FileFacts
	Addrs  []Addr
	Units  []string   // every name of the command's units, as the node says; nil: not asked
	Plan   *PlanFacts // nil: the call is held to no plan
	Undo   *abi.UndoStepsResponse
	Guests map[string]Guest // by VMID, as their cluster says; nil: not asked
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

// Step is an operation of a planned call that was decided to be above green, or refused. It was not
// executed.
type Step struct {
	Question Question
	Decision Decision
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
	// Screen, unless nil, gets all bytes of a file or blob before that is handed over. The error
	// of its Close says that nothing may be left of it.
	Screen io.WriteCloser
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
	Needs     Needs
	Snapshot  Snapshot
	Undo      Keeping
	Plan      bool // of a call: it has to be planned before it runs
	Argument  bool // a tool's own confirmation argument is enough
}

// Keeping says whether the host records what takes an operation back, and keeps what it replaces.
type Keeping struct {
	Record   bool  `json:"record"`
	Optional bool  `json:"optional"` // it goes on where it cannot keep that
	Days     int64 `json:"days"`
	MaxBytes int64 `json:"max_bytes"` // of a file
}

// Snapshot says of which guests the host takes a snapshot before it executes an operation.
type Snapshot struct {
	VMIDs    []string `json:"vmids"`    // none: it takes none
	Optional bool     `json:"optional"` // it goes on where it can take none
	Keep     int      `json:"keep"`     // how many of a guest it keeps,
	Days     int      `json:"days"`     // for how long
}

// Decision is the answer to a question. The zero Decision denies.
type Decision struct {
	Allow         bool
	Tier          Tier
	Failed        []string // ids of the checks that did not hold
	Denied        []Reason
	NeedsApproval bool          // the confirmation is the only check that did not hold
	Units         []string      // all that it lacks is what its node calls these units, and Lacks
	Lacks         []string      // all that it lacks is what these are, as its node says, and Units
	Guests        []string      // all else that it lacks is what their cluster says of these
	GuestAge      time.Duration // how old that may be
	GuestConfigs  bool          // what is in their configurations, too
	Obligations   Obligations
	Revision      string          // of the policy
	Input         json.RawMessage // the policy input as decided, masked, for the journal
	Masked        bool            // Input lacks something, so that it cannot be decided again
	Shown         json.RawMessage // the call's arguments, masked, for an approver
}

const maxScalar = 256 // bytes

// NewArgs returns decoded arguments. confirm is the name of the confirmation argument, or "".
func NewArgs(args map[string]any, confirm string) (a Args, err error) {
	a = Args{Value: args, Scalars: map[string]any{}}
	if a.JSON, err = abi.Encode(args); err != nil {
		return a, err
	}
	for k, v := range args {
		_, flag := v.(bool)
		_, number := v.(int64)
		text, isText := v.(string)
		if flag || number || isText && len(text) <= maxScalar {
			a.Scalars[k] = v
		} else {
			a.Omitted = append(a.Omitted, k)
		}
	}
	bound := maps.Clone(args)
	delete(bound, confirm)
	slices.Sort(a.Omitted)
	digested, err := abi.Encode(bound)
	a.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(digested))
	return a, err
}
