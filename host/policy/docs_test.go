package policy_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/can"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/terms"
	"go.yaml.in/yaml/v3"
)

// An example of docs/policy.md.
type example struct {
	line int
	// of a fence; or info is "then" and text what must follow from the fences before
	info, text string
}

func examples(t *testing.T) (all []example) {
	t.Helper()
	f, err := os.Open("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var fence *example
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line := s.Text()
		info, opens := strings.CutPrefix(line, "```")
		then, isThen := strings.CutPrefix(line, "<!-- then: ")
		switch {
		case fence != nil && line == "```":
			all, fence = append(all, *fence), nil
		case fence != nil:
			fence.text += line + "\n"
		case opens:
			fence = &example{line: n, info: info}
		case isThen:
			all = append(all, example{n, "then", strings.TrimSuffix(then, " -->")})
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d examples were found", len(all))
	}
	return all
}

func TestEveryExampleOfTheDocsHolds(t *testing.T) {
	lab := lab
	var dir string
	var e *load.Site
	fresh := func() { dir, e = copySite(t), nil }
	last := ""
	for _, x := range examples(t) {
		kind, rest, _ := strings.Cut(x.info, " ")
		switch kind {
		case "json":
			want := strings.Fields(rest)
			d, err := replay.Eval(context.Background(), lab, []byte(x.text))
			if err != nil || d.Allow != (want[1] == "allowed") || d.Tier.String() != want[2] {
				t.Errorf("docs/policy.md:%d: %+v %v", x.line, d.Denied, err)
			}
		case "yaml":
			fresh()
			overlay(t, filepath.Join(dir, "data.yaml"), x.text)
		case "rego":
			if last != "rego" {
				fresh()
			}
			write(t, dir, rest, x.text)
		case "then":
			if e == nil {
				e = site(t, dir)
			}
			expect(t, e, x)
		case "console":
			for line := range strings.Lines(x.text) {
				console(t, x.line, strings.Fields(line))
			}
		case "text":
			// needs a lock or a server: docs/uses/policy-repository.md and least-privilege.md run
			// the same, and TestACandidateDecidesBesideTheSite what is said of a shadow
		default:
			t.Errorf("docs/policy.md:%d: nobody runs a fence of %q", x.line, x.info)
		}
		last = kind
	}
}

// overlay lays an example over the lab's data: maps are merged, everything else is replaced.
func overlay(t *testing.T, file, text string) {
	t.Helper()
	var base, over map[string]any
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, &base)
	}
	if err == nil {
		err = yaml.Unmarshal([]byte(text), &over)
	}
	if err != nil {
		t.Fatal(err)
	}
	var lay func(into, from map[string]any)
	lay = func(into, from map[string]any) {
		for k, v := range from {
			a, ok := into[k].(map[string]any)
			if b, isMap := v.(map[string]any); ok && isMap {
				lay(a, b)
				continue
			}
			into[k] = v
		}
	}
	lay(base, over)
	out, err := yaml.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Dir(file), "data.yaml", string(out))
}

// expect decides "call TOOL VMID: …" or "command TEXT: …" and holds the answer to allowed TIER,
// waits, or refused CHECK.
func expect(t *testing.T, e *load.Site, x example) {
	t.Helper()
	i := strings.LastIndex(x.text, ": ")
	what, want := x.text[:i], strings.Fields(x.text[i+2:])
	var q terms.Question
	if text, ok := strings.CutPrefix(what, "command "); ok {
		q, _ = sshCall(text)
	} else {
		words := strings.Fields(what)
		q = statusCall()
		q.Call.Tool.Name, q.Call.Targets.VMIDs = words[1], []string{words[2]}
		q.Facts.Guests = map[string]terms.Guest{ // as in the page's first question
			"101": {Name: "web01", Kind: "lxc", Node: "pve1", Status: "running",
				Tags: []string{"web"}},
			"102": {Name: "db-1", Kind: "lxc", Node: "pve1", Status: "running",
				Tags: []string{"prod"}, Pool: "shop"}}
	}
	q.Time = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) // a Saturday
	d := decide(t, e, q)
	ok := false
	switch want[0] {
	case "allowed":
		ok = d.Allow && d.Tier.String() == want[1]
	case "waits":
		ok = d.NeedsApproval
	case "refused":
		ok = !d.Allow && slices.Contains(d.Failed, want[1])
	}
	if !ok {
		t.Errorf(
			"docs/policy.md:%d: %s: allowed %v at %s, failed %v: %v",
			x.line,
			x.text,
			d.Allow,
			d.Tier,
			d.Failed,
			d.Denied,
		)
	}
}

// console does what the command does; that the command itself does it is for the script tests of
// the binary.
func console(t *testing.T, at int, words []string) {
	t.Helper()
	if len(words) < 5 || words[0] != "$" || words[1] != "caponier" || words[2] != "policy" {
		t.Fatalf("docs/policy.md:%d: %v is no command of caponier policy", at, words)
	}
	arg := filepath.Join("../..", words[4])
	e := site(t, lab)
	rec := recordOf(t, e, "D", deniedQuestions(t)["protected"])
	var err error
	switch words[3] {
	case "check":
		_, err = load.Check(context.Background(), arg, load.Inventory{})
	case "test":
		var r load.TestReport
		if r, err = measured(arg); r.Failed > 0 {
			t.Errorf("docs/policy.md:%d: %d tests fail", at, r.Failed)
		}
	case "eval":
		q := statusCall()
		_, err = replay.Eval(
			context.Background(),
			filepath.Join("../..", words[6]),
			jsonOf(&q),
		)
	case "can":
		c := statusCall().Call
		_, err = can.Of(context.Background(), e.Rules(),
			can.World{Nodes: c.Nodes, Tools: []*terms.Tool{c.Tool},
				Who: []can.Who{{ID: c.Principal.ID, Auth: c.Principal.Auth}}})
	case "replay":
		_, err = replay.Replay(context.Background(), slices.Values([]terms.Record{rec}), arg)
	case "explain":
		_, err = replay.Explain(context.Background(), rec, bundleOf(t, lab))
	default:
		t.Errorf("docs/policy.md:%d: there is no caponier policy %s", at, words[3])
	}
	if err != nil {
		t.Errorf("docs/policy.md:%d: %s: %v", at, strings.Join(words, " "), err)
	}
}
