// Package result masks secrets of known forms in what goes back to a client.
//
// It decides nothing: which detectors run is the caller's, from policy.
package result

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
)

// The bounds of the patterns that a site adds.
const (
	MaxPatterns = 64
	maxSource   = 512   // bytes of a pattern
	maxProgram  = 5_000 // instructions of a compiled pattern
	maxMatch    = 4_096 // bytes that a pattern can match
)

// Pattern is a detector that a site adds: a name, and an RE2 pattern.
type Pattern struct{ Name, RE string }

// A finder finds the beginning of a secret. A match depends only on the bytes that follow, at most
// longest of them, so that the result does not depend on how a stream is divided.
type finder struct {
	detector string
	re       *regexp.Regexp
	longest  int
	// more are the bytes that belong to the secret after the match.
	more string
	// until matches the end of the secret, if it has one. Without that end, everything that follows
	// belongs to the secret, because half of a key is a secret too.
	until *regexp.Regexp
}

// Set holds detectors that run together. The zero value refuses.
type Set struct {
	finders []finder
	longest int
	ready   bool
	// patterns is true if there are patterns of a site, which do not handle escapes.
	patterns bool
}

// New returns the host's own detectors with the patterns of a site. A repeated name and a pattern
// beyond the bounds are errors.
func New(patterns ...Pattern) (*Set, error) {
	s := &Set{ready: true, longest: longestEnd}
	for _, name := range Names() {
		for _, f := range builtin[name] {
			if err := s.add(name, f); err != nil {
				return nil, err
			}
		}
	}
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("%d patterns; %d at most", len(patterns), MaxPatterns)
	}
	seen := map[string]bool{}
	for _, p := range patterns {
		if err := Check(p); err != nil {
			return nil, err
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("there are two detectors %q", p.Name)
		}
		seen[p.Name] = true
		if err := s.add(p.Name, form{start: p.RE}); err != nil {
			return nil, err
		}
	}
	s.patterns = len(patterns) > 0
	return s, nil
}

// Check returns an error that describes what is wrong with a pattern of a site.
func Check(p Pattern) error {
	if _, taken := builtin[p.Name]; taken {
		return fmt.Errorf("the host has a detector %q of its own: choose another name", p.Name)
	}
	if !goodName.MatchString(p.Name) {
		return fmt.Errorf("the name %q is not of a-z, 0-9 and _, at most 40 of them", p.Name)
	}
	_, err := check(p.RE)
	return err
}

// only returns the detectors that keep accepts.
func (s *Set) only(keep func(detector string) bool) *Set {
	some := *s
	some.finders = slices.DeleteFunc(slices.Clone(s.finders),
		func(f finder) bool { return !keep(f.detector) })
	return &some
}

var goodName = regexp.MustCompile(`\A[a-z][a-z0-9_]{0,39}\z`)

func (s *Set) add(name string, f form) error {
	longest, err := check(f.start)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", name, err)
	}
	d := finder{detector: name, re: regexp.MustCompile(f.start), longest: longest, more: f.more}
	if f.until != "" {
		d.until = regexp.MustCompile(f.until)
	}
	s.finders = append(s.finders, d)
	s.longest = max(s.longest, longest)
	return nil
}

// check returns how many bytes a pattern can match.
func check(source string) (int, error) {
	if len(source) > maxSource {
		return 0, fmt.Errorf("it has %d bytes; %d at most", len(source), maxSource)
	}
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return 0, err
	}
	longest, err := length(tree)
	if err != nil {
		return 0, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0, err
	}
	if len(prog.Inst) > maxProgram {
		return 0, fmt.Errorf("it compiles to %d steps; %d at most", len(prog.Inst), maxProgram)
	}
	if regexp.MustCompile(source).MatchString("") {
		return 0, errors.New("it matches the empty text")
	}
	return longest, nil
}

// length returns how many bytes a tree matches at most.
func length(t *syntax.Regexp) (int, error) {
	sum, most := 0, 0
	for _, sub := range t.Sub {
		n, err := length(sub)
		if err != nil {
			return 0, err
		}
		sum, most = sum+n, max(most, n)
	}
	n := sum
	switch t.Op {
	case syntax.OpLiteral:
		n = 4 * len(t.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = 4
	case syntax.OpAlternate:
		n = most
	case syntax.OpStar, syntax.OpPlus:
		return 0, errors.New("* and + have no bound; write {0,100}")
	case syntax.OpRepeat:
		if t.Max < 0 {
			return 0, errors.New("{n,} has no bound; write {n,100}")
		}
		n = sum * t.Max
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return 0, fmt.Errorf("%s looks at what is around; leave it out", t)
	}
	if n > maxMatch {
		return 0, fmt.Errorf("it can match %d bytes; %d at most", n, maxMatch)
	}
	return n, nil
}
