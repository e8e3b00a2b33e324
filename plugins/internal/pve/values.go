package pve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
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

// UnmarshalJSON refuses a fraction, and an integer that a double cannot hold: a VMID of 101.7 must
// not become 101.
func (i *Int) UnmarshalJSON(b []byte) error {
	if whole, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64); err == nil {
		*i = Int(whole)
		return nil
	}
	v, err := number(b)
	if err == nil && (v != math.Trunc(v) || math.Abs(v) > 1<<53) {
		return fmt.Errorf("%s is not an integer", b)
	}
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
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
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

// KeyValues reads lines of "key: value", as pct config and pct status print them. A key with two
// different values is left out, since neither can be trusted. Proxmox percent-encodes a description
// there.
func KeyValues(text string) map[string]string {
	m, conflicts := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		if !ok || strings.HasPrefix(k, "#") {
			continue
		}
		v = strings.TrimSpace(v)
		if old, twice := m[k]; twice && old != v {
			conflicts[k] = true
		}
		m[k] = v
	}
	for k := range conflicts {
		delete(m, k)
	}
	return m
}

// ValidNode reports whether a name can be a node's: letters, digits and inner hyphens. Any other
// name must not be part of an API path, because a proxied pvesh passes it unquoted to a second
// shell.
func ValidNode(name string) bool {
	return name != "" && len(name) <= 63 && name[0] != '-' && name[len(name)-1] != '-' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}
