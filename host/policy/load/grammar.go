package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Command is an entry of the command grammar, of the core or of the site.
type Command struct {
	Name     string            `json:"name"` // program and sub-command
	Group    string            `json:"group"`
	Tier     string            `json:"tier"` // with what the site adds
	Operands []string          `json:"operands"`
	Options  map[string]string `json:"options"` // by name; the value is "" for a flag
	Required []string          `json:"required"`
	Source   string            `json:"source,omitempty"` // manual page
	Site     bool              `json:"site"`             // described by the site
}

// Grammar returns the commands that the core and the site in dir describe, sorted by name: all, or
// those whose name is word or begins with word and a space.
func Grammar(ctx context.Context, dir, word string) ([]Command, error) {
	c, err := Untested(ctx, dir)
	if err != nil {
		return nil, err
	}
	v, err := c.ask(ctx, "data.caponier.core.listing.commands", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the command grammar: %w", err)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("listing the command grammar: %w", err)
	}
	var all []Command
	if err := json.Unmarshal(doc, &all); err != nil {
		return nil, fmt.Errorf("listing the command grammar: %w", err)
	}
	slices.SortFunc(all, func(a, b Command) int { return strings.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(c Command) bool {
		return word != "" && c.Name != word && !strings.HasPrefix(c.Name, word+" ")
	}), nil
}

// Print writes a line for a command, and in full its options and its source too.
func (c Command) Print(w io.Writer, full bool) {
	from := ""
	if c.Site {
		from = "  (of the site)"
	}
	fmt.Fprintf(w, "%-6s  %-15s  %s%s\n", c.Tier, c.Group,
		strings.Join(append([]string{c.Name}, c.Operands...), " "), from)
	if !full {
		return
	}
	for _, o := range slices.Sorted(maps.Keys(c.Options)) {
		value, need := c.Options[o], ""
		if value != "" && !strings.HasSuffix(o, "=") {
			value = " " + value
		}
		if slices.Contains(c.Required, o) {
			need = "  (required)"
		}
		fmt.Fprintf(w, "    %s%s%s\n", o, value, need)
	}
	if c.Source != "" {
		fmt.Fprintf(w, "    from %s\n", c.Source)
	}
}

// Tiers returns the tier of every entry of the command grammar by its name, such as "pct start": of
// the core, and of the programs that the site in dir describes. An empty dir is no site. Of the
// site only the data is read: whether its policy can be used is not checked.
func Tiers(dir string) (map[string]terms.Tier, error) {
	all, err := coreFiles()
	if dir != "" {
		all, err = siteFiles(dir)
	}
	if err != nil {
		return nil, err
	}
	c := &Candidate{data: map[string]any{}, places: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		data := strings.HasPrefix(name, "core/grammar/") || owned(name)
		if ext := path.Ext(name); data && (ext == ".yaml" || ext == ".json") {
			if err := c.parseData(name, all[name]); err != nil {
				return nil, fmt.Errorf("reading the command grammar: %w", err)
			}
		}
	}
	tiers := map[string]terms.Tier{}
	add := func(name string, entry any) {
		if tier, _ := at(asMap(entry), "tier").(string); tier != "" {
			tiers[strings.TrimSpace(name)] = terms.ParseTier(tier)
		}
	}
	for _, programs := range []any{at(c.data, "site", "binaries"),
		at(c.data, "core", "grammar", "commands")} {
		for program, subs := range asMap(programs) {
			for sub, entry := range asMap(subs) {
				add(program+" "+sub, entry)
				for shape, below := range asMap(at(asMap(entry), "paths")) {
					add(program+" "+sub+" "+shape, below)
				}
			}
		}
	}
	return tiers, nil
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
