package repo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/repo"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/rego"
)

const lab = "../../../examples/lab/site"

var nodes = []terms.Node{
	{Name: "pve1", Cluster: "lab", Host: "[2001:DB8::1]", Port: 22, User: "root", Default: true},
	{Name: "pve2", Cluster: "lab", Host: "PVE2.example.com.", Port: 2222, User: "caponier",
		Aliases: []string{"other"}},
	{Name: "other", Cluster: "", Host: "192.0.2.3", Port: 22, User: "root"},
}

func inventory(t testing.TB) load.Inventory {
	t.Helper()
	lock, err := plugin.Load("../../../plugins.lock")
	if err != nil {
		t.Fatal(err)
	}
	return load.Inventory{Tools: lock.Tools(), Nodes: nodes}
}

// host is a real door whose decider keeps each question and allows it, and whose executor does
// nothing.
type host struct {
	t     *testing.T
	site  *load.Site
	asked []terms.Question // of calls, and of operations with their facts
	op    abi.Op           // that a running call asks for
	tier  terms.Tier
}

func (h *host) Decide(ctx context.Context, q terms.Question) (terms.Decision, error) {
	d, err := h.site.Decide(ctx, q)
	if q.Kind == terms.KindCall {
		h.tier = d.Tier
	}
	if q.Kind == terms.KindCall || q.Kind == terms.KindOperation && q.Phase == terms.PhaseEffect {
		h.asked = append(h.asked, q)
	}
	// the gate takes no decision that allows what is black: see call
	return terms.Decision{Allow: true, Tier: min(h.tier, terms.Red), Revision: "test",
		Input: d.Input}, err
}
func (*host) Intent(context.Context, terms.Record, bool) error { return nil }
func (*host) Outcome(context.Context, terms.Record) error      { return nil }
func (*host) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1, CallsRetryS: 60,
		ToolRetryS: 60, TargetRetryS: 60}, func() {}, nil
}
func (*host) Ready(context.Context, *terms.Call, func(string)) error { return nil }
func (h *host) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	if h.op != nil {
		_, _ = r.Operate(ctx, h.op)
	}
	return terms.Output{JSON: json.RawMessage(`{}`)}, nil
}
func (*host) Lookup(_ context.Context, q terms.Question) (terms.Facts, error) {
	f := terms.FileFacts{RealPath: "/srv/x", Type: "file", Exists: true, Mode: 0o644}
	switch q.Op.(type) {
	case abi.SFTPWrite, abi.SFTPPut:
		f = terms.FileFacts{RealPath: "/srv/x"}
	case abi.HTTPRequest:
		return terms.Facts{Addrs: []terms.Addr{{IP: "1.1.1.1", Class: "global"}}}, nil
	}
	return terms.Facts{File: &f, Addrs: []terms.Addr{}}, nil
}
func (*host) Execute(context.Context, terms.Question, terms.Decision) (terms.Result, error) {
	return terms.Result{}, nil
}
func (*host) End(context.Context, *terms.Call) {}

// call has the real host make the questions of a call, and of the operation in it.
func (h *host) call(tool *terms.Tool, args []byte, auth string, op abi.Op) (terms.Answer, []any) {
	h.asked, h.op = nil, op
	executors := map[string]terms.Executor{}
	for _, name := range abi.Operations() {
		executors[name] = h
	}
	source := map[string]string{"config": "stdio", "token": "http"}[auth]
	door := gate.New(gate.Options{Nodes: nodes, Decider: h, Journal: h, Ledger: h,
		Lowerer: shell.Lowerer{}, Throttle: &fair.Refusals{}, Executors: executors,
		Mode: func(context.Context) terms.Mode { return terms.Mode{Freezes: []terms.Freeze{}} },
		Now:  func() time.Time { return time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC) }}, h)
	a := door.Call(h.t.Context(), terms.Request{Source: source, Tool: tool, Arguments: args,
		Principal: terms.Principal{ID: "demo", Auth: auth, Roles: []string{}}})
	var docs []any
	for _, q := range h.asked {
		in := input.Of(&q, nil)
		if _, err := h.site.Rules().Input(h.t.Context(), in); err != nil {
			h.t.Fatal(err)
		}
		doc := like(h.t, value.JSON(in, nil, nil))
		if parent, ok := doc["parent"].(map[string]any); ok {
			parent["tier"] = h.tier.String()
		}
		docs = append(docs, doc)
	}
	return a, docs
}

// like is a question without what a test cannot know: its id and the digest of its arguments.
func like(t *testing.T, doc []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(doc, &m); err != nil {
		t.Fatal(err)
	}
	m["id"] = ""
	m["args"].(map[string]any)["digest"] = ""
	if parent, ok := m["parent"].(map[string]any); ok {
		parent["id"] = ""
	}
	if file, ok := m["file"].(map[string]any); ok && file["sha256"] != nil {
		file["sha256"] = ""
	}
	return m
}

// helper evaluates the Rego of an export.
type helper struct {
	t *testing.T
	q map[string]rego.PreparedEvalQuery
}

