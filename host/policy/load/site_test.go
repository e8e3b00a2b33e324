package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func itoa(n int) string { return strconv.Itoa(n) }

func encode(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func open(t testing.TB, dir string) *Site {
	t.Helper()
	s, err := New(context.Background(), Options{Site: dir, Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func status() terms.Question {
	return terms.Question{ID: "q", Kind: terms.KindCall, Time: time.Unix(0, 0),
		Facts: terms.Facts{Counts: terms.Counts{Calls60s: 1, TargetCalls60s: 1}},
		Call: &terms.Call{ID: "C1", Source: "stdio", Clusters: []string{"lab"},
			Principal: terms.Principal{ID: "demo", Auth: "config"},
			Tool: &terms.Tool{Kind: "tool", Name: "proxmox_container_status",
				TargetKinds: []string{"vmids"},
				Imports:     []string{"ssh_exec"}, Commands: []string{"pct status"}},
			Args:    terms.Args{JSON: []byte(`{}`), Digest: "sha256:", Scalars: map[string]any{}},
			Targets: terms.Targets{Nodes: []string{"pve1"}, VMIDs: []string{"101"}},
			Nodes: []terms.Node{{Name: "pve1", Cluster: "lab", Host: "127.0.0.1", Port: 22,
				User: "root"}},

			Confirmation: terms.Confirmation{State: "none"}}}
}

func TestShippedSitesAreGood(t *testing.T) {
	for _, dir := range []string{"../../../policies/site", "../../../policies/examples/homelab",
		"../../../policies/examples/team", lab} {
		if _, err := Check(context.Background(), dir, Inventory{}); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestReloadTakesGoodPoliciesAndKeepsTheLastGoodOne(t *testing.T) {
	dir := copySite(t)
	var kept []string
	failing := false
	s, err := New(context.Background(), Options{Site: dir, Deadline: 5 * time.Second,
		OnRevision: func(rev string, bundle []byte) error {
			if failing {
				return errors.New("disk full")
			}
			kept = append(kept, rev)
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	allowed := func() bool {
		d, err := s.Decide(context.Background(), status())
		return err == nil && d.Allow
	}
	first := s.Revision()
	if !allowed() {
		t.Fatal("refused from the start")
	}
	edit(t, dir, "data.yaml", "demo: {auth", "nobody: {auth")
	write(t, dir, "x.rego", "package caponier.site.call\n\ndeny contains if {\n")
	if err := s.Reload(context.Background()); err == nil || s.Revision() != first || !allowed() {
		t.Fatalf("a broken site was taken: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "x.rego")); err != nil {
		t.Fatal(err)
	}
	failing = true
	if err := s.Reload(context.Background()); err == nil || s.Revision() != first {
		t.Fatalf("a revision that was not kept was taken: %v", err)
	}
	failing = false
	if err := s.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if allowed() || s.Revision() == first {
		t.Fatal("a revoked right still holds")
	}
	if !slices.Equal(kept, []string{first, s.Revision()}) {
		t.Errorf("kept %v", kept)
	}
}

// TestReloadRefusesWhatOthersCanChangeAndWhatBlocks puts other things in place of data.yaml, such
// as a FIFO that has no writer.
func TestReloadRefusesWhatOthersCanChangeAndWhatBlocks(t *testing.T) {
	dir := copySite(t)
	s := open(t, dir)
	data := filepath.Join(dir, "data.yaml")
	text, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func() error
		want   string
	}{
		"FIFO":             {func() error { return syscall.Mkfifo(data, 0o600) }, "a FIFO"},
		"link to a device": {func() error { return os.Symlink("/dev/zero", data) }, "escapes"},
		"link out":         {func() error { return os.Symlink("/etc/passwd", data) }, "escapes"},
		"folder":           {func() error { return os.Mkdir(data, 0o755) }, "nothing is granted"},
		"file of all": {func() error {
			return errors.Join(os.WriteFile(data, text, 0o644),
				os.Chmod(data, 0o666))
		}, "written by other users"},
		"folder of all": {func() error {
			return errors.Join(os.WriteFile(data, text, 0o644),
				os.Chmod(dir, 0o777))
		}, "written by other users"},
		"file that is huge": {func() error {
			return os.WriteFile(data, make([]byte, maxFile+1),
				0o644)
		}, "more than"},
		"no file": {func() error { return nil }, "nothing is granted"},
	} {
		if err := errors.Join(os.RemoveAll(data), os.Chmod(dir, 0o755), x.change()); err != nil {
			t.Fatal(err)
		}
		began, first := time.Now(), s.Revision()
		if err := s.Reload(context.Background()); err == nil || !strings.Contains(err.Error(),
			x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
		if took := time.Since(began); took > 30*time.Second || s.Revision() != first {
			t.Errorf("%s: after %s revision %s", name, took, s.Revision())
		}
	}
}

func TestReloadEndsWithItsContext(t *testing.T) {
	s := open(t, copySite(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Reload(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled reload: %v", err)
	}
}

func TestSwapUnderLoadNeverGivesAWrongAnswer(t *testing.T) {
	dir := copySite(t)
	s := open(t, dir)
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
				if d, err := s.Decide(context.Background(), status()); err != nil || !d.Allow {
					t.Errorf("%+v %v", d, err)
					return
				}
			}
		})
	}
	for i := range 3 {
		limit := "calls_per_minute: " + itoa(121+i)
		edit(t, dir, "data.yaml", "calls_per_minute: 120", limit)
		if err := s.Reload(context.Background()); err != nil {
			t.Error(err)
		}
		edit(t, dir, "data.yaml", limit, "calls_per_minute: 120")
	}
	close(stop)
	wg.Wait()
}

func TestFollowTellsOfAChange(t *testing.T) {
	dir := copySite(t)
	s := open(t, dir)
	first := s.Revision()
	ctx, cancel := context.WithCancel(context.Background())
	told, done := make(chan error, 8), make(chan struct{})
	go func() {
		defer close(done)
		s.Follow(ctx, func(missed error) { told <- errors.Join(missed, s.Reload(ctx)) })
	}()
	if err := <-told; err != nil || s.Revision() != first {
		t.Fatalf("at once: %v, revision %s, want %s", err, s.Revision(), first)
	}
	edit(t, dir, "data.yaml", "calls_per_minute: 1", "calls_per_minute: 11")
	if err := <-told; err != nil || s.Revision() == first {
		t.Errorf("after a change: %v, revision %s is the old one", err, s.Revision())
	}
	cancel()
	<-done
}

// From the moment that a change is seen nothing is decided by the old policy, unless the new one is
// refused.
func TestDecisionsWaitForAChangedPolicy(t *testing.T) {
	dir := copySite(t)
	s := open(t, dir)
	decide := func() <-chan terms.Decision {
		c := make(chan terms.Decision, 1)
		go func() {
			d, err := s.Decide(context.Background(), status())
			if err != nil {
				t.Error(err)
			}
			c <- d
		}()
		return c
	}
	for _, last := range []bool{true, false} { // refused, then good
		s.hold()
		waiting := decide()
		select {
		case d := <-waiting:
			t.Fatalf("decided before the policy was loaded: %+v", d)
		case <-time.After(50 * time.Millisecond):
		}
		if last {
			write(t, dir, "x.rego", "no Rego")
		} else {
			if err := os.Remove(filepath.Join(dir, "x.rego")); err != nil {
				t.Fatal(err)
			}
			edit(t, dir, "data.yaml", "\n  \"tool:proxmox_container_status\": green", "")
		}
		if err := s.Reload(context.Background()); (err != nil) != last {
			t.Error(err)
		}
		if d := <-waiting; d.Allow != last {
			t.Errorf("%+v, want allow %v", d, last)
		}
		if d := <-decide(); d.Allow != last {
			t.Errorf("afterwards: %+v", d)
		}
	}
	s.hold()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if d, err := s.Decide(ctx, status()); err == nil || d.Allow {
		t.Errorf("a call that ended: %+v %v", d, err)
	}
}

// TestSmokeAsksEveryOperation keeps the questions of a load complete, and their examples true.
func TestSmokeAsksEveryOperation(t *testing.T) {
	for _, op := range abi.Table() {
		if op.Example == nil || op.Example.Import() != op.Import {
			t.Errorf("%s is not tried when a policy is loaded: %T", op.Import, op.Example)
		} else if op.OnNode != (op.Example.NodeName() != "") {
			t.Errorf("the example of %s and the table disagree on its node", op.Import)
		}
		if _, file := op.Example.(abi.FileOp); file != (op.View == abi.ViewFile) {
			t.Errorf("%s has the view %s", op.Import, op.View)
		}
	}
}

// TestRuleThatErrorsRefusesTheCandidate holds the answer of the smoke questions: the rule's tests
// pass, and every call would be refused with policy.error.
func TestRuleThatErrorsRefusesTheCandidate(t *testing.T) {
	dir := copySite(t)
	s := open(t, dir)
	write(t, dir, "x.rego", rule("level == 3\n\nlevel := 1 if input.kind\n\nlevel := 2 if "+
		"input.source"))
	write(t, dir, "x_test.rego", "package caponier.site.x_test\n\ntest_nothing if true\n")
	err := s.Reload(context.Background())
	if err == nil || !strings.Contains(err.Error(), "site/x.rego:") ||
		!strings.Contains(err.Error(), "no decision on a call of") {
		t.Errorf("error %v", err)
	}
	if d, err := s.Decide(context.Background(), status()); err != nil || !d.Allow {
		t.Errorf("after a refused reload: %+v %v", d, err)
	}
}

// TestNumbersAsKeysAreLookedUpAsOPATestDoes is the rule that was off in the host while its tests
// passed. It is refused now; written with text it holds in the host as in its tests.
func TestNumbersAsKeysAreLookedUpAsOPATestDoes(t *testing.T) {
	dir := copySite(t)
	write(t, dir, "custom.yaml", "custom: {closed: {4: thursday}}\n")
	body := `data.site.custom.closed[sprintf("%v", [input.time.weekday])] == "thursday"`
	write(t, dir, "x.rego", rule(body))
	write(t, dir, "x_test.rego", `package caponier.site.call_test

test_closed if count(data.caponier.site.call.deny) == 1 with input as {"time": {"weekday": 4}}
`)
	d, err := open(t, dir).Decide(context.Background(), status()) // 1 January 1970, a Thursday
	if err != nil || d.Allow || !slices.Contains(d.Failed, "site") {
		t.Errorf("%+v %v", d, err)
	}
	write(t, dir, "x.rego", rule(strings.Replace(body, `sprintf("%v", [input.time.weekday])`,
		"input.time.weekday", 1)))
	if _, err := Check(context.Background(), dir, Inventory{}); err == nil ||
		!strings.Contains(err.Error(), "site/x.rego:8: the key input.time.weekday is a number") {
		t.Errorf("error %v", err)
	}
}

// TestRolesInTheInputAreEffective holds a site's rule on a role to a principal whose credential
// names no roles.
func TestRolesInTheInputAreEffective(t *testing.T) {
	dir := copySite(t)
	write(t, dir, "x.rego", rule(`"operator" in input.principal.roles`))
	write(t, dir, "x_test.rego", "package caponier.site.x_test\n\ntest_nothing if true\n")
	d, err := open(t, dir).Decide(context.Background(), status())
	if err != nil || d.Allow || !slices.Contains(d.Failed, "site") {
		t.Errorf("%+v %v", d, err)
	}
	for _, want := range []string{`"credential_roles":[]`, `"roles":["operator"]`} {
		if !strings.Contains(string(d.Input), want) {
			t.Errorf("%s is not in the input %s", want, d.Input)
		}
	}
}

func TestEntriesAreThoseOfCoreAndSite(t *testing.T) {
	dir := copySite(t)
	edit(t, dir, "data.yaml", "binaries: {}", "binaries: {mytool: {show: {group: read, tier: "+
		"green, "+
		"operands: [], options: {}}, '': {group: read, tier: green, operands: [], options: {}}}}")
	got, err := open(t, dir).Entries(context.Background())
	for _, want := range []string{"pct start", "cat", "pvesh get /nodes/{node}/lxc/{vmid}/config",
		"mytool", "mytool show"} {
		if err != nil || !slices.Contains(got, want) {
			t.Errorf("%s is not among %q, %v", want, got, err)
		}
	}
	for _, no := range []string{"pvesh", "pvesh get", "pct", "*", ""} {
		if slices.Contains(got, no) {
			t.Errorf("%q is no command", no)
		}
	}
	if _, err := new(Site).Entries(context.Background()); err == nil {
		t.Error("a site without a policy has entries")
	}
}

// TestNodesInDataThatAreNotThereAreRefused: a misspelt node protects nothing.
func TestNodesInDataThatAreNotThereAreRefused(t *testing.T) {
	for name, x := range map[string]struct{ old, new, want string }{
		"protected node": {"protected:\n  nodes: {}",
			"protected:\n  nodes: {pve11: {reason: misspelt}}", "protected/nodes"},
		"node of a protected service": {"services: []",
			"services: [{service: nginx, nodes: [pve11, '*'], reason: kept}]",
			"protected/services"},
		"node of a role": {`nodes: ["*"]`, `nodes: [pve11]`, "roles/"},
	} {
		dir := copySite(t)
		edit(t, dir, "data.yaml", x.old, x.new)
		_, err := Check(context.Background(), dir, inventory())
		if err == nil || !placed.MatchString(err.Error()) ||
			!strings.Contains(err.Error(), x.want) ||
			!strings.Contains(err.Error(), `there is no node "pve11"; did you mean "pve1"?`) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Check(context.Background(), dir, Inventory{}); err != nil {
			t.Errorf("%s, without an inventory: %v", name, err)
		}
	}
}

// TestWhatIsAskedOfAToolIsAskedOfItsAliases: of each tool and its aliases in the lock, named alone
// in each list that makes something stricter.
func TestWhatIsAskedOfAToolIsAskedOfItsAliases(t *testing.T) {
	lock, err := plugin.Load("../../../plugins.lock")
	if err != nil {
		t.Fatal(err)
	}
	inv, jobs := Inventory{Tools: lock.Tools()}, map[string][]string{}
	for _, tool := range inv.Tools {
		if tool.AliasOf != "" {
			jobs[tool.AliasOf] = append(jobs[tool.AliasOf], tool.Name)
		}
	}
	if len(jobs) < 3 {
		t.Fatalf("the lock has aliases of %d tools", len(jobs))
	}
	const needs = "{approvers: 2, ticket: '', reason: false}"
	for tool, aliases := range jobs {
		family := append([]string{tool}, aliases...)
		for _, form := range []string{
			"snapshot: {tools: [%s], optional: false, keep: 1, keep_days: 1}",
			"undo: {tools: [%s], optional: false, keep_days: 1, max_bytes: 1}",
			"plan_first: {tools: [%s]}", "approval:\n  needs: {%s}"} {
			say := func(names []string) string {
				if strings.HasPrefix(form, "approval") {
					return fmt.Sprintf(form, `"tool:`+strings.Join(names, `": `+needs+`, "tool:`)+
						`": `+needs)
				}
				return fmt.Sprintf(form, strings.Join(names, ", "))
			}
			check := func(names []string) error {
				dir := copySite(t)
				if strings.HasPrefix(form, "approval") {
					edit(t, dir, "data.yaml", "\napproval:\n", "\n"+say(names)+"\n")
				} else {
					edit(t, dir, "data.yaml", "\napproval:\n", "\n"+say(names)+"\napproval:\n")
				}
				_, err := Check(context.Background(), dir, inv)
				return err
			}
			if err := check(family); err != nil {
				t.Errorf("%s: %v", say(family), err)
			}
			name := family[len(form)%len(family)]
			if err := check([]string{name}); err == nil ||
				!strings.Contains(err.Error(), "which does the same job") ||
				!placed.MatchString(err.Error()) {
				t.Errorf("%s: %v", say([]string{name}), err)
			}
		}
	}
}

func TestToolsInDataThatAreNotThereAreWarnedOf(t *testing.T) {
	dir := copySite(t)
	edit(t, dir, "data.yaml", `"tool:list_nodes": green`, `"tool:jq_qurey": green`)
	rep, err := Check(context.Background(), dir, inventory())
	if all := strings.Join(rep.Warnings, "\n"); err != nil ||
		!strings.Contains(all, `"jq_qurey"; did you mean "jq_query"?`) {
		t.Errorf("%v, warnings %s", err, all)
	}
	if rep, err := Check(context.Background(), dir, Inventory{}); err != nil ||
		len(rep.Warnings) != 0 {
		t.Errorf("without an inventory: %v %v", rep.Warnings, err)
	}
	site, err := New(context.Background(), Options{Site: dir, Inventory: inventory()})
	if err != nil {
		t.Fatal(err)
	}
	if tools := site.Absent(); len(tools) == 0 || len(tools) != len(rep.Warnings) {
		t.Errorf("tools %q of %q", tools, rep.Warnings)
	}
}
