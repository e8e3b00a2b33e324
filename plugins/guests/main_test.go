package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
)

const (
	vm  = "pve1 pvesh get /cluster/resources --type vm"
	all = `[{"type":"qemu","vmid":200,"node":"pve1","name":"vm-app","status":"stopped",` +
		`"maxmem":"2147483648"},{"type":"lxc","vmid":"101","node":"pve1","name":"web01",` +
		`"status":"running"},` + `{"type":"lxc","vmid":110,"node":"pve2","name":"mail",` +
		`"status":"running"},{"type":"lxc","vmid":120,"node":"pve9","status":"unknown"},` +
		`{"type":"lxc","vmid":130,"node":"x;id","status":"unknown"}]`
	running = `{"status":"running","name":"web01","ha":{"managed":0},"uptime":100}`
	stopped = `{"status":"stopped","name":"web01","ha":{"managed":0}}`
	noSnaps = `[{"name":"current","running":1}]`
	oneSnap = `[{"name":"current","parent":"s1"},{"name":"s1","snaptime":"1795258583",` +
		`"description":"x\n","vmstate":0}]`
	gone     = "Configuration file 'nodes/pve1/lxc/101.conf' does not exist\n"
	current1 = "pve1 pvesh get /nodes/pve1/lxc/101/status/current"
	current2 = "pve1 pvesh get /nodes/pve1/qemu/200/status/current"
	config1  = "pve1 pvesh get /nodes/pve1/lxc/101/config --current 1"
	config2  = "pve1 pvesh get /nodes/pve1/qemu/200/config --current 1"
	snaps2   = "pve1 pvesh get /nodes/pve1/qemu/200/snapshot"
	snaps1   = "pve1 pvesh get /nodes/pve1/lxc/101/snapshot"
	feature1 = "pve1 pvesh get /nodes/pve1/lxc/101/feature --feature snapshot"
)

type script = map[string][]sdk.ExecResult

func TestMain(m *testing.M) { pvetest.Main(m) }

