# METADATA
# scope: package
# description: >-
#   Mistakes in a site's data that its schema cannot find. The host refuses to load data with
#   problems; plain opa can list them too.
# schemas:
#   - data.site: schema.site
package caponier.core.lint

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.operations.table
import data.caponier.core.result
import data.caponier.core.tier

grammar := data.core.grammar

# entries are all commands of the core grammar: "pct start" -> {group, tier, …}.
entries[id] := entry if {
	some binary, subs in grammar.commands
	some sub, entry in subs
	not entry.api
	id := trim_space(concat(" ", [binary, sub]))
}

entries[id] := entry if {
	some binary, subs in grammar.commands
	some sub, method in subs
	some path, entry in method.paths
	id := concat(" ", [binary, sub, path])
}

# owned are the entries of the programs that the site describes.
owned[id] := entry if {
	some binary, subs in data.site.binaries
	some sub, entry in subs
	id := trim_space(concat(" ", [binary, sub]))
}

own := {id | some id, _ in owned}

groups := {e.group | some e in entries} | {e.group | some e in owned}

# commands are the groups of all entries, by program.
commands[binary][id] := entry.group if {
	some id, entry in object.union(entries, owned)
	binary := split(id, " ")[0]
}

# needed are the keys whose absence would allow more, each with the line to add.
needed := {
	"protected/nodes": "nodes: {}", "protected/vmids": "vmids: {}", "protected/hosts": "hosts: {}",
	"protected/services": "services: []", "commands": "commands: {}",
	"approval/argument": "argument: false", "approval/channels": "channels: [cli, web]",
	"approval/approvers": "approvers: [\"*\"]",
	"limits/argument_bytes": "argument_bytes: 1048576",
	"limits/calls_per_minute": "calls_per_minute: 120",
	"limits/tool_calls_per_minute": "tool_calls_per_minute: 120",
	"limits/target_calls_per_minute": "target_calls_per_minute: 60",
	"limits/usd_micros_per_day": "usd_micros_per_day: 0",
	"limits/blob_bytes": "blob_bytes: 10485760", "limits/ask_bytes": "ask_bytes: 8192",
	"limits/timeout_ms": "timeout_ms: 0", "limits/output_bytes": "output_bytes: 0",
	"redact": "redact: [password, token, secret, api_key]",
}

missing contains key if {
	some key, _ in needed
	not there(key)
}

there(key) if object.get(data.site, split(key, "/"), null) != null

problems contains problem if {
	some key in missing
	problem := sprintf(
		concat("", [
			"%s: is missing, and no key is taken for granted; add %q, or what the site ",
			"wants",
		]),
		[key, needed[key]],
	)
}

problems contains problem if {
	data.site.snapshot
	not data.site.snapshot.tier
	object.get(data.site.snapshot, "tools", []) == []
	problem := concat(" ", [
		"snapshot: names neither a tier nor tools, so no snapshot would be taken;",
		"add \"tier: red\", or what the site wants, or leave the key out",
	])
}

# Each detector has an action, so that none is lost with a key.
problems contains problem if {
	some name in detectors
	not data.site.results.actions[name]
	problem := sprintf(
		"results/actions/%s: is missing, and no key is taken for granted; add \"%s: mask\"",
		[name, name],
	)
}

problems contains sprintf("results/actions/%s: there is no detector %q", [name, name]) if {
	some name, _ in data.site.results.actions
	not name in detectors
}

detectors := {name |
	data.site.results
	some all in [result.builtin, data.site.results.detectors]
	some name, _ in all
}

problems contains problem if {
	some key, needs in data.site.approval.needs
	not regex.is_valid(needs.ticket)
	problem := sprintf("approval/needs/%s/ticket: %q is no regular expression (RE2)", [
		key, needs.ticket,
	])
}

problems contains problem if {
	some key, needs in data.site.approval.needs
	not "*" in data.site.approval.approvers
	needs.approvers > count({lower(name) | some name in data.site.approval.approvers})
	problem := sprintf(
		"approval/needs/%s/approvers: %d are needed, and approval/approvers names %d",
		[key, needs.approvers, count(data.site.approval.approvers)],
	)
}

# An invalid pattern would be an error in every decision.
problems contains problem if {
	some section in ["protected", "raised"]
	some pattern, _ in data.site[section].names
	not regex.is_valid(sprintf("^(?:%s)$", [pattern]))
	problem := sprintf("%s/names: %q is no regular expression (RE2)", [section, pattern])
}

problems contains sprintf("principals/%s/roles: there is no role %q", [id, name]) if {
	some id, p in data.site.principals
	some name in p.roles
	not data.site.roles[name]
}

problems contains sprintf("snapshot/seers: there is no role %q", [name]) if {
	some name in data.site.snapshot.seers
	not data.site.roles[name]
}

problems contains "principals/host: is the host itself, to which core grants what it does" if {
	data.site.principals.host
}

problems contains sprintf("claimable_roles: there is no role %q", [name]) if {
	some name in data.site.claimable_roles
	not data.site.roles[name]
}

