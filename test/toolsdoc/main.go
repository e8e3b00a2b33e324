// Command toolsdoc writes docs/tools.md to its output, from plugins.lock and policies/site.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// differences is what users of the older servers have to know.
//
//go:embed differences.md
var differences string

func main() {
	lock, err := plugin.Load("plugins.lock")
	if err != nil {
		log.Fatal(err)
	}
	site, err := load.New(context.Background(), load.Options{Site: "policies/site"})
	if err != nil {
		log.Fatal(err)
	}
	write(os.Stdout, lock.Tools(), func(t *terms.Tool) terms.Tier {
		d, err := site.Decide(
			context.Background(),
			terms.Question{ID: "list", Kind: terms.KindVisible,
				Time: time.Now(), Mode: terms.Mode{Freezes: []terms.Freeze{}},
				Call: &terms.Call{Source: "cli",
					Tool: t, Principal: terms.Principal{ID: "local", Roles: []string{},
						Auth: "config"}}},
		)
		if err != nil {
			log.Fatal(err)
		}
		return d.Tier
	})
}

func limits(p terms.Param) string {
	var l []string
	add := func(format string, args ...any) { l = append(l, fmt.Sprintf(format, args...)) }
	if p.Min != nil && p.Max != nil {
		add("%.0f to %.0f", *p.Min, *p.Max)
	}
	if p.MaxLength > 0 {
		add("at most %d characters", p.MaxLength)
	}
	if p.Pattern != "" {
		add("`%s`", strings.ReplaceAll(p.Pattern, "|", `\|`))
	}
	if len(p.Enum) > 0 {
		add("%s", strings.Join(p.Enum, " "))
	}
	if p.Default != nil {
		add("default %v", p.Default)
	}
	if p.Target != "" && p.Type != "array" {
		add("target %s", p.Target)
	}
	if p.Confirm {
		add("confirmation")
	}
	return strings.Join(l, "; ")
}

// write writes what the lock has of each tool, and the tier that the site gives it.
func write(w io.Writer, tools []*terms.Tool, tier func(*terms.Tool) terms.Tier) {
	fmt.Fprintf(
		w,
		"# Tools\n\nGenerated from `plugins.lock` and `policies/site` by `make docs`. A tool "+
			"without a tier is off until the\nsite names one.\n\n%s\n",
		strings.TrimRight(differences, "\n"),
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
		fmt.Fprintf(w, "\n### %s\n\n%s. Tier **%s**, budget %s.\n\n%s\n\n", t.Name, t.Title, level,
			t.Budget, t.Description)
		fmt.Fprintf(w, "- runs: %s\n- operations: %s\n", t.Runs, strings.Join(t.Imports, ", "))
		if len(t.Commands) > 0 {
			fmt.Fprintf(w, "- may run: `%s`\n",
				strings.Join(plaintext.Commands(t.Commands), "`, `"))
		}
		if t.AliasOf != "" {
			fmt.Fprintf(w, "- alias of: `%s`\n", t.AliasOf)
		}
		if len(t.TargetKinds) > 0 {
			fmt.Fprintf(w, "- targets: %s\n", strings.Join(t.TargetKinds, ", "))
		}
		if len(t.Params) == 0 {
			continue
		}
		fmt.Fprint(w, "\n| argument | type | needed | limits | meaning |\n|---|---|---|---|---|\n")
		for _, p := range t.Params {
			fmt.Fprintf(w, "| `%s` | %v | %s | %s | %s |\n", p.Name, p.Type,
				map[bool]string{true: "yes"}[p.Required], limits(p),
				strings.ReplaceAll(p.Description, "|", `\|`))
		}
	}
}
