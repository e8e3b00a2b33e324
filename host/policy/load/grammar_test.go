package load

import (
	"slices"
	"testing"
)

func TestGrammarListsWhatCommandsTake(t *testing.T) {
	const site = "../../../policies/site"
	all, err := Grammar(t.Context(), site, "")
	if err != nil || len(all) < 300 {
		t.Fatalf("%d commands, %v", len(all), err)
	}
	zpool, err := Grammar(t.Context(), site, "zpool")
	if err != nil || len(zpool) < 5 || !slices.ContainsFunc(zpool, func(c Command) bool {
		return c.Name == "zpool status" && c.Tier == "green" && c.Options["-x"] == "" &&
			c.Source != ""
	}) {
		t.Errorf("zpool: %+v, %v", zpool, err)
	}
	if start, err := Grammar(t.Context(), site, "pct start"); err != nil || len(start) != 1 ||
		start[0].Tier != "red" {
		t.Errorf("the tier of pct start is the site's, red: %+v, %v", start, err)
	}
	if none, err := Grammar(t.Context(), site, "docker"); err != nil || len(none) != 0 {
		t.Errorf("docker: %+v, %v", none, err)
	}
}
