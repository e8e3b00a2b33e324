package pvelab

import "strings"

// The command tables of pct and qm: verb, group in the usage text, positional arguments, method.

func pctProgram() *program {
	m := apiMethods()
	api := func(name string) *method { return mustMethod(m, "PVE::API2::LXC"+name) }
	own := func(name string) *method { return mustMethod(m, "PVE::CLI::pct::"+name) }
	id := []string{"vmid"}
	args := func(names ...string) []string { return append([]string{"vmid"}, names...) }
	return &program{Name: "pct", Commands: []command{
		{"clone", 0, args("newid"), api("::clone_vm"), nil},
		{"create", 0, args("ostemplate"), api("::create_vm"), nil},
		{"destroy", 0, id, api("::destroy_vm"), nil},
		{"list", 0, nil, api("::vmlist"), printCTList},
		{"migrate", 0, args("target"), api("::migrate_vm"), nil},
		{
			"move-volume",
			0,
			args("volume", "storage", "target-vmid", "target-volume"),
			api("::move_volume"),
			nil,
		},
		{"pending", 0, id, api("::vm_pending"), printPending},
		{"resize", 0, args("disk", "size"), api("::resize_vm"), nil},
		{"restore", 0, args("ostemplate"), api("::create_vm"), nil},
		{"template", 0, id, api("::template"), nil},
		{"config", 1, id, api("::Config::vm_config"), printConfig},
		{"set", 1, id, api("::Config::update_vm"), nil},
		{"delsnapshot", 2, args("snapname"), api("::Snapshot::delsnapshot"), nil},
		{"listsnapshot", 2, id, api("::Snapshot::list"), printSnapshots},
		{"rollback", 2, args("snapname"), api("::Snapshot::rollback"), nil},
		{"snapshot", 2, args("snapname"), api("::Snapshot::snapshot"), nil},
		{"reboot", 3, id, api("::Status::vm_reboot"), nil},
		{"resume", 3, id, api("::Status::vm_resume"), nil},
		{"shutdown", 3, id, api("::Status::vm_shutdown"), nil},
		{"start", 3, id, api("::Status::vm_start"), nil},
		{"stop", 3, id, api("::Status::vm_stop"), nil},
		{"suspend", 3, id, api("::Status::vm_suspend"), nil},
		{"console", 4, id, own("console"), nil},
		{"cpusets", 4, nil, own("cpusets"), nil},
		{"df", 4, id, own("df"), nil},
		{"enter", 4, id, own("enter"), nil},
		{"exec", 4, args("extra-args"), own("exec"), nil},
		{"fsck", 4, id, own("fsck"), nil},
		{"fstrim", 4, id, own("fstrim"), nil},
		{"mount", 4, id, own("mount"), nil},
		{"pull", 4, args("path", "destination"), own("pull"), nil},
		{"push", 4, args("file", "destination"), own("push"), nil},
		{
			"remote-migrate",
			4,
			args("target-vmid", "target-endpoint"),
			api("::remote_migrate_vm"),
			nil,
		},
		{"rescan", 4, nil, own("rescan"), nil},
		{"status", 4, id, own("status"), nil},
		{"unlock", 4, id, own("unlock"), nil},
		{"unmount", 4, id, own("unmount"), nil},
		{"help", 5, []string{"extra-args"}, own("help"), nil},
	}}
}

