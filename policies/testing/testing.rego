# METADATA
# scope: package
# title: Questions for the tests of a site
# description: >-
#   Makes complete questions from one line, in the same form as the host. data.testing contains the
#   tools and nodes. The host fills it from its lock and configuration, and `caponier policy export`
#   writes it to testing/data.json. A mistake in a question is printed, and ends the test with an
#   error that "not" cannot hide.
package caponier.testing

import data.caponier.testing.parts

# call is the question of a call of a tool, with these arguments, by a principal of the site. It is
# asked on a Wednesday at 12:00 UTC as the first call in a minute, without an approval, and the
# cluster was not asked about guests.
call(tool, args, who) := parts.call(tool, args, who) if {
	parts.mistakes(tool, args, who) == set()
} else := parts.stop("call", parts.mistakes(tool, args, who)) if {
	parts.mistakes(tool, args, who) != set()
}

# operation is the question of an operation that the call q asks for while it runs, such as
# operation(q, "ssh_exec", {"argv": ["pct", "stop", "101"]}). It runs on the node that q names,
# unless op names another as "node". "phase" may be "lookup".
operation(q, name, op) := null if {
	parts.fallen(q)
} else := parts.operation(q, name, op, decide(q).tier) if {
	parts.odd(q, name, op) == set()
} else := parts.stop("operation", parts.odd(q, name, op)) if {
	parts.odd(q, name, op) != set()
}

# decide is core's decision on a question, with the data and the rules of the site.
decide(q) := d if {
	q.schema == "caponier.call/1"
	d := data.caponier.core.call.decision with input as q
} else := d if {
	q.schema == "caponier.operation/1"
	d := data.caponier.core.operation.decision with input as q
} else := null if {
	parts.fallen(q)
} else := parts.stop("decide", {"this is no question of call or operation"}) if {
	not q.schema in {"caponier.call/1", "caponier.operation/1"}
}

# at is the question at another time, in UTC, such as at(q, "mon", "09:30"). The day may be a number
# (0 is Sunday), and the time an hour.
at(q, day, time) := object.union(q, {"time": parts.clock(weekday, minute)}) if {
	weekday := parts.weekday(day)
	minute := parts.minute(time)
} else := parts.stop(
	"at",
	{"a weekday is sun to sat or 0 to 6, a time \"00:00\" to \"23:59\" or an hour 0 to 23"},
)

# failed are the checks that refuse a call at a time such as "mon 09:30"; the set is empty if it is
# allowed.
failed(tool, args, who, time) := {id |
	some id in decide(at(call(tool, args, who), word[0], word[1])).failed
} if {
	word := split(time, " ")
	count(word) == 2
} else := parts.stop("failed", {"a time is a day and a time, such as \"mon 09:30\""})

# guests is the question with facts of the cluster, by VMID, such as guests(q, {"102": {"tags":
# ["prod"]}}). Other members of a fact have default values.
guests(q, facts) := parts.with_guests(q, facts) if {
	parts.odd_guests(facts) == set()
} else := parts.stop("guests", parts.odd_guests(facts)) if {
	parts.odd_guests(facts) != set()
}

# approved is the question after this person approved the call in a terminal.
approved(q, by) := object.union(q, {"confirmation": {
	"state": "approved", "by": by, "channel": "cli",
}})
