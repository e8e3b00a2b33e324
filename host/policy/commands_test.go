package policy_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// sshCall is a call of execute_ssh with the command text, and the operation that runs the same
// text.
func sshCall(text string) (call, op terms.Question) {
	c := callOf("execute_ssh", []string{"commands"}, "ssh_script")
	c.Targets.VMIDs, c.Tool.Commands = nil, []string{terms.CallersText}
	cmd := shell.Lowerer{}.Script(text)
	c.Commands = []terms.Command{cmd}
	c.Commands[0].Arg, c.Commands[0].Text = "command", text
	call = terms.Question{
		ID:    "q",
		Kind:  terms.KindCall,
		Call:  c,
		Facts: terms.Facts{Counts: terms.Counts{Calls60s: 1, TargetCalls60s: 1}},
		Time:  time.Unix(0, 0),
	}
	running := *c
	op = terms.Question{
		ID:   "q",
		Kind: terms.KindOperation,
		Call: &running,
		Op:   abi.SSHScript{OnNode: abi.OnNode{Node: "pve1"}, Script: text},
		Node: &c.Nodes[0],
		Cmd:  &cmd,
		Time: time.Unix(0, 0),
	}
	return call, op
}

func lines(t *testing.T, file string) (out []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func TestOrdinaryCommandsPassInTheirTier(t *testing.T) {
	e := site(t, lab)
	all := lines(t, "testdata/ordinary.txt")
	if len(all) < 80 {
		t.Fatalf("only %d ordinary commands", len(all))
	}
	for _, line := range all {
		tier, text, _ := strings.Cut(line, ": ")
		call, op := sshCall(text)
		want := terms.ParseTier(tier)
		d := decide(t, e, call)
		if wantCall := max(want, terms.Yellow); d.Tier != wantCall ||
			d.Allow != (want < terms.Red) ||
			d.NeedsApproval != (want == terms.Red) {
			t.Errorf("%s: call is %s, allowed %v: %v", text, d.Tier, d.Allow, d.Denied)
		}
		call.Call.Confirmation = approvedByBob
		d = decide(t, e, call)
		op.Call.Decided = d
		op.Facts.Plan = &terms.PlanFacts{Next: true, Left: true}
		if o := decide(t, e, op); len(o.Units) > 0 { // the node calls them what the text does
			op.Facts.Units = o.Units
		}
		if o := decide(t, e, op); !d.Allow || !o.Allow || o.Tier != want {
			t.Errorf("%s: operation is %s, allowed %v: %v", text, o.Tier, o.Allow, o.Denied)
		}
	}
}

func TestHostileCommandsAreRefusedForTheirReason(t *testing.T) {
	e := site(t, lab)
	all := lines(t, "testdata/hostile.txt")
	if len(all) < 150 {
		t.Fatalf("only %d hostile commands", len(all))
	}
	for _, line := range all {
		check, rest, _ := strings.Cut(line, ": ")
		i := splitReason(rest)
		reason, text := rest[:i], strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(rest[i+2:])
		call, op := sshCall(text)
		// which must not help
		call.Call.Confirmation = approvedByBob
		op.Call.Confirmation, op.Call.Decided = call.Call.Confirmation, terms.Decision{
			Allow: true,
			Tier:  terms.Red,
		}
		for kind, q := range map[string]terms.Question{"call": call, "operation": op} {
			d := decide(t, e, q)
			if d.Allow || !slices.Contains(d.Failed, check) ||
				!slices.ContainsFunc(
					d.Denied,
					func(r terms.Reason) bool {
						return r.ID == check && strings.Contains(r.Msg,
							reason)
					},
				) {
				t.Errorf(
					"%s: %s allowed %v, failed %v, want %s because %q\n%v",
					text,
					kind,
					d.Allow,
					d.Failed,
					check,
					reason,
					d.Denied,
				)
			}
		}
	}
}

// splitReason finds where the reason ends: at the first ": " outside of quotes.
func splitReason(s string) int {
	quoted := false
	for i := 0; i+1 < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case !quoted && s[i:i+2] == ": ":
			return i
		}
	}
	return len(s) - 2
}

var approvedByBob = terms.Confirmation{State: "approved", By: "bob", Channel: "cli",
	Answers: []terms.Yes{{By: "bob", Channel: "cli"}}}
