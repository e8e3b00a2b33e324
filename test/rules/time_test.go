package rules

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

var timeLimit = regexp.MustCompile(
	`(?:\btook|\bd|time\.Since\(.*\)) > (?:(\d+) ?\* ?)?time\.(Millisecond|Second)\b`)

// shortLimit returns the first limit below 10 s that the source holds elapsed time against.
func shortLimit(src string) string {
	for _, m := range timeLimit.FindAllStringSubmatch(src, -1) {
		limit, err := time.ParseDuration(strings.NewReplacer(" ", "", "Millisecond", "ms",
			"Second", "s").Replace(max(m[1], "1") + m[2]))
		if err != nil || limit < 10*time.Second {
			return m[0]
		}
	}
	return ""
}

// A test that fails after a few seconds fails on a busy machine. A limit that detects a hang must
// be at least 10 s.
func TestNoTestFailsBecauseTheMachineIsBusy(t *testing.T) {
	for _, file := range sources(t, "*_test.go") {
		if strings.HasSuffix(file, "rules/time_test.go") {
			continue
		}
		if limit := shortLimit(read(t, file)); limit != "" {
			t.Errorf("%s: %q: measure it in a benchmark, or allow 10 s and more", file, limit)
		}
	}
	for _, bad := range []string{"if took := time.Since(began); took > 3*time.Second {",
		"time.Since(time.Unix(0, at.Load())) > time.Second", "d > 300*time.Millisecond"} {
		if shortLimit(bad) == "" {
			t.Errorf("%q was not found", bad)
		}
	}
	for _, good := range []string{"took > 20*time.Second", "d > 10*providerTime"} {
		if limit := shortLimit(good); limit != "" {
			t.Errorf("%q was found in %q", limit, good)
		}
	}
}
