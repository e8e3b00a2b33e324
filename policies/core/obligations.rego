# METADATA
# scope: package
# description: What binds whoever executes. Zero is no tighter than the host's own limits.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.obligations

import data.caponier.core.check

# of gives what binds whoever executes something of this rank.
of(rank) := {
	"timeout_ms": data.site.limits.timeout_ms, "max_bytes": data.site.limits.output_bytes, "redact": data.site.redact,
	"log": ["", "info", "warn", "warn", "warn"][rank], "channels": check.confirmation.channels,
	"approvers": check.confirmation.approvers,
}
