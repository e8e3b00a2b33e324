# METADATA
# scope: package
# description: Blobs and questions stay within the site's sizes.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.limits

ok if {
	input.blob == null
	input.ask == null
}

ok if {
	is_number(input.blob.bytes)
	input.blob.bytes <= data.site.limits.blob_bytes
}

ok if {
	is_number(input.ask.bytes)
	input.ask.bytes <= data.site.limits.ask_bytes
}
