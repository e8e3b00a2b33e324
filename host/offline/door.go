package offline

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Options of a Door. Answers and Runner must be set.
type Options struct {
	Answers *Answers
	Runner  gate.Runner
	// Tiers of the entries of the command grammar. A command that is green needs an answer in a
	// plan too; any other without one is planned.
	Tiers map[string]terms.Tier
}

// Door is a gate.Door that allows what a tool declares, and whose executors answer from a file. It
// is safe for concurrent use; what a call changes is gone when any call ends.
type Door struct {
	*gate.Door
	o Options

	mu    sync.Mutex // guards the following
	asked []Asked
	*world
}

// Asked is an operation that a tool asked for.
type Asked struct {
	Op      string   `json:"op"`
	Node    string   `json:"node,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	Script  string   `json:"script,omitempty"`
	Path    string   `json:"path,omitempty"`
	Local   string   `json:"local,omitempty"`
	Method  string   `json:"method,omitempty"`
	URL     string   `json:"url,omitempty"`
	Key     string   `json:"key,omitempty"`
	Message string   `json:"message,omitempty"`
	State   string   `json:"state"` // answered, no_answer, planned or refused

	of abi.File
}

// States of an operation that was asked for.
const (
	answered = "answered"
	noAnswer = "no_answer"
	planned  = "planned"
	refused  = "refused"
)

// Describe says what an operation asks for.
func Describe(op abi.Op) Asked {
	a := Asked{Op: op.Import(), Node: op.NodeName()}
	switch op := op.(type) {
	case abi.SSHExec:
		a.Argv = op.Argv
	case abi.SSHScript:
		a.Script = op.Script
	case abi.FileOp:
		a.of = op.File()
		if a.Path = a.of.Path; a.of.Local != nil {
			a.Local = *a.of.Local
		}
	case abi.HTTPRequest:
		a.Method, a.URL = op.Method, op.URL
	case abi.BlobWrite:
		a.Path = op.Name
	case abi.BlobRead:
		a.Path, a.Local = op.Blob, op.Local
	case abi.Ask:
		a.Key, a.Message = op.Key, op.Message
	}
	return a
}

// String says in one line what was asked for.
func (a Asked) String() string {
	at := ""
	if a.Node != "" {
		at = " on " + a.Node
	}
	what := ""
	switch {
	case a.Argv != nil:
		what = shell.Quote(a.Argv)
	case a.Script != "":
		what = fmt.Sprintf("%q", a.Script)
	case a.URL != "":
		what = a.Method + " " + a.URL
	case a.Key != "":
		what = fmt.Sprintf("key %q: %s", a.Key, a.Message)
	case a.Local != "":
		what = fmt.Sprintf("%s, %s of the workspace", a.Path, a.Local)
	default:
		what = a.Path
	}
	return strings.TrimSpace(a.Op+at) + ": " + what
}

// world is what a call sees and changes.
type world struct {
	given  *Answers
	files  map[string]File // by key
	local  map[string][]byte
	blobs  map[string][]byte
	ran    map[int]int // how often a command ran, by its index
	stages int
}

func newWorld(a *Answers) *world {
	w := &world{given: a, files: map[string]File{}, local: maps.Clone(a.Local),
		blobs: map[string][]byte{}, ran: map[int]int{}}
	if w.local == nil {
		w.local = map[string][]byte{}
	}
	for _, f := range a.Files {
		w.files[f.key()] = f
	}
	return w
}
