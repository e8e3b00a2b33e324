package load

import (
	"strings"
	"testing"
)

// Core is compiled without the check of types where a site has no Rego, because it passes it here.
func TestTheTypesOfCoreAreChecked(t *testing.T) {
	compile := func(more, to string, checked bool) error {
		all, err := siteFiles("../../../policies/site")
		if err != nil {
			t.Fatal(err)
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
