# METADATA
# scope: package
# description: The question is of a version that this policy was written for, and its head is whole.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.schema

ok if {
	is_string(input.id)
	input.kind in {"tool", "resource", "prompt"}
	input.source in {"stdio", "http", "cli"}
	is_number(input.time.unix_ms)
	is_string(input.plugin.digest)
	is_array(input.tool.imports)
	is_array(input.tool.commands)
	is_array(input.tool.target_kinds)
}
