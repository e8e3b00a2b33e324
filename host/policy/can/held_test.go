package can

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// operator is the lab's site, with further keys of its operator's role.
func operator(t *testing.T, keys string) *load.Candidate {
	t.Helper()
	return site(t, "\n  operator:\n", "\n  operator:\n"+keys)
}

func TestADiffSaysWhatNarrowsARole(t *testing.T) {
	lock, err := plugin.Load(root + "plugins.lock")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.DeleteFunc(slices.Clone(lock.Tools()), func(t *terms.Tool) bool {
		return !slices.Contains([]string{"restart_service", "get_guest_status"}, t.Name)
	})
	const day = `    hours: {days: [mon], from: "09:00", to: "17:00"}` + "\n"
	const nginx, both = "    services: [nginx]\n", "    services: [nginx, cron]\n"
	const one, two = "    guests: [\"101\"]\n", "    guests: [\"101\", \"106\"]\n"
	const folder, above = "    paths: [/var/log/nginx]\n", "    paths: [/var/log]\n"
	later := strings.Replace(day, "17:00", "18:00", 1)
	tuesday := strings.Replace(day, "mon", "tue", 1)
	for name, x := range map[string]struct {
		was, now      string
		grants, takes bool
		says          string // of the first change
	}{
		"a list of services":  {"", nginx, false, true, "held to services nginx.service"},
		"its removal":         {nginx, "", true, false, "held before to services"},
		"one more":            {nginx, both, true, false, ""},
		"one less":            {both, nginx, false, true, ""},
		"another":             {nginx, "    services: [cron]\n", true, true, "±"},
		"the same":            {nginx, "    services: [nginx.service]\n", false, false, ""},
		"nothing":             {"", "    services: []\n", false, true, "held to services none"},
		"a guest":             {"", one, false, true, "guest"},
		"a guest more":        {one, two, true, false, "106"},
		"hours, while closed": {"", day, false, true, "hours mon 09:00-17:00"},
		"other hours, both closed": {day, later, true, false,
			"held before to hours mon 09:00-17:00"},
		"hours on another day": {day, tuesday, true, true, "±"},
		"a folder":             {above, folder, false, true, ""},
		"the folder above":     {folder, above, true, false, ""},
	} {
		was, now := operator(t, x.was), operator(t, x.now)
		w := World{Who: []Who{{ID: "demo", Auth: "config"}}, Tools: all, Nodes: nodes,
			Time: time.Date(2026, 3, 29, 10, 0, 0, 0, time.UTC)} // a Sunday
		if w.Guests, err = Named(was, now); err != nil {
			t.Fatal(err)
		}
		a, err := Of(t.Context(), was.Rules, w)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Of(t.Context(), now.Rules, w)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := Diff(a, b)
		if err != nil {
			t.Fatal(err)
		}
		grants, takes := false, false
		for _, c := range changes {
			grants, takes = grants || c.Grants, takes || c.Takes
		}
		var out bytes.Buffer
		PrintDiff(&out, changes, len(a))
		if grants != x.grants || takes != x.takes || !strings.Contains(out.String(), x.says) {
			t.Errorf("%s: grants %t, takes %t, want %t, %t and %q in\n%s", name, grants, takes,
				x.grants, x.takes, x.says, out.String())
		}
	}
}

func TestCanSaysWhatARoleIsHeldTo(t *testing.T) {
	c := operator(t, "    guests: [\"101\"]\n    hours: {days: [sat, sun], from: \"22:00\", "+
		"to: \"06:00\"}\n    services: []\n")
	for hour, want := range map[int][]string{
		23: {"get_guest_status", "yes      guest 101 (name web01) on pve1, pve2",
			"guest 106 is not among the guests of role operator",
			"held to hours sun 22:00-06:00, sat 22:00-06:00; services none"},
		12: {"no       guest 101 (name web01) on pve1, pve2", "next: Sunday 22:00 UTC"},
	} {
		cells, err := Of(t.Context(), c.Rules, World{Who: []Who{{ID: "demo", Auth: "config"}},
			Tools: tools(t), Nodes: nodes, Guests: guests(),
			Time: time.Date(2026, 3, 29, hour, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		Print(&out, cells)
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("at %d: no %q in\n%s", hour, text, out.String())
			}
		}
	}
}

func TestWhatProxmoxProtectsIsAskedAbout(t *testing.T) {
	c := site(t, "  services: []\n", "  services: []\n  protection: {reason: not ours}\n")
	on, err := Named(site(t), c)
	if err != nil {
		t.Fatal(err)
	}
	w := World{Who: []Who{{ID: "demo", Auth: "config"}}, Tools: tools(t), Nodes: nodes, Guests: on,
		Time: time.Unix(0, 0)}
	cells, err := Of(t.Context(), c.Rules, w)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, cell := range cells {
		guarded := cell.Like == "protection on"
		refused := slices.Contains(cell.Failed, "protected")
		switch {
		case cell.Guest == "103": // which the site protects by its number
		case guarded && cell.Tier != "green" && !refused && cell.Can != No:
			t.Errorf("%s of %s: %s", cell.Tool, cell.Guest, cell.Can)
		case refused != (guarded && cell.Tier != "green"):
			t.Errorf("%s of %s (%s): %v", cell.Tool, cell.Guest, cell.Like, cell.Failed)
		}
		seen[cell.Tier+" "+cell.Can+" "+cell.Like] = true
	}
	if !seen["green yes protection on"] || !seen["yellow no protection on"] &&
		!seen["red no protection on"] {
		t.Errorf("%v", seen)
	}
}