func newHelper(t *testing.T, inv load.Inventory) helper {
	dir := filepath.Join(t.TempDir(), "policy")
	_, err := repo.Write(repo.Options{Dir: dir, Site: lab, Version: "dev", Inventory: inv})
	if err != nil {
		t.Fatal(err)
	}
	h := helper{t, map[string]rego.PreparedEvalQuery{}}
	for name, query := range map[string]string{
		"call": "x = data.caponier.testing.call(input.tool, input.args, input.who)",
		"operation": "x = data.caponier.testing.operation(data.caponier.testing.call(input.tool, " +
			"input.args, input.who), input.op, input.with)",
	} {
		q, err := rego.New(rego.Query(query), rego.Load([]string{dir}, nil)).
			PrepareForEval(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.q[name] = q
	}
	return h
}

// ask returns the question that the helper makes, or the error that ends a test.
func (h helper) ask(query string, in map[string]any) (any, error) {
	h.t.Helper()
	rs, err := h.q[query].Eval(h.t.Context(), rego.EvalInput(in))
	if err != nil {
		return nil, err
	}
	if len(rs) != 1 {
		h.t.Fatalf("%s %v is undefined", query, in)
	}
	doc, err := json.Marshal(rs[0].Bindings["x"])
	if err != nil {
		h.t.Fatal(err)
	}
	return like(h.t, doc), nil
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return
	}
	w, g := want.(map[string]any), got.(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(merged(w, g))) {
		if !reflect.DeepEqual(w[k], g[k]) {
			a, _ := json.Marshal(w[k])
			b, _ := json.Marshal(g[k])
			t.Errorf("%s: %s\nthe host    %s\nthe helper  %s", what, k, a, b)
		}
	}
}

func merged(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

var plainText = regexp.MustCompile("^[A-Za-z0-9_./:@,+ -]*$")

// The question that a test makes is the one that the host asks for the same call: for every tool of
// the lock, with generated arguments. What the helper refuses to make, the host refuses too, but
// for command text that is not plain.
func TestQuestionsAreThoseOfTheHost(t *testing.T) {
	inv := inventory(t)
	site, err := load.New(t.Context(), load.Options{Site: lab, Inventory: inv})
	if err != nil {
		t.Fatal(err)
	}
	h, r := &host{t: t, site: site}, newHelper(t, inv)
	rnd := rand.New(rand.NewPCG(1, 2))
	compared, unplain := map[string]int{}, 0
	for _, tool := range inv.Tools {
		for i := range 40 {
			args := generated(rnd, tool)
			text, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]any{"tool": tool.Kind + ":" + tool.Name, "args": args, "who": "demo"}
			auth := "config" // the first that the site lists
			if i%2 == 1 {
				auth = "token"
				in["who"] = map[string]any{"id": "demo", "auth": auth}
			}
			what := tool.Name + " " + string(text)
			got, wrong := r.ask("call", in)
			answer, docs := h.call(tool, text, auth, nil)
			switch {
			case wrong != nil && len(docs) == 0: // both refuse
			case wrong != nil && strings.Contains(wrong.Error(), "command text is plain"),
				wrong != nil && strings.Contains(wrong.Error(), "is a word of the shell"):
				if unplain++; slices.ContainsFunc(texts(tool, args), simple) {
					t.Errorf("%s: %v", what, wrong)
				}
			case wrong != nil:
				t.Errorf("%s: the host asks, the helper refuses: %v", what, wrong)
			case len(docs) == 0:
				if !strings.Contains(fmt.Sprint(answer.Err), "rguments") {
					t.Errorf("%s: the host: %v", what, answer.Err)
				}
			default:
				compared[tool.Name]++
				same(t, what, docs[0], got)
			}
		}
		if compared[tool.Name] == 0 {
			t.Errorf("%s was never compared", tool.Name)
		}
	}
	t.Logf("%d tools, %d questions compared, %d texts that are not plain", len(compared),
		sum(compared), unplain)
}

// simple reports a text of plain words alone that begins with a program.
func simple(text string) bool {
	return plainText.MatchString(text) && strings.HasPrefix(text, "pct ")
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func texts(tool *terms.Tool, args map[string]any) (all []string) {
	for _, p := range tool.Params {
		if s, ok := args[p.Name].(string); ok && strings.HasSuffix(p.Target, "command") {
			all = append(all, s)
		}
	}
	return all
}

// The same of every operation that a tool declares.
func TestOperationsAreThoseOfTheHost(t *testing.T) {
	inv := inventory(t)
	site, err := load.New(t.Context(), load.Options{Site: lab, Inventory: inv})
	if err != nil {
		t.Fatal(err)
	}
	h, r := &host{t: t, site: site}, newHelper(t, inv)
	compared := map[string]int{}
	for _, tool := range inv.Tools {
		args := required(tool)
		text, _ := json.Marshal(args)
		for _, name := range tool.Imports {
			op, with := operationOf(name)
			if op == nil {
				continue
			}
			what := tool.Name + " " + name
			answer, docs := h.call(tool, text, "config", op)
			if len(docs) != 2 {
				t.Errorf("%s: the host asked %d times: %v", what, len(docs), answer.Err)
				continue
			}
			got, err := r.ask("operation", map[string]any{"tool": tool.Kind + ":" + tool.Name,
				"args": args, "who": "demo", "op": name, "with": with})
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			compared[name]++
			same(t, what, docs[1], got)
		}
	}
	t.Logf("compared %v", compared)
	for _, name := range abi.Operations() {
		if declared := slices.ContainsFunc(inv.Tools, func(t *terms.Tool) bool {
			return slices.Contains(t.Imports, name)
		}); declared && compared[name] == 0 && name != "undo_steps" {
			t.Errorf("%s was never compared", name)
		}
	}
}
