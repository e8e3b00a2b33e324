# METADATA
# scope: package
# description: Every command is described by the grammar in every word, granted to the role, and what it runs inside a guest was decided with the call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.command

import data.caponier.core.check.guest
import data.caponier.core.command
import data.caponier.core.complaint
import data.caponier.core.roles

call_ok if input.commands == []

call_ok if {
	every cmd in input.commands { text_ok(cmd) }
}

# What a role must be granted is role's to demand; here it only says why.
call_granted if input.commands == []

call_granted if granted_all(command.call_described)

# In mode any a guest's text is not held against anything. Rules of the site may ask what it runs,
# so its calls are either those of the rendering that is sent, or there are none.
text_ok(cmd) if {
	cmd.guest == true
	data.site.guest_commands == "any"
	cmd.parsed == true
	cmd.rendered != ""
}

text_ok(cmd) if {
	cmd.guest == true
	data.site.guest_commands == "any"
	cmd.parsed == false
	cmd.calls == []
}

text_ok(cmd) if {
	cmd.guest == true
	data.site.guest_commands == "table"
	cmd.rendered != ""
	known(cmd)
}

text_ok(cmd) if {
	cmd.guest == false
	known(cmd)
	every c in cmd.calls { not command.measured(c.argv).inside }
}

known(cmd) if {
	understood(cmd)
	every c in cmd.calls { command.measured(c.argv) }
}

understood(cmd) if {
	cmd.parsed == true
	count(cmd.calls) > 0
	{c.static | some c in cmd.calls} == {true}
	joined(cmd.features)
}

joined([])

joined(features) if {
	every f in features { f in data.site.shell_features }
}

operation_ok if input.command == null

operation_ok if {
	understood(input.command)
	input.command.stdin.bytes == 0
	count(command.operation_described) == count(input.command.calls)
	insides_ok
}

operation_granted if input.command == null

operation_granted if granted_all(command.operation_described)

insides_ok if not true in {d.inside | some d in command.operation_described}

insides_ok if {
	every d in command.operation_described { guest.ok(d) }
}

# One role that grants the tool grants all commands; roles.call_clear and operation_clear demand that it is one with the node and the tier.
granted_all(described) if {
	some name in roles.granting
	roles.may_run_all(data.site.roles[name].commands, described)
}

why := concat("; ", {c | some cmd in asked; some c in complaints(cmd)})

asked contains cmd if some cmd in input.commands

asked contains input.command if input.command != null

complaints(cmd) := {sprintf("it was not understood: %s", [cmd.error])} if {
	cmd.parsed == false
} else := ((((({m |
	some c in cmd.calls
	m := complaint.about(c)
} | {sprintf("the shell feature %s is not granted", [f]) |
	some f in cmd.features
	not f in data.site.shell_features
}) | {m |
	count(cmd.calls) == 0
	m := "it holds no command"
}) | {m |
	cmd.stdin.bytes != 0
	m := "no command takes bytes that were not decided"
}) | {m |
	input.schema == "caponier.operation/1"
	some c in cmd.calls
	d := command.measured(c.argv)
	not guest.ok(d)
	m := "what it runs inside the guest is neither the call's own text nor a helper on the call's paths"
}) | {m |
	some c in cmd.calls
	d := command.measured(c.argv)
	count(roles.granting) > 0
	not granted(d)
	m := sprintf("no role that could run the call is granted %q or its group %q", [d.id, d.group])
}) | {m |
	input.schema == "caponier.call/1"
	some c in cmd.calls
	command.measured(c.argv).inside
	m := "pct exec is for tools that name the text they run in a guest"
}

granted(d) if {
	some name in roles.granting
	roles.may_run(data.site.roles[name].commands, d)
}
