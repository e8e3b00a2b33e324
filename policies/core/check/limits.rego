# METADATA
# scope: package
# description: Blobs and questions are no larger than the site allows.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.limits

asked := {"operation"}

order := 23

ok if {
	input.blob == null
	input.ask == null
}

ok if {
	is_number(input.blob.bytes)
	is_number(data.site.limits.blob_bytes)
	input.blob.bytes <= data.site.limits.blob_bytes
}

ok if {
	is_number(input.ask.bytes)
	is_number(data.site.limits.ask_bytes)
	input.ask.bytes <= data.site.limits.ask_bytes
}

what := sprintf("a blob of %v bytes is over the limit of %v", [
	input.blob.bytes, data.site.limits.blob_bytes,
]) if {
	input.blob != null
} else := sprintf("a question of %v bytes is over the limit of %v", [
	input.ask.bytes, data.site.limits.ask_bytes,
])

rule := "limits/blob_bytes" if input.blob != null

rule := "limits/ask_bytes" if input.blob == null

works := "smaller data"

remedy := "limits/blob_bytes or limits/ask_bytes."
