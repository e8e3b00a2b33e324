// Package gate is the one door: every tool call and every operation of a running tool is decided
// and journaled here before it happens.
//
// It holds the vocabulary that the other packages share and imports none of them. The only function
// that reaches a Runner or an Executor is [pass].
package gate

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Kind says what a question is about.
type Kind int

const (
	KindCall      Kind = iota + 1 // may this principal call this tool with these arguments?
	KindOperation                 // may this call do this operation?
	// may this principal see this tool, resource, prompt or node in a list?
	KindVisible
)

// Phase says how much is known when an operation is decided.
type Phase int

const (
	PhaseEffect Phase = iota // with the facts, or for operations that need none
	PhaseLookup              // names only: is finding out the facts allowed?
)

func (p Phase) String() string {
	if p == PhaseLookup {
		return "lookup"
	}
	return "effect"
}

// Tier is the risk class that policy gives a call or an operation. The zero value is not a tier and
// ranks above black.
type Tier int

const (
	NoTier Tier = iota
	Green       // runs
	Yellow      // runs and is logged loudly
	Red         // needs a confirmation
	Black       // never
)

var tierNames = [...]string{"", "green", "yellow", "red", "black"}

func (t Tier) String() string {
	if t < NoTier || t > Black {
		return ""
	}
	return tierNames[t]
}

// ParseTier returns NoTier for a word that is no tier.
func ParseTier(s string) Tier {
	for i, n := range tierNames {
		if n == s {
			return Tier(i)
		}
	}
	return NoTier
}

// Outcome is how something ended. An unknown outcome of anything above green is never retried.
type Outcome string

const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
	Unknown   Outcome = "unknown" // the request was sent and the answer never came
	Refusal   Outcome = "refused" // calls only: nothing was executed
	// a person has to decide first, or to answer a question of the plugin
	Waits Outcome = "waiting"
)

// Principal is who is calling.
type Principal struct {
	ID    string   `json:"id"`
	Roles []string `json:"roles"`
	Auth  string   `json:"auth"` // config | token | oidc
}

// Plugin names a module by the digest of its bytes.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"` // sha256:HEX
}

// Hints are what a tool says of itself; policy decides what it is.
type Hints struct {
	ReadOnly    bool `json:"read_only"`
	Destructive bool `json:"destructive"`
	Idempotent  bool `json:"idempotent"`
	OpenWorld   bool `json:"open_world"`
}

// Tool is one locked tool, resource or prompt of a plugin. It is shared by concurrent calls and
// must not be changed.
type Tool struct {
	Kind, Name, Title, Description, URI string // Kind is tool, resource or prompt
	MIME                                string // of a resource, "" when it says so itself
	Plugin                              Plugin
	// TargetKinds are JSON names of Targets' fields, and "commands"
	Imports, TargetKinds []string
	// entries of the command grammar that its operations may run on a node, as its author ordered
	// them, or CallersText
	Commands                  []string
	Confirm                   string // name of the boolean confirmation argument, or ""
	Hints                     Hints
	InputSchema, OutputSchema json.RawMessage
	// guest and operations together; waiting for approval does not count
	Budget time.Duration
	Runs   string // one line: what it does on the node
	// Validate checks decoded arguments against the input schema, Derive finds what they act on, in
	// canonical form. Neither is nil in a usable tool.
	Validate func(args map[string]any) error
	Derive   func(args map[string]any) (Targets, []CommandText, error)
	// Texts makes arguments of what prompts and resources get, which is text. Match and Expand are
	// of a resource whose URI has arguments in it: the first reads a URI in the only way in which
	// it can be read, the second writes the URI of decided arguments. All three may be nil.
	Texts  func(map[string]string) map[string]any
	Match  func(uri string) (map[string]string, bool)
	Expand func(args map[string]any) string
	// ValidateOutput checks structured output; nil when the tool declares no output schema.
	ValidateOutput func(structured any) error
}

// CallersText among a tool's Commands is the text that its caller wrote for a node's shell,
// whatever the site allows in it.
const CallersText = "*"

// MayRun shows a tool's Commands to people, who have to see what [CallersText] means.
func MayRun(commands []string) []string {
	shown := slices.Clone(commands)
	for i, c := range shown {
		if c == CallersText {
			shown[i] = "* ANY COMMAND that the text of the call holds and the site allows"
		}
	}
	return shown
}

// CommandText is an argument that holds command text: for a node's shell, or for the shell inside a
// guest.
type CommandText struct {
	Arg, Text string
	Guest     bool
}

// Node is one entry of the inventory.
type Node struct {
	Name, Cluster, Host, User string
	Port                      int
	Default                   bool
}

// Targets are what a call acts on, each in its one canonical form, sorted, without repeats.
type Targets struct {
	Nodes      []string `json:"nodes"`
	VMIDs      []string `json:"vmids"`
	Services   []string `json:"services"`
	Hosts      []string `json:"hosts"`
	Paths      []string `json:"paths"`
	GuestPaths []string `json:"guest_paths"`
	LocalPaths []string `json:"local_paths"`
}

