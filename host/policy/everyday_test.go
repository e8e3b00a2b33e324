package policy_test

import (
	"slices"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// refusedEveryday are lines of everyday.txt that are refused on purpose: programs that run text,
// reach the network or expand words.
var refusedEveryday = []string{
	"awk '{print $1}' /var/log/syslog", "pct list | awk '{print $1}'",
	"for i in 101 102; do pct status $i; done", "ping -c 3 192.168.1.1",
}

// TestEverydayWorkPasses asks for lines of run books on the shipped site, as calls and as
// operations.
func TestEverydayWorkPasses(t *testing.T) {
	e := site(t, "../../policies/site")
	all := lines(t, "testdata/everyday.txt")
	if len(all) < 300 {
		t.Fatalf("%d lines, want 300", len(all))
	}
	refused := 0
	for _, line := range all {
		call, op := sshCall(line)
		call.Call.Principal = terms.Principal{ID: "agent-a", Auth: "token"}
		op.Call.Principal = call.Call.Principal
		d := decide(t, e, call)
		op.Call.Decided = d
		o := decide(t, e, op)
		if d.Allow && o.Allow && o.Tier == terms.Green {
			if slices.Contains(refusedEveryday, line) {
				t.Errorf("%s: passes, and is in the list of those that do not", line)
			}
			continue
		}
		refused++
		if !slices.Contains(refusedEveryday, line) {
			t.Errorf("%s: call %v %v, operation %s %v", line, d.Allow, d.Denied, o.Tier, o.Denied)
		}
	}
	if refused*100 > len(all)*3 {
		t.Errorf("%d of %d lines are refused", refused, len(all))
	}
}
