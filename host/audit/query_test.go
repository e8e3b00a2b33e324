package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

var day = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// calls writes a journal of some calls, of which each is known by its letter.
func calls(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	now := day
	j, err := Open(Options{Dir: dir, MaxFileBytes: 1500, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	put := func(r terms.Record) {
		now = now.Add(time.Minute)
		r.Time = now
		if err := j.Intent(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(call, who, tool, vmid, name string) terms.Record {
		return terms.Record{Type: "intent", ID: "D" + call, CallID: call, Kind: "call",
			Principal: who,
			Tool:      tool, Tier: "yellow", Source: "http", Input: json.RawMessage(fmt.Sprintf(
				`{"targets":{"vmids":[%q],"nodes":["pve1"]},"guests":{%q:{"name":%q}}}`, vmid, vmid,
				name))}
	}
	end := func(r terms.Record, how terms.Outcome) terms.Record {
		r.Type, r.Input, r.Outcome = "outcome", nil, how
		return r
	}
	no := func(r terms.Record, id string) terms.Record {
		r.Type, r.Failed, r.Denied = "refused", []string{id}, []terms.Reason{{ID: id + ".why",
			Msg: "no"}}
		return r
	}
	a := begin("A", "ann", "stop_guest", "105", "db")
	put(a)
	b := begin("B", "bob", "stop_guest", "106", "web") // runs at the same time
	put(b)
	put(terms.Record{Type: "intent", ID: "DA1", CallID: "A", Kind: "operation", Op: "ssh_exec",
		Principal: "ann",
		Tool:      "stop_guest", Node: "pve2"})
	put(no(terms.Record{ID: "DB1", CallID: "B", Kind: "operation", Op: "ssh_exec", Principal: "bob",
		Tool: "stop_guest", Node: "pve1"}, "declared"))
	put(end(b, terms.Failed))
	put(end(a, terms.Succeeded))
	put(no(begin("C", "ann", "delete_guest", "105", "db"), "protected"))
	w := no(begin("D", "ann", "start_guest", "107", "db"), "confirmation")
	w.Outcome = terms.Waits
	put(w)
	now = day.Add(72 * time.Hour)
	put(begin("E", "bob", "list_guests", "108", "x")) // and its process is killed
	return dir
}

func TestAQueryFindsTheCallsThatFitAllOfIt(t *testing.T) {
	dir := calls(t)
	for name, x := range map[string]struct {
		q    Query
		want []string // in the order in which they ended
	}{
		"all":                         {Query{}, []string{"B", "A", "C", "D", "E"}},
		"who":                         {Query{Who: "ann"}, []string{"A", "C", "D"}},
		"tool":                        {Query{Tool: "stop_guest"}, []string{"B", "A"}},
		"tools that begin so":         {Query{Tool: "st*"}, []string{"B", "A", "D"}},
		"no tool of a part of a name": {Query{Tool: "st"}, nil},
		"guest by number":             {Query{Guest: "105"}, []string{"A", "C"}},
		"guest by name":               {Query{Guest: "db"}, []string{"A", "C", "D"}},
		"node of an operation":        {Query{Node: "pve2"}, []string{"A"}},
		"node of the targets":         {Query{Node: "pve1", Who: "bob"}, []string{"B", "E"}},
		"outcome":                     {Query{Outcome: "refused"}, []string{"C"}},
		"waiting":                     {Query{Outcome: "waiting"}, []string{"D"}},
		"without an outcome":          {Query{Outcome: "none"}, []string{"E"}},
		"check":                       {Query{Rule: "protected"}, []string{"C"}},
		"rule among the reasons":      {Query{Rule: "protected.why"}, []string{"C"}},
		"rule of an operation":        {Query{Rule: "declared"}, []string{"B"}},
		"a wait is no refusal":        {Query{Rule: "confirmation"}, nil},
		"since":                       {Query{Since: day.Add(24 * time.Hour)}, []string{"E"}},
		"until": {Query{Until: day.Add(24 * time.Hour)},
			[]string{"B", "A", "C", "D"}},
		"from and to the minute": {Query{Since: day.Add(2 * time.Minute),
			Until: day.Add(3 * time.Minute)}, []string{"B"}},
		"the newest":         {Query{Limit: 2}, []string{"D", "E"}},
		"the newest of some": {Query{Limit: 1, Who: "ann"}, []string{"D"}},
		"nobody":             {Query{Who: "nobody"}, nil},
	} {
		var got []string
		for f, err := range callsIn(dir, x.q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, f.Call)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	for f, err := range callsIn(dir, Query{Tool: "stop_guest", Who: "bob"}) {
		if err != nil || f.Outcome != "failed" || f.Operations != 1 ||
			fmt.Sprint(f.Guests) != "[106 web]" ||
			len(f.Refused) != 1 || f.Refused[0].Decision != "DB1" || f.Tier != "yellow" ||
			f.Source != "http" {
			t.Errorf("%+v %v", f, err)
		}
		break // a caller may stop
	}
}

func TestAQueryGoesOnPastABadLine(t *testing.T) {
	dir := calls(t)
	names, err := files(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, names[0]), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{}\n"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	bad, good := 0, 0
	for _, err := range callsIn(dir, Query{}) {
		if err != nil {
			bad++
		} else {
			good++
		}
	}
	if bad != 1 || good != 5 {
		t.Errorf("%d bad lines, %d calls", bad, good)
	}
}

// Files of another time are not read: a query of an hour does not read ten gigabytes.
func TestFilesOfAnotherTimeAreNotRead(t *testing.T) {
	dir := calls(t)
	names, err := files(dir)
	if err != nil {
		t.Fatal(err)
	}
	skip := Query{Since: day.Add(70 * time.Hour)}.outside(dir)
	n := 0
	for _, name := range names {
		if skip(name) {
			n++
		}
	}
	if n == 0 || skip(names[len(names)-1]) {
		t.Errorf("%d of %d files are left out, the last one too: %v", n, len(names),
			skip(names[len(names)-1]))
	}
	if !(Query{Until: day.Add(-48 * time.Hour)}).outside(dir)(names[0]) {
		t.Error("a file from after the query is read")
	}
}
