package load

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// A domain says which literals a field of the input can equal; nil says that any can.
type domain func(c *Candidate, literal *ast.Term) (why string)

// domains are those of the input's fields, "[]" standing for any element of a list. Paths below
// input.parent and elements that stand in several places are looked up by their end.
var domains = map[string]domain{
	"schema": words("caponier.call/1", "caponier.operation/1", "caponier.plan/1",
		"caponier.visible/1", "caponier.result/1"),
	"after":          words("operation", "call"),
	"size":           words("empty", "64k", "1m", "16m", "more"),
	"kind":           words("tool", "resource", "prompt", "host"),
	"freezes[].kind": words("all", "principal", "tool", "plugin", "node"),
	"source":         words("stdio", "http", "cli", "host"),
	"time.hour_utc":  between(0, 23, "hours"),
	"time.weekday":   between(0, 6, "weekdays, where 0 is Sunday"),
	"principal.auth": words("config", "token", "oidc", "host"),
	"tool.imports[]": words(append(abi.Operations(), "discard")...),
	"op":             words(append(abi.Operations(), "discard")...),
	"phase":          words("effect", "lookup"),
	"parent.tier":    words("green", "yellow", "red", "black"),
	"form":           words("argv", "script"),
	"state":          words("none", "argument", "approved", "expired", "mismatch"),
	"channel":        words("", "cli", "web", "client"),
	"file.action": words("stage", "stat", "list", "read", "write", "get", "put", "remove",
		"discard"),
	"file.type":       words("", "file", "dir", "symlink", "fifo", "socket", "device", "other"),
	"blob.action":     words("read", "write", "get"),
	"record.action":   words("undo", "snapshots"),
	"http.scheme":     words("http", "https"),
	"http.method":     matches(`^[A-Z]+$`, "a method in upper case"),
	"http.headers[]":  matches(`^[^A-Z]+$`, "a header in lower case"),
	"port":            between(1, 65535, "ports"),
	"vmids[]":         matches(`^[1-9][0-9]{2,8}$`, "a guest's number as text, 100 or above"),
	"services[]":      matches(unitName, "a unit with its suffix, such as nginx.service"),
	"targets.hosts[]": matches(`^[^A-Z/]*[^A-Z/.]$`, "a host in lower case without a final dot"),
	"targets.paths[]": matches(`^/([^/].*)?$`, "an absolute path"),
	"guest_paths[]":   matches(`^/([^/].*)?$`, "an absolute path"),
	"local_paths[]":   matches(`^[^/]`, "a path relative to the workspace"),
	"target_kinds[]": words("nodes", "vmids", "services", "hosts", "paths", "guest_paths",
		"local_paths", "commands", "trees"),
	"targets.nodes[]":    nodeName,
	"target.node":        nodeName,
	"nodes[].name":       nodeName,
	"stages[].node":      nodeName,
	"roles[]":            roleName,
	"credential_roles[]": roleName,
	"tool.name":          toolName,
	"parent.tool":        toolName,
}

const unitName = `^[^A-Z]+\.` +
	`(service|socket|target|timer|mount|automount|device|swap|path|slice|scope)$`

// domainOf returns the domain of the longest end of a path that has one.
func domainOf(path string) domain {
	for rest, more := path, true; more; _, rest, more = strings.Cut(rest, ".") {
		if d := domains[rest]; d != nil {
			return d
		}
	}
	return nil
}

func words(all ...string) domain {
	return func(_ *Candidate, t *ast.Term) string {
		if s, ok := t.Value.(ast.String); ok && slices.Contains(all, string(s)) {
			return ""
		}
		return "it is one of " + strings.Join(all, ", ")
	}
}

func matches(pattern, what string) domain {
	re := regexp.MustCompile(pattern)
	return func(_ *Candidate, t *ast.Term) string {
		if s, ok := t.Value.(ast.String); ok && re.MatchString(string(s)) {
			return ""
		}
		return "it is " + what
	}
}

func between(low, high int, what string) domain {
	return func(_ *Candidate, t *ast.Term) string {
		if n, ok := t.Value.(ast.Number); ok {
			if i, ok := n.Int(); ok && i >= low && i <= high {
				return ""
			}
		}
		return fmt.Sprintf("it is a number from %d to %d (%s)", low, high, what)
	}
}

func toolName(c *Candidate, t *ast.Term) string {
	var names []string
	for _, tool := range c.inventory.Tools {
		names = append(names, tool.Name)
	}
	return c.oneOf(t, names, "no plugin in the lock has a tool of this name")
}

func nodeName(c *Candidate, t *ast.Term) string {
	names := c.inventory.names()
	for _, n := range list(c.data, "site", "cluster_nodes") {
		names = append(slices.Clone(names), fmt.Sprint(n))
	}
	if c.inventory.Nodes == nil {
		names = nil
	}
	return c.oneOf(t, names, "neither the inventory nor cluster_nodes has a node of this name")
}

func roleName(c *Candidate, t *ast.Term) string {
	return c.oneOf(t, keys(c.data, "site", "roles"), "data.yaml has no role of this name")
}

// oneOf holds a literal against names, unless these are not known.
func (c *Candidate) oneOf(t *ast.Term, names []string, why string) string {
	s, ok := t.Value.(ast.String)
	if names == nil || ok && slices.Contains(names, string(s)) {
		return ""
	}
	return why + c.meant(string(s), names)
}

// meant suggests the known name that is nearest to one that is not known, or nothing.
func (c *Candidate) meant(name string, known []string) string {
	best, limit := "", max(1, min(3, len(name)/3))
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(name, k); k != name && d <= limit {
			best, limit = k, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is how many letters must be added, removed or replaced, or neighbours swapped.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