// Command is command text lowered to argv lists. Zero means not parsed, which policy refuses.
type Command struct {
	Form  string `json:"form"`  // argv | script
	Arg   string `json:"arg"`   // the argument it came from, "" in an operation
	Guest bool   `json:"guest"` // for the shell inside a guest, not for the node's
	Text  string `json:"text"`  // the argument as it was given, "" in an operation
	Lowered
	Nested   []Nested `json:"nested"`
	Rendered string   `json:"-"` // what is sent when it is allowed
}

// Lowered is command text as argv lists, in order. Joiners and what could not be lowered are
// Features.
type Lowered struct {
	Parsed   bool     `json:"parsed"`
	Error    string   `json:"error"` // why it was not parsed
	Features []string `json:"features"`
	Calls    []Simple `json:"calls"`
}

// Simple is one simple command. Static means that no word is expanded by any shell.
type Simple struct {
	Argv   []string `json:"argv"`
	Static bool     `json:"static"`
}

// Nested is command text found inside another command, such as the X of bash -c X.
type Nested struct {
	Depth    int   `json:"depth"`    // 1 to 3
	Position []int `json:"position"` // call and argv index in its parent
	Lowered
}

// Args are the arguments of a call as the one decoded value. JSON is what the plugin receives.
type Args struct {
	Value  map[string]any
	JSON   json.RawMessage
	Digest string // SHA-256 of JSON without the confirmation argument
	// top-level booleans, integers and strings of up to 256 bytes, for policy
	Scalars map[string]any
	Omitted []string // sorted: the names of all other arguments
}

// Confirmation is what stands behind a red call.
type Confirmation struct {
	State   string `json:"state"` // none | argument | approved | expired | mismatch
	By      string `json:"by"`
	Channel string `json:"channel"` // of an approval: cli | web | client
}

// Call is one tool call. Its fields are set before the first decision and fixed afterwards, except
// those that the door notes under its own lock.
type Call struct {
	ID, Source   string // stdio | http | cli
	Principal    Principal
	Tool         *Tool
	Args         Args
	Targets      Targets
	Clusters     []string // of the target nodes
	Commands     []Command
	Confirmation Confirmation
	// digests of the local files among its targets, as they were when it came
	Files   map[string]string
	Nodes   []Node   // the inventory
	Decided Decision // of the call itself, once it is allowed
	Stages  []StageDir
}

// StageDir is a directory on a node that belongs to one call.
type StageDir struct {
	Node string `json:"node"`
	Dir  string `json:"dir"`
}

// Facts are what was found out before a decision. Pointers are nil where nothing was looked up.
type Facts struct {
	Counts Counts
	File   *FileFacts
	Addrs  []Addr
}

// Counts of one principal include the question that is being decided. The seconds say when one call
// less will be counted: when to come back.
type Counts struct {
	Calls60s       int64 `json:"calls_60s"`
	ToolCalls60s   int64 `json:"tool_calls_60s"`
	TargetCalls60s int64 `json:"target_calls_60s"` // of the most called target
	CallsRetryS    int64 `json:"calls_retry_s"`
	ToolRetryS     int64 `json:"tool_retry_s"`
	TargetRetryS   int64 `json:"target_retry_s"`
	USDMicrosToday int64 `json:"usd_micros_today"`
}

// FileFacts describe a path on a node, and the local file of a transfer.
type FileFacts struct {
	// of the parent directory joined with the name when the file does not exist
	RealPath string `json:"real_path"`
	Exists   bool   `json:"exists"`
	// file dir symlink fifo socket device other, "" when it does not exist
	Type       string `json:"type"`
	Bytes      int64  `json:"bytes"`
	Mode       uint32 `json:"mode"` // permission bits
	LocalBytes int64  `json:"local_bytes"`
}

// Addr is a resolved address with the class that the host gives it.
type Addr struct {
	IP    string `json:"ip"`
	Class string `json:"class"`
}

// Mode is the state of the whole host, read at each decision.
type Mode struct {
	ReadOnly bool   `json:"read_only"`
	Frozen   bool   `json:"frozen"`
	Reason   string `json:"reason"` // of whoever froze it
}

// Question is what a Decider answers. It must not be kept or changed.
type Question struct {
	ID    string
	Kind  Kind
	Call  *Call
	Op    Op       // KindOperation only, as are the next three
	Node  *Node    // where the operation runs; nil when it runs on no node
	Cmd   *Command // of ssh_exec and ssh_script; Rendered is what is sent
	Phase Phase
	Facts Facts
	Mode  Mode
	Time  time.Time
	// Progress takes how far an operation is, for the client; it may be nil. It is no part of what
	// is decided.
	Progress func(done, total float64, message string)
}

// Reason is one thing that policy said against a question.
type Reason struct {
	ID  string `json:"id"`
	Msg string `json:"msg"`
}

// Obligations bind whoever executes an allowed question. Zero means no tighter than the host's own
// limits.
type Obligations struct {
	Timeout   time.Duration
	MaxBytes  int64
	Log       string
	Channels  []string // on which a person may confirm: cli | web | client
	Approvers []string // who may on the first two; "*" is everybody whom the host knows as one
}

