package config

import (
	"bytes"
	"fmt"
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
