package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Texts whose parsing differs from what real shells run, or could. The first two ran arbitrary code
// inside a guest while they were decided as ls and cat.
var twoMeanings = []string{
	"ls \"/x$\\\n(id -un > /tmp/pwned)\"",
	"cat -- /etc/hostname #\\\n/bin/rm /tmp/victim",
	"ls \"$\\\n{HOME}\"", "echo $\\\n'a\\x41'", "ls # a comment", "ls  /var/log", "ls /root $(id)",
}

// TestGuestsRunWhatWasDecided asks, for both modes, which text an operation may send to a guest.
func TestGuestsRunWhatWasDecided(t *testing.T) {
	for _, mode := range []string{"any", "table"} {
		dir := copySite(t)
		overlay(t, dir+"/data.yaml", "guest_commands: "+mode)
		e := site(t, dir)
		for _, text := range twoMeanings {
			cmd := shell.Lowerer{}.Script(text)
			cmd.Guest, cmd.Arg, cmd.Text = true, "command", text
			if cmd.Parsed && cmd.Rendered == text {
				t.Fatalf("%q is its own rendering and tests nothing", text)
			}
			c := callOf("proxmox_container_exec_command", []string{"vmids", "commands"}, "ssh_exec")
			c.Commands, c.Decided = []terms.Command{cmd}, terms.Decision{Allow: true,
				Tier: terms.Yellow}
			runs := func(text string) terms.Decision {
				argv := []string{"pct", "exec", "101", "--keep-env", "0", "--", "timeout", "-k",
					"2", "30",
					"sh", "-c", text}
				sent := shell.Lowerer{}.Argv(argv)
				return decide(t, e, terms.Question{ID: "q", Kind: terms.KindOperation, Call: c,
					Op:   abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: argv},
					Node: &c.Nodes[0], Cmd: &sent, Time: time.Unix(0, 0)})
			}
			raw := runs(text)
			if want := mode == "any" && !cmd.Parsed; raw.Allow != want {
				t.Errorf("%s: the text %q: allowed %v: %v", mode, text, raw.Allow, raw.Denied)
			}
			if !raw.Allow && !slices.Equal(raw.Failed, []string{"command"}) {
				t.Errorf("%s: the text %q failed %v, not command", mode, text, raw.Failed)
			}
			if cmd.Parsed {
				if d := runs(cmd.Rendered); !d.Allow {
					t.Errorf("%s: the rendering %q: %v", mode, cmd.Rendered, d.Denied)
				}
			}
		}
	}
}
