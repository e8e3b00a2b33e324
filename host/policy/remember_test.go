package policy_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// allowedQuestions are allowed by the lab's site.
func allowedQuestions(t testing.TB) map[string]terms.Question {
	all := map[string]terms.Question{}
	for name, q := range timed() {
		if name != "http_request" {
			all[name] = q
		}
	}
	all["text"], all["text's operation"] = sshCall("uptime")
	text := all["text's operation"]
	running := *text.Call
	running.Decided.Tier = terms.Yellow
	text.Call = &running
	all["text's operation"] = text
	read := all["ssh_exec"]
	call := *read.Call
	tool := *call.Tool
	tool.Imports, call.Tool = []string{"sftp_read"}, &tool
	read.Call, read.Cmd = &call, nil
	call.Targets.Paths = []string{"/var/log/x"}
	read.Op = abi.SFTPRead{OnNode: abi.OnNode{Node: "pve1"}, Path: "/var/log/x"}
	read.Facts = terms.Facts{File: &terms.FileFacts{RealPath: "/var/log/x", Exists: true,
		Type: "file", Bytes: 5}}
	all["file"] = read
	planned := all["ssh_exec"]
	planned.Steps = []terms.Step{{Question: planned, Decision: terms.Decision{Allow: true,
		Tier: terms.Green}}}
	whole := *planned.Call
	whole.Plan = wholePlan{}
	planned.Kind, planned.Call, planned.Op, planned.Cmd = terms.KindPlan, &whole, nil, nil
	all["plan"] = planned
	return all
}

// wholePlan is a plan that does not end early.
type wholePlan struct{ terms.Plan }

func (wholePlan) Digest() string           { return "sha256:01" }
func (wholePlan) Complete() (bool, string) { return true, "" }

// TestQuestionsOfOneKeyHaveOneAnswer changes every value of questions that are allowed, in many
// ways. Where the key stays the same, the rules must say the same.
func TestQuestionsOfOneKeyHaveOneAnswer(t *testing.T) {
	r, ctx := rulesOf(t, lab), context.Background()
	for name, q := range allowedQuestions(t) {
		doc, err := abi.Decode(jsonOf(&q), input.Max)
		if err != nil {
			t.Fatal(err)
		}
		value := func() ast.Value {
			v, err := ast.InterfaceToValue(doc)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		doc.(map[string]any)["principal"].(map[string]any)["roles"] = []any{"operator"}
		first, err := r.Afresh(ctx, value())
		if err != nil || !first.Allow {
			t.Fatalf("%s is not allowed: %v %v", name, first.Denied, err)
		}
		key, same, other := r.KeyOf(value()), 0, 0
		mutants(doc, func(where string) {
			if v := value(); r.KeyOf(v) != key {
				other++
			} else if got, err := r.Afresh(ctx, v); err != nil || !reflect.DeepEqual(got, first) {
				// The counts of calls are no part of the key; their rule is asked each time.
				if !slices.Contains(got.Failed, "rate") {
					t.Errorf("%s: %s has the same key: %v %v", name, where, got.Failed, err)
				}
			} else {
				same++
			}
		})
		if t.Logf("%s: %d mutants share its key, %d do not", name, same, other); same < 50 ||
			other < 500 {
			t.Errorf("%s: %d mutants share its key, %d do not", name, same, other)
		}
	}
}

// TestWhatASiteReadsIsAskedAnew has rules about what differs between calls. Each answer must be
// that of the rules, however often the same was asked before.
func TestWhatASiteReadsIsAskedAnew(t *testing.T) {
	rules := map[string]string{
		"the hour":    "is_number(input.time.hour_utc)\n\tinput.time.hour_utc > 12",
		"the time":    "is_number(input.time.unix_ms)\n\tinput.time.unix_ms % 2 == 1",
		"a count":     "is_number(input.facts.tool_calls_60s)\n\tinput.facts.tool_calls_60s > 6",
		"an argument": `input.args.scalars.vmid == 102`,
		"the digest":  `endswith(input.args.digest, "3")`,
		"the id":      `endswith(input.id, "3")`,
		"a stricter rate": "input.kind\n\tnot calm\n}\n\ncalm if {\n\t" +
			"data.caponier.core.check.rate.ok with data.site.limits.tool_calls_per_minute as 5",
	}
	typed := "# METADATA\n# scope: package\n# schemas:\n#   - data.site: schema.site\n"
	for name, rule := range rules {
		dir := copySite(t)
		write(t, dir, "rules.rego", typed+"package caponier.site.call\n\n"+
			"deny contains {\"id\": \"lab.odd\", \"msg\": \"no\"} if {\n\t"+rule+"\n}\n")
		write(t, dir, "rules_test.rego", "package caponier.site.call_test\n\n"+
			"import data.caponier.site.call\n\n"+
			"test_nothing if count(call.deny) == 0 with input as {}\n")
		s := site(t, dir)
		refused := 0
		for i := range 60 {
			q := statusCall()
			q.ID = fmt.Sprint("q", i%5)
			q.Time = time.Unix(int64(i)*3600, int64(i)*1e6)
			q.Facts.Counts.ToolCalls60s = int64(i % 11)
			q.Call.Args.Digest = fmt.Sprint("sha256:", i%7)
			q.Call.Args.Scalars = map[string]any{"vmid": int64(101 + i%3)}
			got := decide(t, s, q)
			in, err := s.Rules().Input(context.Background(), input.Of(&q, nil))
			if err != nil {
				t.Fatal(err)
			}
			want, err := s.Rules().Afresh(context.Background(), in)
			if err != nil || got.Allow != want.Allow {
				t.Fatalf("%s: %d: %v, the rules say %v: %v", name, i, got.Allow, want.Allow, err)
			}
			if !got.Allow {
				refused++
			}
		}
		if refused == 0 || refused == 60 {
			t.Errorf("%s: %d of 60 calls are refused", name, refused)
		}
	}
}

// TestARepeatedQuestionCostsLittle bounds the allocations of an answer that is known.
func TestARepeatedQuestionCostsLittle(t *testing.T) {
	s := site(t, lab)
	for name, q := range timed() {
		if name == "http_request" {
			continue
		}
		if n := testing.AllocsPerRun(20, func() { decide(t, s, q) }); n > 450 {
			t.Errorf("%s: %v allocations, at most 450", name, n)
		}
	}
}

// TestDecisionsAreRememberedForMany decides more than are remembered, by many at once.
func TestDecisionsAreRememberedForMany(t *testing.T) {
	s := site(t, lab)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 40 {
				argv := []string{"pct", "status", "101"}
				if i%2 == 1 {
					argv = append(argv, "--verbose")
				}
				q := timed()["ssh_exec"]
				cmd := shell.Lowerer{}.Argv(argv)
				q.Op, q.Cmd = abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: argv}, &cmd
				if d, err := s.Decide(context.Background(), q); err != nil || !d.Allow {
					t.Errorf("worker %d, call %d: %v %v", w, i, d.Failed, err)
				}
				other := statusCall()
				other.Call.Targets.VMIDs = []string{"103"}
				if d, err := s.Decide(context.Background(), other); err != nil || d.Allow {
					t.Errorf("a protected guest is allowed: %v", err)
				}
			}
		})
	}
	all.Wait()
}
