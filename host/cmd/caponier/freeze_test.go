package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Each decision looks again, so that a freeze bites at the next operation of a call that already
// runs, whichever process made it.
func TestAFreezeIsSeenAtTheNextDecision(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := freezes{dir}, freezes{dir}
	call := &gate.Call{
		Principal: gate.Principal{ID: "agent-a"},
		Tool:      &gate.Tool{Name: "delete_guest"},
		Targets:   gate.Targets{Nodes: []string{"pve1"}},
	}
	q := gate.Question{
		Kind: gate.KindOperation,
		Call: call,
		Op:   abi.SSHExec{OnNode: abi.OnNode{Node: "pve2"}},
	}
	for name, z := range map[string]freeze{
		"everything":            {Scope: "all"},
		"the principal":         {Scope: "principal", Name: "agent-a"},
		"the tool":              {Scope: "tool", Name: "delete_guest"},
		"the call's node":       {Scope: "node", Name: "pve1"},
		"the node that it uses": {Scope: "node", Name: "pve2"},
	} {
		if _, frozen := ours.frozen(q); frozen {
			t.Fatalf("%s: frozen before", name)
		}
		z.Reason, z.Since = "because of "+name, time.Now()
		if err := theirs.add(z); err != nil {
			t.Fatal(err)
		}
		if reason, frozen := ours.frozen(q); !frozen || reason != z.Reason {
			t.Errorf("%s: %v, %q", name, frozen, reason)
		}
		if was, err := theirs.remove(z.Scope, z.Name); !was || err != nil {
			t.Fatalf("%s: thawing: %v, %v", name, was, err)
		}
	}
	for _, z := range []freeze{{Scope: "principal", Name: "agent-b"}, {Scope: "node", Name: "pve3"}, {Scope: "tool", Name: "stop_guest"}} {
		if err := theirs.add(z); err != nil {
			t.Fatal(err)
		}
	}
	if reason, frozen := ours.frozen(q); frozen {
		t.Errorf("what concerns others freezes this: %q", reason)
	}
	if err := os.WriteFile(filepath.Join(dir, "frozen", "all"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if reason, frozen := ours.frozen(q); !frozen || reason != "" {
		t.Errorf("a file that cannot be read freezes without a reason: %v, %q", frozen, reason)
	}
}
