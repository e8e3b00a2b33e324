package caponier.core.command_test

import data.caponier.core.fixture as f

tier_of(argv) := f.operated(f.run(argv)).tier

test_services_of_systemd_itself_are_red_or_black if {
	every name in [
		"systemd-timesyncd", "systemd-resolved.service", "systemd-anything-new",
	] {
		tier_of(["systemctl", "restart", name]) == "red"
	}
	every name in [
		"systemd-reboot", "systemd-sysupdate-reboot", "systemd-storagetm", "systemd-tpm2-clear",
	] {
		tier_of(["systemctl", "start", name]) == "black"
	}
}

test_storage_of_guests_is_red_by_each_name if {
	every name in [
		"multipathd", "multipath-tools", "multipath-tools.service", "blk-availability", "rbdmap",
		"openvswitch-switch", "networking", "network", "ssh", "sshd",
		"rpcbind", "portmap", "zfs-zed", "zed", "nfs-kernel-server",
	] {
		tier_of(["systemctl", "restart", name]) == "red"
	}
	every name in [
		"nginx", "docker", "cron", "redis-server",
	] {
		tier_of(["systemctl", "restart", name]) == "yellow"
	}
}

test_protected_service_is_known_by_its_other_name if {
	every pair in [
		["redis", "redis-server"], ["redis-server", "redis"], ["crond", "cron"],
		["postgres", "postgresql"],
	] {
		called := {"parent": {"tier": "red", "targets": {"services": [pair[1]]}}}
		d := f.operated_in(
			object.union(called, f.run(["systemctl", "restart", pair[1]])),
			{"protected": {"services": [{"service": pair[0], "nodes": ["*"], "reason": "kept"}]}},
		)
		"protected" in f.failed(d)
	}
}
