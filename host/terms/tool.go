package terms

import (
	"encoding/json"
	"time"
)

// Plugin names a module by the digest of its bytes.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"` // sha256:HEX
}

// Hints are what a tool claims to be. They grant nothing.
type Hints struct {
	ReadOnly    bool `json:"read_only"`
	Destructive bool `json:"destructive"`
	Idempotent  bool `json:"idempotent"`
	OpenWorld   bool `json:"open_world"`
}

// Tool is one locked tool, resource or prompt of a plugin. Concurrent calls share it; it must not
// be changed.
type Tool struct {
	Kind, Name, Title, Description, URI string // Kind is tool, resource, prompt or host
	MIME                                string // of a resource; "" if its content names it
	Plugin                              Plugin
	Imports                             []string // operations that it may ask for
	TargetKinds                         []string // JSON names of Targets' fields, and "commands"
	Commands                            []string // grammar entries that it may run, or CallersText
	Params                              []Param  // the input schema's properties, by name
	Confirm                             string   // the confirmation argument, or ""
	Hints                               Hints
	InputSchema, OutputSchema           json.RawMessage
	Budget                              time.Duration // of instance and operations together
	Runs, AliasOf                       string        // what it does; the tool that it repeats
	Plans                               bool          // its plugin knows the status planned

	// Validate checks decoded arguments against the input schema. Derive returns what they act on,
	// as far as this principal may know. Both are set in a usable tool.
	Validate func(args map[string]any) error
	Derive   func(who Principal, args map[string]any) (Targets, []CommandText, error)
	// Texts converts the arguments of prompts and resources, which are text. Match parses a URI of
	// a resource with arguments; Expand is its inverse. All three may be nil.
	Texts  func(map[string]string) map[string]any
	Match  func(uri string) (map[string]string, bool)
	Expand func(args map[string]any) string
	// ValidateOutput checks structured output. It is nil for a tool without output schema.
	ValidateOutput func(structured any) error
}

// Param is one argument of a tool, read once from its input schema. Fields that the schema does not
// have are zero.
type Param struct {
	Name, Title, Description string
	Type                     string // boolean integer number string array object; "" for several
	Items                    string // type of the items of an array
	Target                   string // x-caponier-target, of the argument or of its items
	Confirm, Required        bool
	Enum                     []string
	Pattern                  string
	Default                  any
	Min, Max                 *float64
	MaxLength                int // of a string, in characters; 0 for none
}

// CommandText is an argument that holds command text.
type CommandText struct {
	Arg, Text string
	Guest     bool // for the shell inside a guest
}

// CallersText among a tool's Commands is the text that its caller wrote for a node's shell.
const CallersText = "*"
