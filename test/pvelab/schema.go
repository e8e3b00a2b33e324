package pvelab

import "strings"

// The parameters that several methods share, as the real schemas have them.
var (
	pNode = param{
		Name:   "node",
		Type:   "string",
		Format: "pve-node",
		Desc:   "The cluster node name.",
	}
	pVMID = param{
		Name:   "vmid",
		Type:   "integer",
		Format: "pve-vmid",
		Desc:   "The (unique) ID of the VM.",
	}
	pSnap = param{
		Name:   "snapname",
		Type:   "string",
		Format: "pve-configid",
		MaxLen: 40,
		Desc:   "The name of the snapshot.",
	}
	pStorage = param{
		Name:   "storage",
		Type:   "string",
		Format: "pve-storage-id",
		Desc:   "The storage identifier.",
	}
	pUPID    = param{Name: "upid", Type: "string", Desc: "The task's unique ID."}
	pService = param{Name: "service", Type: "string", Enum: pveServices, Desc: "Service ID"}
	pTimeout = opt("timeout", "integer").min("0")
)

func opt(name, typ string) param { return param{Name: name, Type: typ, Optional: true} }

func (p param) min(n string) param          { p.Min = n; return p }
func (p param) format(f string) param       { p.Format = f; return p }
func (p param) enum(words string) param     { p.Enum = strings.Fields(words); return p }
func (p param) text(def, desc string) param { p.Default, p.Desc = def, desc; return p }
func (p param) optional() param             { p.Optional = true; return p }

func with(base []param, more ...param) []param {
	return append(append([]param(nil), base...), more...)
}

// bools, strs and ints are options that need no more than a name.
func bools(names string) []param { return named(names, "boolean") }
func strs(names string) []param  { return named(names, "string") }
func ints(names string) []param  { return named(names, "integer") }

func named(names, typ string) (out []param) {
	for _, n := range strings.Fields(names) {
		out = append(out, opt(n, typ))
	}
	return out
}

