# METADATA
# scope: package
# description: >-
#   The guests of which the host takes a snapshot before an operation, according to the site.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.snapshot

import data.caponier.core.command
import data.caponier.core.host
import data.caponier.core.tier

# first contains the guests, whether the operation may continue without a snapshot, and how many
# snapshots of a guest the host keeps, and for how many days.
first := {
	"vmids": [v | some v in guests], "optional": data.site.snapshot.optional,
	"keep": data.site.snapshot.keep, "days": data.site.snapshot.keep_days,
} if {
	data.site.snapshot
	count(guests) > 0
} else := {"vmids": [], "optional": false, "keep": 0, "days": 0}

guests contains v if {
	wanted
	some d in command.operation_described
	not pointless(d.id)
	some ["vmid", v] in d.words
}

wanted if {
	changes
	tier.rank >= tier.ranks[data.site.snapshot.tier]
}

wanted if {
	changes
	input.tool.name in data.site.snapshot.tools
}

changes if {
	input.schema == "caponier.operation/1"
	input.command != null
	tier.rank > 1
	not host.itself
}

# A snapshot before these commands would be lost with the guest, would be of a guest that does not
# exist yet, or would prevent the command.
pointless(id) if {
	some verb in ["create", "clone", "restore", "destroy", "template"]
	regex.match(sprintf(`^(pct|qm|qmrestore) ?%s$`, [verb]), id)
}

pointless(id) if regex.match(`^(pct|qm) (snapshot|delsnapshot|rollback|unlock)$`, id)

pointless(id) if regex.match(`^pvesh (create|delete) .*/(snapshot|clone|template)(/.*)?$`, id)

pointless(id) if regex.match(`^pvesh delete /nodes/\{node\}/(lxc|qemu)/\{vmid\}$`, id)

pointless(id) if regex.match(`^pvesh create /nodes/\{node\}/(lxc|qemu)$`, id)
