package pve

import (
	"strings"

	"github.com/caponier-mcp/caponier/sdk"
)

// texts lists what Proxmox prints, in lower case, with its code and suggestion. Exit codes above 0
// mean nothing: the same error came with 2, 11, 25 and 255. The first text that matches wins.
var texts = []struct{ code, text, suggestion string }{
	{
		"no_quorum",
		"no quorum",
		"The cluster has no quorum: reads work, changes do not, until more nodes are up. See " +
			"get_cluster_status.",
	},
	{
		"no_quorum",
		".conf.tmp.",
		"The cluster's configuration cannot be written; most often the cluster has no " +
			"quorum. See " +
			"get_cluster_status.",
	},
	{
		"not_found",
		"configuration file '",
		"List what there is with list_guests or proxmox_list_containers.",
	},
	{
		"not_running",
		"can only push files to a running ct",
		"Start the container first (proxmox_start_container).",
	},
	{
		"not_running",
		"can only pull files from a running vm",
		"Start the container first (proxmox_start_container).",
	},
	{"not_running", " not running", "Start it first."},
	{"already_running", " already running", "Nothing needs to be done."},
	{
		"locked",
		"can't lock file",
		"Another task holds the guest's lock file: wait until it ends (get_recent_tasks), then " +
			"try again.",
	},
	{
		"locked",
		" is locked (",
		"A task such as a backup holds the guest: wait until it ends (get_recent_tasks). Locks " +
			"are not overridden here.",
	},
	{
		"protected",
		"protection mode enabled",
		"The guest is protected in Proxmox (protection: 1). A person has to remove that first.",
	},
	{"template", "if it's a template", "A template cannot be started: clone it first."},
	{"running", "container is running", "Stop it first."},
	{"running", " is running - destroy failed", "Stop it first."},
	{"exists", "' already used", "Choose another snapshot name, or delete the old snapshot first."},
	{"not_found", "snapshot '", "Check the name. To list the snapshots of the " +
		"guest, run pct listsnapshot VMID or qm listsnapshot VMID with execute_ssh."},
	{
		"unsupported",
		"snapshot feature is not available",
		"The storage of this guest has no snapshots: use a backup instead.",
	},
	{"bad_parameter", "reserved name", "Choose another snapshot name."},
	{"not_found", "no such cluster node", "See list_nodes for the names."},
	{"not_found", "hostname lookup '", "See list_nodes for the names."},
	{"not_found", "storage '", "See get_storage for the names."},
	{"not_found", "no such storage", "See get_storage for the names."},
	{
		"not_found",
		"volume '",
		"The guest's configuration names a volume that does not exist: a person has to repair it.",
	},
	{
		"timeout",
		"container did not stop",
		"It ignored the shutdown: try again with force, or with a longer timeout.",
	},
	{"timeout", "got timeout", "The node is busy: try again later."},
	{
		"no_mac",
		"no wake on lan mac address",
		"Set it first, on a node that is up: pvenode config set --wakeonlan mac=… for the " +
			"sleeping node.",
	},
	{"bad_parameter", "cannot wake my self", "Wake a node from another one."},
	{"bad_parameter", "400 ", "Check the arguments against the tool's description."},
	{
		"bad_parameter",
		"handler defined for",
		"The node's Proxmox does not have this call: check its version with pveversion.",
	},
	{"permission", "please run as root", "Caponier must log in to Proxmox nodes as root."},
	{"permission", "ipcc_send_rec", "Caponier must log in to Proxmox nodes as root."},
	{"unreachable", "no route to host", "The other node does not answer: see get_cluster_status."},
	{
		"unreachable",
		"connection refused",
		"The other node does not answer: see get_cluster_status.",
	},
	{
		"unreachable",
		"connection timed out",
		"The other node does not answer: see get_cluster_status.",
	},
	{"disk_full", "no space left", "Free space where the file should go, then try again."},
	{"bad_parameter", "invalid mode", "Permissions are three or four octal digits, such as 644."},
	{"bad_parameter", "failed to get uid", "The user must exist in the container."},
	{"bad_parameter", "is a directory", "Give the path of a file."},
	{"not_found", "no such file or directory", "Check the path, and that its directory exists."},
	{"failed", "", "See the message; get_recent_tasks shows the log of the last tasks."},
}

// Code classifies what a Proxmox command printed to stderr.
func Code(stderr string) string {
	code, _ := classify(stderr)
	return code
}

func classify(stderr string) (code, suggestion string) {
	low := strings.ToLower(stderr)
	for _, t := range texts {
		if strings.Contains(low, t.text) {
			return t.code, t.suggestion
		}
	}
	return "failed", ""
}

// Fail returns the error of a command that failed, classified by its output. Doing says what was
// tried, with the guest and the node.
func Fail(doing string, r sdk.ExecResult) *sdk.Error {
	text := Complaint(r)
	if text == "" {
		text = string(r.Stdout)
	}
	return FailText(doing, text)
}

// FailText is Fail for a text that is not the output of a command, such as the status of a task.
func FailText(doing, text string) *sdk.Error {
	code, suggestion := classify(text)
	return &sdk.Error{Code: code, Message: doing + ": " + say(text), Suggestion: suggestion}
}

// Complaint returns the stderr of a command without the warnings of Perl, which many nodes print
// for every command: that a locale is not installed, and uninitialized values.
func Complaint(r sdk.ExecResult) string {
	var kept strings.Builder
	locale := false
	for line := range strings.Lines(string(r.Stderr)) {
		switch {
		case strings.HasPrefix(line, "perl: warning: "):
			locale = !strings.HasPrefix(line, "perl: warning: Falling back")
		case locale && (line[0] == ' ' || line[0] == '\t'):
		case strings.HasPrefix(line, "Use of uninitialized value"), strings.TrimSpace(line) == "":
		default:
			locale = false
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// say returns the informative lines of an error, at most 500 bytes, without usage texts, prefixes
// of the proxy and repetitions.
func say(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.ReplaceAll(line, "proxy handler failed: ", ""))
		usage := strings.Contains(line, "[OPTIONS]") || strings.HasPrefix(line, "USAGE")
		if line == "" || usage || len(lines) > 0 && lines[len(lines)-1] == line {
			continue
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "it failed without a message"
	}
	s := strings.Join(lines, "; ")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + " …"
	}
	return s
}
