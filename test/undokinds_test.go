package test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/reverse"
	"github.com/caponier-mcp/caponier/test/pvelab"
)

// reversible returns the commands of the table of host/reverse, such as "pct start", as its source
// has them.
func reversible(t *testing.T) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../host/reverse/reverse.go", nil, 0)
	must(t, err)
	tables := map[string][]string{} // by the name of the variable: its keys
	programs := map[string]string{} // by the program: the name of its table
	for _, d := range parsed.Decls {
		vars, is := d.(*ast.GenDecl)
		if !is || vars.Tok != token.VAR {
			continue
		}
		for _, spec := range vars.Specs {
			v := spec.(*ast.ValueSpec)
			literal, is := v.Values[0].(*ast.CompositeLit)
			if !is {
				continue
			}
			for _, e := range literal.Elts {
				pair, is := e.(*ast.KeyValueExpr)
				if !is {
					continue
				}
				key, err := strconv.Unquote(pair.Key.(*ast.BasicLit).Value)
				must(t, err)
				if table, is := pair.Value.(*ast.Ident); is {
					programs[key] = table.Name
				} else {
					tables[v.Names[0].Name] = append(tables[v.Names[0].Name], key)
				}
			}
		}
	}
	for program, table := range programs {
		for _, verb := range tables[table] {
			all = append(all, program+" "+verb)
		}
	}
	slices.Sort(all)
	return all
}

// undone is an end-to-end row: a call that runs a command of the table, or another thing that can
// be taken back.
type undone struct {
	tool, args string // "": proxmox_host_exec_command with the command
	command    string
	first      func(t *testing.T, s *site) // what has to be so before
	snapshots  bool                        // the site takes snapshots
	// that the undo is refused with, where nothing takes it back
	why   string
	shown string // by audit show, of another step
}

// unlisted are commands of the table that the shipped grammar does not have: no call runs them.
var unlisted = []string{"pct clone", "pct create", "pct migrate", "pct reset", "pct resize",
	"pct template",
	"qm clone", "qm create", "qm exec", "qm migrate", "qm pull", "qm push", "qm reset", "qm resize",
	"qm template",
	"systemctl reset-failed"}

func guestRuns(vmid int, on bool) func(*testing.T, *site) {
	return func(t *testing.T, s *site) {
		must(t, s.lab.Edit(func(st *pvelab.State) error {
			for _, g := range st.Guests {
				if g.VMID == vmid {
					g.Running = on
				}
			}
			return nil
		}))
	}
}

func ran(argv ...string) func(*testing.T, *site) {
	return func(t *testing.T, s *site) { s.run(t, argv...) }
}

