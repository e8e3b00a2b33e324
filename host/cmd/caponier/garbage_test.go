package main

import "testing"

func TestGarbageIsBoundedBesideWhatIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		live  uint64
		short bool
		want  int
	}{
		"nothing lives yet":                  {0, false, 200},
		"a small host has twice as much":     {20 << 20, false, 200},
		"40 MiB of garbage beside 64 MiB":    {64 << 20, false, 62},
		"a large host has half as much":      {500 << 20, false, 50},
		"while plugins are compiled, a half": {20 << 20, true, 50},
	} {
		if got := gcPercent(c.live, c.short); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
