package doctor

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/shell"
)

type local struct {
	Findings
	c *config.Config
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./@:+,=%-]+$`)

// quote returns words for a shell, quoted where they have to be.
func quote(words ...string) string {
	for i, w := range words {
		if !plain.MatchString(w) {
			words[i] = shell.Quote([]string{w})
		}
	}
	return strings.Join(words, " ")
}

// edit is a line that opens the editor.
func edit(file string, line int) string {
	return fmt.Sprintf("${EDITOR:-vi} +%d %s", max(line, 1), quote(file))
}

// set is a line that sets a key of the configuration file.
func (l *local) set(table, key, value string) string {
	file := quote(l.c.File)
	path := strings.TrimPrefix(table+"."+key, ".")
	switch line, head := l.c.Line(path), l.c.Line(table); {
	case line > 0:
		return fmt.Sprintf("sed -i '%ds|.*|%s = %s|' %s", line, key, value, file)
	case table == "":
		return fmt.Sprintf("sed -i '1i %s = %s' %s", key, value, file)
	case head > 0:
		return fmt.Sprintf("sed -i '%da %s = %s' %s", head, key, value, file)
	}
	return fmt.Sprintf(`printf '\n[%s]\n%s = %s\n' >> %s`, table, key, value, file)
}

func (l *local) data() string { return filepath.Join(l.c.Policy.Site, "data.yaml") }

const review = "   # then review the difference like code"

// relock is the line that describes modules again; without names, all of them.
func (l *local) relock(names ...string) string {
	return quote(append([]string{"caponier", "plugin", "lock", "--lock", l.c.Plugin.Lock, "--dir",
		l.c.Plugin.Dir}, names...)...) + review
}
