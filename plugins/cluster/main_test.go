package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
)

type script = map[string][]sdk.ExecResult

const (
	vm       = "pve1 pvesh get /cluster/resources --type vm"
	guestsOf = `[{"id":"qemu/200","type":"qemu","vmid":200,"node":"pve1","name":"vm-app",` +
		`"status":"stopped"},{"id":"lxc/101","type":"lxc","vmid":"101","node":"pve1",` +
		`"name":"web01","status":"running","maxmem":"1024"}]`
	current1 = "pve1 pvesh get /nodes/pve1/lxc/101/status/current"
	current2 = "pve1 pvesh get /nodes/pve1/qemu/200/status/current"
	running  = `{"status":"running","ha":{"managed":0}}`
	stopped  = `{"status":"stopped","ha":{"managed":0}}`
)

func TestMain(m *testing.M) { pvetest.Main(m) }

func TestExamplesSayWhenTheNodeIsDown(t *testing.T) { pvetest.CheckExamples(t) }

func TestLifecycleIsForOneTypeOfGuest(t *testing.T) {
	says := pvetest.Says
	for _, c := range []struct {
		tool, args string
		script     script
		ran, code  string
		changed    bool
	}{
		{"start_vm", `{"node":"pve1","vmid":200}`, script{current2: says(stopped, running),
			"pve1 qm start 200": says("")}, "pve1 qm start 200", "", true},
		{"start_vm", `{"node":"pve1","vmid":101}`, nil, "", "not_found", false},
		{"start_vm", `{"node":"pve2","vmid":200}`, nil, "", "on_other_node", false},
		{"stop_vm", `{"node":"pve1","vmid":200}`, script{current2: says(stopped)}, "", "", false},
		{"stop_vm", `{"node":"pve1","vmid":200}`, script{current2: says(running, stopped),
			"pve1 qm stop 200": says("")}, "pve1 qm stop 200", "", true},
		{"restart_vm", `{"node":"pve1","vmid":200}`, script{current2: says(running),
			"pve1 qm reboot 200 --timeout 30": says("")}, "pve1 qm reboot 200 --timeout 30", "",
			true},
		{"start_container", `{"node":"pve1","vmid":101}`, script{current1: says(stopped, running),
			"pve1 pct start 101": says("")}, "pve1 pct start 101", "", true},
		{"restart_vm", `{"node":"pve1","vmid":200}`, script{current2: says(stopped)}, "",
			"not_running", false},
		{"start_container", `{"node":"pve1","vmid":101}`, script{current1: says(running)}, "", "",
			false},
		{"start_container", `{"node":"pve1","vmid":200}`, nil, "", "not_found", false},
		{"stop_container", `{"node":"pve1","vmid":101,"confirmed":true}`,
			script{current1: says(running, stopped), "pve1 pct stop 101": says("")}, "pve1 pct " +
				"stop 101", "", true},
		{"restart_container", `{"node":"pve1","vmid":101}`, script{current1: says(running),
			"pve1 pct reboot 101 --timeout 30": says("")}, "pve1 pct reboot 101 --timeout 30", "",
			true},
		{"restart_container", `{"node":"pve1","vmid":101}`, script{current1: says(running),
			"pve1 pct reboot 101 --timeout 30": pvetest.Fails(255, "VM 101 not running\n")},
			"pve1 pct reboot 101 --timeout 30", "not_running", false},
	} {
		t.Run(c.tool+" "+c.args, func(t *testing.T) {
			if c.script == nil {
				c.script = script{}
			}
			c.script[vm], c.script["pve2"+vm[4:]] = says(guestsOf), says(guestsOf)
			n := pvetest.New(t, c.script)
			out, m := n.Do(c.tool, c.args)
			if ran := strings.Join(n.Changes(), ", "); ran != c.ran {
				t.Errorf("ran %q, want %q", ran, c.ran)
			}
			if (out.Error == nil) != (c.code == "") ||
				out.Error != nil && (out.Error.Code != c.code || out.Error.Suggestion == "") ||
				out.Error == nil && m["changed"] != c.changed {
				t.Errorf("%v, error %+v", m, out.Error)
			}
		})
	}
}

