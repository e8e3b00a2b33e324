// Package reverse knows what takes the effect of a command or of a file operation back. It is the
// one table of that: plans print it, and undoing a call runs it.
package reverse

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/shell"
)

// Way is how an effect can be taken back. Exactly one of the fields is set, or none where nothing
// stays that would have to be taken back.
type Way struct {
	Argv   []string `json:"argv,omitempty"`   // the command on the step's node
	Remove string   `json:"remove,omitempty"` // the file that goes
	None   string   `json:"none,omitempty"`   // why nothing takes it back
	// guests that are rolled back to the snapshot that the host takes before the step
	Rollback []string `json:"rollback,omitempty"`
	Config   bool     `json:"config,omitempty"` // the values before, which the host reads first
	File     string   `json:"file,omitempty"`   // what is there, which the host keeps first
}

func (w Way) String() string {
	switch {
	case w.None != "":
		return "none: " + w.None
	case len(w.Rollback) > 0:
		return "roll back " + strings.Join(w.Rollback, ", ") + " to the snapshot that the host " +
			"takes first"
	case w.Remove != "":
		return "remove " + w.Remove
	case len(w.Argv) > 0:
		return strings.Join(Words(w.Argv), " ")
	case w.Config:
		return "set the values that the host reads first"
	case w.File != "":
		return "put back what is there, which the host keeps first"
	}
	return "not needed"
}

// Words quotes those words of a command that a shell would not leave as they are.
func Words(argv []string) []string {
	var words []string
	for _, w := range argv {
		if strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("-_./:=,@%+", r) && (r < '0' || r > '9') &&
				(r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) || w == "" {
			w = shell.Quote([]string{w})
		}
		words = append(words, w)
	}
	return words
}

// An entry makes the undoing command of the words that follow the command's own two.
type entry struct {
	command string // sub-command of the reverse
	keep    int    // how many of the operands it takes over
	none    string
	leaves  string // how what it changes is afterwards: the status, or a property of a unit
}

// guests are the commands that change a guest, by sub-command. pct(1), qm(1); qm takes the same
// words as pct here.
var guests = map[string]entry{
	"start":       {command: "shutdown", keep: 1, leaves: "running"},
	"stop":        {command: "start", keep: 1, leaves: "stopped"},
	"shutdown":    {command: "start", keep: 1, leaves: "stopped"},
	"reboot":      {none: "the guest has restarted, and what it had in memory is gone"},
	"reset":       {none: "the guest has restarted, and what it had in memory is gone"},
	"snapshot":    {command: "delsnapshot", keep: 2},
	"delsnapshot": {none: "a snapshot that is deleted cannot be made again"},
	"rollback":    {none: "what changed since the snapshot is gone; take one before"},
	"clone":       {none: "the new guest stays; deleting it is a call of its own"},
	"create":      {none: "the new guest stays; deleting it is a call of its own"},
	"destroy":     {none: "the guest and its disks are gone; restore a backup"},
	"set":         {command: "set", keep: 1}, // with the values before
	"resize":      {none: "a disk cannot be made smaller"},
	"migrate":     {none: "migrating back is a call of its own"},
	"exec":        {none: "what a command in a guest does is not known"},
	"push":        {none: "what was at the destination in the guest is gone"},
	"pull":        {},
	"template":    {none: "a template cannot become a guest again"},
}

// services are those of systemctl(1).
var services = map[string]entry{
	"start":        {command: "stop", keep: 1, leaves: "ActiveState=active"},
	"stop":         {command: "start", keep: 1, leaves: "ActiveState=inactive"},
	"restart":      {none: "the service has restarted, and what it had in memory is gone"},
	"reload":       {none: "the service has read its configuration again"},
	"enable":       {command: "disable", keep: 1, leaves: "UnitFileState=enabled"},
	"disable":      {command: "enable", keep: 1, leaves: "UnitFileState=disabled"},
	"reset-failed": {none: "the record of the failure is gone"},
}

var programs = map[string]map[string]entry{"pct": guests, "qm": guests, "systemctl": services}

