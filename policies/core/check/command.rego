# METADATA
# scope: package
# description: >-
#   The grammar describes every word of every command. A command inside a guest was decided with the
#   call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.command

import data.caponier.core.check.guest
import data.caponier.core.command
import data.caponier.core.complaint
import data.caponier.core.roles
import data.caponier.core.say
import data.caponier.core.tables

asked := {"call", "operation"}

order := 14

ok if input.commands == []

ok if {
	is_array(input.commands)
	every cmd in input.commands { text_ok(cmd) }
}

ok if {
	input.schema == "caponier.operation/1"
	input.command == null
}

ok if {
	understood(input.command)
	input.command.stdin.bytes == 0
	count(command.operation_described) == count(input.command.calls)
	every d in command.operation_described { inside_ok(d) }
}

inside_ok(d) if d.inside == false

inside_ok(d) if guest.ok(d)

# In mode any, core does not check the text for a guest. Rules of the site may check what it runs,
# so its calls are those of the rendering that is sent, or there are none.
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
	understood(cmd)
	every c in cmd.calls { command.measured(c.argv).inside == false }
}

known(cmd) if {
	understood(cmd)
	every c in cmd.calls { command.measured(c.argv) }
}

understood(cmd) if {
	cmd.parsed == true
	count(cmd.calls) > 0
	every c in cmd.calls {
		c.static == true
		count(c.argv) <= 512
	}
	joined(cmd.features)
}

joined([])

joined(features) if {
	every f in features { f in data.site.shell_features }
}

# One role that grants the tool grants all commands.
granted if {
	some name in roles.granting
	roles.may_run_all(data.site.roles[name].commands)
}

what := concat("; ", complaints)

complaints contains m if {
	some cmd in asked_for
	cmd.parsed != true
	m := sprintf("it was not understood: %s", [cmd.error])
}

complaints contains m if {
	some cmd in asked_for
	cmd.parsed == true
	described(cmd)
	some c in cmd.calls
	m := complaint.about(c)
}

complaints contains sprintf("the shell feature %s is not granted here", [f]) if {
	some cmd in asked_for
	cmd.parsed == true
	described(cmd)
	some f in cmd.features
	not granted_feature(f)
}

complaints contains "it holds no command" if {
	some cmd in asked_for
	cmd.parsed == true
	count(cmd.calls) == 0
}

complaints contains "a command has more than 512 words" if {
	some cmd in asked_for
	some c in cmd.calls
	count(c.argv) > 512
}

complaints contains "no command takes bytes that were not decided" if {
	input.command.stdin.bytes != 0
}

complaints contains m if {
	input.schema == "caponier.operation/1"
	some d in command.operation_described
	not inside_ok(d)
	m := "what it runs inside the guest is neither the call's own text nor a helper on its paths"
}

complaints contains "pct exec is for tools that name the text they run in a guest" if {
	some cmd in input.commands
	cmd.guest == false
	some c in cmd.calls
	command.measured(c.argv).inside
}

complaints contains sprintf("none of your roles may run %q (group %s)", [d.id, d.group]) if {
	count(roles.granting) > 0
	some d in roles.described
	not runnable(d)
}

granted_feature(f) if f in data.site.shell_features

runnable(d) if {
	some name in roles.granting
	roles.may_run(data.site.roles[name].commands, d)
}

# Text for a guest must match the grammar only in mode table.
described(cmd) if cmd.guest == false

described(_) if data.site.guest_commands != "any"

asked_for contains cmd if some cmd in input.commands

asked_for contains input.command if input.command != null

rule := "the command grammar, roles/NAME/commands"

# For an unknown program, the known programs. For a known one, the complaint describes its forms. A
# caller that has the tool that lists commands is referred to it.
works := sprintf("%s: %s", [lists, say.some_of(programs, 20)]) if {
	some cmd in asked_for
	some c in cmd.calls
	not c.argv[0] in programs
} else := "list_allowed_commands with this program as word shows all that you may run of it" if {
	roles.lists_commands
	some cmd in asked_for
	cmd.parsed == true
	described(cmd)
	some c in cmd.calls
	not runs(c)
} else := "write the commands in full; pipes, && and || are fine where the site grants them"

lists := "list_allowed_commands shows what you may run" if {
	roles.lists_commands
} else := "programs that you may run"

runs(c) if {
	c.static == true
	runnable(command.measured(c.argv))
}

programs := {p |
	some name in roles.granting
	some p in tables.programs[name]
}

remedy := concat("", [
	"Exact words of the grammar, and in the site's data roles/NAME/commands with the entry or its ",
	"group; a new program under binaries.",
])
