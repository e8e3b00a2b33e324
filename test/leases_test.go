package test

import (
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// approved asks for a red call of a command in guest 101 on a host, and has it approved.
func (w *twoHosts) approved(t *testing.T, s *mcp.ClientSession, command string) map[string]any {
	t.Helper()
	on := map[string]any{"vmid": 101, "command": command, "timeout": 100}
	how, id, text := outcome(t, s, "proxmox_container_exec_command", on)
	if how != "waiting" {
		t.Fatalf("%s: %s", how, text)
	}
	w.b.runs(t, "approvals", "approve", "--as", "ann", id)
	return on
}

// leased returns holder and fence of the lease of guest 101, while it is held.
func (w *twoHosts) leased() string {
	rows := w.server.Rows(w.database, "SELECT fence || ' ' || holder FROM caponier.leases WHERE "+
		"name LIKE 'guest 101 of %' AND expires > caponier.clock(null)")
	return strings.Join(rows, ",")
}

// Both hosts share the lease of a red operation's guest. A killed host keeps it until it expires.
// Then the next host takes it, with a higher number. A host that cannot renew it ends its
// operation, whose outcome is unknown.
func TestRedOperationsOfTwoHostsHaveALease(t *testing.T) {
	w := newTwoHosts(t, nil)
	w.a.rewrite(t, `"tool:proxmox_container_exec_command": yellow`,
		`"tool:proxmox_container_exec_command": red`)
	a, b := w.both(t)
	const tool = "proxmox_container_exec_command"
	long, short := w.approved(t, a, "sleep 61"), w.approved(t, b, "echo after")
	go func() {
		_, _ = a.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: long})
	}()
	w.a.journaled(t, `"type":"intent".*"op":"ssh_exec".*sleep 61`)
	waitFor(t, "the lease", func() bool { return w.leased() != "" })
	if got := w.leased(); !strings.HasPrefix(got, "1 call ") {
		t.Errorf("the lease is %q", got)
	}
	must(t, w.a.host.Kill())
	began := time.Now()
	how, _, text := outcome(t, b, tool, short)
	took := time.Since(began).Round(time.Millisecond)
	if how != "succeeded" || took < 5*time.Second {
		t.Errorf("after the host was killed: %s after %s: %s", how, took, text)
	}
	t.Logf("the other host had the lease %s after the kill", took)
	if got := w.server.Rows(w.database, "SELECT fence::text FROM caponier.leases WHERE name LIKE "+
		"'guest 101 of %'"); len(got) != 1 || got[0] != "2" {
		t.Errorf("fences %v", got)
	}
	if w.leased() != "" {
		t.Errorf("it is not freed: %s", w.leased())
	}
	long = w.approved(t, b, "sleep 62")
	ended := make(chan string, 1)
	go func() {
		res, err := b.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: long})
		if err != nil {
			ended <- err.Error()
		} else {
			ended <- whole(running{answer: res})
		}
	}()
	w.b.journaled(t, `"type":"intent".*"op":"ssh_exec".*sleep 62`)
	waitFor(t, "the lease", func() bool { return w.leased() != "" })
	w.server.Kill()
	began = time.Now()
	text = <-ended
	if took := time.Since(began).Round(time.Millisecond); took > 25*time.Second {
		t.Errorf("it went on for %s without its lease", took)
	} else {
		t.Logf("it was ended %s after the database was", took)
	}
	if !strings.Contains(text, "could not be renewed") || !strings.Contains(text, "unknown") {
		t.Errorf("its client is told %s", text)
	}
	w.b.journaled(t, `"type":"outcome".*"op":"ssh_exec".*"outcome":"unknown","code":"lease_lost"`)
	w.server.Run()
}