func TestLifecycle(t *testing.T) {
	says, fails := pvetest.Says, pvetest.Fails
	for _, c := range []struct {
		name, tool, args string
		script           script
		ran              string // the one command that is no read
		changed          bool
		code, message    string // of the error
	}{
		{"start of a machine", "start_guest", `{"guest_id":200}`, script{current2: says(stopped,
			running), "pve1 qm start 200": says("")}, "pve1 qm start 200", true, "", ""},
		{"start of a running one", "start_guest", `{"guest_id":101}`,
			script{current1: says(running)}, "", false, "", ""},
		{"start lost to another", "start_guest", `{"guest_id":200}`, script{current2: says(stopped),
			"pve1 qm start 200": fails(255, "VM 200 already running\n")}, "pve1 qm start 200",
			false, "", ""},
		{"start of a template", "start_guest", `{"guest_id":200}`, script{current2: says(stopped),
			"pve1 qm start 200": fails(255, "you can't start a vm if it's a template\n")},
			"pve1 qm start 200", false, "template", "if it's a template"},
		{"start without quorum", "start_guest", `{"guest_id":200}`, script{current2: says(stopped),
			"pve1 qm start 200": fails(255, "cluster not ready - no quorum?\n")},
			"pve1 qm start 200", false, "no_quorum", "no quorum"},
		{"stop is a shutdown", "stop_guest", `{"guest_id":101}`, script{current1: says(running,
			stopped), "pve1 pct shutdown 101 --timeout 15": says("")}, "pve1 pct shutdown 101 " +
			"--timeout 15", true, "", ""},
		{"shutdown that is ignored", "stop_guest", `{"guest_id":101,"timeout":4}`,
			script{current1: says(running), "pve1 pct shutdown 101 --timeout 4": fails(255,
				"container did not stop\n")}, "pve1 pct shutdown 101 --timeout 4", false, "timeout",
			"did not stop"},
		{"shutdown that says 0 and does nothing", "stop_guest", `{"guest_id":101}`,
			script{current1: says(running), "pve1 pct shutdown 101 " +
				"--timeout 15": says("")}, "pve1 pct shutdown 101 --timeout 15", false, "failed",
			"reported success, but it is running"},
		{"forced stop", "stop_guest", `{"guest_id":101,"force":true}`,
			script{current1: says(running, stopped), "pve1 pct stop 101": says("")}, "pve1 pct " +
				"stop 101", true, "", ""},
		{"stop of a stopped machine is not asked for, since qm says 0 to it", "stop_guest",
			`{"guest_id":200}`, script{current2: says(stopped)}, "", false, "", ""},
		{"start of a container", "start_guest", `{"guest_id":101}`, script{current1: says(stopped,
			running), "pve1 pct start 101": says("")}, "pve1 pct start 101", true, "", ""},
		{"stop of a machine", "stop_guest", `{"guest_id":200}`, script{current2: says(running,
			stopped), "pve1 qm shutdown 200 --timeout 15": says("")}, "pve1 qm shutdown 200 " +
			"--timeout 15", true, "", ""},
		{"forced stop of a machine", "stop_guest", `{"guest_id":200,"force":true}`,
			script{current2: says(running, stopped),
				"pve1 qm stop 200": says("")}, "pve1 qm stop 200", true, "", ""},
		{"restart of a machine", "restart_guest", `{"guest_id":200}`, script{current2: says(running,
			`{"status":"running","uptime":3}`), "pve1 qm reboot 200 --timeout 15": says("")},
			"pve1 qm reboot 200 --timeout 15", true, "", ""},
		{"restart", "restart_guest", `{"guest_id":101}`, script{current1: says(running,
			`{"status":"running","uptime":3}`), "pve1 pct reboot 101 --timeout 15": says("")},
			"pve1 pct reboot 101 --timeout 15", true, "", ""},
		{"a start that complains and succeeds", "start_guest", `{"guest_id":200}`,
			script{current2: says(stopped, running), "pve1 qm start 200": fails(255,
				"warning: x\n")}, "pve1 qm start 200", true, "", ""},
		{"a restart that says 0 and does nothing", "restart_guest", `{"guest_id":101}`,
			script{current1: says(`{"status":"running","uptime":100}`,
				`{"status":"running","uptime":"131"}`), "pve1 pct reboot 101 " +
				"--timeout 15": says("")},
			"pve1 pct reboot 101 --timeout 15", false, "failed", "was not restarted: it has been " +
				"running for 2m 11s"},
		{"a restart of one that had just begun", "restart_guest", `{"guest_id":101}`,
			script{current1: says(`{"status":"running","uptime":3}`,
				`{"status":"running","uptime":4}`), "pve1 pct reboot 101 --timeout 15": says("")},
			"pve1 pct reboot 101 --timeout 15", true, "", ""},
		{"a restart that fails and runs on", "restart_guest", `{"guest_id":101}`,
			script{current1: says(running), "pve1 pct reboot 101 --timeout 15": fails(255,
				"container did not stop\n")}, "pve1 pct reboot 101 --timeout 15", false, "timeout",
			"did not stop"},
		{"restart of a stopped one", "restart_guest", `{"guest_id":200}`,
			script{current2: says(stopped)}, "", false, "not_running", "it is stopped"},
		{"HA acts later", "stop_guest", `{"guest_id":101,"force":true}`,
			script{current1: says(running, running, running, stopped),
				"pve1 pct stop 101": says("Requesting HA stop for CT 101\n")}, "pve1 pct stop 101",
			true, "", ""},
		{"a guest of another node runs there", "stop_guest", `{"guest_id":110,"force":true}`,
			script{"pve2 pvesh get /nodes/pve2/lxc/110/status/current": says(running, stopped),
				"pve2 pct stop 110": says("")}, "pve2 pct stop 110", true, "", ""},
		{"locked", "start_guest", `{"guest_id":200}`, script{current2: says(stopped),
			"pve1 qm start 200": fails(255, "VM is locked (backup)\n")}, "pve1 qm start 200", false,
			"locked", "(backup)"},
		{"no such guest", "start_guest", `{"guest_id":999}`, nil, "", false, "not_found",
			"no such guest"},
		{"a node that is not in the inventory", "start_guest", `{"guest_id":120}`, nil, "", false,
			"on_other_node", "it is on node pve9"},
		{"gone between the looks", "start_guest", `{"guest_id":101}`, script{current1: fails(2,
			gone)}, "", false, "not_found", "does not exist"},
		{"the look afterwards fails", "start_guest", `{"guest_id":200}`,
			script{current2: append(says(stopped), fails(255, "x\n")...),
				"pve1 qm start 200": says("")}, "pve1 qm start 200", false, "unknown_outcome",
			"the command succeeded, but"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.script == nil {
				c.script = script{}
			}
			c.script[vm] = says(all)
			n := pvetest.New(t, c.script)
			out, m := n.Do(c.tool, c.args)
			if ran := strings.Join(n.Changes(), ", "); ran != c.ran {
				t.Errorf("ran %q, want %q", ran, c.ran)
			}
			if c.code == "" {
				if out.Error != nil || m["changed"] != c.changed {
					t.Errorf("changed %v, error %v", m["changed"], out.Error)
				}
			} else if out.Error == nil || out.Error.Code != c.code ||
				!strings.Contains(out.Error.Message, c.message) || out.Error.Suggestion == "" {
				t.Errorf("error %+v, want %s: %s", out.Error, c.code, c.message)
			}
		})
	}
}

