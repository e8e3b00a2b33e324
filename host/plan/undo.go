package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/shell"
)

// reversal says how the effect of a step can be taken back. Exactly one of the fields is set, or
// none where nothing stays that would have to be taken back.
type reversal struct {
	Argv   []string `json:"argv,omitempty"`   // the command on the step's node
	Remove string   `json:"remove,omitempty"` // the file that goes
	None   string   `json:"none,omitempty"`   // why nothing takes it back
	// guests that are rolled back to the snapshot that the host takes before the step
	Rollback []string `json:"rollback,omitempty"`
}

func (u reversal) String() string {
	switch {
	case u.None != "":
		return "none: " + u.None
	case len(u.Rollback) > 0:
		return "roll back " + strings.Join(u.Rollback, ", ") + " to the snapshot that the host " +
			"takes first"
	case u.Remove != "":
		return "remove " + u.Remove
	case len(u.Argv) > 0:
		return strings.Join(unquoted(u.Argv), " ")
	}
	return "not needed"
}

// A reverse makes the undoing command of the words that follow the command's own two.
type reverse struct {
	command []string // program and sub-command of the reverse
	keep    int      // how many of the operands it takes over
	none    string
}

// reverses are the commands of the shipped tools that change something, by program and sub-command.
// pct(1), qm(1), systemctl(1). qm takes the same words as pct here.
var reverses = map[string]reverse{
	"start":       {command: []string{"shutdown"}, keep: 1},
	"stop":        {command: []string{"start"}, keep: 1},
	"shutdown":    {command: []string{"start"}, keep: 1},
	"reboot":      {none: "the guest has restarted, and what it had in memory is gone"},
	"reset":       {none: "the guest has restarted, and what it had in memory is gone"},
	"suspend":     {command: []string{"resume"}, keep: 1},
	"resume":      {command: []string{"suspend"}, keep: 1},
	"snapshot":    {command: []string{"delsnapshot"}, keep: 2},
	"delsnapshot": {none: "a snapshot that is deleted cannot be made again"},
	"rollback":    {none: "what changed since the snapshot is gone; take one before"},
	"clone":       {none: "the new guest stays; deleting it is a call of its own"},
	"create":      {none: "the new guest stays; deleting it is a call of its own"},
	"destroy":     {none: "the guest and its disks are gone; restore a backup"},
	"set":         {none: "the values before are in the guest's configuration as it was read"},
	"resize":      {none: "a disk cannot be made smaller"},
	"migrate":     {none: "migrating back is a call of its own"},
	"exec":        {none: "what a command in a guest does is not known"},
	"push":        {none: "what was at the destination in the guest is gone"},
	"pull":        {},
	"template":    {none: "a template cannot become a guest again"},
}

var services = map[string]reverse{
	"start":        {command: []string{"stop"}, keep: 1},
	"stop":         {command: []string{"start"}, keep: 1},
	"restart":      {none: "the service has restarted, and what it had in memory is gone"},
	"reload":       {none: "the service has read its configuration again"},
	"enable":       {command: []string{"disable"}, keep: 1},
	"disable":      {command: []string{"enable"}, keep: 1},
	"reset-failed": {none: "the record of the failure is gone"},
}

// undo says how a step is taken back; rollback are the guests of which the host has a snapshot.
func undo(s *step, rollback []string) reversal {
	switch {
	case len(rollback) > 0:
		return reversal{Rollback: rollback}
	case s.File != nil:
		return undoFile(s)
	case s.HTTP != nil:
		return reversal{None: "what a server does with a request is not known"}
	case s.Blob != nil:
		return reversal{}
	case s.Command == nil || len(s.Command.Calls) != 1:
		return reversal{None: "several commands at once have no reverse that is known"}
	}
	return undoCommand(s.Command.Calls[0].Argv)
}

func undoCommand(argv []string) reversal {
	unknown := reversal{None: "no reverse of this command is known"}
	if len(argv) < 2 {
		return unknown
	}
	table := map[string]map[string]reverse{"pct": reverses, "qm": reverses,
		"systemctl": services}[argv[0]]
	r, known := table[argv[1]]
	switch {
	case !known:
		return unknown
	case r.none != "" || r.command == nil:
		return reversal{None: r.none}
	}
	operands := slices.DeleteFunc(slices.Clone(argv[2:]), func(w string) bool { return w == "--" })
	if len(operands) < r.keep {
		return unknown
	}
	return reversal{Argv: slices.Concat(argv[:1], r.command, operands[:r.keep])}
}

func undoFile(s *step) reversal {
	switch f := s.File; {
	case f.Action == "stage" || f.Action == "get":
		return reversal{}
	case f.Action == "remove":
		return reversal{None: "the file is gone"}
	case f.Exists != nil && *f.Exists:
		return reversal{None: fmt.Sprintf("what %s holds now is replaced",
			shell.Quote([]string{f.Path}))}
	default:
		return reversal{Remove: f.Path}
	}
}