// Decision is the answer to a Question. The zero Decision denies.
type Decision struct {
	Allow         bool
	Tier          Tier
	Failed        []string // ids of the checks that did not hold
	Denied        []Reason
	NeedsApproval bool // confirmation is the only thing missing
	Obligations   Obligations
	Revision      string
	Input         json.RawMessage // the policy input as decided, masked, for the journal
	Masked        bool            // something in Input was masked, so it cannot be decided again
	Shown         json.RawMessage // the call's arguments, masked, for a person who is to be asked
}

// Decider answers questions. It must be safe for concurrent use; an error is a refusal.
type Decider interface {
	Decide(context.Context, Question) (Decision, error)
}

// Journal keeps records. Intent must not return nil before the record is written, and on disk if
// durable is set. Outcome failing must make every later Intent fail until the record is written
// after all.
type Journal interface {
	Intent(ctx context.Context, r Record, durable bool) error
	Outcome(ctx context.Context, r Record) error
}

// Ledger counts. Take counts the call in before it is decided; giveBack undoes that and may be
// called once.
type Ledger interface {
	Take(ctx context.Context, c *Call) (counts Counts, giveBack func(), err error)
}

// Confirmer asks a person about a call that lacks only a confirmation, and says through progress
// that it does. It returns *Waiting when nobody has decided yet.
type Confirmer interface {
	Confirm(
		ctx context.Context,
		c *Call,
		d Decision,
		progress func(message string),
	) (Confirmation, error)
}

// Lowerer turns command text into argv lists. It must be pure.
type Lowerer interface {
	Script(text string) Command
	Argv(argv []string) Command
}

// Runner runs the plugin of an allowed call. Ready waits until that is possible, before the call's
// time begins. Run returns *BudgetError or *PluginError when the guest did not answer.
type Runner interface {
	Ready(ctx context.Context, t *Tool) error
	Run(ctx context.Context, r *Running) (Output, error)
}

// Executor does operations that were allowed. Lookup finds the facts of an operation whose lookup
// was allowed. End frees what belongs to the call and must return when ctx ends. All three must be
// safe for concurrent use. Errors are *OpError or ErrPending, or mean Failed.
type Executor interface {
	Lookup(ctx context.Context, q Question) (Facts, error)
	Execute(ctx context.Context, q Question, d Decision) (Result, error)
	End(ctx context.Context, c *Call)
}

// Result of an operation. Value is encoded as the response that the guest reads.
type Result struct {
	Value  any
	Bytes  int64 // moved or returned
	SHA256 string
	Exit   *int
	Stage  *StageDir // a directory that now belongs to the call
	// what this operation leads to, such as where a redirect points: an operation of its own, with
	// its own decisions
	Next Op
}

// Output is what a guest wrote. Code is the result of caponier_v1_call: 0 ok, 1 tool error, 2 bad
// input.
type Output struct {
	Code  int
	JSON  json.RawMessage
	Notes Notes
}

// Notes counts what a guest noted.
type Notes struct {
	Logs     int   `json:"logs"`
	Progress int   `json:"progress"`
	Dropped  int   `json:"dropped"`
	CPUTicks int64 `json:"cpu_ticks"`
}

// Record is one line of the journal. File bodies and outputs are never in it.
type Record struct {
	Type      string    `json:"type"` // intent | refused | outcome
	Time      time.Time `json:"time"`
	ID        string    `json:"decision_id"`
	CallID    string    `json:"call_id"`
	Kind      string    `json:"kind"` // call | operation | approval
	Op        string    `json:"op,omitempty"`
	Phase     string    `json:"phase,omitempty"`
	Principal string    `json:"principal"`
	Source    string    `json:"source,omitempty"`
	Plugin    Plugin    `json:"plugin"`
	Tool      string    `json:"tool"`
	Node      string    `json:"node,omitempty"`
	Tier      string    `json:"tier,omitempty"`
	Failed    []string  `json:"failed,omitempty"`
	Denied    []Reason  `json:"deny,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	// operations: the revision that decided their call
	CallRev    string          `json:"call_revision,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	Masked     bool            `json:"masked,omitempty"` // Input is not all that was decided on
	Outcome    Outcome         `json:"outcome,omitempty"`
	Code       string          `json:"code,omitempty"` // why it failed, a word
	Exit       *int            `json:"exit,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`
	SHA256     string          `json:"sha256,omitempty"`
	DurationUS int64           `json:"duration_us,omitempty"`
	// operations of the call that were refused
	Refused int      `json:"refused,omitempty"`
	Notes   *Notes   `json:"notes,omitempty"`
	Verdict *Verdict `json:"verdict,omitempty"` // approvals: what a person said
}

// Verdict is what a person says about a call that waits.
type Verdict struct {
	Request string `json:"request"` // its id
	Approve bool   `json:"approve"`
	By      string `json:"by"`
	Channel string `json:"channel"`
	Note    string `json:"note,omitempty"`
}
