# METADATA
# scope: package
# description: What binds whoever executes. Zero is no tighter than the host's own limits.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.obligations

import data.caponier.core.tier

value := {
	"timeout_ms": object.get(data.site, ["limits", "timeout_ms"], 0),
	"max_bytes": object.get(data.site, ["limits", "output_bytes"], 0),
	"redact": object.get(data.site, "redact", []),
	"log": log,
}

default log := "info"

log := "warn" if {
	input.schema == "caponier.call/1"
	tier.call > 1
}

log := "warn" if {
	input.schema == "caponier.operation/1"
	tier.operation > 1
}