func TestClusterStatus(t *testing.T) {
	for _, c := range []struct {
		name, answer, text string
		quorate            bool
	}{
		{"quorum", `[{"type":"cluster","name":"lab","quorate":1},{"type":"node","name":"pve2",` +
			`"online":0,"ip":"10.0.0.2"},{"type":"node","name":"pve1","online":"1","local":1}]`,
			"Cluster lab has quorum.", true},
		{"no quorum",
			`[{"type":"cluster","name":"lab","quorate":0},{"type":"node","name":"pve1",` +
				`"online":1}]`, "NO quorum", false},
		{"a node alone has no row for a cluster", `[{"type":"node","name":"pve1","online":1}]`,
			"pve1 is in no cluster.", true},
	} {
		n := pvetest.New(t, script{"pve1 pvesh get /cluster/status": pvetest.Says(c.answer)})
		out, m := n.Do("get_cluster_status", `{}`)
		if out.Error != nil || m["quorate"] != c.quorate || !strings.Contains(out.Text, c.text) ||
			m["nodes"].([]any)[0].(map[string]any)["name"] != "pve1" {
			t.Errorf("%s: %v\n%s", c.name, m, out.Text)
		}
	}
}

func TestResources(t *testing.T) {
	n := pvetest.New(
		t,
		script{
			vm: pvetest.Says(guestsOf),
			"pve1 pvesh get /cluster/resources": pvetest.Says(
				`[{"id":"storage/pve1/local","type":"storage","storage":"local",` +
					`"plugintype":"dir","shared":1,"node":"pve1"},{"id":"sdn/x","type":"sdn",` +
					`"sdn":"x"}]`,
			),
		},
	)
	if _, m := n.Do("get_vms", `{}`); m["count"] != 1.0 ||
		m["guests"].([]any)[0].(map[string]any)["vmid"] != 200.0 {
		t.Errorf("get_vms: %v", m)
	}
	if _, m := n.Do("get_containers", `{}`); m["count"] != 1.0 ||
		m["guests"].([]any)[0].(map[string]any)["vmid"] != 101.0 {
		t.Errorf("get_containers asks for the type vm, there is none of its own: %v", m)
	}
	if _, m := n.Do("get_cluster_resources", `{"type":"container"}`); m["count"] != 1.0 {
		t.Errorf("containers: %v", m)
	}
	if out, m := n.Do("get_cluster_resources", `{}`); m["count"] != 2.0 ||
		!strings.Contains(out.Text, "local") ||
		m["resources"].([]any)[1].(map[string]any)["shared"] != true {
		t.Errorf("all: %v", m)
	}
	n = pvetest.New(
		t,
		script{
			"pve1 pvesh get /cluster/resources --type storage": pvetest.Says(
				`[{"storage":"local","node":"pve1","plugintype":"dir","status":"available"}]`,
			),
		},
	)
	if out, _ := n.Do("get_storage", `{}`); !strings.Contains(out.Text, "local") {
		t.Errorf("get_storage: %s", out.Text)
	}
	if _, err := n.Call("get_cluster_resources", `{"type":"lxc"}`); err == nil {
		t.Error("a type that Proxmox refuses was taken")
	}
}

func TestNodeStatus(t *testing.T) {
	n := pvetest.New(
		t,
		script{
			"pve1 pvesh get /nodes/pve1/status": pvetest.Says(
				`{"uptime":"3700","cpu":0.5,"cpuinfo":{"cpus":4,"model":"X","mhz":"2000"},` +
					`"loadavg":["0.10","0.20",0.3],"memory":{"total":"4096","used":1024,` +
					`"free":3072},"swap":{},"rootfs":{"total":10,"used":1,"free":9,"avail":9},` +
					`"pveversion":"pve-manager/9.2.11","kversion":"Linux 6"}`,
			),
		},
	)
	out, m := n.Do("get_node_status", `{"node":"pve1"}`)
	if m["uptime"] != 3700.0 || m["memory"].(map[string]any)["total"] != 4096.0 ||
		m["loadavg"].([]any)[2] != "0.3" ||
		!strings.Contains(out.Text, "load 0.10 0.20 0.3, memory 1.0 KiB of 4.0 KiB") {
		t.Errorf("%v\n%s", m, out.Text)
	}
}

