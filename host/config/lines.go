package config

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// linesOf returns the lines of the keys and tables of a TOML document by their paths, such as
// remote.nodes[0].host. It leaves out what is inside inline tables. The second map has the tables
// alone.
func linesOf(data []byte) (lines map[string]int, tables map[string]bool) {
	lines, tables = map[string]int{}, map[string]bool{}
	elements := map[string]int{} // of arrays of tables, so far
	var p unstable.Parser
	p.Reset(data)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		var parts []string
		line := 0
		for it := e.Key(); it.Next(); {
			parts = append(parts, string(it.Node().Data))
			line = max(line, lineAt(data, it.Node().Data))
		}
		path := func(base string, parts []string) string {
			for _, part := range parts {
				base = strings.TrimPrefix(base+"."+part, ".")
				if n, list := elements[base]; list {
					base = fmt.Sprintf("%s[%d]", base, n-1)
				}
			}
			return base
		}
		last := len(parts) - 1
		switch e.Kind {
		case unstable.Table:
			table = path("", parts)
			lines[table], tables[table] = line, true
		case unstable.ArrayTable:
			list := strings.TrimPrefix(path("", parts[:last])+"."+parts[last], ".")
			elements[list]++
			table = fmt.Sprintf("%s[%d]", list, elements[list]-1)
			lines[table], tables[table] = line, true
		case unstable.KeyValue:
			lines[path(table, parts)] = line
		}
	}
	return lines, tables
}

// lineAt returns the line in which key, a slice of data, begins. It is 0 for a key with escapes,
// which the parser has copied.
func lineAt(data, key []byte) int {
	at := cap(data) - cap(key) // slices of one array end together
	if at < 0 || at+len(key) > len(data) || !bytes.Equal(data[at:at+len(key)], key) {
		return 0
	}
	return 1 + bytes.Count(data[:at], []byte("\n"))
}

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
