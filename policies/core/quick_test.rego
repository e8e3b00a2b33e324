package caponier.core.quick_test

import data.caponier.core.command
import data.caponier.core.derived
import data.caponier.core.fixture as f
import data.caponier.core.quick

# The tables as the host keeps them, and as they are where it keeps none of commands.
host := object.union(without, {"plain": plain, "shapes": shapes})

plain := t if t := derived.plain with data.site as f.site

shapes := t if t := derived.shapes with data.site as f.site

without := {"required": {}}

# A word of each kind that commands of tools have most often, and one that is of none.
words := {
	"vmid": "101", "node": "pve1", "storage": "local", "snapname": "before", "pool": "p1",
	"pveservice": "pveproxy", "volid": "local:x", "int": "5", "readpath": "/var/log/x",
}

word(kind) := kind[0] if {
	is_array(kind)
} else := object.get(words, kind, "x")

argvs contains array.concat(begin, more) if {
	some program, subs in host.plain
	some sub, found in subs
	begin := [w | some w in [program, sub]; w != ""]
	some more in tails(found)
}

argvs contains array.concat(["pvesh", method, path], more) if {
	some method, shapes in host.shapes.pvesh
	some shape, found in shapes
	path := concat("/", [object.get(segments, s, s) | some s in split(shape, "/")])
	some more in tails(found)
}

argvs contains [program, ""] if some program, _ in host.plain

segments := {sprintf("{%s}", [kind]): w | some kind, w in words}

tails(found) := {
	[], [""], operands, array.concat(operands, ["extra"]), array.concat(operands, ["--none"]),
} | (flags | valued) if {
	operands := [word(kind) | some kind in found.operands]
	flags := {array.concat(operands, [o]) | some o, _ in found.options}
	valued := {array.concat(operands, [o, word(kind)]) | some o, kind in found.options}
}

measured := {argv: d | some argv in argvs; d := command.measured(argv)}

known := {argv | some argv in argvs; quick.of(argv)}

test_tables_agree_with_the_words if {
	by_tables := measured with data.site as f.site with data.derived as host
	by_words := measured with data.site as f.site with data.derived as without
	by_tables == by_words
	count(by_words) > 400
	all := known with data.site as f.site with data.derived as host
	count(all) > 200
}

test_the_site_takes_entries_out_of_the_tables if {
	not host.plain.qm.stop
	not host.plain.pct.start
	host.plain.pct.status
	not host.plain.pct.exec
	not host.plain.systemctl.restart
}
