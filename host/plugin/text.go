package plugin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

func sorted(names []string) []string {
	s := append([]string{}, names...)
	slices.Sort(s)
	return slices.Compact(s)
}

var itemName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) // of tools and of arguments

// readable checks text that people and models will see: within its length in characters, and
// nothing in it that does not show or that changes how its neighbours show.
func readable(what, s string, min, max int, allow string) error {
	if n := utf8.RuneCountInString(s); n < min || n > max {
		return fmt.Errorf("%s: has %d characters, want %d to %d", what, n, min, max)
	}
	for i, r := range s {
		if hidden(r) && !strings.ContainsRune(allow, r) {
			return fmt.Errorf("%s: has the character %U at byte %d, which does not show", what, r,
				i)
		}
	}
	return nil
}

// hidden covers control, bidirectional, zero-width, tag, private and unassigned characters,
// variation selectors and odd spaces.
func hidden(r rune) bool {
	return !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
