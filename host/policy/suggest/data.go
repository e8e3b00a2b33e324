package suggest

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/load/strict"
)

// readsRoles reports whether rules can tell roles apart: all that read of a principal more than its
// id and how it proved that.
func readsRoles(rego string) bool {
	rest := strings.NewReplacer("input.principal.id", "", "input.principal.auth", "").Replace(rego)
	return strings.Contains(rest, "principal") || strings.Contains(rest, "roles")
}

// without takes paths of the site's data out of one of its files.
func without(name string, data []byte, gone [][]string) ([]byte, error) {
	top, _, err := strict.Map(name, data)
	if err != nil {
		return nil, err
	}
	below := strings.Split(path.Dir(name), "/")[1:]
	cut := false
	for _, p := range gone {
		if len(below) >= len(p) || !slices.Equal(below, p[:len(below)]) {
			continue
		}
		rest := p[len(below):]
		in, _ := at(top, rest[:len(rest)-1]...).(map[string]any)
		if _, there := in[rest[len(rest)-1]]; there {
			delete(in, rest[len(rest)-1])
			cut = true
		}
	}
	if !cut {
		return data, nil
	}
	return json.Marshal(top)
}

// at returns what stands below a path of keys, nil where nothing does.
func at(data map[string]any, keys ...string) any {
	var v any = data
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func texts(list any) (all []string) {
	of, _ := list.([]any)
	for _, v := range of {
		all = append(all, fmt.Sprint(v))
	}
	return all
}
