package can

import (
	"errors"
	"slices"
)

// Change is a call that two policies answer in another way.
type Change struct {
	Was Cell `json:"was"`
	Now Cell `json:"now"`
	// Grants says that it gets further than it did: from no over a person's approval to yes, or to
	// a command that was refused, or that more people may approve it, or that a role lists more.
	// Takes says the opposite; a change can be both.
	Grants bool `json:"grants"`
	Takes  bool `json:"takes"`
}

// Diff compares the answers of two policies to the same questions. Of calls that both refuse it
// names none.
func Diff(was, now []Cell) (changes []Change, err error) {
	if len(was) != len(now) {
		return nil, errors.New("the answers are to other questions")
	}
	for i := range was {
		a, b := was[i], now[i]
		if a.Who != b.Who || a.Tool != b.Tool || a.Node != b.Node || a.Guest != b.Guest {
			return nil, errors.New("the answers are to other questions")
		}
		if a.far() == 0 && b.far() == 0 {
			continue
		}
		c := Change{Was: a, Now: b, Grants: b.far() > a.far(), Takes: b.far() < a.far()}
		if a.far() > 0 && b.far() > 0 {
			c.Grants = c.Grants || !within(b.by, a.by)
			c.Takes = c.Takes || !within(a.by, b.by)
		}
		if a.Can != No && b.Can != No {
			c.Grants = c.Grants || lacks(b.Cannot, a.Cannot)
			c.Takes = c.Takes || lacks(a.Cannot, b.Cannot)
			if a.Can == b.Can {
				c.Grants = c.Grants || lacks(a.By, b.By)
				c.Takes = c.Takes || lacks(b.By, a.By)
			}
		}
		if c.Grants || c.Takes || a.Tier != b.Tier {
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// far ranks answers by how far a call gets by itself.
var far = map[string]int{No: 0, approval: 2, argument: 3, depends: 4, yes: 5}

// far is how far a call gets by itself. One that waits for the hours of a role gets somewhere.
func (c Cell) far() int {
	if c.Shut {
		return 1
	}
	return far[c.Can]
}

// lacks reports that one of these is not among the others.
func lacks(others, these []string) bool {
	return slices.ContainsFunc(these, func(s string) bool { return !slices.Contains(others, s) })
}
