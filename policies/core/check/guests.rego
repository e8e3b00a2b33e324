# METADATA
# scope: package
# description: >-
#   If the site protects or raises guests by what their cluster reports, these facts are known for
#   each guest that the question names, and none of the guests is protected. The host asks the
#   cluster if only this is missing.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.guests

import data.caponier.core.check.protected
import data.caponier.core.guests
import data.caponier.core.say
import data.caponier.core.tables

asked := {"call", "operation", "visible"} if {
	guests.used
} else := set()

order := 47

# The host asks the cluster only about a question that would be allowed otherwise.
after := {id | some id in tables.of.required.operation} - {"unit", "touched"}

# A guest that is protected by its facts fails the same check as one that is protected by number.
blames := {"protected"} if guarded != set()

ok if {
	wanted == set()
	guarded == set()
}

wanted := guests.unknown

guarded contains [id, kind, name, entry.reason] if {
	some [id, kind, name, entry] in guests.protecting
	not protected.readable(entry)
}

what := sprintf("what the cluster says of guest %s is not known: %s", [
	say.some_of(wanted, 3), why,
])

why := "their node sends nothing, or what is listed of them cannot be so" if {
	some id in wanted
	input.guests[id].status == "unknown"
} else := "the host has read it too long ago" if {
	some id in wanted
	input.guests[id]
} else := "no node of it told the host, whose log says why"

rule := "protected and raised, by tags, pools, names or nodes"

works := "the same call when the cluster answers"

remedy := "Nothing in the call: the host reads the cluster, as read_cluster in the journal."
