package load

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// The tiers that authors are held to are those of the grammar that decides.
func TestTiersAreThoseOfTheGrammar(t *testing.T) {
	tiers, err := Tiers("")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Grammar(t.Context(), "../../../policies/site", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if tier := tiers[c.Name]; tier == terms.NoTier || tier > terms.ParseTier(c.Tier) {
			t.Errorf("%s is %s, and on a site %s", c.Name, tier, c.Tier)
		}
	}
	if len(all) != len(tiers) {
		t.Errorf("%d tiers of %d entries", len(tiers), len(all))
	}
	for name, want := range map[string]terms.Tier{"pct destroy": terms.Red,
		"pct start": terms.Yellow,
		"uname":     terms.Green, "pvesh get /cluster/resources": terms.Green,
		"mytool show": terms.NoTier} {
		if tiers[name] != want {
			t.Errorf("%s is %q, want %q", name, tiers[name], want)
		}
	}
}

func TestTiersOfASite(t *testing.T) {
	dir := t.TempDir()
	data := `binaries: {mytool: {show: {group: read, tier: green}, "": {group: read, tier: yellow}},
  pct: {destroy: {group: read, tier: green}}}`
	if err := os.WriteFile(filepath.Join(dir, "data.yaml"), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	tiers, err := Tiers(dir)
	if err != nil || tiers["mytool show"] != terms.Green || tiers["mytool"] != terms.Yellow {
		t.Errorf("%v, %v", tiers["mytool show"], err)
	}
	if tiers["pct destroy"] != terms.Red {
		t.Error("a site lowers an entry of the core")
	}
	if _, err := Tiers(dir + "/none"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a site that is not there: %v", err)
	}
}
