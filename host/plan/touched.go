package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// touch notes what a step touches that no earlier step on its node does: what a later one finds is
// what the earlier ones left.
func (p *plan) touch() {
	known := map[string]bool{}
	for i := range p.Steps {
		s, first := &p.Steps[i], []terms.Touched{}
		for _, t := range s.Touches {
			if key := s.Node + " " + t.About; !known[key] {
				known[key] = true
				first = append(first, t)
			}
		}
		s.Touches = first
	}
}

// rests returns what the plan's next step rests on: the guests that it is the first to touch and,
// before the first step on a node, all that the steps there touch.
func (p *plan) rests() (all []terms.Touched) {
	next := p.Steps[p.next]
	here := func(s step) bool { return s.Node == next.Node }
	if slices.ContainsFunc(p.Steps[:p.next], here) {
		return slices.DeleteFunc(slices.Clone(next.Touches), func(t terms.Touched) bool {
			return !strings.HasPrefix(t.About, "guest:")
		})
	}
	for _, s := range p.Steps[p.next:] {
		if here(s) {
			all = append(all, s.Touches...)
		}
	}
	return all
}

// changed describes in one line what has changed, or returns "".
func changed(was, is []terms.Touched) string {
	for _, w := range was {
		at := slices.IndexFunc(is, func(t terms.Touched) bool { return t.About == w.About })
		if at < 0 {
			return called(w) + " was not looked up again"
		}
		if said := differs(w, is[at]); said != "" {
			return plaintext.Show(said)
		}
	}
	return ""
}

func differs(was, is terms.Touched) string {
	switch what := called(was); {
	case was.Kind != "" && is.Kind == "":
		return what + " is no more"
	case was.Kind == "" && is.Kind != "":
		return called(is) + " was not there when the call was planned, and is now"
	case was.Kind != is.Kind || was.Name != is.Name:
		return what + " is another one now, " + called(is)
	case was.Node != is.Node:
		return fmt.Sprintf("%s was on %s when the call was planned, and is on %s", what, was.Node,
			is.Node)
	case was.Status != is.Status:
		return fmt.Sprintf("%s was %s when the call was planned, and is %s", what, was.Status,
			is.Status)
	case was.Config != is.Config:
		return what + " has another configuration than when the call was planned"
	case !slices.Equal(was.Also, is.Also):
		return what + " touches other things than when the call was planned: " +
			other(was.Also, is.Also)
	}
	return ""
}

// other names one thing that came or went.
func other(was, is []string) string {
	for _, name := range is {
		if !slices.Contains(was, name) {
			return name + " came"
		}
	}
	for _, name := range was {
		if !slices.Contains(is, name) {
			return name + " went"
		}
	}
	return "their order"
}

// called names a thing for people: a guest by number and name.
func called(t terms.Touched) string {
	name := strings.Replace(t.About, ":", " ", 1)
	if t.Name != "" {
		name += " (" + t.Name + ")"
	}
	return name
}

const maxAlso = 6 // of what a step touches besides, that a text lists

// touchedText describes in one line a thing, and what else an effect on it touches. It returns ""
// if the thing does not exist.
func touchedText(t terms.Touched) string {
	text := called(t)
	if t.Kind != "" {
		text += " on " + t.Node + ", " + t.Status
	}
	switch more := len(t.Also) - maxAlso; {
	case more > 0:
		return fmt.Sprintf("%s; touches %s and %d more", text,
			strings.Join(t.Also[:maxAlso], ", "), more)
	case len(t.Also) > 0:
		return text + "; touches " + strings.Join(t.Also, ", ")
	case t.Kind != "":
		return text
	}
	return ""
}
