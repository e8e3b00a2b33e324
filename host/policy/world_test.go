package policy_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
)

const lab = "../../examples/lab/site"

// site loads a folder. Those of the repository are loaded once.
func site(t testing.TB, dir string) *load.Site {
	t.Helper()
	once, _ := sites.LoadOrStore(dir, sync.OnceValues(func() (*load.Site, error) {
		return load.New(context.Background(), load.Options{Site: dir, Deadline: 5 * time.Second})
	}))
	if filepath.IsAbs(dir) {
		sites.Delete(dir) // a test's own, which it changes
	}
	s, err := once.(func() (*load.Site, error))()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var sites sync.Map // by folder

// copySite copies the lab's site into a folder that the test may change.
func copySite(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(lab + "/data.yaml")
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

func callOf(tool string, kinds []string, imports ...string) *terms.Call {
	return &terms.Call{
		ID: "C1", Source: "stdio", Clusters: []string{"lab"},
		Principal: terms.Principal{ID: "demo", Auth: "config"},
		Tool: &terms.Tool{Kind: "tool", Name: tool, Imports: imports, TargetKinds: kinds,
			Plugin:   terms.Plugin{Name: "containers", Version: "1.0.0", Digest: "sha256:00"},
			Commands: []string{"pct status", "pct stop", "pct exec", "pct push", "uptime"}},
		Args: terms.Args{JSON: json.RawMessage(`{"vmid":101}`), Digest: "sha256:11",
			Scalars: map[string]any{"vmid": int64(101)}},
		Targets: terms.Targets{Nodes: []string{"pve1"}, VMIDs: []string{"101"}},
		Nodes: []terms.Node{
			{Name: "pve1", Cluster: "lab", Host: "127.0.0.1", Port: 22, User: "root",
				Default: true},
			{Name: "pve2", Cluster: "lab", Host: "127.0.0.2", Port: 22, User: "root"},
		},
		Confirmation: terms.Confirmation{State: "none"},
	}
}

func statusCall() terms.Question {
	return terms.Question{ID: "q", Kind: terms.KindCall, Time: time.Unix(0, 0),
		Call:  callOf("proxmox_container_status", []string{"vmids"}, "ssh_exec"),
		Facts: terms.Facts{Counts: terms.Counts{Calls60s: 1, TargetCalls60s: 1}}}
}

func decide(t testing.TB, s *load.Site, q terms.Question) terms.Decision {
	t.Helper()
	d, err := s.Decide(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rulesOf returns the rules of a folder of the repository.
func rulesOf(t testing.TB, dir string) *policy.Rules {
	t.Helper()
	c, err := load.FromFolder(context.Background(), dir, load.Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Rules
}

// bundleOf returns what the host keeps of the policy of a folder.
func bundleOf(t testing.TB, dir string) []byte {
	t.Helper()
	c, err := load.FromFolder(context.Background(), dir, load.Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Bundle
}

// jsonOf returns the input of a question as a person would write it.
func jsonOf(q *terms.Question) []byte { return value.JSON(input.Of(q, nil), nil, nil) }
