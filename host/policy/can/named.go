package can

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Named are the guests that the data of these policies name by number, one for each tag, pool and
// node that they protect or raise, and one that nothing names: all others are as these are, but for
// their names. Of those patterns no guest can be made, so policies that differ in them are an
// error.
func Named(all ...*load.Candidate) (map[string]terms.Guest, error) {
	guests, known := map[string]terms.Guest{}, map[[2]string]bool{}
	fact := terms.Guest{Kind: "lxc", Status: "running", Tags: []string{}}
	names := make([][2]map[string]any, len(all))
	for i, c := range all {
		site, _ := c.Data()["site"].(map[string]any)
		for _, id := range listed(site) {
			guests[id] = fact
		}
		for j, name := range []string{"protected", "raised", "relaxed"} {
			section, _ := site[name].(map[string]any)
			if section["protection"] != nil {
				known[[2]string{"protection", "on"}] = true
			}
			ids, _ := section["vmids"].([]any)
			for _, id := range ids {
				guests[fmt.Sprint(id)] = fact
			}
			for _, kind := range []string{"vmids", "tags", "pools", "nodes", "names"} {
				entries, _ := section[kind].(map[string]any)
				if kind == "names" && j < 2 && len(entries) > 0 {
					names[i][j] = entries
				}
				for entry := range entries {
					if kind == "vmids" {
						guests[entry] = fact
					} else if kind != "names" {
						known[[2]string{kind, entry}] = true
					}
				}
			}
		}
		if !reflect.DeepEqual(names[i], names[0]) {
			return nil, errors.New("the sites protect or raise guests by other names, and " +
				"without a list no guest has one: give --guests or --guest")
		}
	}
	next := 100
	add := func(g terms.Guest) {
		for ; guests[strconv.Itoa(next)].Kind != ""; next++ {
		}
		guests[strconv.Itoa(next)] = g
	}
	add(fact)
	for _, k := range slices.SortedFunc(maps.Keys(known), func(a, b [2]string) int {
		return slices.Compare(a[:], b[:])
	}) {
		add(sample(fact, k[0], k[1]))
	}
	return guests, nil
}

// sample returns a guest that an entry of the site is about.
func sample(g terms.Guest, kind, entry string) terms.Guest {
	switch kind {
	case "tags":
		g.Tags = []string{entry}
	case "pools":
		g.Pool = entry
	case "protection":
		g.Protection = entry
	default:
		g.Node = entry
	}
	return g
}

// listed are the guests that roles list.
func listed(site map[string]any) (ids []string) {
	roles, _ := site["roles"].(map[string]any)
	for _, r := range roles {
		role, _ := r.(map[string]any)
		all, _ := role["guests"].([]any)
		for _, id := range all {
			ids = append(ids, fmt.Sprint(id))
		}
	}
	return ids
}

// like says what a guest is known by beside its number.
func like(g terms.Guest) string {
	var known []string
	for _, of := range [][2]string{{"tag ", strings.Join(g.Tags, ", ")}, {"pool ", g.Pool},
		{"name ", g.Name}, {"node ", g.Node}, {"protection ", g.Protection}} {
		if of[1] != "" {
			known = append(known, of[0]+of[1])
		}
	}
	return strings.Join(known, "; ")
}