func undoRows() map[string]undone {
	const restarted = "the guest has restarted, and what it had in memory is gone"
	const inside = "what a command in a guest does is not known"
	upload := `{"local_path":"app.conf","host_path":"/opt/kinds.conf","overwrite":true}`
	return map[string]undone{
		"pct start":    {command: "pct start 104", first: guestRuns(104, false)},
		"pct stop":     {command: "pct stop 104", first: guestRuns(104, true)},
		"pct shutdown": {command: "pct shutdown 104", first: guestRuns(104, true)},
		"pct reboot":   {command: "pct reboot 104", first: guestRuns(104, true), why: restarted},
		"pct snapshot": {command: "pct snapshot 104 mine"},
		"pct delsnapshot": {command: "pct delsnapshot 104 mine2",
			first: ran("pct", "snapshot", "104", "mine2"),
			why:   "a snapshot that is deleted cannot be made again"},
		"pct rollback": {command: "pct rollback 104 mine3",
			first: ran("pct", "snapshot", "104", "mine3"),
			why:   "what changed since the snapshot is gone; take one before"},
		"pct destroy": {command: "pct destroy 102", first: func(t *testing.T, s *site) {
			s.run(t, "pct", "set", "102", "--protection", "0")
		},
			why: "the guest and its disks are gone; restore a backup"},
		"pct set": {command: "pct set 104 --memory 512 --onboot 1", first: guestRuns(104, false)},
		"pct exec": {tool: "proxmox_container_exec_command",
			args: `{"vmid":101,"command":"cp /etc/hostname /root/kinds"}`, why: inside},
		"pct push": {tool: "proxmox_upload_file_to_container",
			args: `{"vmid":101,"local_path":"app.conf","container_path":"/root/kinds.conf"}`,
			why:  inside, shown: "what was at the destination in the guest is gone"},
		"pct pull": {tool: "proxmox_download_file_from_container",
			args: `{"vmid":101,"container_path":"/etc/hostname","local_path":"kinds.txt"}`,
			// its checksum is asked for in the guest; the copy itself needs no reverse
			why: inside},
		"qm start":    {command: "qm start 200", first: guestRuns(200, false)},
		"qm stop":     {command: "qm stop 200", first: guestRuns(200, true)},
		"qm shutdown": {command: "qm shutdown 200", first: guestRuns(200, true)},
		"qm reboot":   {command: "qm reboot 200", first: guestRuns(200, true), why: restarted},
		"qm snapshot": {command: "qm snapshot 200 mine", first: guestRuns(200, false)},
		"qm delsnapshot": {command: "qm delsnapshot 200 mine2",
			first: ran("qm", "snapshot", "200", "mine2"),
			why:   "a snapshot that is deleted cannot be made again"},
		"qm rollback": {command: "qm rollback 200 mine3",
			first: ran("qm", "snapshot", "200", "mine3"),
			why:   "what changed since the snapshot is gone; take one before"},
		"qm destroy": {command: "qm destroy 200",
			why: "the guest and its disks are gone; restore a backup"},
		"qm set": {command: "qm set 200 --memory 4096 --onboot 1",
			first: guestRuns(200, false)},
		"systemctl start": {command: "systemctl start -- cron",
			first: ran("systemctl", "stop", "cron")},
		"systemctl stop": {command: "systemctl stop -- cron",
			first: ran("systemctl", "start", "cron")},
		"systemctl restart": {command: "systemctl restart -- cron",
			why: "the service has restarted, and what it had in memory is gone"},
		"systemctl reload": {command: "systemctl reload -- cron",
			why: "the service has read its configuration again"},
		"systemctl enable": {command: "systemctl enable -- cron",
			first: ran("systemctl", "disable", "cron")},
		"systemctl disable": {command: "systemctl disable -- cron",
			first: ran("systemctl", "enable", "cron")},
		"a new file": {tool: "proxmox_upload_file_to_host", args: upload,
			first: func(t *testing.T, s *site) { s.run(t, "rm", "-f", "/opt/kinds.conf") }},
		"a replaced file": {tool: "proxmox_upload_file_to_host", args: upload,
			first: func(t *testing.T, s *site) {
				must(t, s.lab.WriteNodeFile("pve1", "/opt/kinds.conf", "by hand\n"))
			}},
		"a rollback": {tool: "stop_guest", args: `{"guest_id":105,"force":true}`,
			first: guestRuns(105, true), snapshots: true},
	}
}

