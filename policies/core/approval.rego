# METADATA
# scope: package
# description: Which approvals of red calls the site accepts.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.approval

import data.caponier.core.tier

# Where a person may approve: in a terminal, on the host's own page, or in the caller's client. The
# host cannot verify an answer of the client, so a site must enable it.
default channels := []

channels := data.site.approval.channels

# Whose approval counts on the first two. The host's configuration says who may sign in there.
default approvers := []

approvers := data.site.approval.approvers

# possible is true if somebody can approve.
possible if "client" in channels

possible if {
	count(channels) > 0
	count(approvers) > 0
}

# What an approval requires, by tool. "*" is every tool without its own entry.
needed := needs if {
	needs := data.site.approval.needs[tier.key]
} else := needs if {
	needs := data.site.approval.needs["*"]
} else := one

one := {"approvers": 1, "ticket": "", "reason": false}

special if needed != one

# The answers that count. Older records contain one answer and no list.
yes contains answer if {
	listed := object.get(input.confirmation, "answers", [{
		"by": input.confirmation.by, "channel": input.confirmation.channel,
	}])
	some answer in listed
	answer.by != ""
	answer.channel in channels
	may_approve(answer)
	ticketed(object.get(answer, "ticket", ""))
	reasoned(object.get(answer, "note", ""))
}

may_approve(answer) if {
	answer.channel != "client"
	"*" in approvers
}

may_approve(answer) if {
	answer.channel != "client"
	answer.by in approvers
}

# An answer of the caller's client has no name that a site could list.
may_approve(answer) if {
	answer.channel == "client"
	not special
}

ticketed(_) if needed.ticket == ""

ticketed(ticket) if {
	needed.ticket != ""
	regex.match(sprintf(`\A(?:%s)\z`, [needed.ticket]), ticket)
}

reasoned(_) if needed.reason == false

reasoned(note) if {
	needed.reason == true
	trim_space(note) != ""
}

# persons are those who approved. Names that differ only in case are one person. A person at a
# terminal can use any name, so all answers from there count as one person.
persons := on_pages | at_terminals

on_pages := {lower(answer.by) | some answer in yes; answer.channel != "cli"}

at_terminals := {min(others)} if {
	count(others) > 0
} else := set()

others := {lower(answer.by) | some answer in yes; answer.channel == "cli"} - on_pages
