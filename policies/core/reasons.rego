# METADATA
# scope: package
# description: What each check that did not hold says, and what would satisfy it. Details are shown as data, never as text of the caller.
# schemas:
#   - input: schema.input
package caponier.core.reasons

import data.caponier.core.check

of(failed) := [{"id": id, "msg": concat("", [texts[id], detail(id)])} | some id in failed; texts[id]]

detail(id) := sprintf(" (%s)", [substring(regex.replace(check[id].why, `[^ -~]`, "?"), 0, 300)]) if {
	is_string(check[id].why)
	check[id].why != ""
} else := ""

texts := {
	"schema": "The question is not of a form that this policy knows; host and policy do not fit together.",
	"freeze": "The host is frozen: nothing runs until an operator thaws it. Ask the operator.",
	"identity": "This principal is not known here or holds no role; it needs an entry under principals in the site's data.",
	"grant": "No role of this principal grants this tool with all its imports.",
	"known": "This tool has no tier in the site's data, so it is off.",
	"target": "A target that the tool declares is missing, or is not in its canonical form.",
	"protected": "This is protected by the site and stays refused, whatever is confirmed. Choose another target.",
	"role": "No single role of this principal grants tool, node, tier and command together.",
	"node": "No role that grants this tool reaches this node, or the name is of no node that is known here.",
	"tier": "The risk tier is too high: black never runs, and no operation may be above its call.",
	"ceiling": "No role that grants this tool goes as high as this tier.",
	"readonly": "The host is in read-only mode: only green reads are allowed.",
	"command": "The command is refused. Use exact words from the command grammar, one simple command, no abbreviations.",
	"path": "A path is outside what the call and the site allow.",
	"file": "The file operation is refused.",
	"egress": "The site does not list this host, port, method or address for outgoing requests.",
	"arguments": "The arguments are too large.",
	"rate": "Too many calls in the last minute; wait, then make the same call again.",
	"budget": "The budget of the day is spent.",
	"confirmation": "A red call needs a confirmation by a person; ask for approval, then make the same call again.",
	"imports": "The tool does not declare this operation, or it was not asked for as its call allows.",
	"declared": "The tool does not declare this command, so nobody agreed that it runs it. Its author declares it in the tool's description; then lock the plugin again and review that.",
	"bound": "The operation reaches beyond what its call named. Make another call that names this target.",
	"limits": "The blob or question is larger than the site allows.",
	"site": "The site's own rules refuse it.",
}

# What would satisfy each check, for whoever explains a decision: the change, and where it belongs.
remedies := {
	"schema": "Use a host and a policy of the same version.",
	"freeze": "caponier thaw, by an operator.",
	"identity": "In the site's data: principals/ID with the way it authenticates under auth and at least one role that exists.",
	"grant": "In the site's data: a role of this principal whose tools and imports hold all that the tool declares.",
	"known": "In the site's data: tiers/KIND:NAME.",
	"target": "Name each target that the tool declares, in its canonical form.",
	"protected": "Nothing in the call. The site may take the entry out of protected, or let reads pass with reads: allow.",
	"role": "In the site's data: one role with the tool, the node, the ceiling and the command's group or entry.",
	"node": "In the site's data: roles/NAME/nodes; for a node outside the inventory, cluster_nodes.",
	"tier": "For an operation: a higher tier for its tool, in the site's data. Black has no remedy.",
	"ceiling": "In the site's data: roles/NAME/ceiling.",
	"readonly": "Switch read-only mode off.",
	"command": "Exact words of the grammar, and in the site's data roles/NAME/commands with the entry or its group; a new program under binaries.",
	"path": "In the site's data: files/read or files/write; for staged and guest paths, a call that names them.",
	"file": "In the site's data: files; in the call, the path and overwrite.",
	"egress": "In the site's data: egress/HOST with this scheme, port, method and address class.",
	"arguments": "Smaller arguments, or limits/argument_bytes.",
	"rate": "Wait, or limits/calls_per_minute, limits/tool_calls_per_minute and limits/target_calls_per_minute.",
	"budget": "Wait for tomorrow, or limits/usd_micros_per_day.",
	"confirmation": "A person's approval of exactly this call, on one of approval/channels; approval/argument decides whether the tool's own argument is enough.",
	"imports": "The tool must declare the operation, which is a new lock entry to review.",
	"declared": "The tool's description must declare the command under commands (Hints.Commands), which is a new lock entry to review; a text of the caller's is run as it was decided, whole.",
	"bound": "A call that names this guest, node or service.",
	"limits": "limits/blob_bytes or limits/ask_bytes.",
	"site": "The site's own rules: the deny entries name them.",
}
