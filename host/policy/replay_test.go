package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/terms"
)

// recordOf is the journal's record of a question, as the gate would write it.
func recordOf(t testing.TB, e *load.Site, id string, q terms.Question) terms.Record {
	d := decide(t, e, q)
	rec := terms.Record{
		Type:      "intent",
		ID:        id,
		Kind:      "call",
		Principal: q.Call.Principal.ID,
		Tool:      q.Call.Tool.Name,
		Tier:      d.Tier.String(),
		Failed:    d.Failed,
		Denied:    d.Denied,
		Revision:  d.Revision,
		Input:     d.Input,
		Masked:    d.Masked,
	}
	if !d.Allow {
		rec.Type = "refused"
	}
	if q.Kind == terms.KindOperation {
		rec.Kind, rec.Op = "operation", q.Op.Import()
	}
	return rec
}

func TestExplainSaysWhichChecksAndWhatWouldSatisfyThem(t *testing.T) {
	var bundle []byte
	e, err := load.New(context.Background(), load.Options{
		Site:       lab,
		Deadline:   5 * time.Second,
		OnRevision: func(_ string, b []byte) error { bundle = b; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	x, err := replay.Explain(
		context.Background(),
		recordOf(t, e, "D1", deniedQuestions(t)["rate"]),
		bundle,
	)
	if err != nil {
		t.Fatal(err)
	}
	if !x.Same || x.Allowed || len(x.Checks) != 1 {
		t.Fatalf("%+v", x)
	}
	c := x.Checks[0]
	if c.ID != "rate" || !strings.Contains(c.Says, "too many calls") ||
		!strings.Contains(c.Remedy, "limits/calls_per_minute") ||
		len(c.Stuck) == 0 ||
		!strings.Contains(c.Stuck[0], "core/check/rate.rego:") ||
		fmt.Sprint(c.Data["limits/calls_per_minute"]) != "120" {
		t.Errorf("%+v", c)
	}
	for name, data := range map[string]string{
		"protected": "protected/vmids/103 map[reason:management VM of the lab]",
		"tool":      "tiers/tool:new_tool <nil>", "black": "tiers/tool:reboot_node black",
	} {
		x, err := replay.Explain(
			context.Background(),
			recordOf(t, e, name, deniedQuestions(t)[name]),
			bundle,
		)
		if err != nil || len(x.Checks) != 1 {
			t.Fatalf("%s: %+v %v", name, x, err)
		}
		path, want, _ := strings.Cut(data, " ")
		if got, there := x.Checks[0].Data[path]; !there || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", name, x.Checks[0].Data, data)
		}
	}
	for name, place := range map[string]string{
		"declared": "core/check/declared.rego", "bound": "core/check/bound.rego",
		"op guest": "core/check/command.rego", "path": "core/check/path.rego",
	} {
		x, err := replay.Explain(
			context.Background(),
			recordOf(t, e, name, deniedQuestions(t)[name]),
			bundle,
		)
		if err != nil || len(x.Checks) == 0 || len(x.Checks[0].Stuck) == 0 ||
			!strings.HasPrefix(x.Checks[0].Stuck[0], place) {
			t.Errorf("%s: %+v %v", name, x.Checks, err)
		}
		for _, c := range x.Checks {
			for _, stuck := range c.Stuck {
				if strings.Contains(stuck, ": not command.measured") {
					t.Errorf("%s: %s holds", name, stuck)
				}
			}
		}
	}
	for _, name := range []string{"protected", "bound", "op guest", "file real"} {
		q := deniedQuestions(t)[name]
		x, err := replay.Explain(context.Background(), recordOf(t, e, name, q), bundle)
		if err != nil || !x.Same || len(x.Checks) == 0 {
			t.Errorf("%s: %+v %v", name, x, err)
		}
		for _, c := range x.Checks {
			if c.Remedy == "" || c.Says == "" {
				t.Errorf("%s: %s has no text or remedy", name, c.ID)
			}
		}
	}
	rec := recordOf(t, e, "D2", statusCall())
	rec.Revision = strings.Repeat("0", 64)
	refusal := recordOf(t, e, "D4", deniedQuestions(t)["protected"])
	for name, x := range map[string]struct {
		record terms.Record
		bundle []byte
		note   string
		says   string
	}{
		"another revision": {rec, bundle, "the kept policy is revision", ""},
		"a broken bundle":  {refusal, []byte("{"), "building policy revision", "management VM"},
		"no bundle":        {refusal, nil, "is not kept beside the journal", "management VM"},
		"the host's own": {terms.Record{Type: "refused", ID: "D3",
			Failed: []string{"journal.unavailable"},
			Denied: []terms.Reason{{ID: "journal.unavailable", Msg: "disk full"}}}, bundle, "",
			"disk full"},
		"an error of the policy": {terms.Record{Type: "refused", ID: "D5",
			Failed: []string{"policy.error"},
			Denied: []terms.Reason{{ID: "policy.error", Msg: "site/x.rego:8"}}}, nil, "",
			"site/x.rego:8"},
		"arguments": {terms.Record{Type: "refused", ID: "D6", Failed: []string{"arguments"},
			Denied: []terms.Reason{{ID: "arguments", Msg: "unknown field"}}}, nil, "",
			"unknown field"},
	} {
		x2, err := replay.Explain(context.Background(), x.record, x.bundle)
		if err != nil || !strings.Contains(x2.Note, x.note) || (x.note == "") != (x2.Note == "") {
			t.Errorf("%s: %+v %v", name, x2, err)
			continue
		}
		if x.says != "" && (len(x2.Checks) != 1 || !strings.Contains(x2.Checks[0].Says, x.says) ||
			x2.Checks[0].Remedy == "" || x2.Allowed) {
			t.Errorf("%s: %+v", name, x2)
		}
	}
}

func TestReplayFindsWhatACandidateChanges(t *testing.T) {
	e := site(t, lab)
	denied := deniedQuestions(t)
	ok := statusCall()
	records := []terms.Record{
		recordOf(t, e, "A", ok),
		recordOf(t, e, "B", denied["protected"]),
		recordOf(t, e, "C", denied["op command"]),
		{
			Type:     "outcome",
			ID:       "A",
			Revision: "x",
		},
		{Type: "refused", ID: "H", Failed: []string{"ledger.unavailable"}},
	}
	masked := ok
	masked.Call = callOf("proxmox_container_status", []string{"vmids"}, "ssh_exec")
	masked.Call.Args.Scalars = map[string]any{"password": "x"}
	records = append(records, recordOf(t, e, "M", masked))
	same, err := replay.Replay(context.Background(), slices.Values(records), lab)
	if err != nil || same.Decided != 3 || same.Same != 3 || same.Skipped != 2 ||
		len(same.NewlyAllowed)+len(same.NewlyRefused)+len(same.OtherReasons) != 0 {
		t.Fatalf("%+v %v", same, err)
	}
	older := records[0]
	older.Input = bytes.Replace(older.Input, []byte(`,"omitted":[]`), nil, 1)
	forged := recordOf(
		t,
		e,
		"F",
		func() terms.Question { q, _ := sshCall("echo '[redacted]'"); return q }(),
	)
	two := slices.Values([]terms.Record{older, forged})
	if d, err := replay.Replay(context.Background(), two, lab); err != nil ||
		d.Older != 1 ||
		d.Decided != 1 ||
		d.Skipped != 0 ||
		d.Same != 1 {
		t.Errorf("a record of another form, and one that only looks masked: %+v %v", d, err)
	}
	dir := copySite(t)
	edit(
		t,
		dir,
		"data.yaml",
		`    "103": {reason: management VM of the lab}`,
		`    "101": {reason: now this one}`,
	)
	diff, err := replay.Replay(context.Background(), slices.Values(records), dir)
	if err != nil || len(diff.NewlyAllowed) != 1 || diff.NewlyAllowed[0].DecisionID != "B" ||
		len(diff.NewlyRefused) != 1 ||
		diff.NewlyRefused[0].DecisionID != "A" ||
		!slices.Equal(diff.NewlyRefused[0].After, []string{"protected"}) ||
		diff.NewlyRefused[0].On != "101, pve1" ||
		diff.Same != 1 {
		t.Errorf("%+v %v", diff, err)
	}
	_, err = replay.Replay(context.Background(), slices.Values(records), t.TempDir())
	if err == nil {
		t.Error("an empty folder was taken for a policy")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := replay.Replay(ctx, slices.Values(records), dir); err == nil {
		t.Error("a cancelled replay says nothing")
	}
}

// A record has no facts of guests that its policy did not ask for. What a candidate that asks would
// decide is then not known, and never the same.
func TestWhatACandidateNeedsFactsForIsAChange(t *testing.T) {
	e, dir := site(t, lab), copySite(t)
	edit(t, dir, "data.yaml", "protected:\n", "protected:\n  tags: {prod: {reason: customers}}\n")
	edit(t, dir, "data.yaml", `    "103": {reason: management VM of the lab}`,
		`    "99999": {reason: another one}`)
	records := slices.Values([]terms.Record{recordOf(t, e, "A", statusCall()),
		recordOf(t, e, "B", deniedQuestions(t)["protected"]),
		recordOf(t, e, "C", deniedQuestions(t)["op command"])})
	diff, err := replay.Replay(context.Background(), records, dir)
	if err != nil || len(diff.NewlyRefused) != 1 || len(diff.NewlyAllowed) != 1 ||
		diff.NewlyRefused[0].DecisionID != "A" || diff.NewlyAllowed[0].DecisionID != "B" {
		t.Fatalf("%+v %v", diff, err)
	}
	for change, want := range map[string]string{
		diff.NewlyRefused[0].Says: "It was allowed. What it would be is not known: the " +
			"candidate asks what the cluster says of 101, and the record does not have it",
		diff.NewlyAllowed[0].Says: "What it would be is not known: the candidate asks what the " +
			"cluster says of 103",
	} {
		if !strings.Contains(change, want) {
			t.Errorf("%q\nwant %q", change, want)
		}
	}
}

// measured is what Test says of a folder: it takes seconds, and two tests ask for the same one.
func measured(dir string) (load.TestReport, error) {
	once, _ := reports.LoadOrStore(
		dir,
		sync.OnceValues(func() (load.TestReport, error) {
			return load.Test(context.Background(), dir, load.Inventory{})
		}),
	)
	return once.(func() (load.TestReport, error))()
}

var reports sync.Map // by folder

// The tests of core passed when this program was made: those of a site are all that run for it.
func TestOnlyTheTestsOfTheSiteRun(t *testing.T) {
	rep, err := measured("../../policies/examples/team")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../policies/examples/team/rules_test.rego")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(string(text), "\ntest_"); len(rep.Tests) != want || rep.Failed != 0 {
		t.Errorf("%d tests ran, %d failed; the site has %d: %+v", len(rep.Tests), rep.Failed, want,
			rep.Tests)
	}
	if rep.Coverage < 90 || len(rep.Rules) != 3 {
		t.Errorf("coverage %.1f %% of %+v", rep.Coverage, rep.Rules)
	}
}

func TestEvalAnswersAHypotheticalQuestion(t *testing.T) {
	q := statusCall()
	in := string(jsonOf(&q))
	d, err := replay.Eval(context.Background(), lab, []byte(in))
	if err != nil || !d.Allow || d.Tier != terms.Green {
		t.Fatalf("%+v %v", d, err)
	}
	for name, x := range map[string][2]string{
		"a missing field":  {`"source":"stdio",`, ``},
		"an unknown field": {`"source":"stdio"`, `"source":"stdio","sauce":1`},
		"another type":     {`"vmids":["101"]`, `"vmids":"101"`},
		"null for a list":  {`"commands":[]`, `"commands":null`},
		"another case":     {`"source"`, `"Source"`},
		"another schema":   {`caponier.call/1`, `caponier.call/9`},
		"a fraction":       {`"calls_60s":1`, `"calls_60s":1.5`},
		"a list as scalar": {`"scalars":{"vmid":101}`, `"scalars":{"vmid":[101]}`},
	} {
		text := strings.Replace(in, x[0], x[1], 1)
		if text == in {
			t.Errorf("%s: nothing was changed", name)
		}
		if d, err := replay.Eval(context.Background(), lab, []byte(text)); err == nil {
			t.Errorf("%s was taken: %+v", name, d.Allow)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	e := site(b, lab)
	_, op := sshCall("uptime; df -h")
	op.Call.Decided = terms.Decision{Allow: true, Tier: terms.Yellow}
	records := []terms.Record{
		recordOf(b, e, "A", statusCall()),
		recordOf(b, e, "B", deniedQuestions(b)["protected"]),
		recordOf(b, e, "C", deniedQuestions(b)["op tier"]),
		recordOf(b, e, "D", op),
	}
	const n = 2000
	for b.Loop() {
		d, err := replay.Replay(context.Background(), func(yield func(terms.Record) bool) {
			for i := range n {
				if !yield(records[i%len(records)]) {
					return
				}
			}
		}, lab)
		if err != nil || d.Same != n {
			b.Fatalf("%+v %v", d, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/decision")
}

func TestEntriesAreCoresAndTheSites(t *testing.T) {
	dir := copySite(t)
	edit(
		t,
		dir,
		"data.yaml",
		"binaries: {}",
		"binaries: {mytool: {show: {group: read, tier: green, operands: [], options: {}}, "+
			"'': {group: read, tier: green, operands: [], options: {}}}}",
	)
	got, err := site(t, dir).Entries(context.Background())
	for _, want := range []string{"pct start", "cat", "ip addr show",
		"pvesh get /nodes/{node}/lxc/{vmid}/config", "mytool", "mytool show"} {
		if err != nil || !slices.Contains(got, want) {
			t.Errorf("%s is not among %q, %v", want, got, err)
		}
	}
	for _, no := range []string{"pvesh", "pvesh get", "pct", "*", ""} {
		if slices.Contains(got, no) {
			t.Errorf("%q is no command", no)
		}
	}
	if _, err := new(load.Site).Entries(context.Background()); err == nil {
		t.Error("no policy has entries")
	}
}