// Command returns how to undo a command. Kept is true if the host reads the old values first.
func Command(argv []string, kept bool) Way {
	unknown := Way{None: "no reverse of this command is known"}
	if len(argv) < 2 {
		return unknown
	}
	e, known := programs[argv[0]][argv[1]]
	operands := operands(argv)
	switch {
	case !known, len(operands) > 0 && strings.HasPrefix(operands[0], "-"):
		return unknown
	case e.command == "":
		return Way{None: e.none}
	case e.command == "set" && !kept:
		return Way{None: "the values before are in the guest's configuration as it was read"}
	case e.command == "set":
		return Way{Config: true}
	case len(operands) < e.keep || argv[0] == "systemctl" && len(operands) != 1:
		return unknown
	}
	return Way{Argv: slices.Concat([]string{argv[0], e.command}, operands[:e.keep])}
}

// Leaves returns the status of what a command changes after its success, where that is known from
// the status before, or "".
func Leaves(argv []string, was string) string {
	leaves := programs[argv[0]][argv[1]].leaves
	name, _, unit := strings.Cut(leaves, "=")
	if !unit {
		return leaves
	}
	words := strings.Fields(was)
	for i, w := range words {
		if strings.HasPrefix(w, name+"=") {
			words[i] = leaves
		}
	}
	return strings.Join(words, " ")
}

func operands(argv []string) []string {
	return slices.DeleteFunc(slices.Clone(argv[2:]), func(w string) bool { return w == "--" })
}

// File returns how to undo an operation on a file. Exists is true if the path exists, and Kept if
// the host first keeps a copy of the file.
func File(action, path string, exists, kept bool) Way {
	switch {
	case action == "stage" || action == "get":
		return Way{}
	case action != "remove" && !exists:
		return Way{Remove: path}
	case kept:
		return Way{File: path}
	case action == "remove":
		return Way{None: "the file is gone"}
	}
	return Way{None: fmt.Sprintf("what %s holds now is replaced", shell.Quote([]string{path}))}
}

// About names what a command of the table changes, as guest:101 or unit:nginx.service, or "".
func About(argv []string) string {
	if len(argv) < 3 {
		return ""
	}
	rest := operands(argv)
	if _, known := programs[argv[0]][argv[1]]; !known || len(rest) == 0 ||
		strings.HasPrefix(rest[0], "-") {
		return ""
	}
	if argv[0] != "systemctl" {
		return "guest:" + rest[0]
	}
	if !strings.Contains(rest[0], ".") {
		rest[0] += ".service"
	}
	return "unit:" + rest[0]
}

var option = regexp.MustCompile(`^--?([a-z][a-z0-9_]*)(=(.*))?$`)

// hidden are options whose values Proxmox does not show unchanged, or that are not values of the
// configuration.
var hidden = []string{"cipassword", "sshkeys", "password", "revert", "digest", "force", "skiplock"}

// Config returns the command that sets a guest's values back: those that "pct set" or "qm set"
// changed, as they were.
func Config(argv []string, was map[string]string) ([]string, error) {
	back, gone := slices.Clone(argv[:3]), []string{}
	for i := 3; i < len(argv); i++ {
		m := option.FindStringSubmatch(argv[i])
		if m == nil {
			return nil, fmt.Errorf("%q is no option with a value", argv[i])
		}
		name, value := m[1], m[3]
		if m[2] == "" {
			if i++; i == len(argv) {
				return nil, fmt.Errorf("option %s has no value", name)
			}
			value = argv[i]
		}
		names := []string{name}
		if name == "delete" {
			names = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		}
		for _, n := range names {
			old, set := was[n]
			switch {
			case slices.Contains(hidden, n):
				return nil, fmt.Errorf("what %s was is not known", n)
			case set:
				back = append(back, "--"+n, old)
			default:
				gone = append(gone, n)
			}
		}
	}
	if len(gone) > 0 {
		back = append(back, "--delete", strings.Join(gone, ","))
	}
	if len(back) == 3 {
		return nil, fmt.Errorf("it set no values")
	}
	return back, nil
}