# Roles name tools by kind. A name without one is a tool, so it must not be that of something else.
problems contains sprintf("roles/%s/tools: %q is no tool; write %q", [name, bare, key]) if {
	some name, role in data.site.roles
	some bare in role.tools
	not data.site.tiers[concat("", ["tool:", bare])]
	some kind in ["resource", "prompt"]
	key := concat(":", [kind, bare])
	data.site.tiers[key]
}

problems contains problem if {
	some name, role in data.site.roles
	some key in role.tools
	contains(key, ":")
	not regex.match(`^(tool|resource|prompt):.*$`, key)
	base := split(key, ":")[1]
	problem := sprintf(
		"roles/%s/tools: %q names no kind; write tool:%s, resource:%s or prompt:%s",
		[name, key, base, base, base],
	)
}

problems contains problem if {
	some name, role in data.site.roles
	some c in role.commands
	not c in (({"*"} | groups) | own)
	not entries[c]
	problem := sprintf(
		"roles/%s/commands: %q is neither a group nor an entry of the command grammar",
		[name, c],
	)
}

problems contains sprintf("roles/%s/imports: there is no operation %q", [name, i]) if {
	some name, role in data.site.roles
	some i in role.imports
	not i in operations
}

problems contains problem if {
	some id, _ in data.site.commands
	not entries[id]
	not id in (own | groups)
	problem := sprintf(
		"commands/%s: is neither a group nor an entry of the grammar or of binaries",
		[id],
	)
}

problems contains problem if {
	some id, c in data.site.commands
	tier.ranks[c.tier] < tier.ranks[entries[id].tier]
	problem := sprintf(
		"commands/%s/tier: %s is lower than %s, which the grammar gives it; %s",
		[id, c.tier, entries[id].tier, "a site can only raise it"],
	)
}

problems contains problem if {
	some group, c in data.site.commands
	group in groups
	tier.ranks[c.tier] < min(ranks_in(group))
	problem := sprintf(
		"commands/%s/tier: %s is lower than anything in this group; %s",
		[group, c.tier, "a site can only raise it"],
	)
}

ranks_in(group) := {tier.ranks[e.tier] | some e in entries; e.group == group} | {r |
	some e in owned
	e.group == group
	r := tier.ranks[e.tier]
}

# Several entries can have the same effect, such as "pct start" and "pvesh create …/status/start".
# If only one is raised, the others bypass it.
problems contains problem if {
	some id, c in data.site.commands
	count({other | some other, e in entries; e.group == entries[id].group}) > 1
	not data.site.commands[entries[id].group]
	tier.ranks[c.tier] > tier.ranks[entries[id].tier]
	problem := sprintf(
		"commands/%s: raises one of several ways to the same effect; raise group %s, %s",
		[id, entries[id].group, "and single entries above it where they should be higher"],
	)
}

problems contains problem if {
	some id, c in data.site.commands
	whole := data.site.commands[entries[id].group]
	tier.ranks[c.tier] <= tier.ranks[whole.tier]
	problem := sprintf(
		"commands/%s/tier: %s is not above %s, which its whole group %s has",
		[id, c.tier, whole.tier, entries[id].group],
	)
}

problems contains problem if {
	some id in own
	id in groups
	problem := sprintf(
		concat("", [
			"binaries/%s: %q is the name of a group, so a role that is granted the group ",
			"could run it",
		]),
		[split(id, " ")[0], id],
	)
}

problems contains problem if {
	some binary, subs in data.site.binaries
	some sub, _ in subs
	redescribed(binary, sub)
	problem := sprintf(
		"binaries/%s/%s: is described by the core grammar and cannot be described again",
		[binary, sub],
	)
}

# A site may add sub-commands to a program of the grammar, but none that the program could confuse
# with one of the grammar: pct and ip complete abbreviations, and options and operands are not
# sub-commands.
redescribed(binary, sub) if {
	some known, _ in grammar.commands[binary]
	startswith(known, sub)
}

redescribed(binary, sub) if {
	grammar.commands[binary]
	not regex.match(`^[A-Za-z]`, sub)
}

# A program without sub-commands would read one as an operand: "reboot now" is a reboot.
redescribed(binary, _) if object.keys(grammar.commands[binary]) == {""}

redescribed(binary, _) if count(grammar.commands[binary][""].operands) > 0

problems contains problem if {
	some binary, _ in data.site.binaries
	some name in {binary, regex.replace(binary, `[0-9.]+$`, "")} # python3.13 is python
	name in grammar.wrappers
	problem := sprintf(
		"binaries/%s: runs other programs or text, which policy could not see",
		[binary],
	)
}

problems contains problem if {
	some binary, _ in data.site.binaries
	not regex.match(`^[A-Za-z0-9][A-Za-z0-9_.+-]*$`, binary)
	problem := sprintf("binaries/%s: name the program by one word without a folder", [binary])
}

