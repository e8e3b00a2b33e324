package load

import (
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Core is compiled without the check of types where a site has no Rego, because it passes it here.
func TestTheTypesOfCoreAreChecked(t *testing.T) {
	compile := func(more, to string, checked bool) error {
		all, err := siteFiles("../../../policies/site")
		if err != nil {
			t.Fatal(err)
		}
		if checked { // annotations are read
			all["site/x.rego"] = []byte("package caponier.site.call")
		}
		if more != "" {
			all[more] = []byte(to)
		}
		c, err := parse(all, Inventory{})
		if err != nil {
			t.Fatal(err)
		}
		c.wellTyped = !checked
		return c.compile(t.Context())
	}
	if err := compile("", "", true); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string]string{
		"input": "# METADATA\n# scope: package\n# schemas:\n#   - input: schema.input\n" +
			"package caponier.core.wrong\n\nx := input.principal.nobody",
		"site": "# METADATA\n# scope: package\n# schemas:\n#   - data.site: schema.site\n" +
			"package caponier.core.wrong\n\nx := data.site.nobody",
		"function": "package caponier.core.wrong\n\nx := count(1)",
	} {
		err := compile("core/wrong.rego", wrong, true)
		if err == nil || !strings.Contains(err.Error(), "core/wrong.rego") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// and where a site has Rego, all is checked
	all, err := siteFiles("../../../policies/site")
	if err != nil {
		t.Fatal(err)
	}
	all["site/x.rego"] = []byte("package caponier.site.call\n\ndeny contains {\"id\": \"x\", " +
		"\"msg\": \"x\"} if count(1) > 1")
	if _, err := build(t.Context(), all, Inventory{}, nil); err == nil ||
		!strings.Contains(err.Error(), "rego_type_error") {
		t.Errorf("a site's mistake: %v", err)
	}
}

// What a site grants and can never work is a warning with its line: the site decides all the same.
func TestToolsThatCanNeverWorkAreNamed(t *testing.T) {
	inv := Inventory{Tools: []*terms.Tool{
		{Kind: "tool", Name: "delete_guest", Imports: []string{"ssh_exec"},
			Commands: []string{"pct destroy", "qm destroy"}},
		{Kind: "tool", Name: "proxmox_upload_file_to_host", Imports: []string{"sftp_put"}}}}
	dir := copySite(t)
	if r, err := Check(t.Context(), dir, inv); err != nil || len(idle(r)) > 0 {
		t.Fatalf("the lab's site: %v %v", err, idle(r))
	}
	edit(t, dir, "data.yaml", `"tool:delete_guest": red`, `"tool:delete_guest": yellow`)
	edit(t, dir, "data.yaml", `  # "tool:proxmox_upload_file_to_host": red`,
		`  "tool:proxmox_upload_file_to_host": yellow`)
	r, err := Check(t.Context(), dir, inv)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(idle(r), "\n")
	for _, want := range []string{
		"tiers/tool:delete_guest: is yellow, and pct destroy that it runs " +
			"is red", "tiers/tool:delete_guest: is yellow, and qm destroy",
		"tiers/tool:proxmox_upload_file_to_host: is yellow, and what it writes"} {
		if !strings.Contains(all, want) || !strings.Contains(all, "data.yaml:") {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// idle leaves out the names that this small lock does not have.
func idle(r Report) []string {
	return slices.DeleteFunc(slices.Clone(r.Warnings), func(w string) bool {
		return strings.Contains(w, "there is no ")
	})
}
