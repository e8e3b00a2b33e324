package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// copySite copies the lab's site into a folder that the test may spoil.
func copySite(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile("../../examples/lab/site/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "data.yaml", string(data))
	return dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func edit(t testing.TB, dir, name, old, new string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not hold %q", name, old)
	}
	write(t, dir, name, strings.Replace(string(data), old, new, 1))
}

func statusCall() gate.Question {
	return gate.Question{
		ID:   "q",
		Kind: gate.KindCall,
		Call: callOf("proxmox_container_status", []string{"vmids"}, "ssh_exec"),
		Facts: gate.Facts{
			Counts: gate.Counts{Calls60s: 1, TargetCalls60s: 1},
		},
		Time: time.Unix(0, 0),
	}
}

const annotated = "# METADATA\n# scope: package\n# schemas:\n#   - input: schema.input\n#   - data.site: schema.site\n"

func TestSiteThatIsWrongIsRefusedWithItsPlace(t *testing.T) {
	// nothing is decided
	evaluateWith(t, func(context.Context, *revision) (evaluator, error) { return nil, nil })
	tests := []struct {
		name, file, old, new, want string
	}{
		{
			"tier that is none",
			"data.yaml",
			`"tool:list_nodes": green`,
			`"tool:list_nodes": greeen`,
			"data.yaml:",
		},
		{
			"key that is not known",
			"data.yaml",
			"claimable_roles: []",
			"claimable_rolls: []",
			"claimable_rolls",
		},
		{
			"key that is there twice",
			"data.yaml",
			"claimable_roles: []",
			"claimable_roles: []\nclaimable_roles: []",
			"already defined",
		},
		{
			"role that is not there",
			"data.yaml",
			"roles: [operator]",
			"roles: [boss]",
			`there is no role "boss"`,
		},
		{
			"tier that is lowered",
			"data.yaml",
			"lifecycle: {tier: red}",
			"lifecycle: {tier: green}",
			"green is lower than anything in this group",
		},
		{
			"core entry that is described again",
			"data.yaml",
			"binaries: {}",
			`binaries: {pct: {"": {group: read, tier: green, operands: [], options: {}}}}`,
			"binaries/pct: is described by the core grammar",
		},
		{
			"wrapper as a program",
			"data.yaml",
			"binaries: {}",
			`binaries: {sudo: {"": {group: read, tier: green, operands: [], options: {}}}}`,
			"runs other programs",
		},
		{"number for a VMID list", "data.yaml", `["101", "104", "105"]`, `[101]`, "relaxed.vmids"},
		{
			"VMID with a leading zero",
			"data.yaml",
			`["101", "104", "105"]`,
			`["0101"]`,
			"relaxed.vmids",
		},
		{
			"host in another form",
			"data.yaml",
			"egress: {}",
			`egress: {Example.COM: {schemes: [https], ports: [443], methods: [GET], classes: [global], max_hops: 1, max_body_bytes: 1}}`,
			"Example.COM",
		},
		{
			"link-local addresses",
			"data.yaml",
			"egress: {}",
			`egress: {a.b: {schemes: [https], ports: [443], methods: [GET], classes: [linklocal], max_hops: 1, max_body_bytes: 1}}`,
			"classes",
		},
		{
			"secret folder",
			"data.yaml",
			"read: [/var/log",
			"read: [/root/.ssh",
			"can never be reached",
		},
		{
			"folder above what stays closed",
			"data.yaml",
			"read: [/var/log",
			"read: [/etc/pve",
			`"/etc/pve" holds /etc/pve/priv, which stays closed`,
		},
		{
			"second document",
			"data.yaml",
			"redact: [password",
			"---\nredact: [password",
			"a second YAML document",
		},
		{
			"service in upper case",
			"data.yaml",
			"services: []",
			"services: [{service: Docker, nodes: ['*'], reason: xxx}]",
			"protected.services",
		},
		{
			"service on no node's name",
			"data.yaml",
			"services: []",
			"services: [{service: docker, nodes: ['pve*'], reason: xxx}]",
			"protected.services",
		},
		{
			"service of another shape",
			"data.yaml",
			"services: []",
			"services: [docker]",
			"protected.services",
		},
		{
			"one of several ways raised alone",
			"data.yaml",
			"lifecycle: {tier: red}",
			"pct start: {tier: red}",
			"raises one of several ways to the same effect",
		},
		{"fraction", "data.yaml", "calls_per_minute: 120", "calls_per_minute: 1.5", "whole number"},
		{
			"package of the core",
			"x.rego",
			"",
			"package caponier.core.check.tier\n\nok if true\n",
			"x.rego:1: package caponier.core.check.tier does not belong in site",
		},
		{"package of nobody", "x.rego", "", "package foo\n\nx := 1\n", "does not belong in site"},
		{
			"deny that is no set",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny := true if input.tool.name == \"x\"\n",
			`x.rego:8: deny must be written "deny contains`,
		},
		{
			"deny where nobody asks",
			"x.rego",
			"",
			annotated + "package caponier.site.tool\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.name == \"x\"\n",
			"is never asked",
		},
		{
			"misspelt deny",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndney contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.name == \"x\"\n",
			"nothing uses dney",
		},
		{
			"misspelt field",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.nam == \"x\"\n",
			"undefined ref: input.tool.nam",
		},
		{
			"misspelt field without an annotation",
			"x.rego",
			"",
			"package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.nam == \"x\"\n",
			"undefined ref: input.tool.nam",
		},
		{
			"misspelt data",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if data.site.protekted.vmids[\"1\"]\n",
			"undefined ref: data.site.protekted",
		},
		{
			"data without an annotation",
			"x.rego",
			"",
			"package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if data.site.custom.x\n",
			"data.site is not typed here",
		},
		{
			"comparison of what may be null",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.facts.calls_60s > 3\n",
			"compared without is_number(input.facts.calls_60s)",
		},
		{
			"pattern without anchors",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if regex.match(`x`, input.tool.name)\n",
			"is not anchored",
		},
		{
			"pattern from elsewhere",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if regex.match(input.source, input.tool.name)\n",
			"must be a literal",
		},
		{
			"range that is not canonical",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if net.cidr_contains(\"10.0.0.1/8\", input.targets.hosts[0])\n",
			"as 10.0.0.0/8",
		},
		{
			"IPv4 written as IPv6",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if net.cidr_contains(\"::ffff:0:0/96\", input.targets.hosts[0])\n",
			"taken for every IPv4 address",
		},
		{
			"scan over the inventory",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if {\n\tsome id, _ in data.site.protected.vmids\n\tid == input.targets.vmids[0]\n}\n",
			"is searched through",
		},
		{
			"scan with a wildcard",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if data.site.principals[_].auth == input.source\n",
			"is searched through",
		},
		{
			"negation that is silently off",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if not input.tool.name in data.site.custom.allowed\n",
			"is silently off",
		},
		{
			"input as a whole",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if object.get(input, \"tool\", {}) == {}\n",
			"input as a whole",
		},
		{
			"field behind object.get",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if object.get(input.tool, \"nam\", \"\") == \"x\"\n",
			"hides misspelt fields",
		},
		{
			"deny among the tests",
			"x_test.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.name == \"x\"\n\ntest_x if true\n",
			"deny in a file of tests is never asked",
		},
		{
			"negation around a call",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if not count(data.site.custom.allowed) > 0\n",
			"is silently off",
		},
		{
			"negated comparison of a call",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if not lower(data.site.custom.owner) == input.principal.id\n",
			"is silently off",
		},
		{
			"site's data behind an import",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\nimport data.site.custom\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if not input.tool.name in custom.allowed\n",
			"write data.site.custom out",
		},
		{
			"input behind an import",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\nimport input.args\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if object.get(args, \"scalrs\", {}) == {}\n",
			"write input.args out",
		},
		{
			"misspelt rule of the core",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if data.caponier.core.tier.cal == 3\n",
			"x.rego:8: there is no rule data.caponier.core.tier.cal",
		},
		{
			"misspelt rule of the core behind an import",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\nimport data.caponier.core.tier\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if tier.cal == 3\n",
			"there is no rule data.caponier.core.tier.cal",
		},
		{
			"misspelt rule of the site",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if data.caponier.site.helpers.bad\n",
			"there is no rule data.caponier.site.helpers.bad",
		},
		{
			"number that is not there",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.principal.id != data.site.custom.owner\n",
			"x.rego:8: data.yaml has no custom.owner",
		},
		{
			"anchors in one branch alone",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if not regex.match(`^guests_|status$`, input.tool.name)\n",
			"is not anchored",
		},
		{
			"anchor that is a character",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if regex.match(`^status\\$`, input.tool.name)\n",
			"is not anchored",
		},
		{
			"anchor of lines",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if regex.match(`(?m)^status$`, input.tool.name)\n",
			"is not anchored",
		},
		{
			"network",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if http.send({\"method\": \"get\", \"url\": input.source}).status_code == 200\n",
			"undefined function http.send",
		},
		{
			"clock",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if time.now_ns() == input.time.unix_ms\n",
			"undefined function time.now_ns",
		},
		{
			"lax conversion",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if to_number(input.source) == 1\n",
			"undefined function to_number",
		},
		{
			"rules without tests",
			"x.rego",
			"",
			annotated + "package caponier.site.call\n\ndeny contains {\"id\": \"a\", \"msg\": \"b\"} if input.tool.name == \"x\"\n",
			"rules but no tests",
		},
		{
			"test that fails",
			"x_test.rego",
			"",
			"package caponier.site.call_test\n\ntest_x if 1 == 2\n",
			"x_test.rego:3: test caponier.site.call_test.test_x did not pass",
		},
		{
			"file of another kind",
			"x.txt",
			"",
			"hello",
			"only .rego, .yaml, .json and .md files belong",
		},
		{
			"rules that do not parse",
			"x.rego",
			"",
			"package caponier.site.call\n\ndeny contains if {\n",
			"x.rego:",
		},
		{"data that is no YAML", "more.yaml", "", "a: [", "more.yaml"},
		{
			"data in two files",
			"more.yaml",
			"",
			"approval: {argument: true}\n",
			"argument is set in another file too",
		},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			dir := copySite(t)
			if x.old == "" {
				write(t, dir, x.file, x.new)
			} else {
				edit(t, dir, x.file, x.old, x.new)
			}
			if _, err := Check(context.Background(), dir); err == nil ||
				!strings.Contains(err.Error(), x.want) {
				t.Errorf("error %v, want one with %q", err, x.want)
			}
		})
	}
}

func TestMistakesNameTheirLine(t *testing.T) {
	dir := copySite(t)
	edit(t, dir, "data.yaml", `"tool:list_nodes": green`, `"tool:list_nodes": greeen`)
	data, _ := os.ReadFile(filepath.Join(dir, "data.yaml"))
	line := bytes.Count(data[:bytes.Index(data, []byte("greeen"))], []byte("\n")) + 1
	_, err := Check(context.Background(), dir)
	if want := "site/data.yaml:" + json.Number(string(rune('0'+line/10))+string(rune('0'+line%10))).String() + ": tiers.tool:list_nodes"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestReloadTakesWhatIsGoodAndKeepsItOtherwise(t *testing.T) {
	dir := copySite(t)
	var kept []string
	failing := false
	e, err := New(
		context.Background(),
		Options{
			Site:     dir,
			Deadline: 5 * time.Second,
			OnRevision: func(rev string, bundle []byte) error {
				if failing {
					return errors.New("disk full")
				}
				kept = append(kept, rev)
				return nil
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	first := e.Revision()
	if d := decide(t, e, statusCall()); !d.Allow || d.Revision != first {
		t.Fatalf("%+v", d)
	}
	edit(t, dir, "data.yaml", "demo: {auth", "nobody: {auth")
	write(t, dir, "x.rego", "package caponier.site.call\n\ndeny contains if {\n")
	if err := e.Reload(context.Background()); err == nil || e.Revision() != first ||
		!decide(t, e, statusCall()).Allow {
		t.Fatalf("a broken site was taken: %v", err)
	}
	os.Remove(filepath.Join(dir, "x.rego"))
	failing = true
	if err := e.Reload(context.Background()); err == nil || e.Revision() != first {
		t.Fatalf("a revision that was not kept was taken: %v", err)
	}
	failing = false
	if err := e.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, e, statusCall()); d.Allow || e.Revision() == first {
		t.Fatalf("a revoked right still holds: %+v", d)
	}
	if len(kept) != 2 || kept[0] != first || kept[1] != e.Revision() {
		t.Errorf("kept %v", kept)
	}
}

func TestRevokedRightEndsARunningCall(t *testing.T) {
	dir := copySite(t)
	e := site(t, dir)
	call, op := sshCall("uptime")
	op.Call.Decided = decide(t, e, call)
	if !decide(t, e, op).Allow {
		t.Fatal("the operation is refused from the start")
	}
	edit(t, dir, "data.yaml", "demo: {auth", "nobody: {auth")
	if err := e.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, e, op); d.Allow || !slices.Contains(d.Failed, "identity") {
		t.Errorf("%+v", d)
	}
}

func TestSwapUnderLoadNeverGivesAWrongAnswer(t *testing.T) {
	alone(t)
	dir := copySite(t)
	e := site(t, dir)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if d, err := e.Decide(context.Background(), statusCall()); err != nil || !d.Allow {
					t.Errorf("%+v %v", d, err)
					return
				}
			}
		})
	}
	n := 6
	if testing.Short() {
		n = 3
	}
	for i := range n {
		edit(
			t,
			dir,
			"data.yaml",
			"calls_per_minute: 12",
			"calls_per_minute: "+string(rune('1'+i%2))+"12",
		)
		if err := e.Reload(context.Background()); err != nil {
			t.Error(err)
		}
		edit(
			t,
			dir,
			"data.yaml",
			"calls_per_minute: "+string(rune('1'+i%2))+"12",
			"calls_per_minute: 12",
		)
	}
	close(stop)
	wg.Wait()
}

func TestWatchTakesAChange(t *testing.T) {
	dir := copySite(t)
	e := site(t, dir)
	first := e.Revision()
	ctx, cancel := context.WithCancel(context.Background())
	reloaded := make(chan error, 8)
	done := make(chan error, 1)
	go func() { done <- e.Watch(ctx, func(err error) { reloaded <- err }) }()
	deadline := time.After(time.Minute)
	for n := 0; e.Revision() == first; n++ {
		write(t, dir, "notes.md", string(rune('a'+n%26))) // until the watcher is up
		edit(t, dir, "data.yaml", "calls_per_minute: 1", "calls_per_minute: 11")
		select {
		case err := <-reloaded:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Second):
		case <-deadline:
			t.Fatal("the change was not taken")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEveryWayOfNotDecidingRefuses(t *testing.T) {
	var zero Engine
	if d, err := zero.Decide(context.Background(), statusCall()); err == nil || d.Allow {
		t.Errorf("the zero engine: %+v %v", d, err)
	}
	e := site(t, "../../examples/lab/site")
	if d, err := e.Decide(context.Background(), gate.Question{}); err == nil || d.Allow {
		t.Errorf("the zero question: %+v %v", d, err)
	}
	q := statusCall()
	q.Kind = 0
	if d, err := e.Decide(context.Background(), q); err == nil || d.Allow {
		t.Errorf("a question of no kind: %+v %v", d, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d, err := e.Decide(ctx, statusCall()); err == nil || d.Allow || len(d.Input) == 0 {
		t.Errorf("a cancelled question: %+v %v", d, err)
	}
	e.options.Deadline = time.Nanosecond
	if d, err := e.Decide(context.Background(), statusCall()); err == nil || d.Allow ||
		!strings.Contains(err.Error(), "took too long") {
		t.Errorf("a late answer: %+v %v", d, err)
	}
	q = statusCall()
	q.Call.Args.Scalars = map[string]any{"x": []string{}} // what no decoder makes
	e.options.Deadline = 0
	if d, err := e.Decide(context.Background(), q); err == nil || d.Allow ||
		!strings.Contains(err.Error(), "panic") {
		t.Errorf("a panic: %+v %v", d, err)
	}
}

func TestDecisionIsDecodedStrictly(t *testing.T) {
	good := `{"schema":"caponier.decision/1","allow":true,"tier":"green","failed":[],"deny":[],"confirm":false,"obligations":{"timeout_ms":0,"max_bytes":0,"redact":[],"log":"info","channels":["cli"],"approvers":["*"]}}`
	bad := map[string][2]string{
		"text for a truth value":      {`"allow":true`, `"allow":"true"`},
		"number for a truth value":    {`"allow":true`, `"allow":1`},
		"nothing":                     {`"allow":true,`, ``},
		"another schema":              {`decision/1`, `decision/2`},
		"tier that is none":           {`green`, `purple`},
		"black and allowed":           {`green`, `black`},
		"allowed and failed":          {`"failed":[]`, `"failed":["tier"]`},
		"allowed and denied":          {`"deny":[]`, `"deny":[{"id":"a","msg":"b"}]`},
		"allowed and to be confirmed": {`"confirm":false`, `"confirm":true`},
		"refused for nothing":         {`"allow":true`, `"allow":false`},
		"a member more":               {`"confirm"`, `"shadow":true,"confirm"`},
		"deny as an object":           {`"deny":[]`, `"deny":{}`},
		"reason without a text": {
			`"allow":true,"tier":"green","failed":[],"deny":[]`,
			`"allow":false,"tier":"green","failed":["x"],"deny":[{"id":"a"}]`,
		},
		"check that is no text": {
			`"allow":true,"tier":"green","failed":[]`,
			`"allow":false,"tier":"green","failed":[1]`,
		},
		"negative obligation":       {`"max_bytes":0`, `"max_bytes":-1`},
		"fraction as an obligation": {`"max_bytes":0`, `"max_bytes":0.5`},
		"no obligations": {
			`,"obligations":{"timeout_ms":0,"max_bytes":0,"redact":[],"log":"info","channels":["cli"],"approvers":["*"]}`,
			``,
		},
		"obligation more": {`"log":"info"`, `"log":"info","x":1`},
	}
	read := func(s string) error {
		return new(answer).decode(ast.MustParseTerm(s).Value)
	}
	if err := read(good); err != nil {
		t.Fatal(err)
	}
	for name, x := range bad {
		text := strings.Replace(good, x[0], x[1], 1)
		if text == good {
			t.Errorf("%s: nothing was changed", name)
		}
		if err := read(text); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := new(answer).decode(ast.String("allow")); err == nil {
		t.Error("text was taken for a decision")
	}
}

func TestJournalHoldsNoRedactedValue(t *testing.T) {
	e := site(t, "../../examples/lab/site")
	q := statusCall()
	q.Call.Args.Scalars = map[string]any{"vmid": int64(101), "password": "hunter2"}
	q.Call.Commands = []gate.Command{
		{
			Form:  "script",
			Arg:   "token",
			Guest: true,
			Text:  "hunter2",
			Lowered: gate.Lowered{
				Parsed: true,
				Calls:  []gate.Simple{{Argv: []string{"hunter2"}, Static: true}},
			},
		},
	}
	for _, kind := range []gate.Kind{gate.KindCall, gate.KindOperation} {
		q.Kind = kind
		d, _ := e.Decide(context.Background(), q)
		if strings.Contains(string(d.Input), "hunter2") ||
			!strings.Contains(string(d.Input), `"password":{"redacted":true}`) ||
			!json.Valid(d.Input) {
			t.Errorf("%s", d.Input)
		}
	}
	if q.Call.Args.Scalars["password"] != "hunter2" {
		t.Error("the call itself was changed")
	}
}

func TestTermAndJSONOfAnInputAreTheSame(t *testing.T) {
	call, op := sshCall("uptime; df -h | wc -l /var/log/x")
	call.Call.Args.Scalars = map[string]any{"a": true, "b": int64(-5), "c": "é\u2028<&>\"\\\x7f"}
	for _, q := range []gate.Question{call, op, {Kind: gate.KindVisible, Call: call.Call}, {Kind: gate.KindOperation, Call: call.Call, Op: abi.SFTPRead{Path: "/x"}, Phase: gate.PhaseEffect,
		Facts: gate.Facts{File: &gate.FileFacts{RealPath: "/x", Bytes: 5}}}, {Kind: gate.KindOperation, Call: call.Call, Op: abi.HTTPRequest{URL: "https://a.b/c", Method: "GET"}, Phase: gate.PhaseLookup}} {
		in := document(&q)
		if !json.Valid(inputJSON(in)) {
			t.Fatalf("%s", inputJSON(in))
		}
		v, err := ast.ValueFromReader(bytes.NewReader(inputJSON(in)))
		if err != nil {
			t.Fatal(err)
		}
		if got := inputTerm(in).Value; got.Compare(v) != 0 {
			t.Errorf("term %v\njson %v", got, v)
		}
		if _, again, err := decodeInput(inputJSON(in)); err != nil ||
			!bytes.Equal(inputJSON(again), inputJSON(in)) {
			t.Errorf("decoded again: %v", err)
		}
	}
}
