package config

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// gone are the keys that older versions had, with what to do without them.
var gone = map[string]string{
	"remote.max_sessions":              "the number is fixed",
	"remote.stage_root":                "it is /tmp",
	"remote.nodes.passphrase_file":     "use agent = true, or a key without a passphrase",
	"remote.nodes.password_file":       "use identity_file or agent = true",
	"egress.max_timeout":               "timeout is the limit of every request",
	"egress.memory":                    "max_body is the limit",
	"egress.prices.minimum_usd_micros": "what a request can cost is computed",
}

var index = regexp.MustCompile(`\[[0-9]+\]`)

// Migrate returns the text of a configuration of an older version without the keys that are gone,
// which become comments, and each line that changes, before and after. A text that has none of them
// comes back as it is, with no changes.
func Migrate(text []byte) (migrated []byte, changes string) {
	at, _ := linesOf(text)
	lines := bytes.SplitAfter(text, []byte("\n"))
	why := map[int]string{}
	for key, line := range at {
		if w := gone[index.ReplaceAllString(key, "")]; w != "" && line > 0 {
			why[line] = w
		}
	}
	for _, line := range slices.Sorted(maps.Keys(why)) {
		old := bytes.TrimRight(lines[line-1], "\r\n")
		now := fmt.Sprintf("# %s  # no key any more: %s", old, why[line])
		changes += fmt.Sprintf("%d\n-%s\n+%s\n", line, old, now)
		lines[line-1] = append([]byte(now), lines[line-1][len(old):]...)
	}
	return bytes.Join(lines, nil), changes
}
