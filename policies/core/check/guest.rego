# METADATA
# scope: package
# description: >-
#   A command inside a guest is text that was decided with the call, or one of a few fixed helpers
#   on the paths of the call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.guest

ok(d) if d.inside == false

# A text of the call, under its own time limit.
ok(d) if {
	d.inside == true
	words := timed(d.guest)
	count(words) == 3
	words[0] in {"sh", "bash"}
	words[1] == "-c"
	words[2] in texts
	words[2] != ""
	vmid_of(d) in input.parent.targets.vmids
	words != d.guest
}

# Only what was decided may run. If the host could parse the text, only its rendering runs, because
# the shell inside the guest may read the text itself differently. Text that was not parsed is
# decided as a whole, without knowledge of its commands.
texts contains cmd.rendered if {
	some cmd in input.parent.commands
	cmd.guest == true
	cmd.parsed == true
}

texts contains cmd.text if {
	data.site.guest_commands == "any"
	some cmd in input.parent.commands
	cmd.guest == true
	cmd.parsed == false
	cmd.calls == []
}

# A helper on a path that was decided with the call.
ok(d) if {
	d.inside == true
	vmid_of(d) in input.parent.targets.vmids
	words := timed(d.guest)
	[path, shape] := helper(words)
	path in input.parent.targets.guest_paths
	shape
}

vmid_of(d) := v if some ["vmid", v] in d.words

timed(words) := array.slice(words, 4, count(words)) if {
	words[0] == "timeout"
	words[1] == "-k"
	regex.match(`^[1-9][0-9]{0,3}$`, words[2])
	regex.match(`^[1-9][0-9]{0,3}$`, words[3])
} else := words

helper(w) := [w[2], true] if {
	count(w) == 3
	w[0] == "test"
	w[1] in {"-e", "-f", "-d", "-L"}
} else := [w[4], true] if {
	count(w) == 5
	w[0] == "stat"
	w[1] == "-c"
	regex.match(`^(%[sFaUGugYn]|[ :])+$`, w[2])
	w[3] == "--"
} else := [w[2], true] if {
	count(w) == 3
	w[0] == "sha256sum"
	w[1] == "--"
} else := [w[4], true] if {
	count(w) == 5
	w[0] == "head"
	w[1] == "-c"
	regex.match(`^[1-9][0-9]{0,9}$`, w[2])
	w[3] == "--"
}