func qmProgram() *program {
	m := apiMethods()
	api := func(name string) *method { return mustMethod(m, "PVE::API2::Qemu::"+name) }
	own := func(name string) *method { return mustMethod(m, "PVE::CLI::qm::"+name) }
	id := []string{"vmid"}
	args := func(names ...string) []string { return append([]string{"vmid"}, names...) }
	// Verbs that are not simulated must still be there: they decide which abbreviations are unique.
	needs := map[string][]param{
		"none":   nil,
		"rescan": bools("dryrun"),
		"plain":  {pVMID},
		"wait":   join([]param{pVMID}, ints("timeout")),
		"unlink": join([]param{pVMID}, strs("idlist"), bools("force")),
	}
	for verb, words := range map[string]string{
		"cloudinit": "type", "import": "source storage", "move": "disk storage",
		"exec-status": "pid", "passwd": "username", "import-vm": "source",
		"importovf": "manifest storage", "sendkey": "key"} {
		needs[verb] = []param{pVMID}
		for _, w := range strings.Fields(words) {
			needs[verb] = append(needs[verb], param{Name: w, Type: "string"})
		}
	}
	other := func(verb string) *method {
		return &method{Class: "PVE::CLI::qm", Name: verb, Params: needs[verb]}
	}
	return &program{Name: "qm", Commands: []command{
		{"clone", 0, args("newid"), api("clone_vm"), nil},
		{"create", 0, id, api("create_vm"), nil},
		{"destroy", 0, id, api("destroy_vm"), nil},
		{"list", 0, nil, api("vmlist"), printVMList},
		{"migrate", 0, args("target"), api("migrate_vm"), nil},
		{"pending", 0, id, api("vm_pending"), printPending},
		{"resize", 0, args("disk", "size"), api("resize_vm"), nil},
		{"template", 0, id, api("template"), nil},
		{"config", 1, id, api("vm_config"), printConfig},
		{"set", 1, id, api("update_vm"), nil},
		{"delsnapshot", 2, args("snapname"), api("delsnapshot"), nil},
		{"listsnapshot", 2, id, api("snapshot_list"), printSnapshots},
		{"rollback", 2, args("snapname"), api("rollback"), nil},
		{"snapshot", 2, args("snapname"), api("snapshot"), nil},
		{"reboot", 3, id, api("vm_reboot"), nil},
		{"reset", 3, id, api("vm_reset"), nil},
		{"resume", 3, id, api("vm_resume"), nil},
		{"shutdown", 3, id, api("vm_shutdown"), nil},
		{"start", 3, id, api("vm_start"), nil},
		{"stop", 3, id, api("vm_stop"), nil},
		{"suspend", 3, id, api("vm_suspend"), nil},
		{"cloudinit dump", 4, args("type"), other("cloudinit"), nil},
		{"cloudinit pending", 4, id, other("plain"), nil},
		{"cloudinit update", 4, id, other("plain"), nil},
		{"disk import", 5, args("source", "storage"), other("import"), nil},
		{"disk move", 5, args("disk", "storage"), other("move"), nil},
		{"disk rescan", 5, nil, other("rescan"), nil},
		{"disk resize", 5, args("disk", "size"), api("resize_vm"), nil},
		{"disk unlink", 5, id, other("unlink"), nil},
		{"guest cmd", 6, args("command"), api("Agent::agent"), nil},
		{"guest exec", 6, args("extra-args"), own("exec"), nil},
		{"guest exec-status", 6, args("pid"), other("exec-status"), nil},
		{"guest passwd", 6, args("username"), other("passwd"), nil},
		{"import", 7, args("source"), other("import-vm"), nil},
		{"importovf", 7, args("manifest", "storage"), other("importovf"), nil},
		{"monitor", 7, id, own("monitor"), nil},
		{"mtunnel", 7, nil, other("none"), nil},
		{"nbdstop", 7, id, other("plain"), nil},
		{"remote-migrate", 7, id, api("remote_migrate_vm"), nil},
		{"sendkey", 7, args("key"), other("sendkey"), nil},
		{"showcmd", 7, id, own("showcmd"), nil},
		{"status", 7, id, own("status"), nil},
		{"terminal", 7, id, own("terminal"), nil},
		{"unlock", 7, id, own("unlock"), nil},
		{"vncproxy", 7, id, other("plain"), nil},
		{"wait", 7, id, other("wait"), nil},
		{"help", 8, []string{"extra-args"}, own("help"), nil},
	}}
}

// mustMethod panics for a name that the tables do not have: a mistake that the first test shows.
func mustMethod(m map[string]*method, name string) *method {
	if m[name] == nil {
		panic("pvelab: no API method " + name)
	}
	return m[name]
}
