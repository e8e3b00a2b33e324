package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/load"
)

// A rule that goes on for too long is a refusal, and so is a decision whose caller has gone.
func TestADecisionEndsAtItsDeadline(t *testing.T) {
	dir := copySite(t)
	write(t, dir, "rules.rego", `package caponier.site.call

many := [b | some subs in data.core.grammar.commands; some b, _ in subs]

deny contains {"id": "site.slow", "msg": "no"} if {
	input.tool.name == "proxmox_container_status"
	count([1 | some a in many; some b in many; some c in many; a == concat(b, ["x", c])]) > 0
}
`)
	write(t, dir, "rules_test.rego", `package caponier.site.call

test_others if count(deny) == 0 with input as {"tool": {"name": "x"}}
`)
	c, err := load.FromFolder(context.Background(), dir, load.Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	e := engineOf(c.Rules, 100*time.Millisecond)
	d, err := e.Decide(context.Background(), statusCall())
	if d.Allow || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "took too long") {
		t.Errorf("a slow rule: %v %v", d.Allow, err)
	}
	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
	if d, err = engineOf(c.Rules, time.Hour).Decide(ctx, statusCall()); d.Allow ||
		!errors.Is(err, gone) {
		t.Errorf("a caller that has gone: %v %v", d.Allow, err)
	}
}

func engineOf(r *policy.Rules, deadline time.Duration) *policy.Engine {
	e := &policy.Engine{Deadline: deadline}
	e.Use(r)
	return e
}
