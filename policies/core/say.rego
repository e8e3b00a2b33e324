# METADATA
# scope: package
# description: >-
#   Words for refusals - lists that are short, and text that cannot pose as something else.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.say

# quoted shows a word of the caller: printable ASCII in quotes, at most 60 characters.
quoted(w) := sprintf("%q", [cut(w, 60)])

# cut shortens text and marks the place. The host masks beginnings of redacted values before it.
cut(text, n) := clean(text) if {
	count(text) <= n
} else := concat("", [clean(substring(text, 0, n - 1)), "…"])

clean(text) := regex.replace(text, `[^ -~…]`, "?")

# some_of lists at most n names, and says how many more there are.
some_of(names, n) := "none" if {
	count(names) == 0
} else := concat(", ", names) if {
	count(names) <= n
} else := sprintf("%s and %d more", [concat(", ", array.slice(list, 0, n)), count(list) - n]) if {
	list := [x | some x in names]
}
