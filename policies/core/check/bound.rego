# METADATA
# scope: package
# description: An operation above green acts only on what its call named.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.bound

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.say
import data.caponier.core.tier

asked := {"operation"}

order := 8

# Green reads may go further, within what the principal may see.
ok if tier.rank == 1

ok if input.target == null

ok if {
	input.command != null
	every id in vmids { id in call_vmids }
	every n in command.operation_nodes { bound_node(n) }
	every s in services { s in call_services }
	runs_where_it_may
}

bound_node(n) if n in call_nodes

# In /nodes/NODE/lxc/VMID, the command acts on the guest. The node only tells where the guest is;
# check node covers it.
bound_node(n) if {
	every d in command.operation_described { locates(n, d) }
}

locates(n, d) if not ["node", n] in d.words

locates(_, d) if {
	some [kind, _] in d.words
	kind == "vmid"
}

ok if {
	input.file != null
	input.target.node in call_nodes
}

# A call's own stage may be on any node of the cluster, because its guest may be there.
ok if {
	own_stage
	count(input.parent.targets.vmids) > 0
	in_cluster
}

own_stage if input.file.action == "stage"

own_stage if files.staged(input.file.path)

in_cluster if {
	input.target.cluster != ""
	input.target.cluster in input.parent.clusters
}

vmids := command.vmids(command.operation_words)

call_vmids := {v | some v in input.parent.targets.vmids} | command.vmids(command.parent_words)

call_nodes := {n | some n in input.parent.targets.nodes} | command.nodes(command.parent_words)

call_services := command.services(command.parent_words) | {command.unit(s) |
	some s in input.parent.targets.services
}

# The names of guests and nodes are valid in the whole cluster, so such a command may run on any of
# its nodes. All other commands act on the node itself.
runs_where_it_may if input.target.node in input.parent.targets.nodes

runs_where_it_may if {
	in_cluster
	count(input.command.calls) > 0
	every d in command.operation_described { located(d) }
}

located(d) if {
	some [kind, _] in d.words
	kind in {"vmid", "node"}
}

what := sprintf("%s is not what this call named", [say.some_of(outside, 3)])

outside := ((vmids - call_vmids) | unbound) | ((services - call_services) | strayed)

services := command.services(command.operation_words)

unbound contains n if {
	some n in command.operation_nodes
	not bound_node(n)
}

strayed contains input.target.node if not runs_where_it_may

rule := "the call's targets"

works := "another call that names it"

remedy := "A call that names this guest, node or service."
