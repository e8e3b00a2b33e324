package pvelab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// volatile keys hold what differs from run to run. A value keeps its JSON type, and zero stays
// zero, so that a missing number, or a string in a number's place, still shows.
var volatile = map[string]bool{
	"digest": true, "pid": true, "pstart": true, "starttime": true, "endtime": true, "uptime": true,
	"ctime": true, "snaptime": true,
	"time": true, "localtime": true, "disk": true, "used": true, "avail": true, "free": true,
	"available":       true,
	"pressurecpufull": true, "pressurecpusome": true, "pressureiofull": true,
	"pressureiosome":     true,
	"pressurememoryfull": true, "pressurememorysome": true, "loadavg": true, "flags": true,
}

var textRules = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`UPID:([^:]+):[0-9A-F]{8}:[0-9A-F]{8,9}:[0-9A-F]{8}:`), "UPID:$1:#:#:#:"},
	{regexp.MustCompile(`\b[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}\b`), "#date"},
	{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\b`), "#time"},
	{regexp.MustCompile(`(?m)^(disk|pid|uptime): [1-9][0-9]*$`), "$1: #"},
	{regexp.MustCompile(`(?m)^(pressure\w+): [0-9]\.[0-9]{2}$`), "$1: #"},
	{regexp.MustCompile(`(?m)^(│ (?:pid|pstart|starttime)\s+│) [1-9][0-9]* +│$`), "$1 # │"},
	{regexp.MustCompile(`│ +[0-9]+m [0-9]+s │`), "│ #dur │"},
	{regexp.MustCompile(`\.conf\.tmp\.[0-9]+`), ".conf.tmp.#"},
}

// normal is what two outputs are compared by. JSON of pvesh is compared as values, everything else
// as text.
func normal(out string) string {
	if t := strings.TrimSuffix(out, "\n"); t != out {
		head, last := "", t
		if i := strings.LastIndexByte(t, '\n'); i >= 0 {
			head, last = t[:i+1], t[i+1:]
		}
		var v any
		if (strings.HasPrefix(last, "[") || strings.HasPrefix(last, "{") ||
			strings.HasPrefix(last, `"`)) &&
			json.Unmarshal([]byte(last), &v) == nil {
			return normalText(head) + encode(normalJSON("", v), "") + "(json)"
		}
	}
	return normalText(out)
}

func normalText(s string) string {
	for _, r := range textRules {
		s = r.re.ReplaceAllString(s, r.to)
	}
	if strings.Contains(s, "│") { // a table's widths follow its values
		s = regexp.MustCompile(` +`).ReplaceAllString(s, " ")
		s = regexp.MustCompile(`─+`).ReplaceAllString(s, "─")
		s = regexp.MustCompile(`═+`).ReplaceAllString(s, "═")
	}
	return s
}

func normalJSON(key string, v any) any {
	if volatile[key] {
		switch x := v.(type) {
		case float64:
			if x == 0 {
				return x
			}
		case []any:
			return fmt.Sprintf("#%d of %T", len(x), x[0])
		}
		return fmt.Sprintf("#%T", v)
	}
	switch v := v.(type) {
	case string:
		if key == "content" {
			part := strings.Split(v, ",")
			slices.Sort(part)
			return strings.Join(part, ",")
		}
		return normalText(v)
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = normalJSON(k, x)
		}
		return out
	case []any:
		out := []any{}
		ordered := false
		for _, x := range v {
			m, isMap := x.(map[string]any)
			// tasks, log lines, plain values
			ordered = ordered || !isMap || m["starttime"] != nil || m["n"] != nil
			out = append(out, normalJSON("", x))
		}
		if !ordered {
			slices.SortFunc(out, func(a, b any) int {
				return cmp.Compare(encode(a, ""), encode(b, ""))
			})
		}
		return out
	}
	return v
}

// result is one run, recorded or replayed.
type result struct {
	exit           int
	stdout, stderr string
}

// diff names what differs, or nothing.
func diff(want, got result) string {
	out := ""
	if want.exit != got.exit {
		out += fmt.Sprintf("exit: want %d, got %d\n", want.exit, got.exit)
	}
	for _, s := range []struct{ name, want, got string }{{"stdout", want.stdout, got.stdout},
		{"stderr", want.stderr, got.stderr}} {
		if w, g := normal(s.want), normal(s.got); w != g {
			out += fmt.Sprintf("%s:\n want %q\n  got %q\n", s.name, w, g)
		}
	}
	return out
}
