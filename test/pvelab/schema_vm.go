package pvelab

// vmMethods are those of virtual machines, and of qm.
func vmMethods() []*method {
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
	return []*method{
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
			Params: join(guestParams, vmConfig, strs("archive storage pool"),
				bools("live-restore start unique")),
			Proxy: true,
			Run:   vmCreate,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "destroy_vm",
			Params: join(guestParams, bools("purge destroy-unreferenced-disks"),
				[]param{skipParam}),
			Proxy: true,
			Run:   vmDestroy,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "clone_vm",
			Params: join(guestParams, []param{{Name: "newid", Type: "integer", Format: "pve-vmid"}},
				strs("description name format pool snapname storage target"), bools("full")),
			Proxy: true,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "migrate_vm",
			Params: join(guestParams, []param{{Name: "target", Type: "string", Format: "pve-node"}},
				strs("targetstorage migration_network migration_type"),
				bools("force online with-local-disks")),
			Proxy: true,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "remote_migrate_vm",
			Params: join(guestParams, remoteParams),
			Proxy:  true,
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "resize_vm",
			Params: join(guestParams,
				[]param{{Name: "disk", Type: "string"}, {Name: "size", Type: "string"}},
				strs("digest"), []param{skipParam}),
			Proxy: true,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "template",
			Params: join(guestParams, strs("disk")),
			Proxy:  true,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_pending",
			Params: guestParams,
			Proxy:  true,
			Run:    guestPending("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_config",
			Params: with(guestParams, opt("current", "boolean"),
				opt("snapshot", "string").format("pve-configid")),
			Proxy: true,
			Run:   guestConfig("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "update_vm",
			Params: join(guestParams, vmConfig),
			Proxy:  true,
			Run:    guestSet("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_feature",
			Params: join(
				guestParams,
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
			Params: rrdParams(guestParams),
			Proxy:  true,
			Run:    emptyList,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_status",
			Params: guestParams,
			Proxy:  true,
			Run:    guestCurrent("qemu"),
		},
		{
			Class: "PVE::API2::Qemu",
			Name:  "vm_start",
			Params: join(
				guestParams,
				[]param{skipParam, pTimeout},
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
			Params: join(guestParams, []param{skipParam, pTimeout},
				bools("keepActive overrule-shutdown"),
				strs("migratedfrom")),
			Proxy: true,
			Run:   vmStop,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_shutdown",
			Params: join(guestParams, []param{skipParam, pTimeout}, bools("forceStop keepActive")),
			Proxy:  true,
			Run:    vmShutdown,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_reboot",
			Params: with(guestParams, pTimeout),
			Proxy:  true,
			Run:    vmReboot,
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_reset",
			Params: with(guestParams, skipParam),
			Proxy:  true,
			Run:    vmNeedsRunning("qmreset"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_suspend",
			Params: join(guestParams, []param{skipParam}, bools("todisk"), strs("statestorage")),
			Proxy:  true,
			Run:    vmNeedsRunning("qmsuspend"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "vm_resume",
			Params: join(guestParams, []param{skipParam}, bools("nocheck")),
			Proxy:  true,
			Run:    vmNeedsRunning("qmresume"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "snapshot_list",
			Params: guestParams,
			Proxy:  true,
			Run:    snapList("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "snapshot",
			Params: with(newSnapParams, opt("vmstate", "boolean")),
			Proxy:  true,
			Run:    snapCreate("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "delsnapshot",
			Params: with(snapParams, opt("force", "boolean")),
			Proxy:  true,
			Run:    snapDelete("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "rollback",
			Params: with(snapParams, opt("start", "boolean")),
			Proxy:  true,
			Run:    snapRollback("qemu"),
		},
		{
			Class:  "PVE::API2::Qemu",
			Name:   "get_snapshot_config",
			Params: snapParams,
			Proxy:  true,
			Run:    snapConfig("qemu"),
		},
		{Class: "PVE::API2::Qemu", Name: "snapshot_cmd_idx", Params: snapParams, Run: snapIndex},
		{
			Class:  "PVE::API2::Qemu::Agent",
			Name:   "agent",
			Params: join(guestParams, []param{{Name: "command", Type: "string"}}),
			Proxy:  true,
		},
		{
			Class:  "PVE::CLI::qm",
			Name:   "status",
			Params: with(guestParams, opt("verbose", "boolean")),
			Run:    guestStatus("qemu"),
		},
		{Class: "PVE::CLI::qm", Name: "unlock", Params: guestParams, Run: vmUnlock},
		{
			Class:  "PVE::CLI::qm",
			Name:   "showcmd",
			Params: join(guestParams, bools("current pretty"), strs("snapshot")),
		},
		{Class: "PVE::CLI::qm", Name: "monitor", Params: guestParams},
		{Class: "PVE::CLI::qm", Name: "terminal", Params: join(guestParams, strs("iface escape"))},
		{
			Class:  "PVE::CLI::qm",
			Name:   "exec",
			Params: join(guestParams, bools("pass-stdin synchronous"), ints("timeout")),
		},
		{Class: "PVE::CLI::qm", Name: "help", Params: bools("verbose")},
	}
}
