package pvelab

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// services are what pvesh knows; systemctl knows a few more.
var pveServices = strings.Fields(
	"chrony corosync cron ksmtuned lxcfs postfix proxmox-firewall pve-cluster pve-firewall " +
		"pve-ha-crm pve-ha-lrm pve-lxc-syscalld pvedaemon pvefw-logger pveproxy pvescheduler " +
		"pvestatd qmeventd spiceproxy sshd syslog systemd-journald systemd-timesyncd",
)

// aliases are those of Debian 12's packages, by name: systemd knows a unit by its own name and by
// the links that its Alias= made.
var aliases = map[string]string{"sshd": "ssh", "ntp": "ntpsec", "ntpd": "ntpsec",
	"vmtoolsd": "open-vm-tools", "syslog": "rsyslog"}

// showNames prints what systemctl show --property=Id,Names does. A unit that does not exist has the
// one name that was asked for.
func (p *proc) showNames(name string) {
	id := name
	if a := aliases[name]; a != "" {
		id = a
	}
	names := []string{id + ".service"}
	for _, a := range slices.Sorted(keys(aliases)) {
		if aliases[a] == id {
			names = append(names, a+".service")
		}
	}
	fmt.Fprintf(p.out, "Id=%s.service\nNames=%s\n", id, strings.Join(names, " "))
}

// showState prints what systemctl show -p LIST does, in systemd's own order, without what it has
// no value for.
func (p *proc) showState(list, state string, exists bool) {
	is := map[string]string{"Result": "success", "NRestarts": "0", "LoadState": "loaded",
		"ActiveState": "inactive", "SubState": "dead", "ActiveEnterTimestamp": ""}
	if !exists {
		is["LoadState"] = "not-found"
	} else if state == "running" {
		is["ActiveState"], is["SubState"] = "active", "running"
		is["ActiveEnterTimestamp"] = "Mon 2026-11-23 08:00:12 UTC"
	}
	wanted := strings.Split(list, ",")
	for _, k := range []string{"Result", "NRestarts", "LoadState", "ActiveState", "SubState",
		"ActiveEnterTimestamp"} {
		if slices.Contains(wanted, k) {
			fmt.Fprintf(p.out, "%s=%s\n", k, is[k])
		}
	}
}

// dependents are units that need others.
var dependents = map[string]string{"nginx": "exporter.service", "pve-cluster": "pvedaemon.service"}

func (p *proc) showDependents(name string) {
	fmt.Fprintf(p.out, "RequiredBy=%s\nBoundBy=\nConsistsOf=\n", dependents[name])
}

// service answers a unit's state; ok is false for a unit that does not exist.
func (l *Lab) service(node, unit string) (state string, ok bool) {
	unit = strings.TrimSuffix(unit, ".service")
	_ = l.db.view(func(s *State) {
		if n := s.node(node); n != nil {
			state, ok = n.Services[unit]
		}
	})
	return state, ok
}

func (l *Lab) setService(node, unit, state string) {
	_ = l.db.update(func(s *State) error {
		if n := s.node(node); n != nil {
			n.Services[strings.TrimSuffix(unit, ".service")] = state
		}
		return nil
	})
}

func cmdSystemctl(_ context.Context, p *proc) int {
	o, rest, err := p.options("qln:at:P:p:", map[string]string{
		"quiet":    "q",
		"no-pager": "l",
		"full":     "l",
		"lines":    "n",
		"type":     "t",
		"all":      "a",
		"property": "p",
	})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	if len(rest) == 0 {
		rest = []string{"list-units"}
	}
	if rest[0] == "list-units" {
		n := p.nodeState()
		for _, u := range slices.Sorted(keys(n.Services)) {
			fmt.Fprintf(p.out, "  %-32s loaded %s\n", u+".service", unitState(n.Services[u]))
		}
		return 0
	}
	if len(rest) < 2 {
		return p.complain(1, "Too few arguments.")
	}
	code := 0
	for _, unit := range rest[1:] {
		name := strings.TrimSuffix(unit, ".service")
		state, ok := p.lab.service(p.node, unit)
		switch verb := rest[0]; verb {
		case "show":
			if slices.Contains(p.args, "--property=RequiredBy,BoundBy,ConsistsOf") {
				p.showDependents(name)
				break
			}
			if slices.Contains(p.args, "--property=ActiveState,UnitFileState") {
				fmt.Fprintf(p.out, "ActiveState=%s\nUnitFileState=%s\n",
					strings.Fields(unitState(state))[0], p.unitFile(name, ok))
				break
			}
			if list := o['p']; strings.Contains(list, "LoadState") {
				p.showState(list, state, ok)
				break
			}
			p.showNames(name)
		case "is-active":
			if !ok {
				state = "inactive"
			}
			fmt.Fprintln(p.out, strings.Fields(unitState(state))[0])
			if state != "running" {
				code = 3
			}
		case "status":
			if !ok {
				fmt.Fprintf(p.err, "Unit %s.service could not be found.\n", name)
				code = 4
				continue
			}
			fmt.Fprintf(
				p.out,
				"● %s.service - %s\n     Loaded: loaded (/lib/systemd/system/%s.service; "+
					"enabled)\n     Active: %s\n",
				name,
				name,
				name,
				unitState(state),
			)
			if state != "running" {
				code = 3
			}
		case "is-enabled":
			is := p.unitFile(name, ok)
			fmt.Fprintln(p.out, is)
			if is != "enabled" {
				code = 1
			}
		case "enable", "disable":
			if !ok {
				fmt.Fprintf(p.err, "Failed to %s unit: Unit file %s.service does not exist.\n",
					verb, name)
				code = 1
				continue
			}
			p.setEnabled(name, verb == "enable")
		case "restart", "start", "reload", "stop", "try-restart":
			if !ok {
				fmt.Fprintf(p.err, "Failed to %s %s.service: Unit %s.service not found.\n", verb,
					name, name)
				code = 5
				continue
			}
			p.lab.setService(p.node, unit,
				map[bool]string{true: "stopped", false: "running"}[verb == "stop"])
		default:
			fmt.Fprintf(p.err, "Unknown command verb '%s'.\n", verb)
			return 1
		}
	}
	return code
}