func TestTemperature(t *testing.T) {
	zones := func(names ...string) func(string, string, int) (sdk.List, error) {
		return func(_, path string, _ int) (sdk.List, error) {
			var l sdk.List
			for _, name := range names {
				l.Entries = append(l.Entries, sdk.FileInfo{Name: name})
			}
			return l, nil
		}
	}
	base := "pve1 cat -- /sys/class/thermal/thermal_zone"
	n := pvetest.New(t, script{
		base + "2/temp /sys/class/thermal/thermal_zone10/temp": pvetest.Says(
			"41500\n-5000\n",
		), base + "2/type /sys/class/thermal/thermal_zone10/type": pvetest.Says(
			"acpitz\nx86_pkg_temp\n")})
	n.SFTPList = zones("cooling_device0", "thermal_zone10", "thermal_zone2", "thermal_zone1;id",
		"thermal_zone")
	out, m := n.Do("get_node_temperature", `{"node":"pve1"}`)
	first := m["zones"].([]any)[0].(map[string]any)
	if len(m["zones"].([]any)) != 2 || first["celsius"] != 41.5 || first["type"] != "acpitz" ||
		!strings.Contains(out.Text, "-5.0") {
		t.Errorf("%v\n%s", m, out.Text)
	}
	n = pvetest.New(t, script{
		base + "0/temp /sys/class/thermal/thermal_zone1/temp": {
			{Exit: 1, Stdout: []byte("30000\n"), Stderr: []byte("cat: …: No data available\n")},
		},
		base + "0/temp": pvetest.Fails(1,
			"No data available"), base + "1/temp": pvetest.Says("30000\n"), base +
			"0/type /sys/class/thermal/thermal_zone1/type": pvetest.Says("a\nb\n")})
	n.SFTPList = zones("thermal_zone0", "thermal_zone1")
	if _, m = n.Do("get_node_temperature", `{"node":"pve1"}`); len(m["zones"].([]any)) != 1 ||
		m["zones"].([]any)[0].(map[string]any)["zone"] != "thermal_zone1" ||
		m["zones"].([]any)[0].(map[string]any)["type"] != "b" {
		t.Errorf("a sensor that is off gives its value to another: %v", m)
	}
	n = pvetest.New(t, script{
		base + "0/temp /sys/class/thermal/thermal_zone1/temp": pvetest.Says("30000\n"),
		base + "0/temp": pvetest.Says(""),
		base + "1/temp": pvetest.Says("30000\n"),
		base + "0/type /sys/class/thermal/thermal_zone1/type": pvetest.Says("a\nb\n"),
	})
	n.SFTPList = zones("thermal_zone0", "thermal_zone1")
	if _, m = n.Do("get_node_temperature", `{"node":"pve1"}`); len(m["zones"].([]any)) != 1 ||
		m["zones"].([]any)[0].(map[string]any)["type"] != "b" {
		t.Errorf("a line that is missing shifts the others: %v", m)
	}
	n = pvetest.New(t, nil)
	n.SFTPList = zones("cooling_device0")
	if out, _ := n.Do("get_node_temperature", `{"node":"pve1"}`); out.Error == nil ||
		out.Error.Code != "not_found" {
		t.Errorf("no zones: %+v", out.Error)
	}
	n.SFTPList = func(string, string, int) (sdk.List, error) {
		return sdk.List{}, &sdk.OpError{Code: "not_found", Message: "x"}
	}
	if out, _ := n.Do("get_node_temperature", `{"node":"pve1"}`); out.Error == nil ||
		!strings.Contains(out.Error.Message, "no thermal zones") {
		t.Errorf("no folder: %+v", out.Error)
	}
}

