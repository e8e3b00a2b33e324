# METADATA
# scope: package
# description: >-
#   Command text as argument lists, for plain and quoted words joined by operators. The host lowers
#   more; a test compares both.
package caponier.testing.lowered

plain := `[A-Za-z0-9_./:@%+,=-]+`

# One word: quoted as a whole, or plain.
word := concat("", [`(?:'[^'\x00-\x1f\x7f]*'|"[^"$\\`, "`", `\x00-\x1f\x7f]*"|`, plain, `)`])

joiner := `(?:&&|\|\||\||;)`

command := concat("", [word, `(?: +`, word, `)*`])

whole := concat("", [`^ *`, command, `(?: *`, joiner, ` *`, command, `)* *$`])

features := {"&&": "and", "||": "or", "|": "pipe", ";": "sequence"}

# odd says why a text cannot be written in a test. It is undefined for one that can.
odd(text) := "command text is a string" if {
	not is_string(text)
} else := concat(" ", [
	"in a test, command text is plain or quoted words joined by && || | ;",
	"(ask `caponier policy eval` about other text)",
]) if {
	not regex.match(whole, text)
} else := sprintf(
	"%q is a word of the shell itself or a shell: ask `caponier policy eval` about such text",
	[name],
) if {
	some name in special(calls(text))
}

# special are the words that a shell could take for its own, and those that hold more text.
special(all) := {argv[0] |
	some argv in all
	own(argv[0])
} | {w |
	some argv in all
	some w in argv
	parts := split(w, "/")
	parts[count(parts) - 1] in data.testing.shells
}

own(name) if name in data.testing.words

own(name) if regex.match(`=|^%|^$`, name)

tokens(text) := regex.find_n(concat("|", [word, joiner]), text, -1)

joiners(text) := [t | some t in tokens(text); features[t]]

calls(text) := [argv |
	all := tokens(text)
	ends := array.concat([i | some i, t in all; features[t]], [count(all)])
	some n, end in ends
	start := begin(ends, n)
	argv := [bare(all[i]) | some i, _ in all; i >= start; i < end]
]

begin(ends, n) := ends[n - 1] + 1 if {
	n > 0
} else := 0

bare(token) := substring(token, 1, count(token) - 2) if {
	regex.match(`^['"]`, token)
} else := token

quoted(w) := concat("", ["'", replace(w, "'", `'\''`), "'"])

# script gives the command of a text in which odd found nothing.
script(text) := {
	"form": "script", "text": text, "parsed": true, "error": "",
	"features": sort({features[j] | some j in joiners(text)}),
	"calls": [{"argv": argv, "static": true} | some argv in all],
	"rendered": concat(" ", [part |
		some n, argv in all
		some part in array.concat(before(text, n), [concat(" ", [quoted(w) | some w in argv])])
	]),
	"nested": [], "stdin": {"bytes": 0, "sha256": ""},
} if {
	all := calls(text)
}

before(text, n) := [joiners(text)[n - 1]] if {
	n > 0
} else := []
