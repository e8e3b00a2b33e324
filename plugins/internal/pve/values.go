package pve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Float and Int are numbers as Proxmox prints them: a number in one place is a string in another,
// and null or absent where it is not known.
type (
	Float float64
	Int   int64
)

func (f *Float) UnmarshalJSON(b []byte) error {
	v, err := number(b)
	*f = Float(v)
	return err
}

func (i *Int) UnmarshalJSON(b []byte) error {
	if whole, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64); err == nil {
		*i = Int(whole)
		return nil
	}
	v, err := number(b)
	*i = Int(v)
	return err
}

func number(b []byte) (float64, error) {
	switch s := strings.Trim(string(b), `"`); s {
	case "null", "", "false":
		return 0, nil
	case "true":
		return 1, nil
	default:
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, fmt.Errorf("%s is not a number", b)
		}
		return v, nil
	}
}

var (
	_ json.Unmarshaler = (*Float)(nil)
	_ json.Unmarshaler = (*Int)(nil)
)

func sortGuests(all []Guest) []Guest {
	slices.SortFunc(all, func(a, b Guest) int { return cmp.Compare(a.VMID, b.VMID) })
	return all
}

// KeyValues reads lines of "key: value", as pct config and pct status print them. A description is
// percent-encoded there.
func KeyValues(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), ": "); ok &&
			!strings.HasPrefix(k, "#") {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

// ValidNode says whether a name can be a node's: letters, digits and inner hyphens. Anything else
// must not stand in an API path, which a proxied pvesh hands to a second shell without quotes.
func ValidNode(name string) bool {
	return name != "" && len(name) <= 63 && name[0] != '-' && name[len(name)-1] != '-' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}