func TestAGuestElsewhereNeedsItsNode(t *testing.T) {
	n := pvetest.New(t, script{vm: pvetest.Says(all)})
	n.Nodes[1].Cluster = "other"
	if out, _ := n.Do("start_guest", `{"guest_id":110}`); out.Error == nil ||
		out.Error.Code != "on_other_node" ||
		!strings.Contains(out.Error.Suggestion, `"node": "pve2"`) {
		t.Errorf("%+v", out.Error)
	}
	n.Nodes[0].Cluster, n.Nodes[1].Cluster = "", ""
	if out, _ := n.Do("start_guest", `{"guest_id":110}`); out.Error == nil ||
		out.Error.Code != "on_other_node" {
		t.Errorf("no cluster is not one cluster: %+v", out.Error)
	}
	n = pvetest.New(t, script{vm: pvetest.Says(all)})
	if out, _ := n.Do("start_guest", `{"guest_id":110,"node":"pve1"}`); out.Error == nil ||
		out.Error.Code != "on_other_node" {
		t.Errorf("a named node is meant: %+v", out.Error)
	}
	n = pvetest.New(t, script{vm: pvetest.Says(all)})
	n.Nodes = append(n.Nodes, sdk.Node{Name: "x;id", Cluster: "lab"})
	if out, _ := n.Do("get_guest_status", `{"guest_id":130}`); out.Error == nil ||
		!strings.Contains(out.Error.Message, "which no path can hold") ||
		len(n.Ran) != 1 {
		t.Errorf("a node's name goes into no path unchecked: %+v, ran %q", out.Error, n.Ran)
	}
}

func TestDelete(t *testing.T) {
	says, fails := pvetest.Says, pvetest.Fails
	destroy := "pve1 pct destroy 101 --purge 1 --destroy-unreferenced-disks 1"
	for _, c := range []struct {
		name          string
		script        script
		code, message string
		destroyed     bool
	}{
		{"a stopped guest", script{config1: says(`{}`), current1: append(says(stopped),
			fails(2, gone)...), destroy: says("purging CT 101 from related configurations..\n")},
			"", "", true},
		{"a protected one", script{config1: says(`{"protection":"1"}`), current1: says(stopped)},
			"protected", "protection mode enabled", false},
		{"a locked one", script{config1: says(`{"lock":"backup"}`), current1: says(stopped)},
			"locked", "locked (backup)", false},
		{"a running one", script{config1: says(`{}`), current1: says(running)}, "running",
			"it is running", false},
		{"one of the HA manager", script{config1: says(`{}`),
			current1: says(`{"status":"stopped","ha":{"managed":"1"}}`)}, "ha_managed",
			"HA manager", false},
		{"protected in between", script{config1: says(`{}`), current1: says(stopped),
			destroy: fails(255, "can't remove CT 101 - protection mode enabled\n")}, "protected",
			"can't remove CT 101", true},
		{"one that is still there", script{config1: says(`{}`), current1: says(stopped),
			destroy: says("")}, "unknown_outcome", "the guest still exists", true},
		{"one that cannot be looked at afterwards", script{config1: says(`{}`),
			current1: append(says(stopped), fails(255, "x")...), destroy: says("")},
			"unknown_outcome", "the command succeeded, but", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.script[vm] = says(all)
			n := pvetest.New(t, c.script)
			out, m := n.Do("delete_guest", `{"guest_id":101}`)
			if got := slices.Contains(n.Ran, destroy); got != c.destroyed || len(n.Changes()) > 1 {
				t.Errorf("ran %q", n.Ran)
			}
			if c.code == "" && (out.Error != nil || m["deleted"] != true) ||
				c.code != "" &&
					(out.Error == nil || out.Error.Code != c.code ||
						!strings.Contains(out.Error.Message, c.message)) {
				t.Errorf("%v, error %+v", m, out.Error)
			}
		})
	}
}

