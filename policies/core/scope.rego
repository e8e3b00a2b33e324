# METADATA
# scope: package
# description: >-
#   The keys that restrict a role further - the guests, services, hosts and paths that a question
#   may name, and the hours. Each key restricts the role independently. For an operation, the names
#   of its call count too.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.scope

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.guests
import data.caponier.core.tables
import data.caponier.core.tier

kinds := {"guests", "services", "hosts", "paths"}

# of are the restricting keys of a role, or {} for a role without any. It is defined for every role.
of(name) := tables.of.narrowed[name]

# covers is true if the role lists everything that is named, for each kind that it lists at all.
covers(name) if of(name) == {}

covers(name) if {
	narrow := of(name)
	narrow != {}
	every kind in kinds { within(kind, narrow) }
	aimed(narrow)
}

within(kind, narrow) if not narrow[kind]

within(kind, narrow) if {
	narrow[kind]
	beyond(kind, narrow[kind]) == set()
}

# beyond are the names that are not listed.
beyond("guests", listed) := {id | some id in named_guests; not id in listed}

beyond("services", listed) := {s | some s in named_services; not s in listed}

beyond("hosts", listed) := {h | some h in named_hosts; not h in listed}

beyond("paths", listed) := {p | some p in named_paths; not below(p, listed)}

below(path, listed) if {
	files.clean(path)
	some prefix in listed
	files.under(path, prefix)
}

default words := set()

words := guests.words

named_guests := guests.named | parent_guests

parent_guests contains id if some id in input.parent.targets.vmids

parent_guests contains id if some id in command.mentioned_vmids(command.parent_words)

parent_guests contains id if {
	some text in input.parent.targets.paths
	some id in command.numbers(text)
}

parent_guests contains id if {
	some text in input.parent.targets.services
	some id in command.numbers(text)
}

named_services contains command.unit(s) if some s in input.targets.services

named_services contains command.unit(s) if some s in input.parent.targets.services

# The node's own names for a unit count too, because another name may not be listed.
named_services contains command.unit(s) if some s in input.target.services

named_services contains s if some s in command.services(words)

named_services contains s if some s in command.services(command.parent_words)

named_hosts contains h if some h in input.targets.hosts

named_hosts contains h if some h in input.parent.targets.hosts

named_hosts contains h if {
	input.http != null
	h := input.http.host
}

named_paths contains p if some p in input.targets.paths

named_paths contains p if some p in input.parent.targets.paths

named_paths contains p if {
	some p in [input.file.path, input.file.real_path]
	is_string(p)
	input.file.action != "stage"
	not files.staged(p)
}

named_paths contains p if some p in path_words(words)

named_paths contains p if some p in path_words(command.parent_words)

# A program that only the site describes may take a path in any word.
path_words(all) := {p | some ["readpath", p] in all} | {p |
	some ["own", w] in all
	at := indexof(w, "/")
	at >= 0
	p := substring(w, at, -1)
}

# aimed is true if a command above green names something, in case the role lists guests or services.
# A command that stops all guests of a node, or the node, names none.
aimed(narrow) if {
	not narrow.guests
	not narrow.services
}

aimed(_) if pointed

pointed if tier.rank == 1

# A question about visibility, or a call without a target, which check target refuses.
pointed if input.schema == "caponier.visible/1"

pointed if {
	input.schema == "caponier.call/1"
	some kind in input.tool.target_kinds
	awaited(kind)
}

pointed if {
	input.schema == "caponier.call/1"
	input.commands == []
	points(input.targets)
}

pointed if {
	input.schema == "caponier.call/1"
	input.commands != []
	every d in command.node_described { speaks(d) }
	inside
}

pointed if {
	input.schema == "caponier.operation/1"
	input.command != null
	every d in command.operation_described { speaks(d) }
}

pointed if {
	input.schema == "caponier.operation/1"
	input.command == null
	points(input.parent.targets)
}

# The operation names its file or host, and a call's own text was decided with the call.
pointed if {
	input.schema == "caponier.operation/1"
	input.command == null
	[input.file, input.http, input.parent.commands] != [null, null, []]
}

awaited(kind) if {
	kind in {"vmids", "services", "hosts", "paths"}
	input.targets[kind] == []
}

awaited("commands") if input.commands == []

# A text for the inside of a guest acts on the guests that the call names.
inside if {
	every cmd in input.commands { not cmd.guest }
}

inside if count(input.targets.vmids) > 0

points(targets) if {
	some kind in ["vmids", "services", "hosts", "paths"]
	count(targets[kind]) > 0
}

# speaks is true if a command reads, or names something.
speaks(d) if d.rank == 1

speaks(d) if count(command.mentioned_vmids({pair | some pair in d.words})) > 0

speaks(d) if count(command.services(d.words)) > 0

speaks(d) if {
	some ["readpath", _] in d.words
}

# open is true within the hours of the role. Lists are cached, so they do not depend on the time.
open(name) if {
	narrow := of(name)
	not narrow.hours
}

open(name) if {
	some [from, to] in of(name).hours
	some m in [moment, moment + week]
	from <= m
	m < to
}

open(_) if input.schema == "caponier.visible/1"

week := (7 * 24) * 60

# moment is the minute of the week, in UTC, from Sunday 00:00. It is undefined for lists, and if no
# role has hours. The answer then does not depend on the time, and the host can leave the time out
# of its cache key.
moment := (((input.time.weekday * 24) + input.time.hour_utc) * 60) + input.time.minute_utc if {
	tables.of.timed
	input.schema != "caponier.visible/1"
}

# next is the minute of the week at which a role opens next.
next(name) := (moment + min(waits)) % week if {
	waits := {wait |
		some [from, _] in of(name).hours
		wait := ((from - moment) + week) % week
	}
}

clock(minute) := sprintf("%s %02d:%02d", [
	days[floor(minute / 1440)].name, floor((minute % 1440) / 60), minute % 60,
])

days := [
	{"key": "sun", "name": "Sunday"}, {"key": "mon", "name": "Monday"},
	{"key": "tue", "name": "Tuesday"}, {"key": "wed", "name": "Wednesday"},
	{"key": "thu", "name": "Thursday"}, {"key": "fri", "name": "Friday"},
	{"key": "sat", "name": "Saturday"},
]

# narrowed are the restricting keys of a role, in the form that decisions compare.
narrowed(role) := object.union(
	{kind: {one(kind, v) | some v in role[kind]} |
		some kind in kinds
		kind in object.keys(role)
	},
	{"hours": spans(role.hours) | "hours" in object.keys(role)},
)

one(kind, v) := command.unit(v) if {
	kind == "services"
} else := v

# spans are the hours as minutes of the week, from the first minute to the first one after the end.
# Hours over midnight belong to the day on which they begin.
spans(hours) := [[start + from, (start + to) + over] |
	some i, day in days
	day.key in hours.days
	from := minutes(hours.from)
	to := minutes(hours.to)
	over := {true: 1440, false: 0}[to < from]
	from != to
	start := i * 1440
]

minutes(text) := (((digit(text, 0) * 10) + digit(text, 1)) * 60) + ((digit(text, 3) * 10) + digit(
	text,
	4,
)) if {
	is_string(text)
	regex.match(`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`, text)
}

digit(text, i) := indexof("0123456789", substring(text, i, 1))
