# METADATA
# scope: package
# description: >-
#   Reads argv by the command grammar. A command has a description only if the grammar describes
#   every word.
# schemas:
#   - data.site: schema.site
package caponier.core.grammar

tables := data.core.grammar

# describe returns id, group, tier, the words by kind as pairs [kind, word], the words that run
# inside a guest, and whether the site described the command itself ("own").
describe(argv) := read(lookup(argv))

# read returns the description of an entry that lookup found. Most commands of tools need only the
# first two forms. The third also supports dividers, guests, required options and optional operands;
# the last reads words like GNU programs do.
read(found) := described(found, array.concat(found.words, plain), []) if {
	not found.entry.gnu
	not strings.any_prefix_match(found.rest, "-")
	not found.entry.required
	plain := exact(found.entry.operands, found.rest)
} else := described(found, array.concat(found.words, array.concat(plain, parsed.values)), []) if {
	not found.entry.gnu
	not found.entry.required
	not found.entry.divider
	parsed := options_of(found.rest, found.entry.options)
	plain := exact(found.entry.operands, parsed.rest)
} else := described(found, words, guest) if {
	not found.entry.gnu
	end := divider(found.rest, found.entry)
	parsed := options_of(array.slice(found.rest, 0, end), found.entry.options)
	guest := guest_words(found.rest, end, found.entry)
	given := array.concat(parsed.rest, after(found.rest, end, found.entry))
	arguments := typed(found.entry.operands, given)
	words := array.concat(found.words, array.concat(arguments, parsed.values))
	before := array.slice(found.rest, 0, end + 1)
	every needed in object.get(found.entry, "required", []) { needed in before }
} else := described(found, words, []) if {
	found.entry.gnu == true
	words := gnu_words(found.rest, found.entry)
}

described(found, words, guest) := {
	"id": found.id, "group": group(found.entry, words), "tier": found.entry.tier,
	"inside": object.get(found.entry, "guest", false), "guest": guest, "words": words,
	"own": found.own,
}

# A program that reads files if it has paths, and otherwise its input, has a separate group for its
# input.
group(entry, words) := entry.bare if {
	count([kind | some [kind, _] in words; kind in {"readpath", "stagepath"}]) == 0
} else := entry.group

# exact pairs operands with kinds, if there is one matching word for each kind.
exact(kinds, words) := pairs if {
	count(words) == count(kinds)
	pairs := [[kinds[i], w] |
		some i, w in words
		count(w) <= longest
		regex.match(tables.kinds[kinds[i]], w)
	]
	count(pairs) == count(words)
}

# options_of extracts the options and their values. Every word that begins with a hyphen is an
# option, must match exactly, and may occur once. A value does not begin with a hyphen, so the
# meaning of a word depends only on the word before it. The value of a "switch" is 0 or 1, and may
# be missing.
options_of(words, options) := {"values": [[kind, words[n + 1]]], "rest": rest} if {
	n := count(words) - 2
	kind := options[words[n]]
	not kind in {"flag", "switch"}
	startswith(words[n], "-")
	not startswith(words[n + 1], "-")
	is(kind, words[n + 1])
	rest := array.slice(words, 0, n)
	not strings.any_prefix_match(rest, "-")
} else := {"values": values, "rest": rest} if {
	at := [i | some i, w in words; startswith(w, "-")]
	every i in at { options[words[i]] }
	count(at) == count({words[i] | some i in at})
	taken := {j | some i in at; j := i + 1; takes(options[words[i]], nth(words, j))}
	values := [[kind, words[i]] |
		some i in taken
		not startswith(words[i], "-")
		kind := options[words[i - 1]]
		is(kind, words[i])
	]
	count(values) == count(taken)
	rest := [w | some i, w in words; not startswith(w, "-"); not i in taken]
}

nth(list, i) := list[i] if {
	i < count(list)
} else := ""

takes(kind, _) if not kind in {"flag", "switch"}

takes("switch", next) if next in {"0", "1"}

# lookup returns the entry of a command, its remaining words, and the words of an API path. A
# program in "front" accepts options before its sub-command, and has other words for some
# sub-commands.
lookup(argv) := object.union(found, {"rest": array.slice(argv, found.skip, count(argv))}) if {
	not tables.front[argv[0]]
	found := entry_of(argv)
} else := object.union(found, {"rest": rest}) if {
	front := tables.front[argv[0]]
	at := min({i | some i, w in argv; i > 0; not startswith(w, "-")} | {count(argv)})
	before := array.slice(argv, 1, at)
	tail := array.slice(argv, at, count(argv))
	every w in [w | some w in before; at < count(argv)] { w in front.flags }
	given := array.concat([argv[0]], [front_word(front, i, w) | some i, w in tail])
	found := entry_of(given)
	moved := [w | some w in before; front_stays(front, at, argv)]
	rest := array.concat(array.slice(tail, found.skip - 1, count(tail)), moved)
}

front_word(front, i, w) := object.get(front.words[i], w, w) if {
	front.words[i]
} else := w

# Options before the sub-command are read with the others, if the program does so, or if there is no
# sub-command.
front_stays(front, _, _) if front.permutes == true

