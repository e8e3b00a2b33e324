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
	// a command that was refused, or that more people may approve it. Takes says the opposite; a
	// change can be both.
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
		if a.Can == No && b.Can == No {
			continue
		}
		c := Change{Was: a, Now: b, Grants: far[b.Can] > far[a.Can], Takes: far[b.Can] < far[a.Can]}
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
var far = map[string]int{No: 0, approval: 1, argument: 2, depends: 3, yes: 4}

// lacks reports that one of these is not among the others.
func lacks(others, these []string) bool {
	return slices.ContainsFunc(these, func(s string) bool { return !slices.Contains(others, s) })
}
