package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
)

// differences is what people who know the older servers have to be told.
//
//go:embed toolsdoc.md
var differences string

// property is what docs/tools.md shows of an argument's schema.
type property struct {
	Type        any      `json:"type"`
	Description string   `json:"description"`
	Minimum     *float64 `json:"minimum"`
	Maximum     *float64 `json:"maximum"`
	MaxLength   *int     `json:"maxLength"`
	Pattern     string   `json:"pattern"`
	Enum        []any    `json:"enum"`
	Default     any      `json:"default"`
	Target      string   `json:"x-caponier-target"`
	Confirm     bool     `json:"x-caponier-confirm"`
}

func (p property) limits() string {
	var l []string
	if p.Minimum != nil && p.Maximum != nil {
		l = append(l, fmt.Sprintf("%.0f to %.0f", *p.Minimum, *p.Maximum))
	}
	if p.MaxLength != nil {
		l = append(l, fmt.Sprintf("at most %d characters", *p.MaxLength))
	}
	if p.Pattern != "" {
		l = append(l, "`"+strings.ReplaceAll(p.Pattern, "|", `\|`)+"`")
	}
	if len(p.Enum) > 0 {
		l = append(l, strings.Trim(fmt.Sprint(p.Enum), "[]"))
	}
	if p.Default != nil {
		l = append(l, fmt.Sprintf("default %v", p.Default))
	}
	if p.Target != "" {
		l = append(l, "target "+p.Target)
	}
	if p.Confirm {
		l = append(l, "confirmation")
	}
	return strings.Join(l, "; ")
}

// writeToolsDoc writes docs/tools.md: what the lock says of each tool, and the tier that the site
// gives it.
func writeToolsDoc(w io.Writer, tools []*gate.Tool, tier func(*gate.Tool) gate.Tier) error {
	fmt.Fprint(
		w,
		"# Tools\n\nGenerated from `plugins.lock` and `policies/site` by `make docs`. A tool without a tier is off until the site names one.\n\n"+strings.TrimRight(
			differences,
			"\n",
		)+"\n",
	)
	last := ""
	for _, t := range tools {
		if t.Plugin.Name != last {
			last = t.Plugin.Name
			fmt.Fprintf(w, "\n## Plugin `%s` %s\n", t.Plugin.Name, t.Plugin.Version)
		}
		level := tier(t).String()
		if level == "" {
			level = "off"
		}
		fmt.Fprintf(
			w,
			"\n### %s\n\n%s. Tier **%s**, budget %s.\n\n%s\n\n",
			t.Name,
			t.Title,
			level,
			t.Budget,
			t.Description,
		)
		fmt.Fprintf(w, "- runs: %s\n- operations: %s\n", t.Runs, strings.Join(t.Imports, ", "))
		if len(t.Commands) > 0 {
			fmt.Fprintf(w, "- may run: %s\n", "`"+strings.Join(gate.DescribeCommands(t.Commands), "`, `")+"`")
		}
		if len(t.TargetKinds) > 0 {
			fmt.Fprintf(w, "- targets: %s\n", strings.Join(t.TargetKinds, ", "))
		}
		var schema struct {
			Properties map[string]property `json:"properties"`
			Required   []string            `json:"required"`
		}
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
			return fmt.Errorf("schema of %s: %w", t.Name, err)
		}
		if len(schema.Properties) == 0 {
			continue
		}
		fmt.Fprint(w, "\n| argument | type | needed | limits | meaning |\n|---|---|---|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			p := schema.Properties[name]
			needed := map[bool]string{true: "yes"}[slices.Contains(schema.Required, name)]
			fmt.Fprintf(
				w,
				"| `%s` | %v | %s | %s | %s |\n",
				name,
				p.Type,
				needed,
				p.limits(),
				strings.ReplaceAll(p.Description, "|", `\|`),
			)
		}
	}
	return nil
}
