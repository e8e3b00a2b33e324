package suggest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// What was used is not listed, what was used before is with that time, and a rule is seen by its
// test and by the journal apart.
func TestUnusedSaysWhatNobodyUsed(t *testing.T) {
	idle := strings.Replace(rules, "call\n", `call

deny contains {"id": "op.never", "msg": "No."} if input.tool.name == "delete_guest"
`, 1)
	w := newWorld(t, map[string]string{"rules.rego": idle, "rules_test.rego": rulesTest}, shared...)
	me := terms.Principal{ID: "demo", Auth: "config", Roles: []string{}}
	w.run(t, w.call(t, me, w.tool(t, "list_guests"), "pve1", "", ""))
	w.run(t, w.call(t, me, w.tool(t, "execute_ssh"), "pve1", "", "uptime"), []string{""})
	w.run(t, w.call(t, me, w.tool(t, "list_guests"), "pve2", "", ""))
	since := w.records[1].Time
	u, err := Find(t.Context(), w.dir, w.inv, slices.Values(w.records), since)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]Grant{}
	for _, g := range u.Grants {
		if !strings.HasPrefix(g.Where, "site/data.yaml:") {
			t.Errorf("%s is nowhere: %q", g.Path, g.Where)
		}
		at[g.Path] = g
	}
	for path, listed := range map[string]bool{"principals/demo": false, "principals/eve": true,
		"principals/eve/roles/operator": false, "principals/demo/auth/token": true,
		"roles/viewer": true, "roles/viewer/tools/jq_query": false, "roles/operator": false,
		"roles/operator/ceiling/red": true, "tiers/tool:execute_ssh": false,
		"tiers/tool:list_guests": true, "tiers/tool:reboot_node": false,
		"relaxed/vmids/101": true, "files/read//etc/hosts": true} {
		if _, is := at[path]; is != listed {
			t.Errorf("%s is listed: %t", path, is)
		}
	}
	before := at["tiers/tool:list_guests"]
	if before.Times != 0 || before.Last == nil || !before.Last.Equal(w.records[0].Time) {
		t.Errorf("%+v, want its use at %s", before, w.records[0].Time.Format(time.RFC3339))
	}
	for _, c := range u.Checks {
		if want := map[string]int{"site": 1}[c.ID]; c.Times != want || c.Alone != want {
			t.Errorf("%+v, want %d refusals", c, want)
		}
	}
	if len(u.Rules) != 2 {
		t.Fatalf("%+v", u.Rules)
	}
	for _, r := range u.Rules {
		if is := r.ID == "op.nodes"; r.Held != is || (r.Refused.Times == 1) != is {
			t.Errorf("%+v %+v", r, r.Refused)
		}
	}
	var out bytes.Buffer
	u.Print(&out)
	for _, want := range []string{"op.never: never held in a test; refused nothing",
		"op.nodes: held in a test; refused 1, last ", "tiers/tool:list_guests, last 20"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
