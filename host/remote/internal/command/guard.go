package command

import (
	"bytes"
	"fmt"
	"regexp"
)

// NotPermitted is the code of what a node's own guard refused: nothing ran.
const NotPermitted = "not_permitted_on_node"

// InstallGate is the remedy where the node has no caponier-gate.
const InstallGate = "Install it there as /usr/local/sbin/caponier-gate, owned by root, mode 0755 " +
	"(docs/first-node.md)"

// noGate is what a login shell says when the forced command cannot be run.
var noGate = regexp.MustCompile(`/caponier-gate: (No such file or directory|not found|` +
	`[Pp]ermission denied)$`)

// GuardOf returns which guard of the node refused a command, and the remedy, or "" if none did.
// Guards answer with these exit codes, one line on stderr and nothing on stdout. A command that
// runs can imitate that, which costs nobody but itself its result.
func GuardOf(e Ended) string {
	said := bytes.TrimSpace(e.Stderr)
	if len(e.Stdout) > 0 || bytes.Count(said, []byte("\n")) > 0 {
		return ""
	}
	has := func(words string) bool { return bytes.Contains(said, []byte(words)) }
	starts := func(words string) bool { return bytes.HasPrefix(said, []byte(words)) }
	switch {
	case e.Exit == 126 && starts("caponier-gate: "):
		return "caponier-gate, the forced command of this key, does not list it. If it should " +
			"run, an administrator of the node uncomments or adds its line in " +
			"/usr/local/sbin/caponier-gate there"
	case (e.Exit == 126 || e.Exit == 127) && noGate.Match(said):
		return fmt.Sprintf("authorized_keys names caponier-gate as the forced command, and the "+
			"node cannot run it (%q). %s", Clip(said), InstallGate)
	case e.Exit == 1 && (starts("sudo: a password is required") ||
		starts("sudo: a terminal is required") ||
		starts("Sorry, user ") && has("is not allowed to execute")):
		return fmt.Sprintf("sudo does not let the login user run it without a password (%q). If "+
			"it should run, an administrator of the node adds it to /etc/sudoers.d/caponier there",
			Clip(said))
	}
	return ""
}

// Clip returns the start of what a node says, for a message.
func Clip(b []byte) []byte { return b[:min(len(b), 120)] }
