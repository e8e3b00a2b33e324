# METADATA
# scope: package
# description: >-
#   Paths on a node - whether they lie in the call's stage, in the site's folders, or where nobody
#   may go - and the tier of a file operation.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.files

import data.caponier.core.tables

# A read is green, a write in the call's own stage is yellow, and every other write is red. A
# download writes to the workspace and is yellow.
rank := 1 if {
	input.file.action in {"stat", "list", "read"}
} else := 2 if {
	input.file.action in {"stage", "get", "discard"}
} else := 2 if {
	input.file.action in changing
	staged(input.file.path)
} else := 3 if {
	input.file.action in changing
}

# changing are the actions that change a file of a node.
changing := {"write", "put", "remove"}

# staged is true if a path is in a directory that the call created on the same node.
staged(path) if {
	clean(path)
	some stage in input.parent.stages
	stage.node == input.target.node
	clean(stage.dir)
	startswith(path, concat("", [stage.dir, "/"]))
}

# clean is true if a path is absolute, in its shortest form, and no longer than Linux allows.
clean(path) if {
	is_string(path)
	count(path) <= 4096
	regex.match(`^(/[^/\x00-\x1F\x7F]+)+$`, path)
	not regex.match(`/\.\.?(/|$)`, path)
}

clean("/")

under(path, prefix) if path == prefix

under(path, prefix) if startswith(path, folder(prefix))

# folder is a path with a slash at its end: what begins with it is the folder or below it.
folder(path) := concat("", [trim_suffix(path, "/"), "/"])

readable(path) if {
	clean(path)
	strings.any_prefix_match(folder(path), tables.of.paths.read)
	harmless(path)
}

# commanded is true if a command may name a path. The node follows links in the path, so the path
# must be listed, or be directly in a listed folder, to which only root should be able to write.
# Other users may own deeper folders. In /sys, all links belong to the kernel.
commanded(path) if {
	readable(path)
	some listed in data.site.files.read
	direct(path, listed)
}

direct(path, listed) if path == listed

direct(path, listed) if {
	under(path, listed)
	not contains(trim_prefix(path, concat("", [listed, "/"])), "/")
}

direct(path, _) if under(path, "/sys")

writable(path) if {
	clean(path)
	strings.any_prefix_match(folder(path), tables.of.paths.write)
	harmless(path)
	strings.any_prefix_match(folder(path), tables.of.paths.unwritable) == false
	contains(path, "/.") == false
}

# harmless is true if a path is none of keys, passwords, and live kernel or process state. Those are
# refused even if the site lists them.
harmless(path) if {
	strings.any_prefix_match(folder(path), tables.of.paths.unreadable) == false
	regex.match(tables.of.paths.secret, path) == false
}

# The forms of paths that hold keys and passwords.
secret := [
	concat("", ["/(", concat("|", secret_names), ")(/|$)"]),
	`/\.?(g?shadow|opasswd|master\.passwd)`,
	`\.(key|keyring|pem|p12|pfx)$`,
	`/(id_[a-z0-9]+|ssh_host_[a-z0-9_]+_key|\.env|\.netrc|\.pgpass)$`,
	`_history$`,
]

secret_names := [
	`\.ssh`, `\.gnupg`, `\.aws`, `\.kube`, `\.docker`, `authkey`, `authkey\.key`, `priv`, `private`,
	`wireguard`, `secrets`,
]

unreadable := [
	"/root/.ssh", "/etc/pve/priv", "/proc", "/dev", "/var/lib/pve-cluster", "/etc/sudoers",
	"/etc/sudoers.d", "/etc/ssl/private", "/run/credentials",
]

# Paths of programs that run as root on the node, or of files that configure such programs.
unwritable := [
	"/bin", "/boot", "/dev", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr/bin",
	"/usr/sbin", "/usr/lib", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib",
	"/usr/share/perl5", "/etc/pve", "/etc/ssh", "/etc/sudoers", "/etc/sudoers.d", "/etc/pam.d",
	"/etc/security", "/etc/passwd", "/etc/group", "/etc/crontab", "/etc/cron.d",
	"/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly", "/etc/cron.monthly", "/etc/systemd",
	"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/profile",
	"/etc/profile.d", "/etc/environment", "/etc/apt", "/etc/network", "/etc/udev", "/etc/lxc",
	"/etc/default", "/etc/init.d", "/etc/rc.local", "/etc/modprobe.d", "/etc/modules-load.d",
	"/etc/sysctl.d", "/etc/tmpfiles.d", "/etc/logrotate.d", "/etc/nsswitch.conf", "/var/lib/dpkg",
	"/var/lib/lxc", "/var/lib/vz/snippets", "/var/spool/cron", "/var/lib/systemd",
]
