package suggest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

var me = terms.Principal{ID: "demo", Auth: "config", Roles: []string{}}

// restarted journals a restart of nginx, and looks at two guests.
func (w *world) restarted(t *testing.T) {
	t.Helper()
	if !w.run(t, w.call(t, me, w.tool(t, "restart_service"), "pve1", "", "")) {
		t.Fatalf("refused: %v", w.records)
	}
	for _, id := range []string{"104", "105"} {
		w.run(t, w.call(t, me, w.tool(t, "get_guest_status"), "pve1", id, ""),
			[]string{"pct", "status", id})
	}
	w.run(t, w.call(t, me, w.tool(t, "execute_ssh"), "pve1", "", "cat /var/log/syslog"),
		[]string{""})
}

// What was used of guests, services and paths is listed, and nothing else is allowed by the roles.
func TestASuggestionListsWhatWasNamed(t *testing.T) {
	w := newWorld(t, nil)
	w.restarted(t)
	s, err := Of(t.Context(), w.options("demo", w.records))
	if err != nil {
		t.Fatal(err)
	}
	const want = "map[guests:[104 105] paths:[/var/log/syslog] services:[nginx.service]]"
	if got := fmt.Sprint(values(s.Roles[0].Narrow)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s.Proof.Removed == 0 || strings.Contains(s.YAML, "these guests") {
		t.Errorf("%+v in\n%s", s.Proof, s.YAML)
	}
	w.site, w.records = w.put(t, s.YAML), nil
	refused := func(q terms.Question) {
		t.Helper()
		if w.decide(t, q) {
			t.Error("is allowed")
		} else if f := w.records[len(w.records)-1].Failed; !slices.Equal(f, []string{"scope"}) {
			t.Errorf("is refused by %v", f)
		}
	}
	docker := w.call(t, me, w.tool(t, "restart_service"), "pve1", "", "")
	docker.Call.Targets.Services = []string{"docker.service"}
	refused(docker)
	refused(w.call(t, me, w.tool(t, "get_guest_status"), "pve1", "101", ""))
	refused(w.call(t, me, w.tool(t, "execute_ssh"), "pve1", "", "cat /var/log/pveproxy/access.log"))
	w.restarted(t)
}

func values(of map[string][]Evidence) map[string][]string {
	all := map[string][]string{}
	for key, list := range of {
		for _, e := range list {
			all[key] = append(all[key], e.Value)
		}
	}
	return all
}

// A call above green that names nothing needs a role that lists no guests and services.
func TestASuggestionListsNothingWhereThatWouldNotFit(t *testing.T) {
	w := newWorld(t, nil, `"tool:get_node_status": green`, `"tool:get_node_status": yellow`)
	w.restarted(t)
	w.run(t, w.call(t, me, w.tool(t, "get_node_status"), "pve1", "", ""))
	s, err := Of(t.Context(), w.options("demo", w.records))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(values(s.Roles[0].Narrow)); got != "map[paths:[/var/log/syslog]]" {
		t.Error(got)
	}
	if !strings.Contains(s.YAML, "# It acted on these guests, to which its roles are not held:") {
		t.Error(s.YAML)
	}
}

// What narrowed the role before does so in the suggestion.
func TestASuggestionKeepsWhatNarrowedTheRole(t *testing.T) {
	w := newWorld(t, nil, "\n  operator:\n", `
  operator:
    guests: ["101", "104", "105"]
    services: [nginx, cron]
    hosts: []
    hours: {days: [tue, wed], from: "22:00", to: "23:00"}
`)
	w.restarted(t) // on a Tuesday, at 22:13
	s, err := Of(t.Context(), w.options("demo", w.records))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(values(s.Roles[0].Narrow), " ", s.Roles[0].Hours)
	want := `map[guests:[104 105] paths:[/var/log/syslog] services:[nginx.service]] ` +
		`{"days":["tue","wed"],"from":"22:00","to":"23:00"}`
	if _, listed := s.Roles[0].Narrow["hosts"]; got != want || !listed {
		t.Errorf("%s, want %s and hosts", got, want)
	}
	w.site = w.put(t, s.YAML)
	late := w.call(t, me, w.tool(t, "get_guest_status"), "pve1", "104", "")
	late.Time = late.Time.Add(time.Hour)
	if w.decide(t, late) {
		t.Error("the suggestion has no hours")
	}
	u, err := Find(t.Context(), w.dir, w.inv, slices.Values(w.records), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	u.Print(&out)
	for path, listed := range map[string]bool{"guests/101": true, "guests/104": false,
		"services/nginx": false, "services/cron": true, "hours/days/tue": false,
		"hours/days/wed": true} {
		if is := strings.Contains(out.String(), "roles/operator/"+path); is != listed {
			t.Errorf("%s is listed as not used: %t", path, is)
		}
	}
}
