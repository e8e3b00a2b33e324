package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// bounds are what a role of the test lists; nil for a key that it does not have.
type bounds struct {
	guests, services, paths, days []string
	from, to                      int // minutes of the day
}

// yaml writes the keys.
func (b bounds) yaml() (text string) {
	for _, list := range []struct {
		key string
		of  []string
	}{{"guests", b.guests}, {"services", b.services}, {"paths", b.paths}} {
		if list.of != nil {
			text += fmt.Sprintf(", %s: %s", list.key, quotedList(list.of))
		}
	}
	if b.days != nil {
		text += fmt.Sprintf(`, hours: {days: %s, from: "%02d:%02d", to: "%02d:%02d"}`,
			quotedList(b.days), b.from/60, b.from%60, b.to/60, b.to%60)
	}
	return text
}

func quotedList(of []string) string {
	if len(of) == 0 {
		return "[]"
	}
	return `["` + strings.Join(of, `", "`) + `"]`
}

// named is what a question of the test names, as a person sees it.
type named struct {
	guests, services, paths []string
	above                   []named // what of it is above green, each by itself
}

// covers says what docs/policy.md does: it is told from the words of the test, not from core.
func (b bounds) covers(n named, at time.Time) bool {
	holds := func(listed, all []string) bool {
		for _, x := range all {
			if listed != nil && !slices.Contains(listed, x) {
				return false
			}
		}
		return true
	}
	under := func(p string) bool {
		return slices.ContainsFunc(b.paths, func(l string) bool {
			return p == l || strings.HasPrefix(p, l+"/")
		})
	}
	for _, p := range n.paths {
		if b.paths != nil && !under(p) {
			return false
		}
	}
	for _, x := range n.above {
		if b.guests == nil && b.services == nil {
			break
		}
		if x.guests == nil && x.services == nil && x.paths == nil {
			return false
		}
	}
	return holds(b.guests, n.guests) && holds(b.services, n.services) && b.open(at)
}

// open walks the minutes of each day on which hours begin.
func (b bounds) open(at time.Time) bool {
	if b.days == nil {
		return true
	}
	for back := range 2 {
		day := at.AddDate(0, 0, -back)
		begin := time.Date(day.Year(), day.Month(), day.Day(), 0, b.from, 0, 0, time.UTC)
		for end := begin; ; end = end.Add(time.Minute) {
			if m := end.Hour()*60 + end.Minute(); m == b.to%1440 && end.After(begin) {
				name := strings.ToLower(begin.Weekday().String()[:3])
				if slices.Contains(b.days, name) && !at.Before(begin) && at.Before(end) {
					return true
				}
				break
			}
		}
	}
	return false
}

func someBounds(r *rand.Rand) (b bounds) {
	some := func(of ...string) (list []string) {
		if r.IntN(2) == 0 {
			return nil
		}
		list = []string{}
		for _, x := range of {
			if r.IntN(2) == 0 {
				list = append(list, x)
			}
		}
		return list
	}
	b = bounds{guests: some("104", "105", "106"), services: some("nginx.service", "cron.service"),
		paths: some("/var/log", "/var/log/nginx", "/etc/hosts")}
	if r.IntN(2) == 0 {
		b.days, b.from, b.to = some("mon", "tue", "sat", "sun"), r.IntN(1440), 1+r.IntN(1440)
		if b.from == b.to {
			b.to++
		}
	}
	return b
}

// narrowed is the lab's site with n pairs of roles. aN and bN hold one of a pair, abN holds both,
// and wide holds neither's keys.
func narrowed(t *testing.T, r *rand.Rand, n int) (*load.Site, []bounds) {
	t.Helper()
	const all = `{tools: ["*"], imports: [ssh_exec, ssh_script], ceiling: red, nodes: %s, ` +
		"commands: [%s]%s}\n"
	who, roles, of := "\nprincipals:\n", "\nroles:\n", []bounds{}
	who += "  wide: {auth: [config], roles: [wide]}\n"
	roles += "  wide: " + fmt.Sprintf(all, `["*"]`, `"*"`, "")
	for i := range n {
		for _, x := range []string{"a", "b"} {
			b := someBounds(r)
			of = append(of, b)
			who += fmt.Sprintf("  %s%d: {auth: [config], roles: [%s%d]}\n", x, i, x, i)
			roles += fmt.Sprintf("  %s%d: ", x, i) + fmt.Sprintf(all, `["*"]`, `"*"`, b.yaml())
		}
		who += fmt.Sprintf("  ab%d: {auth: [config], roles: [a%d, b%d]}\n", i, i, i)
	}
	dir := copySite(t)
	edit(t, dir, "data.yaml", "\nprincipals:\n", who)
	edit(t, dir, "data.yaml", "\nroles:\n", roles)
	edit(t, dir, "data.yaml", "  argument: false\n", "  argument: true\n")
	return site(t, dir), of
}