// unitFile is UnitFileState, which is empty for a unit without a file.
func (p *proc) unitFile(name string, exists bool) string {
	switch {
	case !exists:
		return ""
	case slices.Contains(p.nodeState().Disabled, name):
		return "disabled"
	}
	return "enabled"
}

// setEnabled makes or removes the link of a unit, and says so where that changes something.
func (p *proc) setEnabled(name string, on bool) {
	link := "/etc/systemd/system/multi-user.target.wants/" + name + ".service"
	_ = p.lab.editNode(p.node, func(n *Node) {
		switch is := !slices.Contains(n.Disabled, name); {
		case is == on:
		case on:
			n.Disabled = slices.DeleteFunc(slices.Clone(n.Disabled),
				func(d string) bool { return d == name })
			fmt.Fprintf(p.err, "Created symlink %s → /lib/systemd/system/%s.service.\n", link,
				name)
		default:
			n.Disabled = append(slices.Clone(n.Disabled), name)
			fmt.Fprintf(p.err, "Removed \"%s\".\n", link)
		}
	})
}

func unitState(s string) string {
	if s == "running" {
		return "active (running)"
	}
	return "inactive (dead)"
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func cmdJournal(_ context.Context, p *proc) int {
	o, _, err := p.options("u:n:erbkqaxo:p:S:U:", map[string]string{"unit": "u", "lines": "n",
		"no-pager": "e", "output": "o", "priority": "p", "since": "S", "until": "U"})
	if err != nil {
		return p.complain(1, "%v", err)
	}
	unit := def(o, 'u', "systemd")
	stamp := "Jan 02 15:04:05"
	if o['o'] == "short-iso" {
		stamp = "2006-01-02T15:04:05-0700"
	}
	fmt.Fprintf(p.out, "%s %s %s[1]: Started %s.\n", time.Now().UTC().Format(stamp), p.node, unit,
		unit)
	return 0
}

// cmdFlock takes the lock of a descriptor that the shell opened, for as long as the request lasts.
func cmdFlock(_ context.Context, p *proc) int {
	if len(p.args) != 2 {
		return p.complain(64, "pvelab knows only: flock FD")
	}
	name, ok := openFiles(p.stub, p.tree.root.Name())[p.args[1]]
	p.sess.mu.Lock()
	if ok {
		p.sess.locks = append(p.sess.locks, p.node+":"+name)
	}
	p.sess.mu.Unlock()
	if !ok {
		return p.complain(65, "%s: Bad file descriptor", p.args[1])
	}
	p.lab.hold(p.node+":"+name, 1)
	return 0
}

func cmdSensors(_ context.Context, p *proc) int {
	fmt.Fprint(
		p.out,
		"coretemp-isa-0000\nAdapter: ISA adapter\nPackage id 0:  +47.0°C  (high = +80.0°C, crit "+
			"= +100.0°C)\nCore 0:        +45.0°C  (high = +80.0°C, crit = +100.0°C)\n",
	)
	return 0
}

func cmdLsblk(_ context.Context, p *proc) int {
	fmt.Fprintf(
		p.out,
		"NAME         MAJ:MIN RM  SIZE RO TYPE MOUNTPOINTS\nsda            8:0    0  %s  0 disk "+
			"\n└─pve-root   252:1    0  %s  0 lvm  /\n",
		human(p.nodeState().RootTotal),
		human(p.nodeState().RootTotal),
	)
	return 0
}

func cmdIP(_ context.Context, p *proc) int {
	fmt.Fprintf(
		p.out,
		"1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n2: vmbr0: "+
			"<BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n    inet %s/24 scope global vmbr0\n",
		p.nodeState().IP,
	)
	return 0
}

// says is a program whose text does not depend on anything.
func says(text string) builtin {
	return func(_ context.Context, p *proc) int { fmt.Fprintln(p.out, text); return 0 }
}

// cmdPower takes the node's guests down; what is more, a lab's node comes back at once unless it
// was switched off.
func cmdPower(_ context.Context, p *proc) int {
	off := path.Base(p.args[0]) != "reboot" && !slices.Contains(p.args, "-r")
	err := p.lab.db.update(func(s *State) error { s.power(p.node, off); return nil })
	if err != nil {
		return p.complain(1, "%v", err)
	}
	return 0
}

func (s *State) power(node string, off bool) {
	for _, g := range s.Guests {
		if g.Node == node {
			g.Running, g.PID, g.Started = false, 0, 0
		}
	}
	if n := s.node(node); n != nil {
		n.Offline, n.Down, n.Booted = off, off, now()
	}
}