problems contains problem if {
	some binary, subs in data.site.binaries
	some sub, _ in subs
	not regex.match(`^([A-Za-z0-9-][A-Za-z0-9_.:-]*)?$`, sub)
	problem := sprintf(
		"binaries/%s/%q: a sub-command is one word, or empty for none",
		[binary, sub],
	)
}

problems contains sprintf("binaries/%s/%s: there is no kind of word %q", [binary, sub, kind]) if {
	some binary, subs in data.site.binaries
	some sub, entry in subs
	some kind in kinds_of(entry)
	not grammar.kinds[kind]
}

kinds_of(entry) := {trim_right(k, "?*") | some k in entry.operands; is_string(k)} | {k |
	some k in entry.options
	is_string(k)
	k != "flag"
}

features := ["pipe", "and", "or", "sequence", "discard", "merge"]

problems contains problem if {
	some f in data.site.shell_features
	not f in features
	problem := sprintf("shell_features: %q cannot be granted, only %s", [f, concat(", ", features)])
}

problems contains problem if {
	some direction in {"read", "write"}
	some p in data.site.files[direction]
	not files.clean(p)
	problem := sprintf("files/%s: %q is not an absolute path in its shortest form", [direction, p])
}

problems contains problem if {
	some direction in {"read", "write"}
	some p in data.site.files[direction]
	not files.harmless(p)
	problem := sprintf(
		concat("", [
			"files/%s: %q can never be reached: keys, passwords and kernel state stay ",
			"closed",
		]),
		[direction, p],
	)
}

problems contains sprintf("files/write: %q can never be written", [p]) if {
	some p in data.site.files.write
	some fixed in files.unwritable
	files.under(p, fixed)
}

# A folder above a closed path cannot be listed, because new secrets can appear in it that no list
# contains.
problems contains problem if {
	some direction in {"read", "write"}
	some p in data.site.files[direction]
	closed := {c |
		some c in array.concat(files.unreadable, files.unwritable)
		c != p
		files.under(c, p)
	}
	count(closed) > 0
	problem := sprintf(
		concat("", [
			"files/%s: %q holds %s, which stays closed: list the folders below it that are ",
			"needed",
		]),
		[direction, p, min(closed)],
	)
}

problems contains sprintf("protected/nodes/%s: is not the name of a node", [n]) if {
	some n, _ in data.site.protected.nodes
	not regex.match(grammar.kinds.node, n)
}

problems contains problem if {
	some part, hosts in {"egress": data.site.egress, "protected/hosts": data.site.protected.hosts}
	some h, _ in hosts
	not regex.match(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`, h)
	not address(h)
	problem := sprintf(
		"%s/%s: is not a host name or address in its one form: %s",
		[part, h, "lower case, no final dot, addresses as short as they can be"],
	)
}

problems contains problem if {
	some entry in data.site.protected.services
	regex.match(`^.*\.[a-z]+$`, entry.service)
	not command.suffixed(entry.service) == entry.service
	problem := sprintf(
		"protected/services: %q ends in no kind of unit that systemd knows; write %s",
		[entry.service, "the name alone, or with .service"],
	)
}

problems contains problem if {
	some name in data.site.relaxed.tools
	key := concat(":", ["tool", name])
	not data.site.tiers[key] == "red"
	problem := sprintf(
		"relaxed/tools: %q has no red tier (tiers/%s): nothing to relax",
		[name, key],
	)
}

address(h) if {
	regex.match(`^(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}$`, h)
	net.cidr_is_valid(concat("/", [h, "32"]))
}

address(h) if {
	regex.match(`^[0-9a-f:]*:[0-9a-f:]*$`, h)
	not contains(h, ":::")
	net.cidr_is_valid(concat("/", [h, "128"]))
}

problems contains problem if {
	some who, t in data.site.plugins.trust
	some pattern in t.plugins
	contains(trim_suffix(pattern, "*"), "*")
	problem := sprintf(
		"plugins/trust/%s/plugins: %q has a star before its end; want a name, or PREFIX*",
		[who, pattern],
	)
}

problems contains sprintf("plugins/trust/%s: has neither keys nor identities", [who]) if {
	some who, t in data.site.plugins.trust
	not t.keys
	not t.identities
}

# A star must not match a part of an owner's name, because anybody can register a name with the same
# beginning.
problems contains problem if {
	some who, t in data.site.plugins.trust
	some i, identity in t.identities
	not whose(identity.subject)
	problem := sprintf(
		"plugins/trust/%s/identities/%d/subject: %q is not one owner; want all of it, or %s",
		[who, i, identity.subject, "https://HOST/OWNER/ and what follows up to /*, @* or :*"],
	)
}

whose(subject) if not contains(subject, "*")

whose(subject) if regex.match(`^https://[^/*]+/[^/*]+/([^*]*[/@:])?\*$`, subject)

problems contains sprintf("plugins/trust/%s/imports: there is no operation %q", [who, i]) if {
	some who, t in data.site.plugins.trust
	some i in t.imports
	not i in operations
}

operations := {name | some name, op in table; op.plugins}