func join(lists ...[]param) (out []param) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// apiMethods names every API method that the lab knows. Those without Run are there for their words
// only: the option parser treats them as the real one does, and running them says that they are not
// simulated.
func apiMethods() map[string]*method {
	guest := []param{pNode, pVMID}
	snap := with(guest, pSnap)
	snapNew := with(snap, opt("description", "string"))
	skip := opt("skiplock",
		"boolean").text("", "Ignore locks - only root is allowed to use this option.")
	remote := join(strs("storage target-bridge target-storage"), bools("delete online"),
		ints("bwlimit"))
	ctConfig := join(
		strs(
			"arch cmode description dev0 features hookscript hostname lock mp0 nameserver net0 "+
				"ostype rootfs searchdomain startup timezone delete digest revert",
		),
		bools("console debug onboot protection template unprivileged"),
		ints("cores cpuunits memory swap tty"),
		[]param{opt("cpulimit", "number"), opt("tags", "string").format("pve-tag-list")},
	)
	vmConfig := join(
		strs(
			"affinity agent args audio0 bios boot cdrom cicustom cipassword ciuser cpu "+
				"description efidisk0 hookscript hotplug ide0 ide2 ipconfig0 keyboard lock "+
				"machine name nameserver net0 net1 ostype rng0 sata0 scsi0 scsi1 scsihw "+
				"searchdomain serial0 smbios1 sshkeys startdate startup tpmstate0 usb0 vga "+
				"virtio0 virtio1 vmgenid vmstatestorage delete digest revert",
		),
		bools(
			"acpi autostart ciupgrade freeze kvm localtime numa onboot protection reboot tablet "+
				"tdf template skiplock force",
		),
		ints("balloon cores cpuunits migrate_speed shares smp sockets vcpus"),
		strs("memory"),
		[]param{
			opt("cpulimit", "number"),
			opt("migrate_downtime", "number"),
			opt("tags", "string").format("pve-tag-list"),
		},
	)
	list := []*method{
		// containers
		{
			Class:  "PVE::API2::LXC",
			Name:   "vmlist",
			Params: []param{pNode},
			Proxy:  true,
			Run:    guestList("lxc"),
		},
		{
			Class: "PVE::API2::LXC",
			Name:  "create_vm",
			Params: join([]param{pNode, pVMID, {Name: "ostemplate", Type: "string"}}, ctConfig,
				strs("password storage pool ssh-public-keys"),
				bools("force ignore-unpack-errors restore start unique ha-managed"),
				[]param{opt("bwlimit", "number")}),
			Proxy: true,
		},
		{
			Class:  "PVE::API2::LXC",
			Name:   "destroy_vm",
			Params: join(guest, bools("force purge destroy-unreferenced-disks")),
			Proxy:  true,
			Run:    ctDestroy,
		},
		{
			Class: "PVE::API2::LXC",
			Name:  "clone_vm",
			Params: join(guest, []param{{Name: "newid", Type: "integer", Format: "pve-vmid"}},
				strs("description hostname pool snapname storage target"), bools("full"),
				[]param{opt("bwlimit", "number")}),
			Proxy: true,
		},
		{
			Class: "PVE::API2::LXC",
			Name:  "migrate_vm",
			Params: join(guest, []param{{Name: "target", Type: "string", Format: "pve-node"}},
				strs("target-storage"), bools("online restart"), ints("timeout"),
				[]param{opt("bwlimit", "number")}),
			Proxy: true,
		},
		{
			Class: "PVE::API2::LXC",
			Name:  "remote_migrate_vm",
			Params: join(
				guest,
				[]param{
					opt("target-vmid", "integer").format("pve-vmid"),
					{Name: "target-endpoint", Type: "string"},
					{Name: "target-bridge", Type: "string"},
					{Name: "target-storage", Type: "string"},
				},
				bools("delete online restart"),
				ints("timeout"),
				[]param{opt("bwlimit", "number")},
			),
			Proxy: true,
		},
		{
			Class: "PVE::API2::LXC",
			Name:  "move_volume",
			Params: join(
				guest,
				[]param{
					{Name: "volume", Type: "string"},
					pStorage.optional(),
					opt("target-vmid", "integer").format("pve-vmid"),
					opt("target-volume", "string"),
				},
				strs("digest target-digest"),
				bools("delete"),
			),
			Proxy: true,
		},
		{
			Class:  "PVE::API2::LXC",
			Name:   "vm_pending",
			Params: guest,
			Proxy:  true,
			Run:    guestPending("lxc"),
		},
		{
			Class: "PVE::API2::LXC",
			Name:  "resize_vm",
			Params: join(guest,
				[]param{{Name: "disk", Type: "string"}, {Name: "size", Type: "string"}},
				strs("digest")),
			Proxy: true,
		},
		{Class: "PVE::API2::LXC", Name: "template", Params: guest, Proxy: true},
		{
			Class: "PVE::API2::LXC",
			Name:  "vm_feature",
			Params: join(
				guest,
				[]param{
					{Name: "feature", Type: "string", Enum: []string{"snapshot", "clone", "copy"}},
				},
				strs("snapname"),
			),
			Proxy: true,
			Run:   feature("lxc"),
		},
		{Class: "PVE::API2::LXC", Name: "ip", Params: guest, Proxy: true, Run: ctInterfaces},
		{
			Class:  "PVE::API2::LXC",
			Name:   "rrddata",
			Params: rrdParams(guest),
			Proxy:  true,
			Run:    emptyList,
		},
		{
			Class: "PVE::API2::LXC::Config",
			Name:  "vm_config",
			Params: with(guest, opt("current", "boolean"),
				opt("snapshot", "string").format("pve-configid")),
			Proxy: true,
			Run:   guestConfig("lxc"),
		},
		{
			Class:  "PVE::API2::LXC::Config",
			Name:   "update_vm",
			Params: join(guest, ctConfig),
			Proxy:  true,
			Run:    guestSet("lxc"),
		},
		{
			Class:  "PVE::API2::LXC::Status",
			Name:   "vm_status",
			Params: guest,
			Proxy:  true,
			Run:    guestCurrent("lxc"),
		},
		{
			Class: "PVE::API2::LXC::Status",
			Name:  "vm_start",
			Desc:  "Start the container.",
			Params: with(
				guest,
				opt("debug",
					"boolean").text("0", "If set, enables very verbose debug log-level on start."),
				skip,
			),
			Proxy: true,
			Run:   ctStart,
		},
		{
			Class: "PVE::API2::LXC::Status",
			Name:  "vm_stop",
			Desc: "Stop the container. This will abruptly stop all processes running in the " +
				"container.",
			Params: with(guest, skip, opt("overrule-shutdown", "boolean")),
			Proxy:  true,
			Run:    ctStop,
		},
		{
			Class:  "PVE::API2::LXC::Status",
			Name:   "vm_shutdown",
			Desc:   "Shutdown the container.",
			Params: with(guest, pTimeout, opt("forceStop", "boolean")),
			Proxy:  true,
			Run:    ctShutdown,
		},
		{
			Class:  "PVE::API2::LXC::Status",
			Name:   "vm_reboot",
			Desc:   "Reboot the container by shutting it down, and starting it again.",
			Params: with(guest, pTimeout),
			Proxy:  true,
			Run:    ctReboot,
		},
		{
			Class:  "PVE::API2::LXC::Status",
			Name:   "vm_suspend",
			Params: guest,
			Proxy:  true,
			Run:    ctSuspend,
		},
		{
			Class:  "PVE::API2::LXC::Status",
			Name:   "vm_resume",
			Params: guest,
			Proxy:  true,
			Run:    ctResume,
		},
		{
			Class:  "PVE::API2::LXC::Snapshot",
			Name:   "list",
			Params: guest,
			Proxy:  true,
			Run:    snapList("lxc"),
		},
		{
			Class:  "PVE::API2::LXC::Snapshot",
			Name:   "snapshot",
			Params: snapNew,
			Proxy:  true,
			Run:    snapCreate("lxc"),
		},
		{
			Class:  "PVE::API2::LXC::Snapshot",
			Name:   "delsnapshot",
			Params: with(snap, opt("force", "boolean")),
			Proxy:  true,
			Run:    snapDelete("lxc"),
		},
		{
			Class:  "PVE::API2::LXC::Snapshot",
			Name:   "rollback",
			Params: with(snap, opt("start", "boolean")),
			Proxy:  true,
			Run:    snapRollback("lxc"),
		},
		{
			Class:  "PVE::API2::LXC::Snapshot",
			Name:   "get_snapshot_config",
			Params: snap,
			Proxy:  true,
			Run:    snapConfig("lxc"),
		},
		{Class: "PVE::API2::LXC::Snapshot", Name: "snapshot_cmd_idx", Params: snap, Run: snapIndex},
		// pct's own
		{
			Class:  "PVE::CLI::pct",
			Name:   "status",
			Params: with(guest, opt("verbose", "boolean")),
			Run:    guestStatus("lxc"),
		},
		{
			Class:  "PVE::CLI::pct",
			Name:   "exec",
			Params: with(guest, opt("keep-env", "boolean")),
			Run:    ctExec,
		},
		{
			Class: "PVE::CLI::pct",
			Name:  "push",
			Params: join(guest,
				[]param{{Name: "file", Type: "string"}, {Name: "destination", Type: "string"}},
				strs("perms user group")),
			Run: ctPush,
		},
		{
			Class: "PVE::CLI::pct",
			Name:  "pull",
			Params: join(guest,
				[]param{{Name: "path", Type: "string"}, {Name: "destination", Type: "string"}},
				strs("perms user group")),
			Run: ctPull,
		},
		{Class: "PVE::CLI::pct", Name: "unlock", Params: guest, Run: ctUnlock},
		{Class: "PVE::CLI::pct", Name: "cpusets", Params: []param{pNode}, Run: ctCPUSets},
		{Class: "PVE::CLI::pct", Name: "df", Params: guest, Run: ctDF},
		{Class: "PVE::CLI::pct", Name: "console", Params: join(guest, strs("escape")), Run: nil},
		{Class: "PVE::CLI::pct", Name: "enter", Params: join(guest, bools("keep-env"))},
		{Class: "PVE::CLI::pct", Name: "fsck", Params: join(guest, bools("force"), strs("device"))},
		{Class: "PVE::CLI::pct", Name: "fstrim", Params: join(guest, bools("ignore-mountpoints"))},
		{Class: "PVE::CLI::pct", Name: "mount", Params: guest},
		{Class: "PVE::CLI::pct", Name: "unmount", Params: guest},
		{
			Class:  "PVE::CLI::pct",
			Name:   "rescan",
			Params: join([]param{pNode, pVMID.optional()}, bools("dryrun")),
		},
		{Class: "PVE::CLI::pct", Name: "help", Params: bools("verbose")},
		// virtual machines
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vmlist",
			Params: join([]param{pNode}, bools("full")),
			Proxy:  true,
			Run:    guestList("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "create_vm",
			Params: join(guest, vmConfig, strs("archive storage pool"),
				bools("live-restore start unique")),
			Proxy: true,
			Run:   vmCreate,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "destroy_vm",
			Params: join(guest, bools("purge destroy-unreferenced-disks"), []param{skip}),
			Proxy:  true,
			Run:    vmDestroy,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "clone_vm",
			Params: join(guest, []param{{Name: "newid", Type: "integer", Format: "pve-vmid"}},
				strs("description name format pool snapname storage target"), bools("full")),
			Proxy: true,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "migrate_vm",
			Params: join(guest, []param{{Name: "target", Type: "string", Format: "pve-node"}},
				strs("targetstorage migration_network migration_type"),
				bools("force online with-local-disks")),
			Proxy: true,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "remote_migrate_vm",
			Params: join(guest, remote),
			Proxy:  true,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "resize_vm",
			Params: join(guest,
				[]param{{Name: "disk", Type: "string"}, {Name: "size", Type: "string"}},
				strs("digest"), []param{skip}),
			Proxy: true,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "template",
			Params: join(guest, strs("disk")),
			Proxy:  true,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_pending",
			Params: guest,
			Proxy:  true,
			Run:    guestPending("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_config",
			Params: with(guest, opt("current", "boolean"),
				opt("snapshot", "string").format("pve-configid")),
			Proxy: true,
			Run:   guestConfig("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "update_vm",
			Params: join(guest, vmConfig),
			Proxy:  true,
			Run:    guestSet("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_feature",
			Params: join(
				guest,
				[]param{
					{Name: "feature", Type: "string", Enum: []string{"snapshot", "clone", "copy"}},
				},
				strs("snapname"),
			),
			Proxy: true,
			Run:   feature("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "rrddata",
			Params: rrdParams(guest),
			Proxy:  true,
			Run:    emptyList,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_status",
			Params: guest,
			Proxy:  true,
			Run:    guestCurrent("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_start",
			Params: join(
				guest,
				[]param{skip, pTimeout},
				strs(
					"force-cpu machine migratedfrom migration_network migration_type stateuri "+
						"targetstorage",
				),
			),
			Proxy: true,
			Run:   vmStart,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_stop",
			Params: join(guest, []param{skip, pTimeout}, bools("keepActive overrule-shutdown"),
				strs("migratedfrom")),
			Proxy: true,
			Run:   vmStop,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_shutdown",
			Params: join(guest, []param{skip, pTimeout}, bools("forceStop keepActive")),
			Proxy:  true,
			Run:    vmShutdown,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_reboot",
			Params: with(guest, pTimeout),
			Proxy:  true,
			Run:    vmReboot,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_reset",
			Params: with(guest, skip),
			Proxy:  true,
			Run:    vmNeedsRunning("qmreset"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_suspend",
			Params: join(guest, []param{skip}, bools("todisk"), strs("statestorage")),
			Proxy:  true,
			Run:    vmNeedsRunning("qmsuspend"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_resume",
			Params: join(guest, []param{skip}, bools("nocheck")),
			Proxy:  true,
			Run:    vmNeedsRunning("qmresume"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "snapshot_list",
			Params: guest,
			Proxy:  true,
			Run:    snapList("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "snapshot",
			Params: with(snapNew, opt("vmstate", "boolean")),
			Proxy:  true,
			Run:    snapCreate("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "delsnapshot",
			Params: with(snap, opt("force", "boolean")),
			Proxy:  true,
			Run:    snapDelete("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "rollback",
			Params: with(snap, opt("start", "boolean")),
			Proxy:  true,
			Run:    snapRollback("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "get_snapshot_config",
			Params: snap,
			Proxy:  true,
			Run:    snapConfig("qemu"),
		},
		{Class: "PVE::API2::Qemu", Name: "snapshot_cmd_idx", Params: snap, Run: snapIndex},
		{
			Class:  "PVE::API2::Qemu::Agent",
			Name:   "agent",
			Params: join(guest, []param{{Name: "command", Type: "string"}}),
			Proxy:  true,
		},
		{
			Class:  "PVE::CLI::qm",
			Name:   "status",
			Params: with(guest, opt("verbose", "boolean")),
			Run:    guestStatus("qemu"),
		},
		{Class: "PVE::CLI::qm", Name: "unlock", Params: guest, Run: vmUnlock},
		{
			Class:  "PVE::CLI::qm",
			Name:   "showcmd",
			Params: join(guest, bools("current pretty"), strs("snapshot")),
		},
		{Class: "PVE::CLI::qm", Name: "monitor", Params: guest},
		{Class: "PVE::CLI::qm", Name: "terminal", Params: join(guest, strs("iface escape"))},
		{
			Class:  "PVE::CLI::qm",
			Name:   "exec",
			Params: join(guest, bools("pass-stdin synchronous"), ints("timeout")),
		},
		{Class: "PVE::CLI::qm", Name: "help", Params: bools("verbose")},
	}
	list = append(list, nodeMethods()...)
	byName := map[string]*method{}
	for _, m := range list {
		byName[m.Class+"::"+m.Name] = m
	}
	return byName
}

func rrdParams(base []param) []param {
	return with(
		base,
		param{
			Name: "timeframe",
			Type: "string",
			Enum: strings.Fields("hour day week month year decade"),
		},
		opt("cf", "string").enum("AVERAGE MAX"),
	)
}
