package load

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Tiers returns the tier of every entry of the command grammar by its name, such as "pct start": of
// the core, and of the programs that the site in dir describes. An empty dir is no site. Of the
// site only the data is read: whether its policy can be used is not checked.
func Tiers(dir string) (map[string]gate.Tier, error) {
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
	tiers := map[string]gate.Tier{}
	add := func(name string, entry any) {
		if tier, _ := at(asMap(entry), "tier").(string); tier != "" {
			tiers[strings.TrimSpace(name)] = gate.ParseTier(tier)
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
