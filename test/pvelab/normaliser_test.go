package pvelab

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// The comparison of the replay must be able to fail: each recorded line is changed in every way
// that matters, and each change must show.
func TestTheComparisonSeesEveryChangeThatMatters(t *testing.T) {
	changes := []struct {
		name string
		fn   func(r result) result
	}{
		{"exit code", func(r result) result { r.exit++; return r }},
		{"a word on stderr", func(r result) result { r.stderr += "x\n"; return r }},
		{"stderr gone", func(r result) result { r.stderr = ""; return r }},
		{"stdout gone", func(r result) result { r.stdout = ""; return r }},
		{"a line more on stdout", func(r result) result { r.stdout += "more\n"; return r }},
		{
			"the last newline gone",
			func(r result) result { r.stdout = strings.TrimSuffix(r.stdout, "\n"); return r },
		},
		{"running for stopped", func(r result) result {
			r.stdout = strings.ReplaceAll(r.stdout, "stopped", "running")
			return r
		}},
		{"another guest", func(r result) result {
			r.stdout, r.stderr = strings.ReplaceAll(
				r.stdout,
				"101",
				"109",
			), strings.ReplaceAll(
				r.stderr,
				"102",
				"109",
			)
			return r
		}},
		{
			"another task type",
			func(r result) result {
				r.stdout = strings.ReplaceAll(r.stdout, ":vz", ":qm")
				return r
			},
		},
		{
			"glued output cut apart",
			func(r result) result {
				r.stdout = strings.Replace(r.stdout, `refused\"`,
					"refused\n\\\"", 1)
				return r
			},
		},
		{"a number where a string was", func(r result) result {
			r.stdout = regexp.MustCompile(`:"(\d+)"`).ReplaceAllString(r.stdout, ":$1")
			return r
		}},
		{"a string where a volatile number was", func(r result) result {
			r.stdout = regexp.MustCompile(`"(uptime|pid|ctime|disk)":(\d+)`).
				ReplaceAllString(r.stdout, `"$1":"$2"`)
			return r
		}},
		{"zero where a volatile number was", func(r result) result {
			r.stdout = regexp.MustCompile(`"(uptime|pid|ctime|disk)":[1-9]\d*`).
				ReplaceAllString(r.stdout, `"$1":0`)
			return r
		}},
		{"a key gone", func(r result) result {
			r.stdout = regexp.MustCompile(`"(name|digest|pid|starttime)":("[^"]*"|\d+),`).
				ReplaceAllString(r.stdout, "")
			return r
		}},
		{"another size", func(r result) result {
			r.stdout = regexp.MustCompile(`"(maxmem|maxdisk|size)":[1-9]`).
				ReplaceAllString(r.stdout, `"$1":77`)
			return r
		}},
		{
			"other permissions",
			func(r result) result {
				r.stdout = strings.ReplaceAll(r.stdout, "-rw-r-----",
					"-rw-r--r--")
				return r
			},
		},
	}
	seen := map[string]int{}
	for _, rec := range recordings() {
		for _, ln := range readLines(t, rec.file) {
			want := result{ln.Exit, ln.Stdout, ln.Stderr}
			if d := diff(want, want); d != "" {
				t.Errorf("%s/%s differs from itself:\n%s", rec.file, ln.ID, d)
			}
			for _, c := range changes {
				got := c.fn(want)
				if got == want {
					continue // nothing there to change
				}
				if seen[c.name]++; diff(want, got) == "" {
					t.Errorf("%s/%s: %s is not seen", rec.file, ln.ID, c.name)
				}
			}
			if d := diff(want, shuffled(want)); d != "" {
				t.Errorf("%s/%s: the order of an array is seen:\n%s", rec.file, ln.ID, d)
			}
		}
	}
	for _, c := range changes {
		if seen[c.name] == 0 {
			t.Errorf("no recorded line can be changed by %q", c.name)
		}
	}
}

// shuffled turns around the arrays of objects that have no order of their own.
func shuffled(r result) result {
	var v []any
	if json.Unmarshal([]byte(r.stdout), &v) != nil || len(v) < 2 {
		return r
	}
	if m, ok := v[0].(map[string]any); !ok || m["starttime"] != nil || m["n"] != nil {
		return r
	}
	for i, j := 0, len(v)-1; i < j; i, j = i+1, j-1 {
		v[i], v[j] = v[j], v[i]
	}
	r.stdout = encode(v, "")
	return r
}

func TestTasksKeepTheirOrder(t *testing.T) {
	row := func(id string) string {
		return fmt.Sprintf(
			`{"id":%q,"starttime":1,"upid":"UPID:a:00000001:00000001:00000001:t:%s:r:"}`,
			id,
			id,
		)
	}
	a, b := row("1"), row("2")
	if diff(
		result{stdout: "[" + a + "," + b + "]\n"},
		result{stdout: "[" + b + "," + a + "]\n"},
	) == "" {
		t.Error("tasks in another order are not seen")
	}
}
