# METADATA
# scope: package
# description: Which approvals of red calls the site accepts.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.approval

import data.caponier.core.tier

# Where a person may approve: in a terminal, on the host's own page, in the caller's client. The
# last is the caller's own word, so a site has to ask for it.
default channels := []

channels := data.site.approval.channels

# Whose approval counts on the first two. Who may sign in there is for the host's configuration.
default approvers := []

approvers := data.site.approval.approvers

# possible says that somebody can approve.
possible if "client" in channels

possible if {
	count(channels) > 0
	count(approvers) > 0
}

# What an approval takes beside one yes, by tool; "*" is every tool without an entry of its own.
needed := needs if {
	needs := data.site.approval.needs[tier.key]
} else := needs if {
	needs := data.site.approval.needs["*"]
} else := one

one := {"approvers": 1, "ticket": "", "reason": false}

special if needed != one

# Each yes that counts. One without a list is of a record from before there were lists.
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

# The caller's own client speaks for nobody whom the site could name.
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

# persons are those who said yes. A name in other letters is no other person, and who is at a terminal
# can give any name: all that is said there counts as one person.
persons := on_pages | at_terminals

on_pages := {lower(answer.by) | some answer in yes; answer.channel != "cli"}

at_terminals := {min(others)} if {
	count(others) > 0
} else := set()

others := {lower(answer.by) | some answer in yes; answer.channel == "cli"} - on_pages
