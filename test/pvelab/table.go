package pvelab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// column is one column of a text table.
type column struct {
	key, title string
	right      bool
	show       func(any) string
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	case string:
		f, err := strconv.ParseFloat(n, 64)
		return f, err == nil
	}
	return 0, false
}

func showBytes(v any) string {
	f, ok := number(v)
	if !ok {
		return ""
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return strconv.FormatFloat(f, 'f', 2, 64) + " " + units[i]
}

func showDuration(v any) string {
	f, ok := number(v)
	if !ok {
		return ""
	}
	s, out := int(f), ""
	for _, u := range []struct {
		n    int
		name string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}} {
		if s >= u.n {
			out += fmt.Sprintf("%d%s ", s/u.n, u.name)
			s %= u.n
		}
	}
	if s > 0 || out == "" {
		out += fmt.Sprintf("%ds", s)
	}
	return strings.TrimSpace(out)
}

func showTime(v any) string {
	f, ok := number(v)
	if !ok {
		return ""
	}
	return time.Unix(int64(f), 0).UTC().Format("2006-01-02 15:04:05")
}

func showPlain(v any) string {
	if v == nil {
		return ""
	}
	switch v.(type) {
	case map[string]any, []any:
		return strings.TrimSpace(encode(v, ""))
	}
	return fmt.Sprint(v)
}

var ctColumns = func() (cols []column) {
	for _, f := range strings.Fields("status: vmid:n cpu:n cpus:n disk:b diskread:b diskwrite:b " +
		"lock: maxdisk:b maxmem:b maxswap:b mem:b name: netin:b netout:b pressurecpusome:n " +
		"pressureiofull:n pressureiosome:n pressurememoryfull:n pressurememorysome:n tags: " +
		"template:n uptime:d") {
		key, kind, _ := strings.Cut(f, ":")
		c := column{key: key, title: key, right: kind != "", show: showPlain}
		switch kind {
		case "b":
			c.show = showBytes
		case "d":
			c.show = showDuration
		}
		cols = append(cols, c)
	}
	return cols
}()

// tableOf draws rows as pvesh and pvenode do. A column of the schema stands there also when nothing
// fills it.
func tableOf(cols []column, rows []map[string]any) string {
	wide := make([]int, len(cols))
	text := make([][]string, len(rows))
	for i, c := range cols {
		wide[i] = utf8.RuneCountInString(c.title)
		for j, r := range rows {
			s := c.show(r[c.key])
			text[j] = append(text[j], s)
			wide[i] = max(wide[i], utf8.RuneCountInString(s))
		}
	}
	var b strings.Builder
	rule := func(left, mid, right, fill string) {
		b.WriteString(left)
		for i, w := range wide {
			if i > 0 {
				b.WriteString(mid)
			}
			b.WriteString(strings.Repeat(fill, w+2))
		}
		b.WriteString(right + "\n")
	}
	line := func(cell func(int) string) {
		for i, c := range cols {
			s := cell(i)
			pad := strings.Repeat(" ", wide[i]-utf8.RuneCountInString(s))
			if c.right {
				s = pad + s
			} else {
				s += pad
			}
			b.WriteString("│ " + s + " ")
		}
		b.WriteString("│\n")
	}
	rule("┌", "┬", "┐", "─")
	line(func(i int) string { return cols[i].title })
	rule("╞", "╪", "╡", "═")
	for j := range rows {
		if j > 0 {
			rule("├", "┼", "┤", "─")
		}
		line(func(i int) string { return text[j][i] })
	}
	rule("└", "┴", "┘", "─")
	return b.String()
}

// textOf is pvesh's own format. Only the container list has the real one's columns; other lists
// show what they have.
func textOf(m *method, v any) string {
	switch v := v.(type) {
	case []any:
		var rows []map[string]any
		keys := map[string]bool{}
		for _, r := range v {
			row, ok := r.(map[string]any)
			if !ok {
				row = map[string]any{"value": r}
			}
			rows = append(rows, row)
			for k := range row {
				keys[k] = true
			}
		}
		if len(rows) == 0 {
			return ""
		}
		if m != nil && m.Class == "PVE::API2::LXC" && m.Name == "vmlist" {
			slices.SortFunc(rows, func(a, b map[string]any) int {
				x, _ := number(a["vmid"])
				y, _ := number(b["vmid"])
				return int(x - y)
			})
			return tableOf(ctColumns, rows)
		}
		var cols []column
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			_, num := number(rows[0][k])
			cols = append(cols, column{k, k, num, showPlain})
		}
		return tableOf(cols, rows)
	case map[string]any:
		return keyTable(v)
	}
	return showPlain(v) + "\n"
}

func keyTable(m map[string]any) string {
	var rows []map[string]any
	for _, k := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, map[string]any{"key": k, "value": m[k]})
	}
	return tableOf([]column{{"key", "key", false, showPlain}, {"value", "value", false, showPlain}},
		rows)
}

func printTaskStatus(c *call, v any) { fmt.Fprint(c.p.out, keyTable(v.(map[string]any))) }

// printTasks lists the oldest first and shows an error as one word.
func printTasks(c *call, v any) {
	var rows []map[string]any
	for _, r := range v.([]any) {
		m := r.(map[string]any)
		if s, _ := m["status"].(string); s != "" && s != "OK" &&
			!strings.HasPrefix(s, "WARNINGS: ") {
			m["status"] = "ERROR"
		}
		rows = append(rows, m)
	}
	slices.Reverse(rows)
	fmt.Fprint(
		c.p.out,
		tableOf(
			[]column{
				{"upid", "UPID", false, showPlain},
				{"type", "Type", false, showPlain},
				{"id", "ID", false, showPlain},
				{"user", "User", false, showPlain},
				{"starttime", "Starttime", true, showTime},
				{"endtime", "Endtime", true, showTime},
				{"status", "Status", false, showPlain},
			},
			rows,
		),
	)
}

func printVMList(c *call, v any) {
	rows := byVMID(v.([]any))
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(c.p.out, "%10s %-20s %-10s %-10s %12s %-10s\n", "VMID", "NAME", "STATUS", "MEM(MB)",
		"BOOTDISK(GB)", "PID")
	for _, m := range rows {
		pid := m["pid"]
		if pid == nil {
			pid = 0
		}
		fmt.Fprintf(c.p.out, "%10d %-20s %-10s %-10d %12.2f %-10v\n", m["vmid"], m["name"],
			m["status"], m["maxmem"].(int64)>>20, float64(m["maxdisk"].(int64))/(1<<30), pid)
	}
}

// yaml writes the few shapes that the API returns.
func yaml(v any, indent string) string {
	switch v := v.(type) {
	case map[string]any:
		s := ""
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch v[k].(type) {
			case map[string]any, []any:
				s += indent + k + ":\n" + yaml(v[k], indent+"  ")
			default:
				s += indent + k + ": " + strings.TrimSpace(encode(v[k], "")) + "\n"
			}
		}
		return s
	case []any:
		s := ""
		for _, x := range v {
			s += indent + "- " + strings.TrimPrefix(yaml(x, indent+"  "), indent+"  ")
		}
		return s
	}
	return indent + strings.TrimSpace(encode(v, "")) + "\n"
}
