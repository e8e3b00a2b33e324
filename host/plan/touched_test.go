package plan

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

var web = terms.Touched{About: "guest:101", Name: "web01", Kind: "lxc", Node: "pve1",
	Status: "running", Config: "aa", Also: []string{"backup job nightly to nas"}}

// touching is a step that touches these.
func touching(c *terms.Call, all []terms.Touched, argv ...string) terms.Step {
	s := stepOn(c, exec(argv...), nil)
	s.Question.Facts.Touches = all
	return s
}

func TestAStepRestsOnWhatItIsTheFirstToTouch(t *testing.T) {
	c, db := callOf(), terms.Touched{About: "guest:102", Name: "db01", Kind: "lxc"}
	unit := terms.Touched{About: "unit:nginx"}
	p := planOf(c, terms.Answer{}, touching(c, []terms.Touched{web}, "pct", "stop", "101"),
		touching(c, []terms.Touched{web}, "pct", "start", "101"),
		touching(c, []terms.Touched{db, unit}, "pct", "stop", "102"))
	for i, want := range []string{"guest:101 guest:102 unit:nginx", "", "guest:102"} {
		argv := [][]string{{"pct", "stop", "101"}, {"pct", "start", "101"},
			{"pct", "stop", "102"}}[i]
		f := p.Next(ask(c, exec(argv...), nil))
		if got := strings.Join(f.Rests, " "); !f.Next || got != want {
			t.Errorf("step %d is next: %v, rests on %q, want %q", i+1, f.Next, got, want)
		}
		p.Take()
	}
}

func TestAChangeSinceThePlanIsNamed(t *testing.T) {
	for want, change := range map[string]func(*terms.Touched){
		"": func(*terms.Touched) {},
		"guest 101 (web01) was running when the call was planned, and is stopped": func(
			w *terms.Touched) {
			w.Status = "stopped"
		},
		"guest 101 (web01) has another configuration than when the call was planned": func(
			w *terms.Touched) {
			w.Config = "bb"
		},
		"guest 101 (web01) was on pve1 when the call was planned, and is on pve2": func(
			w *terms.Touched) {
			w.Node = "pve2"
		},
		"guest 101 (web01) is no more": func(w *terms.Touched) {
			*w = terms.Touched{About: w.About}
		},
		"guest 101 (web01) is another one now, guest 101 (x)": func(w *terms.Touched) {
			w.Name = "x"
		},
		"guest 101 (web01) was not looked up again": func(w *terms.Touched) {
			w.About = "guest:102"
		},
		"guest 101 (web01) touches other things than when the call was planned: " +
			"replication came": func(w *terms.Touched) {
			w.Also = append([]string{"replication"}, w.Also...)
		},
	} {
		c := callOf()
		p := planOf(c, terms.Answer{}, touching(c, []terms.Touched{web}, "pct", "stop", "101"))
		q, now := ask(c, exec("pct", "stop", "101"), nil), web
		change(&now)
		q.Facts.Touches = []terms.Touched{now}
		if got := p.Next(q).Changed; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := callOf()
	p := planOf(c, terms.Answer{}, touching(c, []terms.Touched{{About: "guest:110"}}, "pct", "stop",
		"110"))
	q := ask(c, exec("pct", "stop", "110"), nil)
	q.Facts.Touches = []terms.Touched{{About: "guest:110", Name: "new", Kind: "lxc"}}
	if got := p.Next(q).Changed; !strings.Contains(got, "was not there when the call was planned") {
		t.Error(got)
	}
}

func TestTheDigestCoversWhatIsTouched(t *testing.T) {
	of := func(all ...terms.Touched) string {
		c := callOf()
		return planOf(c, terms.Answer{}, touching(c, all, "pct", "stop", "101")).Digest()
	}
	stopped := web
	stopped.Status = "stopped"
	if again := of(web); of(web) == of() || of(web) == of(stopped) || of(web) != again {
		t.Error("the digest does not depend on what a guest is, or on something else")
	}
}
