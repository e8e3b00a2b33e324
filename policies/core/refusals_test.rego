package caponier.core.refusals_test

import data.caponier.core.fixture as f

# Refusals as they are read. Each says what was refused, by which rule and entry, and what would
# work, in at most 600 bytes together. The questions, and what refusals say about them, stand in the
# files refusals_*_test.rego beside this one.
reader := {"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "look"}}

frozen(kind, name) := {"kind": kind, "name": name, "reason": "an incident"}

call(calls) := f.decided({"tool": {"name": "run"}, "commands": [f.cmd(calls)]})

op(argv) := f.operated(f.run(argv))

told := {name: [r.msg | some r in d.deny] | some name, d in refusals}

# What somebody who has only the refusal reads.
test_refusals_are_these if {
	every name, said in golden { told[name] == [concat(" · ", parts) | some parts in said] }
	count(golden) == count(refusals)
}

test_refusals_are_short if {
	every _, msgs in told { count(concat("; ", msgs)) <= 580 }
}

# No approval, other call or later time lifts these, so none is proposed.
test_final_refusals_propose_no_way_round if {
	stays := {
		"a black tool", "a black command",
	} | {n | some n, _ in told; startswith(n, "a protected")}
	every name in stays {
		every word in ["approv", "again", "retry", "the same call", "seconds", "tomorrow"] {
			not contains(told[name][0], word)
		}
	}
	every name in {n | some n, _ in told; n != "a red call"} { refusals[name].confirm == false }
}