func TestDeleteOfAMachine(t *testing.T) {
	destroy := "pve1 qm destroy 200 --purge 1 --destroy-unreferenced-disks 1"
	n := pvetest.New(
		t,
		script{
			vm:       pvetest.Says(all),
			config2:  pvetest.Says(`{}`),
			current2: append(pvetest.Says(stopped), pvetest.Fails(2, gone)...),
			destroy:  pvetest.Says(""),
		},
	)
	if out, m := n.Do("delete_guest", `{"guest_id":200}`); m["deleted"] != true ||
		!slices.Contains(n.Ran, destroy) {
		t.Errorf("%v, error %+v, ran %q", m, out.Error, n.Ran)
	}
}

func TestSnapshots(t *testing.T) {
	says, fails := pvetest.Says, pvetest.Fails
	has, hasNot := says(`{"hasFeature":1}`), says(`{"hasFeature":"0"}`)
	for _, c := range []struct {
		name, tool, args string
		script           script
		code, message    string
		ran              string
	}{
		{"create", "create_snapshot", `{"guest_id":101,"name":"s1","description":"a\nb"}`,
			script{feature1: has, snaps1: says(oneSnap), "pve1 pct snapshot 101 s1 " +
				"--description a\nb": says("")}, "", "", "pve1 pct snapshot 101 s1 " +
				"--description a\nb"},
		{"create with memory", "create_snapshot", `{"guest_id":200,"name":"s1","vmstate":true}`,
			script{"pve1 pvesh get /nodes/pve1/qemu/200/feature --feature snapshot": has,
				"pve1 pvesh get /nodes/pve1/qemu/200/snapshot": says(oneSnap),
				"pve1 qm snapshot 200 s1 --vmstate 1":          says("")}, "", "",
			"pve1 qm snapshot 200 s1 " +
				"--vmstate 1"},
		{"memory of a container", "create_snapshot", `{"guest_id":101,"name":"s1","vmstate":true}`,
			script{}, "bad_parameter", "no vmstate", ""},
		{"a storage without snapshots", "create_snapshot", `{"guest_id":101,"name":"s1"}`,
			script{feature1: hasNot}, "unsupported", "not available", ""},
		{"a name that is used", "create_snapshot", `{"guest_id":101,"name":"s1"}`,
			script{feature1: has, "pve1 pct snapshot 101 s1": fails(255, "snapshot name 's1' "+
				"already used\n")}, "exists", "already used", "pve1 pct snapshot 101 s1"},
		{"a name that is reserved", "create_snapshot", `{"guest_id":101,"name":"current"}`,
			script{}, "bad_parameter", "reserved", ""},
		{"create that says 0 and makes none", "create_snapshot", `{"guest_id":101,"name":"s1"}`,
			script{feature1: has, snaps1: says(noSnaps), "pve1 pct snapshot " +
				"101 s1": says("")}, "failed", "there is no such snapshot",
			"pve1 pct snapshot 101 s1"},
		{"delete", "delete_snapshot", `{"guest_id":101,"name":"s1"}`, script{snaps1: says(noSnaps),
			"pve1 pct delsnapshot 101 s1": says("")}, "", "", "pve1 pct delsnapshot 101 s1"},
		{"delete of a machine's", "delete_snapshot", `{"guest_id":200,"name":"s1"}`,
			script{snaps2: says(noSnaps), "pve1 qm delsnapshot " +
				"200 s1": says("")}, "", "", "pve1 qm delsnapshot 200 s1"},
		{"rollback", "rollback_snapshot", `{"guest_id":101,"name":"s1","start":true}`,
			script{snaps1: says(oneSnap), "pve1 pct rollback 101 s1 --start 1": says("")}, "", "",
			"pve1 pct rollback 101 s1 --start 1"},
		{"rollback of a machine", "rollback_snapshot", `{"guest_id":200,"name":"s1"}`,
			script{"pve1 pvesh get /nodes/pve1/qemu/200/snapshot": says(oneSnap),
				"pve1 qm rollback 200 s1": says("")}, "", "", "pve1 qm rollback 200 s1"},
		{"rollback to none", "rollback_snapshot", `{"guest_id":101,"name":"nope"}`,
			script{"pve1 pct rollback 101 nope": fails(255, "snapshot 'nope' does not exist\n")},
			"not_found", "'nope' does not exist", "pve1 pct rollback 101 nope"},
		{"delete of none", "delete_snapshot", `{"guest_id":101,"name":"nope"}`,
			script{"pve1 pct delsnapshot 101 nope": fails(255, "snapshot 'nope' does not "+
				"exist\n")}, "not_found", "'nope' does not exist", "pve1 pct delsnapshot 101 nope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.script[vm] = says(all)
			n := pvetest.New(t, c.script)
			out, _ := n.Do(c.tool, c.args)
			if ran := strings.Join(n.Changes(), ", "); ran != c.ran {
				t.Errorf("ran %q, want %q", ran, c.ran)
			}
			if (out.Error == nil) != (c.code == "") ||
				out.Error != nil &&
					(out.Error.Code != c.code || !strings.Contains(out.Error.Message, c.message) ||
						out.Error.Suggestion == "") {
				t.Errorf("error %+v", out.Error)
			}
		})
	}
	n := pvetest.New(t, nil)
	for _, args := range []string{`{"guest_id":101,"name":"a"}`, `{"guest_id":101,"name":"1a"}`,
		`{"guest_id":101,"name":"a b"}`, `{"guest_id":101,"name":"ab\n"}`,
		`{"guest_id":101,"name":"ab","description":"-x"}`,
		`{"guest_id":101,"name":"ab","description":"a\u001bb"}`, `{"guest_id":99,"name":"ab"}`,
		`{"guest_id":1000000000,"name":"ab"}`, `{"name":"ab"}`} {
		if out, err := n.Call("create_snapshot", args); err == nil {
			t.Errorf("%s was taken: %s", args, out.JSON)
		}
	}
}

