package offline

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Format writes answers as [Parse] reads them.
func Format(a *Answers) []byte {
	w := &strings.Builder{}
	if len(a.Nodes) > 0 {
		fmt.Fprintf(w, "nodes: %s\n", quoted(a.Nodes))
	}
	section(w, "commands", a.Commands, formatCommand)
	section(w, "files", a.Files, formatFile)
	section(w, "requests", a.Requests, formatRequest)
	section(w, "asks", a.Asks, func(x Ask) []string {
		lines := []string{"key: " + quoted(x.Key), "action: " + quoted(x.Action)}
		if len(x.Content) > 0 {
			lines = append(lines, "content: "+string(x.Content))
		}
		return lines
	})
	section(w, "local", slices.Sorted(maps.Keys(a.Local)), func(name string) []string {
		return append([]string{"path: " + quoted(name)}, text("text", "b64", a.Local[name])...)
	})
	return []byte(w.String())
}

func section[T any](w *strings.Builder, name string, all []T, lines func(T) []string) {
	for i, x := range all {
		if i == 0 {
			fmt.Fprintf(w, "%s:\n", name)
		}
		fmt.Fprintf(w, "  - %s\n", strings.Join(lines(x), "\n    "))
	}
}

func formatCommand(c Command) []string {
	lines := []string{"argv: " + quoted(c.Argv)}
	if c.Script != "" {
		lines[0] = "script: " + quoted(c.Script)
	}
	if c.Node != "" {
		lines = append(lines, "node: "+quoted(c.Node))
	}
	for i, r := range c.Results {
		its := append([]string{fmt.Sprint("exit: ", r.Exit)},
			append(text("stdout", "stdout_b64", r.Stdout),
				text("stderr", "stderr_b64", r.Stderr)...)...)
		switch i {
		case 0:
			lines = append(lines, its...)
		case 1:
			lines = append(lines, "then:")
			fallthrough
		default:
			lines = append(lines, "  - "+strings.Join(its, "\n        "))
		}
	}
	return lines
}

func formatFile(f File) []string {
	lines := []string{"path: " + quoted(f.Path), "type: " + quoted(f.Type),
		fmt.Sprintf("mode: \"%04o\"", f.Mode)}
	if f.Node != "" {
		lines = append(lines, "node: "+quoted(f.Node))
	}
	if f.Type == "file" {
		lines = append(lines, text("text", "b64", f.Bytes)...)
	}
	return lines
}

func formatRequest(r Request) []string {
	lines := []string{"method: " + quoted(r.Method), "url: " + quoted(r.URL),
		fmt.Sprint("status: ", r.Status), "headers: " + quoted(r.Headers)}
	if len(r.Headers) == 0 {
		lines = lines[:3]
	}
	return append(lines, text("text", "b64", r.Body)...)
}

// text has bytes as text where they are, and as base64 where not.
func text(key, b64 string, data []byte) []string {
	s, encoded := abi.Split(data)
	if _, err := json.Marshal(s); encoded != "" || err != nil {
		return []string{b64 + ": " + quoted(base64.StdEncoding.EncodeToString(data))}
	}
	return []string{key + ": " + quoted(s)}
}

// quoted is JSON, which is YAML too once what does not show is escaped.
func quoted(v any) string {
	b, _ := json.Marshal(v) // cannot fail for texts and lists of texts
	w := &strings.Builder{}
	for _, r := range string(b) {
		if r >= ' ' && r < 0x10000 && !unicode.IsPrint(r) {
			fmt.Fprintf(w, `\u%04x`, r)
		} else {
			w.WriteRune(r)
		}
	}
	return w.String()
}