// someQuestion is a call, or an operation of one that was allowed.
func someQuestion(r *rand.Rand) (terms.Question, named) {
	guest := []string{"104", "105", "106"}[r.IntN(3)]
	service := []string{"nginx", "nginx.service", "cron"}[r.IntN(3)]
	unit := strings.TrimSuffix(service, ".service") + ".service"
	lines := map[string]named{"uptime": {}, "pct status " + guest: {guests: []string{guest}},
		"systemctl restart " + service: {services: []string{unit}},
		"pct start " + guest:           {guests: []string{guest}},
		"cat /var/log/syslog":          {paths: []string{"/var/log/syslog"}},
		"cat /etc/hosts":               {paths: []string{"/etc/hosts"}}}
	keys := make([]string, 0, len(lines))
	for line := range lines {
		keys = append(keys, line)
	}
	slices.Sort(keys)
	q := statusCall()
	q.Call.Confirmation.State = "argument"
	switch r.IntN(4) {
	case 0:
		on := named{guests: []string{guest}}
		q.Call.Targets.VMIDs = on.guests
		if r.IntN(2) == 0 {
			q.Call.Tool.Name, on.above = "start_guest", []named{on}
		}
		return q, on
	case 1:
		q.Call.Tool.Name, q.Call.Tool.TargetKinds = "restart_service", []string{"services"}
		q.Call.Targets.VMIDs, q.Call.Targets.Services = nil, []string{unit}
		on := named{services: []string{unit}}
		return q, named{services: on.services, above: []named{on}}
	case 2:
		q.Call.Tool.Name, q.Call.Tool.TargetKinds = "wake_node", []string{"nodes"}
		q.Call.Targets.VMIDs = nil
		return q, named{above: []named{{}}}
	}
	text, n := []string{}, named{}
	for range 1 + r.IntN(2) {
		line := keys[r.IntN(len(keys))]
		text = append(text, line)
		n.guests = append(n.guests, lines[line].guests...)
		n.services = append(n.services, lines[line].services...)
		n.paths = append(n.paths, lines[line].paths...)
		if strings.Contains(line, "start ") {
			n.above = append(n.above, lines[line])
		}
	}
	call, op := sshCall(strings.Join(text, " && "))
	call.Call.Confirmation.State, op.Call.Confirmation.State = "argument", "argument"
	op.Call.Decided = terms.Decision{Allow: true, Tier: terms.Red}
	if r.IntN(2) == 0 {
		op.Facts.Units = []string{}
		return op, n
	}
	return call, n
}

// A role that lists something allows what one without these keys does, where the lists and the
// hours hold all of it. Two roles allow what one of them allows, and nothing else. What is
// remembered says the same at every time.
func TestNarrowedRolesAreAUnionOfPowersEachWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 9))
	s, of := narrowed(t, r, 25)
	start := time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)
	seen := map[string]int{}
	for range 400 {
		q, n := someQuestion(r)
		i := r.IntN(len(of) / 2)
		for _, b := range []bounds{{from: 720}, of[2*i], of[2*i+1]} { // at random, and at both ends
			minute := []int{b.from, b.to, b.from - 1, b.to - 1, r.IntN(1440)}[r.IntN(5)]
			q.Time = start.AddDate(0, 0, r.IntN(7)).Add(time.Duration(minute) * time.Minute)
			as := func(id string) bool {
				c := *q.Call
				c.Principal.ID = id
				asked := q
				asked.Call = &c
				d := decide(t, s, asked)
				whole := func(f string) bool { return f == "scope" || f == "hours" || f == "role" }
				if !d.Allow && id != "wide" && !slices.ContainsFunc(d.Failed, whole) {
					t.Fatalf("%s is refused for another reason: %v %v", id, d.Failed, d.Denied)
				}
				return d.Allow
			}
			if !as("wide") {
				t.Fatalf("the question is refused whoever asks: %+v", n)
			}
			a, b, both := as(fmt.Sprint("a", i)), as(fmt.Sprint("b", i)), as(fmt.Sprint("ab", i))
			if both != (a || b) {
				t.Fatalf("%+v at %s: %+v: %t, %+v: %t, both: %t", n, q.Time, of[2*i], a, of[2*i+1],
					b, both)
			}
			if want := of[2*i].covers(n, q.Time); a != want {
				t.Fatalf("%+v %v at %s: %s: %t, want %t", n, q.Call.Commands, q.Time,
					of[2*i].yaml(), a, want)
			}
			seen[fmt.Sprint(a, b, both)]++
		}
	}
	t.Log(seen)
	if len(seen) < 4 {
		t.Errorf("too few kinds of answers: %v", seen)
	}
}

// What is allowed until an hour is refused from then on, though the question was answered before.
// Where no role has hours, the time is no part of what answers are remembered by.
func TestAnAnswerIsNotRememberedBeyondItsHours(t *testing.T) {
	dir := copySite(t)
	edit(t, dir, "data.yaml", "\n  operator:\n", "\n  operator:\n    hours: {days: [fri], "+
		"from: \"09:30\", to: \"17:00\"}\n")
	timed, untimed := site(t, dir), site(t, lab)
	friday := time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)
	q := statusCall()
	keys := map[*load.Site]map[string]bool{timed: {}, untimed: {}}
	for range 2 {
		for minute := 9*60 + 28; minute < 17*60+3; minute++ {
			q.Time = friday.Add(time.Duration(minute)*time.Minute + 59*time.Second)
			want := minute >= 9*60+30 && minute < 17*60
			if d := decide(t, timed, q); d.Allow != want || !want &&
				!slices.Equal(d.Failed, []string{"hours"}) {
				t.Fatalf("%s: %t %v", q.Time, d.Allow, d.Failed)
			}
			if !decide(t, untimed, q).Allow {
				t.Fatalf("%s: refused without hours", q.Time)
			}
			for s, known := range keys {
				in, err := s.Rules().Input(t.Context(), input.Of(&q, nil))
				if err != nil {
					t.Fatal(err)
				}
				known[s.Rules().KeyOf(in)] = true
			}
		}
	}
	if n := len(keys[timed]); n != 17*60+3-(9*60+28) {
		t.Errorf("%d keys of a site with hours: one for each minute is expected", n)
	}
	if n := len(keys[untimed]); n != 1 {
		t.Errorf("%d keys of a site without hours", n)
	}
}