front_stays(_, at, argv) if at == count(argv)

# entry_of finds the entry of a program by its first word and as many of the next ones as name a
# sub-command, the longest first, and the entry of an API call by the shape of its path. Few
# programs have sub-commands of more than one word; "depth" in core/grammar/base.yaml says which. A
# site may add programs, and sub-commands to programs of the grammar, but replaces none.
entry_of(argv) := entry(concat(" ", [argv[0], argv[1]]), found, 2) if {
	found := tables.commands[argv[0]][argv[1]]
	found.tier
	argv[1] != ""
	not tables.depth[argv[0]]
} else := object.union(
	entry(concat(" ", [argv[0], argv[1], path.shape]), found, 3),
	{"words": path.words},
) if {
	method := tables.commands[argv[0]][argv[1]]
	method.api == true
	path := api_path(argv[2])
	found := method.paths[path.shape]
} else := entry(concat(" ", array.slice(argv, 0, n)), found, n) if {
	some_depth := object.get(tables.depth, argv[0], [2])
	n := max([m | some m in some_depth; m > 1; tables.commands[argv[0]][sub(argv, m)].tier])
	found := tables.commands[argv[0]][sub(argv, n)]
} else := object.union(entry(concat(" ", array.slice(argv, 0, 2)), found, 2), {"own": true}) if {
	found := data.site.binaries[argv[0]][sub(argv, 2)]
	argv[1] != ""
} else := entry(argv[0], found, 1) if {
	found := tables.commands[argv[0]][""]
	regex.match(`^[^ ]+$`, argv[0])
} else := object.union(entry(argv[0], found, 1), {"own": true}) if {
	not tables.commands[argv[0]]
	found := data.site.binaries[argv[0]][""]
	regex.match(`^[^ ]+$`, argv[0])
}

entry(id, found, skip) := {"id": id, "entry": found, "skip": skip, "words": [], "own": false}

# A word with a space could look like two words of a key, and an empty word like none, so such words
# are never part of a key.
sub(argv, n) := concat(" ", array.slice(argv, 1, n)) if {
	count(argv) >= n
	every w in array.slice(argv, 0, n) { regex.match(`^[^ ]+$`, w) }
}

# commands returns the sub-commands of a program, of the grammar and of the site.
commands(binary) := object.union(
	object.get(data.site.binaries, binary, {}),
	tables.commands[binary],
)

commands(binary) := data.site.binaries[binary] if not tables.commands[binary]

# divider returns the index of "--", or the end. An entry that does not accept "--" refuses it as an
# unknown option.
divider(words, entry) := min([i | some i, w in words; w == "--"]) if {
	entry.divider == true
	"--" in words
} else := count(words)

after(words, end, entry) := array.slice(words, end + 1, count(words)) if {
	not entry.guest
} else := []

guest_words(words, end, entry) := array.slice(words, end + 1, count(words)) if {
	entry.guest == true
	end < count(words)
} else := [] if {
	not entry.guest
}

# typed pairs operands with kinds. The last kind may end in "?" (it may be missing) or "*" (any
# number, at least none). A kind may consist of two kinds joined by "|"; the first that matches
# applies.
typed(kinds, given) := exact(kinds, given) if {
	exact(kinds, given)
} else := pairs if {
	count(given) >= count([k | some k in kinds; not optional(k)])
	pairs := [[first_of(kind_at(kinds, i), w), w] | some i, w in given]
	count(pairs) == count(given)
}

first_of(kind, w) := kind if {
	is(kind, w)
} else := fits[0] if {
	is_string(kind)
	fits := [k | some k in split(kind, "|"); is(k, w)]
}

kind_at(kinds, i) := kinds[i] if {
	is_array(kinds[i])
} else := trim_suffix(kinds[i], "?") if {
	not endswith(kinds[i], "*")
} else := trim_suffix(last, "*") if {
	last := kinds[count(kinds) - 1]
	is_string(last)
	endswith(last, "*")
	i >= count(kinds) - 1
}

optional(kind) if {
	is_string(kind)
	regex.match(`^.*[?*]$`, kind)
}

# is reports whether a word is of a kind: a list of words, or the name of a pattern in the grammar.
is(kind, w) if {
	is_array(kind)
	w in kind
}

is(kind, w) if {
	is_string(kind)
	count(w) <= longest
	regex.match(tables.kinds[kind], w)
}

# The maximum length of a path on Linux, in bytes with the final NUL. Longer paths only cost time.
longest := 4095

is("switch", w) if w in {"0", "1"}

# api_path returns the shape of an API path, which has a placeholder for the segment after a word
# such as nodes, and these segments with their kinds. If a segment is not of its kind, there is no
# shape.
api_path(path) := {"shape": shape, "words": words} if {
	all := split(path, "/")
	kinds := {i: kind | some i, _ in all; kind := tables.api.placeholders[all[i - 1]]}
	words := [[kind, all[i]] | some i, kind in kinds; is(kind, all[i])]
	count(words) == count(kinds)
	placed := {i: concat("", ["{", kind, "}"]) | some i, kind in kinds}
	shape := concat("/", [object.get(placed, i, s) | some i, s in all])
}
