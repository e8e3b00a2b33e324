package conn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/skeema/knownhosts"
)

func TestEntriesOfOneMachineAreAliases(t *testing.T) {
	keys := [3]string{}
	known := filepath.Join(t.TempDir(), "known_hosts")
	var lines strings.Builder
	signers := [3]interface{ Marshal() []byte }{}
	for i, addr := range []string{"10.0.0.1:22", "10.0.0.2:22", "10.0.0.3:22"} {
		k := sshtest.NewSigner(t).PublicKey()
		signers[i], keys[i] = k, knownhosts.Line([]string{addr}, k)
		lines.WriteString(keys[i] + "\n")
		if i == 0 { // the second name of the first machine
			lines.WriteString(knownhosts.Line([]string{"pve1.example.com:22"}, k) + "\n")
		}
	}
	if err := os.WriteFile(known, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	pinA, pinB := "SHA256:"+strings.Repeat("a", 43), "SHA256:"+strings.Repeat("b", 43)
	entry := func(name, host, pin string, jump ...string) NodeOptions {
		n := NodeOptions{Name: name, Login: Login{Host: host, HostKey: pin}}
		for _, j := range jump {
			n.Jump = append(n.Jump, Login{Host: j})
		}
		return n
	}
	got := Aliases([]string{known}, NodesWithDefaults([]NodeOptions{
		entry("a", "10.0.0.1", ""), entry("a-by-name", "pve1.example.com", ""),
		entry("b", "10.0.0.2", ""), entry("c", "10.0.0.3", ""),
		entry("a-again", "10.0.0.1", pinA), entry("pinned", "10.9.9.9", pinA),
		entry("far-1", "192.168.1.1", "", "jump1"), entry("far-2", "192.168.1.1", "", "jump2"),
		entry("far-1-again", "192.168.1.1", pinB, "jump1"),
	}))
	for name, want := range map[string]string{
		"a": "a-again a-by-name pinned", "a-by-name": "a a-again pinned",
		"pinned": "a a-again a-by-name",
		"b":      "", "c": "", "far-1": "far-1-again", "far-2": "", "far-1-again": "far-1",
	} {
		if strings.Join(got[name], " ") != want {
			t.Errorf("%s: %v, want %s", name, got[name], want)
		}
	}
}