// The real binary runs and undoes each command of the table in host/reverse, or refuses the undo
// with the reason in the table. A command without a row here fails.
func TestEveryReverseOfTheTableIsUndoneEndToEnd(t *testing.T) {
	rows, table := undoRows(), reversible(t)
	if len(table) < 40 {
		t.Fatalf("only %d commands are found in the table: %q", len(table), table)
	}
	for _, command := range table {
		if _, has := rows[command]; !has && !slices.Contains(unlisted, command) {
			t.Errorf("%s has a reverse in host/reverse, and no row here", command)
		}
	}
	s := undoing(t, "")
	s.rewrite(t, "calls_per_minute: 120", "calls_per_minute: 1200", "target_calls_per_minute: 60",
		"target_calls_per_minute: 600")
	s.answer(t)
	call := func(tool, args string) []string { return []string{"call", tool, args} }
	host := func(command string) []string {
		return call("proxmox_host_exec_command", fmt.Sprintf(`{"command":%q}`, command))
	}
	for _, command := range unlisted {
		if !slices.Contains(table, command) {
			t.Errorf("%s is not in the table", command)
		}
		began := len(s.lab.Effects())
		a := s.once(t, host(command+" 104 1 2")...)
		if changes, _ := since(s, began); a.code != 3 || !strings.Contains(a.text, `"command"`) ||
			len(changes) > 0 {
			t.Errorf("%s: %d, the node saw %q: it needs a row now\n%s", command, a.code, changes,
				a.text)
		}
	}
	names := slices.Sorted(mapKeys(rows))
	// The others need the guests, and a site that takes no snapshots.
	for _, last := range []string{"qm destroy", "pct destroy", "a rollback"} {
		names = append(slices.DeleteFunc(names, func(n string) bool { return n == last }), last)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			row := rows[name]
			if row.snapshots {
				s.write(t, "site/data.yaml", s.read(t, "site/data.yaml")+
					"\nsnapshot: {tier: yellow, optional: false, keep: 5, keep_days: 7}\n")
				must(t, s.answers.Close())
				s.answer(t)
			}
			if row.first != nil {
				row.first(t, s)
			}
			do := host(row.command)
			if row.tool != "" {
				do = call(row.tool, row.args)
			} else if way := reverse.Command(strings.Fields(row.command),
				true); way.None != row.why {
				t.Errorf("the table says %q, the row %q", way.None, row.why)
			}
			before := s.lasting(t)
			a := s.done(t, do...)
			after := s.lasting(t)
			if row.why != "" {
				s.refuses(t, row.why, "undo", a.CallID)
				text, err := s.command("audit", "show", a.CallID).CombinedOutput()
				if err != nil || !strings.Contains(string(text), row.shown) ||
					!strings.Contains(string(text), row.why) {
					t.Errorf("audit show: %v, want %q and %q\n%s", err, row.why, row.shown, text)
				}
				if now := s.lasting(t); now != after {
					t.Errorf("a refused undo left\n%s\nof\n%s", now, after)
				}
				return
			}
			if after == before {
				t.Errorf("it changed nothing: %s", after)
			}
			s.done(t, "undo", a.CallID)
			if now := s.lasting(t); now != before {
				t.Errorf("taken back is\n%s\nwas\n%s", now, before)
			}
		})
	}
}

// lasting is what of the lab an undo has to bring back: all but the host's own snapshots.
func (s *site) lasting(t *testing.T) string {
	t.Helper()
	type guest struct {
		VMID      int
		Running   bool
		Config    map[string]string
		Snapshots []string
	}
	is := map[string]any{}
	must(t, s.lab.Edit(func(st *pvelab.State) error {
		for _, g := range st.Guests {
			one := guest{g.VMID, g.Running, map[string]string{}, []string{}}
			for k, v := range g.Config {
				if k != "parent" {
					one.Config[k] = v
				}
			}
			for _, x := range g.Snapshots {
				if !strings.HasPrefix(x.Name, "caponier-") {
					one.Snapshots = append(one.Snapshots, x.Name)
				}
			}
			is[fmt.Sprint("guest ", g.VMID)] = one
		}
		for _, n := range st.Nodes {
			is["units of "+n.Name] = []any{n.Services, slices.Sorted(slices.Values(n.Disabled))}
		}
		return nil
	}))
	if data, err := s.lab.NodeFile("pve1", "/opt/kinds.conf"); err == nil {
		is["/opt/kinds.conf"] = string(data)
	}
	text, err := json.MarshalIndent(is, "", " ")
	must(t, err)
	return string(text)
}
