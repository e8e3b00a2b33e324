package can

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// held is a role that grants a call, with what it lists; nil for a key that it does not have. Hours
// are minutes of the week in UTC, from Sunday 00:00: from one up to another, which is no part.
type held struct {
	Role     string     `json:"role"`
	Guests   *[]string  `json:"guests"`
	Services *[]string  `json:"services"`
	Hosts    *[]string  `json:"hosts"`
	Paths    *[]string  `json:"paths"`
	Hours    *[][]int64 `json:"hours"`
}

// within reports that all that these roles grant, one of the others grants too.
func within(these, others []held) bool {
	return !slices.ContainsFunc(these, func(a held) bool {
		return !slices.ContainsFunc(others, func(b held) bool { return less(a, b) })
	})
}

// less reports that role b lists all that role a lists, or does not say.
func less(a, b held) bool {
	same := func(x, y string) bool { return x == y }
	below := func(x, y string) bool {
		return x == y || strings.HasPrefix(x, strings.TrimSuffix(y, "/")+"/")
	}
	return lists(a.Guests, b.Guests, same) && lists(a.Services, b.Services, same) &&
		lists(a.Hosts, b.Hosts, same) && lists(a.Paths, b.Paths, below) &&
		lists(a.Hours, b.Hours, func(x, y []int64) bool { return y[0] <= x[0] && x[1] <= y[1] })
}

// lists reports that each of a is in one of b. Nil is all there could be.
func lists[T any](a, b *[]T, in func(T, T) bool) bool {
	if a == nil || b == nil {
		return b == nil
	}
	return !slices.ContainsFunc(*a, func(x T) bool {
		return !slices.ContainsFunc(*b, func(y T) bool { return in(x, y) })
	})
}

// says is what a call is held to, as people read it, "" for nothing.
func says(by []held) string {
	var all []string
	for _, h := range by {
		var keys []string
		for _, k := range []struct {
			name string
			of   *[]string
		}{{"guests", h.Guests}, {"services", h.Services}, {"hosts", h.Hosts}, {"paths", h.Paths},
			{"hours", hours(h.Hours)}} {
			if k.of != nil {
				keys = append(keys, k.name+" "+cmp.Or(strings.Join(*k.of, ", "), "none"))
			}
		}
		if keys == nil {
			return ""
		}
		slices.Sort(keys)
		all = append(all, strings.Join(keys, "; "))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; or ")
}

func hours(spans *[][]int64) *[]string {
	if spans == nil {
		return nil
	}
	clock := func(m int64) string { return fmt.Sprintf("%02d:%02d", m/60%24, m%60) }
	all := []string{}
	for _, s := range *spans {
		to := clock(s[1])
		if s[1]%1440 == 0 {
			to = "24:00"
		}
		day := strings.ToLower(time.Weekday(s[0] / 1440).String()[:3])
		all = append(all, day+" "+clock(s[0])+"-"+to)
	}
	return &all
}