func TestTasksAndBackups(t *testing.T) {
	tasks := `[{"upid":"U1","node":"pve1","type":"vzstart","id":"103","user":"root@pam",` +
		`"starttime":10,"endtime":"11","status":"CT is locked (backup)"},{"upid":"U3",` +
		`"node":"pve2","type":"vzdump","id":"","user":"root@pam","starttime":"30"},{"upid":"U2",` +
		`"node":"pve1","type":"vzstop","id":"101","user":"root@pam","starttime":20,"endtime":21,` +
		`"status":"OK","saved":"1"},{"upid":"U0","node":"pve1","type":"vzdump","starttime":5,` +
		`"endtime":6,"status":"WARNINGS: 1"}]`
	n := pvetest.New(
		t,
		script{
			"pve1 pvesh get /cluster/tasks":                         pvetest.Says(tasks),
			"pve2 pvesh get /nodes/pve2/tasks --limit 3 --errors 1": pvetest.Says(tasks),
			"pve1 pvesh get /nodes/pve1/storage/local/content --content backup " +
				"--vmid 103": pvetest.Says(
				`[{"volid":"local:backup/a","vmid":"103","size":900,"ctime":1767323045,` +
					`"format":"tar.zst","subtype":"lxc","protected":1},{"volid":"local:backup/b",` +
					`"vmid":103,"size":2048,"ctime":1767323046,"format":"tar.zst"}]`,
			),
		},
	)
	_, m := n.Do("get_recent_tasks", `{"limit":2}`)
	rows := m["tasks"].([]any)
	if len(rows) != 2 || rows[0].(map[string]any)["upid"] != "U3" ||
		rows[0].(map[string]any)["status"] != "running" ||
		rows[1].(map[string]any)["upid"] != "U2" {
		t.Errorf("the newest first: %v", rows)
	}
	if _, m = n.Do("get_recent_tasks", `{"errors":true}`); m["count"] != 1.0 {
		t.Errorf("errors: %v", m)
	}
	if _, m = n.Do("get_recent_tasks",
		`{"node":"pve2","limit":3,"errors":true}`); m["count"] != 1.0 {
		t.Errorf("of a node: %v", m)
	}
	out, m := n.Do("get_backups", `{"node":"pve1","vmid":103}`)
	if m["count"] != 2.0 || m["backups"].([]any)[0].(map[string]any)["volid"] != "local:backup/b" ||
		!strings.Contains(out.Text, "103   2026-01-02 03:04:06  2.0 KiB  local:backup/b") {
		t.Errorf("%v\n%s", m, out.Text)
	}
	for _, bad := range []string{`{"node":"pve1","storage":"x;id"}`,
		`{"node":"pve1","storage":"../x"}`, `{"node":"pve1","storage":"a"}`} {
		if _, err := n.Call("get_backups", bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestServiceIsActiveAfterwardsOrSaysSo(t *testing.T) {
	restart, active := "pve1 systemctl restart -- nginx.service", "pve1 systemctl is-active "+
		"nginx.service"
	for _, c := range []struct {
		name    string
		script  script
		code    string
		message string
	}{
		{"active at once", script{restart: pvetest.Says(""), active: pvetest.Says("active\n")}, "",
			""},
		{"active after a while", script{restart: pvetest.Says(""),
			active: {{Exit: 3, Stdout: []byte("activating\n")}, {Stdout: []byte("active\n")}}}, "",
			""},
		{"failed", script{restart: pvetest.Says(""),
			active: {{Exit: 3, Stdout: []byte("failed\n")}}}, "failed", "afterwards it is failed"},
		{"no such unit", script{restart: pvetest.Fails(5, "Failed to restart nginx.service: Unit "+
			"nginx.service not found.\n")}, "not_found", "not found"},
		{"restart fails", script{restart: pvetest.Fails(1, "Job for nginx.service failed because "+
			"the control process exited with error code.\n")}, "failed", "control process"},
	} {
		out, m := pvetest.New(t, c.script).
			Do("restart_service", `{"node":"pve1","service":"nginx"}`)
		if (out.Error == nil) != (c.code == "") ||
			out.Error != nil &&
				(out.Error.Code != c.code || !strings.Contains(out.Error.Message, c.message) ||
					out.Error.Suggestion == "") ||
			out.Error == nil && m["state"] != "active" {
			t.Errorf("%s: %v, error %+v", c.name, m, out.Error)
		}
	}
}

func TestWakeRunsOnAnotherNode(t *testing.T) {
	n := pvetest.New(t, script{
		"pve1 pvesh create /nodes/pve2/wakeonlan": pvetest.Says("\"AA:BB:CC:DD:EE:FF\"\n"),
		"pve2 pvesh create /nodes/pve1/wakeonlan": pvetest.Fails(2,
			"No wake on LAN MAC address defined for 'pve1'!\n"),
	})
	if _, m := n.Do("wake_node", `{"node":"pve2"}`); m["by"] != "pve1" ||
		m["mac"] != "AA:BB:CC:DD:EE:FF" {
		t.Errorf("%v", m)
	}
	if out, _ := n.Do("wake_node", `{"node":"pve1"}`); out.Error == nil ||
		out.Error.Code != "no_mac" ||
		!strings.Contains(out.Error.Suggestion, "pvenode config set") {
		t.Errorf("no MAC: %+v", out.Error)
	}
	n.Nodes[1].Cluster = "other"
	if out, _ := n.Do("wake_node", `{"node":"pve2"}`); out.Error == nil ||
		!strings.Contains(out.Error.Message, "no other node of its cluster") {
		t.Errorf("nobody to send it: %+v", out.Error)
	}
}

func TestRebootIsLeftToPolicy(t *testing.T) {
	n := pvetest.New(t, nil)
	var asked []string
	n.SSHExec = func(_ string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
		asked = argv
		return sdk.ExecResult{}, &sdk.Refused{
			DecisionID: "D",
			Failed:     []string{"tier"},
			Deny:       []sdk.Reason{{ID: "tier", Msg: "black"}},
		}
	}
	out, _ := n.Do("reboot_node", `{"node":"pve1","confirmed":true}`)
	if out.Error == nil || out.Error.Code != "refused" ||
		!slices.Equal(asked,
			[]string{"pvesh", "create", "/nodes/pve1/status", "--command", "reboot"}) {
		t.Errorf("asked %q, error %+v", asked, out.Error)
	}
}

func TestCommandTextGoesToTheHostAsItIs(t *testing.T) {
	n := pvetest.New(t, nil)
	var text string
	n.SSHScript = func(_, script string, o sdk.ExecOptions) (sdk.ExecResult, error) {
		text = script
		return sdk.ExecResult{Exit: 1, Stdout: []byte("a\n"), Stderr: []byte("b\n")}, nil
	}
	out, m := n.Do("execute_ssh", `{"node":"pve1","command":"df -h | grep 'a b'"}`)
	if text != "df -h | grep 'a b'" || m["exit_code"] != 1.0 || m["success"] != false ||
		out.Text != "a\n[stderr]\nb\n[exit code 1]" {
		t.Errorf("%q, %v, %q", text, m, out.Text)
	}
}

func TestAllowedCommandsAreToldAsTheHostListsThem(t *testing.T) {
	all := []string{"pve1", "pve2"}
	tools := []sdk.CommandTool{{Tool: "execute_ssh", Nodes: all}}
	start := sdk.Command{Command: "pct start", Takes: "VMID", Tier: "red", Approval: true,
		Tools: []string{"execute_ssh"}, Nodes: []string{"pve1"}}
	for name, x := range map[string]struct {
		args string
		list sdk.CommandList
		want string
	}{
		"a viewer": {`{}`, sdk.CommandList{}, "You may run no commands by their text."},
		"a word that nothing has": {`{"word":"docker","node":"pve1"}`, sdk.CommandList{},
			`You may run no command with "docker" in its name on node "pve1". Leave word out for ` +
				"all programs."},
		"programs": {`{}`, sdk.CommandList{Tools: tools, MoreNodes: 2, Programs: []sdk.Program{
			{Program: "pct", Green: 2, Red: 1}, {Program: "uptime", Yellow: 1}}},
			"With execute_ssh on pve1, pve2:\n(2 nodes are not looked at: name one in node.)\n" +
				"pct: 2 green 1 red\nuptime: 1 yellow\nGive a program as word to see its " +
				"commands.\n"},
		"commands": {`{"word":"pct"}`, sdk.CommandList{Tools: tools, MoreCommands: 3,
			Commands: []sdk.Command{start, {Command: "cat", Takes: "READPATH*", Tier: "green",
				Tools: []string{"execute_ssh"}, Nodes: all, Piped: true}}},
			"With execute_ssh on pve1, pve2:\npct start VMID\n  red, a person is asked, with " +
				"execute_ssh on pve1\ncat READPATH*\n  green, only behind a pipe\n3 more: give a " +
				"sub-command too.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := pvetest.New(t, nil)
			n.ListCommands = func(string, string) (sdk.CommandList, error) {
				return x.list, nil
			}
			if out, _ := n.Do("list_allowed_commands", x.args); out.Text != x.want {
				t.Errorf("%q", out.Text)
			}
		})
	}
}

// An answer that is not a status is an error, never a healthy cluster.
func TestABrokenClusterStatusIsNoHealth(t *testing.T) {
	one := pve.Int(1)
	node := statusRow{Type: "node", Name: "pve1", Online: &one}
	for name, rows := range map[string][]statusRow{
		"nothing":                      nil,
		"a cluster alone":              {{Type: "cluster", Name: "c", Quorate: &one}},
		"a cluster without its quorum": {{Type: "cluster", Name: "c"}, node},
		"two clusters": {{Type: "cluster", Name: "c", Quorate: &one},
			{Type: "cluster", Name: "d", Quorate: &one}, node},
		"a node that is neither on":     {{Type: "node", Name: "pve1"}},
		"a node twice":                  {node, node},
		"a node with a name that lies":  {{Type: "node", Name: "x;id", Online: &one}},
		"rows of another type entirely": {{Type: "qemu", Name: "x"}},
	} {
		if out, err := members("pve1", rows); err == nil || out.Quorate {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	if out, err := members("pve1", []statusRow{node}); err != nil || !out.Quorate {
		t.Errorf("a single node: %+v, %v", out, err)
	}
}
