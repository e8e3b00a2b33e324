package test

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

// TestANodeIsReachedOnlyForAnAllowedCall counts the bytes that pass to a node. The host connects as
// soon as a call is allowed, while the plugin is made ready, and not for one that is refused. Where
// the call's operation is then refused, the node has seen a login and nothing else.
func TestANodeIsReachedOnlyForAnAllowedCall(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "cluster.wasm"))
	proxy := sshtest.NewProxy(t, s.lab.Addr)
	_, port := sshtest.HostPort(proxy.Addr)
	s.replace(t, s.config, `port = \d+`, "port = "+strconv.Itoa(port))
	s.write(t, "site/rules.rego", "# METADATA\n# scope: package\n# schemas:\n"+
		"#   - data.site: schema.site\npackage caponier.site.operation\n\n"+
		"deny contains {\"id\": \"lab.commands\", \"msg\": \"no commands\"} if {\n"+
		"\tstartswith(input.op, \"ssh_\")\n}\n")
	s.write(t, "site/rules_test.rego", "package caponier.site.operation_test\n\n"+
		"import data.caponier.site.operation\n\n"+
		"test_files if count(operation.deny) == 0 with input as {\"op\": \"sftp_stat\"}\n")
	session := s.stdio(t)
	for _, call := range []struct {
		tool    string
		args    map[string]any
		how     string
		reached bool
	}{
		{"execute_ssh", map[string]any{"command": "reboot", "node": "pve1"}, "refused", false},
		{"list_allowed_commands", map[string]any{"node": "pve1"}, "succeeded", false},
		{"proxmox_container_status", map[string]any{"vmid": 103}, "refused", false},
		{"execute_ssh", map[string]any{"command": "uptime", "node": "pve1"}, "failed", true},
	} {
		how, _, text := outcome(t, session, call.tool, call.args)
		wait := 200 * time.Millisecond // a login that is not waited for could still begin
		if call.reached {
			wait = 20 * time.Second
		}
		for end := time.Now().Add(wait); proxy.Bytes.Load() == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if how != call.how || proxy.Bytes.Load() > 0 != call.reached {
			t.Errorf("%s %v: %s %s; %d bytes came to the node", call.tool, call.args, how, text,
				proxy.Bytes.Load())
		}
	}
	if done := s.lab.Effects(); len(done) > 0 {
		t.Errorf("the node did %v", done)
	}
}
