package suggest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Evidence is a power with what the journal shows of its use.
type Evidence struct {
	Value    string    `json:"value"`
	Uses     int       `json:"uses"`
	Approved int       `json:"approved"` // of the uses, those in calls that a person approved
	Argument int       `json:"argument"` // those that the caller's own argument confirmed
	Last     time.Time `json:"last"`     // zero when it is needed and was not used
	Call     string    `json:"call"`     // the last call that used it
}

// powers are those of one kind, by their names.
type powers map[string]*Evidence

// note adds a use. Looking a fact up before an operation is no use of its own.
func (p powers) note(name string, q question, counts bool) {
	e := p[name]
	if e == nil {
		e = &Evidence{Value: name}
		p[name] = e
	}
	if !counts || q.Phase == "lookup" {
		return
	}
	e.Uses++
	switch q.Approved {
	case "approved":
		e.Approved++
	case "argument":
		e.Argument++
	}
	if !q.Time.Before(e.Last) {
		e.Last, e.Call = q.Time, q.CallID
	}
}

func (p powers) add(more powers) {
	for name, m := range more {
		e := p[name]
		if e == nil {
			e = &Evidence{Value: name}
			p[name] = e
		}
		e.Uses, e.Approved, e.Argument = e.Uses+m.Uses, e.Approved+m.Approved,
			e.Argument+m.Argument
		if !m.Last.Before(e.Last) {
			e.Last, e.Call = m.Last, m.Call
		}
	}
}

func (p powers) list() []Evidence {
	all := []Evidence{}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, *p[name])
	}
	return all
}

// The kinds of powers that are kept apart.
const (
	tools = iota
	imports
	tiers
	nodes
	commands
	guests
	hosts
	paths
	services
	kinds
)

// narrowing are the keys that a role need not have, by the kind of power that they list.
var narrowing = map[int]string{guests: "guests", hosts: "hosts", paths: "paths",
	services: "services"}

// usage is what questions needed that the same roles grant.
type usage struct {
	roles  []string
	powers [kinds]powers
	broad  bool // one names nothing, so that the role must list no guests and services
}

func newUsage(roles []string) *usage {
	u := &usage{roles: roles}
	for i := range u.powers {
		u.powers[i] = powers{}
	}
	return u
}

// journal is what the records of one principal show. The methods may be called concurrently.
type journal struct {
	mu     sync.Mutex
	sets   map[string]*usage // by the roles that grant it
	auths  powers
	on     map[string]powers // targets by kind, which no role can name
	named  map[string]bool   // roles that a credential named
	counts Counts
}

// Counts say what of the journal was looked at.
type Counts struct {
	Calls   int       `json:"calls"`   // that were allowed
	Allowed int       `json:"allowed"` // decisions
	Refused int       `json:"refused"` // which need nothing
	Planned int       `json:"planned"` // only planned, which needs nothing either
	Masked  int       `json:"masked"`  // of the allowed, with redacted values
	Gone    int       `json:"gone"`    // that the site does not allow any more, or by no one role
	GoneAt  string    `json:"gone_example,omitempty"`
	Older   int       `json:"older"` // in another form than today's, so not understood
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// skip counts a record that needs nothing.
func (j *journal) skip(count func(*Counts)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	count(&j.counts)
}

// note adds what a question needed that is allowed.
func (j *journal) note(q question, u use) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &j.counts
	c.Allowed++
	if q.Masked {
		c.Masked++
	}
	if c.First.IsZero() || q.Time.Before(c.First) {
		c.First = q.Time
	}
	if q.Time.After(c.Last) {
		c.Last = q.Time
	}
	isCall := q.Kind == "call"
	if isCall {
		c.Calls++
		for kind, names := range map[string][]string{"guests": q.Targets.VMIDs,
			"services": q.Targets.Services, "hosts": q.Targets.Hosts, "paths": q.Targets.Paths,
			"guest_paths": q.Targets.GuestPaths} {
			for _, name := range names {
				j.on[kind].note(name, q, true)
			}
		}
	}
	j.auths.note(q.Head.Principal.Auth, q, isCall)
	for _, r := range q.Head.Principal.CredentialRoles {
		j.named[r] = true
	}
	key := strings.Join(u.Roles, "\x00")
	s := j.sets[key]
	if s == nil {
		s = newUsage(u.Roles)
		j.sets[key] = s
	}
	s.powers[tools].note(u.Tool, q, isCall)
	s.powers[tiers].note(u.Tier, q, true)
	for _, i := range q.Head.Tool.Imports {
		s.powers[imports].note(i, q, i == q.Op)
	}
	for _, n := range u.Nodes {
		s.powers[nodes].note(n, q, true)
	}
	for _, n := range u.Commands {
		s.powers[commands].note(n, q, true)
	}
	for kind, names := range map[int][]string{guests: u.Named.Guests, hosts: u.Named.Hosts,
		paths: u.Named.Paths, services: u.Named.Services} {
		for _, n := range names {
			s.powers[kind].note(n, q, true)
		}
	}
	s.broad = s.broad || !u.Pointed
}

// byRole gives each use to one role that grants it: to one of those that everybody holds, or else
// to that which grants most. So each role that is suggested is less than one that there is, and two
// are never added together.
func (j *journal) byRole(everybody []string) (names []string, of map[string]*usage) {
	uses := map[string]int{}
	for _, s := range j.sets {
		for _, r := range s.roles {
			for _, e := range s.powers[tiers] {
				uses[r] += e.Uses
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(everybody, a), rank(everybody, b)),
			cmp.Compare(uses[b], uses[a]), cmp.Compare(a, b))
	})
	of = map[string]*usage{}
	for _, s := range j.sets {
		for _, r := range order {
			if !slices.Contains(s.roles, r) {
				continue
			}
			if of[r] == nil {
				of[r] = newUsage([]string{r})
			}
			for i := range s.powers {
				of[r].powers[i].add(s.powers[i])
			}
			of[r].broad = of[r].broad || s.broad
			break
		}
	}
	return slices.Sorted(maps.Keys(of)), of
}

func rank(first []string, name string) int {
	if slices.Contains(first, name) {
		return 0
	}
	return 1
}

// highest returns the highest of tiers, with its evidence.
func (p powers) highest() (top Evidence) {
	for _, t := range []terms.Tier{terms.Green, terms.Yellow, terms.Red} {
		if e := p[t.String()]; e != nil {
			top = *e
		}
	}
	return top
}