func TestReads(t *testing.T) {
	says := pvetest.Says
	n := pvetest.New(
		t,
		script{
			vm:       says(all),
			current1: says(running),
			config1:  says(`{"protection":1,"description":"two\nlines\n","ostype":"debian"}`),
			snaps1:   says(oneSnap),
			current2: says(stopped),
			config2:  says(`{}`),
			snaps2:   says(noSnaps),
			"pve1 pvesh get /nodes": says(
				`[{"node":"pve2","status":"offline"},{"node":"pve1","status":"online",` +
					`"cpu":"0.25","maxcpu":4,"mem":1073741824,"maxmem":"4294967296",` +
					`"uptime":90061}]`,
			),
			"pve1 pvesh get /cluster/resources --type storage": says(
				`[{"storage":"local","node":"pve2","plugintype":"dir","status":"unknown",` +
					`"shared":0},{"storage":"local","node":"pve1","plugintype":"dir",` +
					`"content":"iso","disk":"1024","maxdisk":2048,"status":"available",` +
					`"shared":0}]`,
			),
		},
	)
	out, m := n.Do("list_guests", `{"type":"lxc"}`)
	if m["count"] != 4.0 || strings.Contains(out.Text, "vm-app") {
		t.Errorf("list_guests: %s", out.Text)
	}
	if _, m = n.Do("list_guests", `{}`); m["count"] != 5.0 ||
		m["guests"].([]any)[0].(map[string]any)["vmid"] != 101.0 {
		t.Errorf("list_guests: %v", m)
	}
	out, m = n.Do("get_guest_status", `{"guest_id":101}`)
	if m["protection"] != true || m["notes"] != "two\nlines\n" ||
		len(m["snapshots"].([]any)) != 1 ||
		m["ha_managed"] != false ||
		!strings.Contains(out.Text, "It is protected.\nSnapshot s1.") {
		t.Errorf("get_guest_status: %v\n%s", m, out.Text)
	}
	if _, m = n.Do("get_guest_status", `{"guest_id":200}`); m["type"] != "qemu" ||
		m["status"] != "stopped" ||
		m["protection"] != false {
		t.Errorf("get_guest_status of a machine: %v", m)
	}
	if out, _ = n.Do("list_nodes", `{}`); !strings.Contains(out.Text,
		"pve1  online   25% of 4  1.0 GiB of 4.0 GiB  1d 1h") {
		t.Errorf("list_nodes:\n%s", out.Text)
	}
	if out, _ = n.Do("get_storage_pools", `{"node":"pve1"}`); !strings.Contains(out.Text,
		"local    pve1  dir   available  1.0 KiB of 2.0 KiB  iso") ||
		strings.Contains(out.Text, "pve2") {
		t.Errorf("get_storage_pools:\n%s", out.Text)
	}
}

func TestExamplesSayWhenTheNodeIsDown(t *testing.T) { pvetest.CheckExamples(t) }
