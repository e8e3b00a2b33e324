# METADATA
# scope: package
# description: What each check that did not hold says, and what would satisfy it. Details are shown as data, never as text of the caller.
# schemas:
#   - input: schema.input
package caponier.core.reasons

import data.caponier.core.check

of(failed) := [{"id": id, "msg": concat("", [texts[id], detail(id)])} | some id in failed; texts[id]]

detail(id) := sprintf(" (%s)", [substring(regex.replace(check[id].why, `[^ -~]`, "?"), 0, 300)]) if {
	check[id].why != ""
} else := ""

texts := {
	"schema": "The question is not of a form that this policy knows; host and policy do not fit together.",
	"freeze": "The host is frozen: nothing runs until an operator thaws it.",
	"identity": "This principal is not known here or holds no role; it needs an entry under principals in the site's data.",
	"grant": "No role of this principal grants this tool with all its imports.",
	"known": "This tool has no tier in the site's data, so it is off.",
	"target": "A target that the tool declares is missing, or is not in its canonical form.",
	"protected": "This is protected by the site and stays refused, whatever is confirmed. Choose another target.",
	"node": "No role that grants this tool reaches this node.",
	"tier": "The risk tier is too high: black never runs, and no operation may be above its call or above the role's ceiling.",
	"readonly": "The host is in read-only mode: only green reads are allowed.",
	"command": "The command is refused. Use exact words from the command grammar, one simple command, no abbreviations.",
	"path": "A path is outside what the call and the site allow.",
	"file": "The file operation is refused.",
	"egress": "The site does not list this host, port, method or address for outgoing requests.",
	"arguments": "The arguments are too large.",
	"rate": "Too many calls in the last minute; wait and try again.",
	"budget": "The budget of the day is spent.",
	"confirmation": "A red call needs a confirmation by a person; ask for approval, then make the same call again.",
	"imports": "The tool does not declare this operation, or it was not asked for as its call allows.",
	"bound": "The operation reaches beyond what its call named. Make another call that names this target.",
	"limits": "The blob or question is larger than the site allows.",
	"site": "The site's own rules refuse it.",
}
