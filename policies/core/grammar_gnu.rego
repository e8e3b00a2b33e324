# How programs that use getopt_long read their words: joined short options, --option=value, options
# among the operands. Words of iproute2 such as dev and type are options without a hyphen.
package caponier.core.grammar

# gnu_words returns the words of an entry by kind. Kinds of options are
#   flag     takes no value          flag*   and may be repeated
#   KIND     takes a value           KIND*   and may be repeated
#   KIND?    takes the next word as its value if that is of the kind
# An option that ends in "=" takes a value in the same word only. "-NUM" is a number with a hyphen.
gnu_words(words, entry) := typed(entry.operands, words) if {
	not strings.any_prefix_match(words, "-")
	count([w | some w in words; entry.options[w]]) == 0
	not entry.required
	bounded(entry, words)
} else := array.concat(typed(entry.operands, operands), values) if {
	end := min({i | some i, w in words; w == "--"} | {count(words)})
	before := array.slice(words, 0, end)
	taken := {i | some i, w in before; i > 0; value_of(before[i - 1], w, entry.options)}
	count([i | some i in taken; (i - 1) in taken]) == 0
	at := [i | some i, w in before; not i in taken; optionlike(w, entry.options)]
	parts := [p |
		some i in at
		p := option(before[i], value_at(before, taken, i + 1), entry.options)
	]
	count(parts) == count(at)
	pieces := [piece | some part in parts; some piece in part]
	once := [key | some [key, kind, _] in pieces; not repeats(kind)]
	count(once) == count({key | some key in once})
	values := [[name, v] |
		some [_, kind, v] in pieces
		kind != "flag"
		kind != "flag*"
		name := bare_kind(kind)
		is(name, v)
	]
	count(values) == count([1 | some [_, kind, _] in pieces; not kind in {"flag", "flag*"}])
	keys := {key | some [key, _, _] in pieces}
	every needed in object.get(entry, "required", []) { needed in keys }
	plain := [w | some i, w in before; not i in taken; not optionlike(w, entry.options)]
	operands := array.concat(plain, array.slice(words, end + 1, count(words)))
	bounded(entry, operands)
}

# A program that reports at an interval must also have a number of reports.
bounded(entry, _) if not entry.interval

bounded(entry, operands) if {
	entry.interval == true
	count([w | some w in operands; regex.match(`^[0-9]+$`, w)]) in {0, 2}
}

optionlike(w, _) if startswith(w, "-")

optionlike(w, options) if options[w]

value_at(words, taken, i) := words[i] if {
	i in taken
} else := null

# value_of reports whether w is the value of the option before it. A value that begins with a hyphen
# is a number, which no option that takes a value is.
value_of(option, w, options) if {
	kind := next_kind(option, options)
	not startswith(w, "-")
	expected(kind, w)
}

value_of(option, w, options) if {
	kind := next_kind(option, options)
	regex.match(`^-[0-9]`, w)
	is(bare_kind(kind), w)
}

expected(kind, _) if not may_lack(kind)

expected(kind, w) if is(bare_kind(kind), w)

may_lack(kind) if {
	is_string(kind)
	endswith(kind, "?")
}

# next_kind returns the kind of value that an option takes from the next word.
next_kind(w, options) := kind if {
	kind := options[w]
	valued(kind)
} else := kind if {
	joined := cluster(w, options)
	joined.key != ""
	joined.value == ""
	kind := options[joined.key]
}

valued(kind) if is_array(kind)

valued(kind) if {
	is_string(kind)
	not kind in {"flag", "flag*"}
}

repeats(kind) if {
	is_string(kind)
	endswith(kind, "*")
}

bare_kind(kind) := trim_right(kind, "?*") if {
	is_string(kind)
} else := kind

# option returns the options of one word, as [option, kind, value]; joined short options return
# several.
option(w, value, options) := [[w, kind, null]] if {
	kind := options[w]
	kind in {"flag", "flag*"}
} else := [[w, kind, value]] if {
	kind := options[w]
	value != null
} else := [[w, "flag", null]] if {
	may_lack(options[w])
} else := [[key, kind, substring(w, i + 1, -1)]] if {
	startswith(w, "--")
	i := indexof(w, "=")
	i > 0
	key := substring(w, 0, i)
	kind := with_equals(key, options)
} else := [["-NUM", kind, substring(w, 1, -1)]] if {
	kind := options["-NUM"]
	regex.match(`^-[0-9]+$`, w)
} else := array.concat([[f, options[f], null] | some f in joined.flags], last) if {
	joined := cluster(w, options)
	last := clustered(joined, value, options)
}

with_equals(key, options) := options[concat("", [key, "="])] if {
	options[concat("", [key, "="])]
} else := kind if {
	kind := options[key]
	valued(kind)
}

# cluster splits joined short options: flags, and then at most one option with a value, which may
# follow in the same word.
cluster(w, options) := {"flags": flags, "key": key, "value": value} if {
	regex.match(`^-[A-Za-z0-9]`, w)
	letters := [concat("", ["-", c]) | some c in split(substring(w, 1, -1), "")]
	stop := min({i | some i, l in letters; not is_flag(options, l)} | {count(letters)})
	flags := array.slice(letters, 0, stop)
	key := nth(letters, stop)
	value := substring(w, stop + 2, -1)
	known(key, options)
}

is_flag(options, l) if options[l] in {"flag", "flag*"}

known("", _)

known(key, options) if valued(options[key])

clustered(joined, value, options) := [] if {
	joined.key == ""
} else := [[joined.key, options[joined.key], joined.value]] if {
	joined.value != ""
} else := [[joined.key, options[joined.key], value]] if {
	value != null
} else := [[joined.key, "flag", null]] if {
	may_lack(options[joined.key])
}
