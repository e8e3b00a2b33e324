# METADATA
# scope: package
# description: >-
#   This policy knows the form of the question, and its head and the site's data are complete.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.schema

import data.caponier.core.lint
import data.caponier.core.say
import data.caponier.core.tables

asked := {"call", "operation", "plan", "visible"}

order := 5

ok if {
	tables.of.whole
	is_string(input.id)
	input.kind in {"tool", "resource", "prompt", "host"}
	input.source in {"stdio", "http", "cli", "host"}
	is_number(input.time.unix_ms)
	is_string(input.plugin.digest)
	is_array(input.tool.imports)
	is_array(input.tool.commands)
	is_array(input.tool.target_kinds)
}

what := sprintf("the site's data lacks %s", [say.some_of(lint.missing, 5)]) if {
	not tables.of.whole
} else := "the question is not of a form that this policy knows"

rule := "host and policy are of different versions" if tables.of.whole

rule := "data.yaml" if not tables.of.whole

works := "only the operator can fix this"

remedy := "Use a host and a policy of the same version, and add what data.yaml lacks."
