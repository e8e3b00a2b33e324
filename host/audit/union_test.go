package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// written makes a journal of calls of these minutes of a day.
func written(t *testing.T, host string, minutes []int) Member {
	t.Helper()
	m := Member{Host: host, Dir: filepath.Join(t.TempDir(), "journal")}
	now := day
	j := open(t, Options{Dir: m.Dir, MaxFileBytes: 2000, Now: func() time.Time { return now }})
	slices.Sort(minutes)
	for i, minute := range minutes {
		now = day.Add(time.Duration(minute) * time.Minute)
		r := terms.Record{Type: "intent", ID: fmt.Sprint(host, i), CallID: fmt.Sprint(host, i),
			Kind: "call", Principal: []string{"ann", "bob"}[i%2], Tool: "t", Time: now}
		if err := j.Intent(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
		r.Type, r.Outcome = "outcome", terms.Succeeded
		if err := j.Outcome(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

// killed takes the close record from the newest file of a journal.
func killed(t *testing.T, m Member) {
	t.Helper()
	names, err := files(m.Dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.Dir, names[len(names)-1])
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data = data[:bytes.LastIndexByte(data[:len(data)-1], '\n')+1]
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Journals of several hosts give what all of them give, in one order, each record with its host.
func TestAUnionHasTheCallsOfAllHostsInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var u Union
		var all []string // minute and host
		for _, host := range []string{"a", "b", "c"}[:1+rng.IntN(3)] {
			var minutes []int
			for range rng.IntN(20) {
				minutes = append(minutes, rng.IntN(1000)*3+len(u))
				all = append(all, fmt.Sprintf("%04d %s", minutes[len(minutes)-1], host))
			}
			u = append(u, written(t, host, minutes))
		}
		slices.Sort(all)
		var records, calls []string
		for e, err := range u.Records() {
			if err != nil {
				t.Fatal(err)
			}
			if e.Record != nil && e.Record.Type == "intent" {
				records = append(records, fmt.Sprintf("%04d %s",
					int(e.Record.Time.Sub(day).Minutes()), e.Host))
			}
		}
		for f, err := range u.Calls(Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, fmt.Sprintf("%04d %s", int(f.Time.Sub(day).Minutes()), f.Host))
		}
		if !slices.Equal(records, all) || !slices.Equal(calls, all) {
			t.Fatalf("%q\n%q\nwant %q", records, calls, all)
		}
		var newest []string
		for f := range u.Calls(Query{Limit: 7}) {
			newest = append(newest, fmt.Sprintf("%04d %s", int(f.Time.Sub(day).Minutes()), f.Host))
		}
		if want := all[max(0, len(all)-7):]; !slices.Equal(newest, want) {
			t.Errorf("the newest: %q, want %q", newest, want)
		}
		for range u.Calls(Query{}) {
			break // a caller may stop
		}
		for range u.Records() {
			break
		}
	}
}

// A bad line of one journal is told with its host, and the others are read on.
func TestABadLineOfOneHostHidesNoOther(t *testing.T) {
	u := Union{written(t, "a", []int{1, 2}), written(t, "b", []int{1, 2, 3})}
	names, err := files(u[0].Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u[0].Dir, names[0]), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad, good := "", 0
	for f, err := range u.Calls(Query{}) {
		if err != nil {
			bad += err.Error()
		} else if f.Host == "b" {
			good++
		}
	}
	if !strings.HasPrefix(bad, "a: journal file ") || good != 3 {
		t.Errorf("%q, and %d calls of the other", bad, good)
	}
}

// A changed journal is that of one host, and what others saw of a host is held against its own.
func TestVerifyNamesTheHostWhoseChainIsWrongOrStopped(t *testing.T) {
	hosts := func() Union {
		return Union{written(t, "a", []int{1, 300}), written(t, "b", []int{1, 2}),
			written(t, "c", []int{1, 3})}
	}
	verify := func(u Union, seen map[string][]Seen) (bad, stopped []string) {
		t.Helper()
		all, err := u.Verify(seen, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if !r.OK() {
				bad = append(bad, r.Host)
			}
			if r.Stopped {
				stopped = append(stopped, r.Host)
			}
		}
		return bad, stopped
	}
	u := hosts()
	if bad, stopped := verify(u, nil); bad != nil || stopped != nil {
		t.Errorf("journals that were closed: %q %q", bad, stopped)
	}
	killed(t, u[0])
	killed(t, u[2])
	if bad, stopped := verify(u, nil); bad != nil || !slices.Equal(stopped, []string{"c"}) {
		t.Errorf("one was killed hours before another's last record: %q %q", bad, stopped)
	}
	gone := map[string][]Seen{"b": {{Tip: Tip{File: "20261120T130000.000000-1-00000000.jsonl",
		Seq: 9, Hash: "00"}, By: "an anchor"}}}
	if bad, _ := verify(hosts(), gone); !slices.Equal(bad, []string{"b"}) {
		t.Errorf("an anchor of b that b has not: %q", bad)
	}
	u = hosts()
	names, err := files(u[1].Dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(u[1].Dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`"ann"`), []byte(`"eve"`), 1)
	if err := os.WriteFile(filepath.Join(u[1].Dir, names[0]), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if bad, _ := verify(u, nil); !slices.Equal(bad, []string{"b"}) {
		t.Errorf("a record of b was changed: %q", bad)
	}
	if _, err := (Union{u[0], {Host: "x", Dir: "/nowhere"}}).Verify(nil, 0); err == nil ||
		!strings.HasPrefix(err.Error(), "x: ") {
		t.Errorf("no journal: %v", err)
	}
}

func TestJournalsAreNamed(t *testing.T) {
	for texts, want := range map[string]string{
		"/e/a":                 "[{ /e/a}]",
		"x=/e/a":               "[{x /e/a}]",
		"/e/a/journal /e/b/":   "[{a /e/a/journal} {b /e/b/}]",
		"x=/e/a y=/e/a":        "[{x /e/a} {y /e/a}]",
		"/e/a /f/a":            `--journal /f/a: another journal is named a too; write NAME=DIR`,
		"x=/e/a x=/e/b":        `--journal x=/e/b: another journal is named x too; write NAME=DIR`,
		"=/e/a":                `--journal "=/e/a": want NAME=DIR, or DIR`,
		"x=":                   `--journal "x=": want NAME=DIR, or DIR`,
		"/e/a/journal x=/e/b ": "[{a /e/a/journal} {x /e/b}]",
	} {
		u, err := ParseUnion(strings.Fields(texts))
		if got := fmt.Sprint([]Member(u)); err != nil && err.Error() != want ||
			err == nil && got != want {
			t.Errorf("%s: %s %v, want %s", texts, got, err, want)
		}
	}
}
