package pvelab

import (
	"strings"
	"time"
)

// gibi is 2^30 bytes.
const gibi = int64(1) << 30

func lxc(vmid int, name, node, storage string, cfg ...string) *Guest {
	g := &Guest{
		VMID: vmid,
		Type: "lxc",
		Node: node,
		Config: map[string]string{"arch": "amd64", "hostname": name, "ostype": "unmanaged",
			"memory": "512", "swap": "0", "rootfs": volumeName(storage, vmid) + ",size=0"},
	}
	for i := 0; i+1 < len(cfg); i += 2 {
		g.Config[cfg[i]] = cfg[i+1]
	}
	return g
}

func volumeName(storage string, vmid int) string {
	id := (&Guest{VMID: vmid}).id()
	return storage + ":" + id + "/subvol-" + id + "-disk-0.subvol"
}

func subvol(storage string, vmid int, at int64) *Volume {
	return &Volume{
		VolID:   volumeName(storage, vmid),
		Content: "rootdir",
		Format:  "subvol",
		CTime:   at,
		VMID:    vmid,
	}
}

func on(g *Guest, at int64) *Guest {
	g.Running, g.Started, g.PID, g.DiskRead = true, at, 190+g.VMID, 4096
	return g
}

func services() map[string]string {
	m := map[string]string{"docker": "running", "ssh": "running", "nginx": "running"}
	for _, s := range pveServices {
		m[s] = "running"
	}
	return m
}

func labNode(name, ip string, id int, at int64) *Node {
	return &Node{
		Name:        name,
		IP:          ip,
		ID:          id,
		Booted:      at - 7200,
		MemTotal:    25276502016,
		MemUsed:     978907136,
		RootTotal:   270553174016,
		RootUsed:    20770426880,
		DNS:         "10.255.255.53",
		Services:    services(),
		Fingerprint: strings.TrimSuffix(strings.Repeat("AB:", 32), ":"),
	}
}

// DemoInventory is what a fresh lab begins with: two nodes of the cluster "lab". 101 is production,
// 102 protected, 103 locked by a backup, 104 able to make snapshots, 105 there to be played with
// and deleted.
func DemoInventory(at time.Time) *State {
	t := at.Unix()
	s := &State{Cluster: "lab", ClusterVersion: 2, NextPID: 1000,
		// On a real node this line differs, but some line there is: output before the UPID is a
		// trap to keep.
		StartNoise: []string{"failed to connect to monitor socket: Connection refused"}}
	s.Nodes = []*Node{labNode("pve1", "10.99.0.1", 1, t), labNode("pve2", "10.99.0.2", 2, t)}
	s.Backups = []any{map[string]any{"id": "backup-nightly", "enabled": 1, "all": 0,
		"vmid": "101,110", "storage": "local", "schedule": "02:00"}}
	s.Replications = []any{map[string]any{"id": "101-0", "guest": 101, "target": "pve2",
		"type": "local"}}
	// Any name that resolves is an address that pvesh sends ssh to, as root.
	s.Foreign = map[string]string{"PVE1": "remote", "pve1.lab.test": "remote", "gateway": "remote"}
	s.Nodes[1].WakeMAC = "AA:BB:CC:DD:EE:FF"
	vm := func(id int, name, node string, cfg ...string) *Guest {
		g := &Guest{
			VMID: id,
			Type: "qemu",
			Node: node,
			Config: map[string]string{"name": name, "memory": "2048", "cores": "2", "ostype": "l26",
				"boot": "order=scsi0", "scsihw": "virtio-scsi-single", "scsi0": "local:" +
					(&Guest{VMID: id}).id() + "/vm-disk-0.qcow2,size=4G"},
		}
		for i := 0; i+1 < len(cfg); i += 2 {
			g.Config[cfg[i]] = cfg[i+1]
		}
		return g
	}
	s.Guests = []*Guest{
		on(
			lxc(101, "web01", "pve1", "local", "cores", "2", "swap", "512", "tags", "prod;web",
				"description", "web frontend\nsecond line\n"),
			t-400,
		),
		lxc(102, "db01", "pve1", "local", "memory", "1024", "protection", "1", "unprivileged", "1"),
		lxc(103, "jarvis", "pve1", "local", "memory", "256", "lock", "backup"),
		lxc(104, "snapct", "pve1", "btr", "memory", "256", "cores", "1"),
		on(lxc(105, "scratch", "pve1", "btr", "memory", "256", "cores", "1", "tags", "scratch"),
			t-200),
		on(lxc(110, "mail01", "pve2", "local", "memory", "512", "cores", "1"), t-300),
		vm(200, "vm-app", "pve1"),
		{
			VMID: 201,
			Type: "qemu",
			Node: "pve1",
			Config: map[string]string{
				"name":     "tmpl",
				"memory":   "512",
				"cores":    "1",
				"template": "1",
			},
		},
		vm(210, "vm-db", "pve2"),
	}
	s.Pools = []*Pool{
		{ID: "prod", Comment: "Production", Guests: []int{101, 200}, Storages: []string{"local"}},
	}
	content := []string{"images", "snippets", "backup", "vztmpl", "rootdir", "iso"}
	for _, n := range s.Nodes {
		local := &Storage{
			ID:        "local",
			Node:      n.Name,
			Type:      "dir",
			Content:   content,
			Total:     n.RootTotal,
			Used:      n.RootUsed,
			Available: 76992946176,
		}
		btr := &Storage{
			ID:      "btr",
			Node:    n.Name,
			Type:    "btrfs",
			Content: []string{"images", "rootdir"},
			Total:   40 * gibi,
			Used:    6094848,
		}
		for _, g := range s.Guests {
			switch vol := g.Config["rootfs"]; {
			case g.Node != n.Name:
			case strings.HasPrefix(vol, "btr:"):
				btr.Volumes = append(btr.Volumes, subvol("btr", g.VMID, t-3600))
			case strings.HasPrefix(vol, "local:"):
				local.Volumes = append(local.Volumes, subvol("local", g.VMID, t-3600))
			case g.Config["scsi0"] != "":
				id, _, _ := strings.Cut(g.Config["scsi0"], ",")
				local.Volumes = append(local.Volumes, &Volume{
					VolID:   id,
					Content: "images",
					Format:  "qcow2",
					CTime:   t - 3600,
					Size:    4 * gibi,
					Used:    200704,
					VMID:    g.VMID,
				})
			}
		}
		s.Storages = append(s.Storages, btr, local)
	}
	s.Storages[1].Volumes = append(
		s.Storages[1].Volumes,
		&Volume{
			VolID:   "local:backup/vzdump-lxc-101-2026_01_02-03_04_05.tar.zst",
			Content: "backup",
			Format:  "tar.zst",
			Size:    5000,
			CTime:   1767323045,
			VMID:    101,
			Subtype: "lxc",
			Notes:   "before upgrade",
		},
		&Volume{
			VolID:     "local:backup/vzdump-qemu-200-2026_02_03-04_05_06.vma.zst",
			Content:   "backup",
			Format:    "vma.zst",
			Size:      7000,
			CTime:     1770091506,
			VMID:      200,
			Subtype:   "qemu",
			Protected: true,
		},
		&Volume{
			VolID:   "local:iso/debian-13.iso",
			Content: "iso",
			Format:  "iso",
			Size:    1024,
			CTime:   t - 3600,
		},
		&Volume{
			VolID:   "local:vztmpl/alpine-3.20-default_20240908_amd64.tar.xz",
			Content: "vztmpl",
			Format:  "txz",
			Size:    1024,
			CTime:   t - 3600,
		},
	)
	s.Storages[3].Volumes = append(s.Storages[3].Volumes, &Volume{
		VolID:   "local:backup/vzdump-lxc-110-2026_01_02-03_04_05.tar.zst",
		Content: "backup",
		Format:  "tar.zst",
		Size:    900,
		CTime:   1767323045,
		VMID:    110,
		Subtype: "lxc",
	})
	for i, typ := range []string{"vzstart", "vzstart", "vzsnapshot"} {
		at := t - 400 + int64(i)*10
		task := newTask(s, "pve1", typ, []string{"101", "103", "104"}[i], at)
		task.End, task.Status, task.Log = at+1, "OK", []string{"TASK OK"}
		if i == 1 {
			task.Status, task.Log = "CT is locked (backup)", []string{
				"",
				"TASK ERROR: CT is locked (backup)",
			}
		}
	}
	return s
}

const passwd = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n" +
	"www:x:33:33:www:/var/www:/sbin/nologin\n" +
	"www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n" +
	"nobody:x:65534:65534:nobody:/:/sbin/nologin\n"

const group = "root:x:0:\nwww:x:33:\nwww-data:x:33:\nnogroup:x:65534:\n"

func nodeFiles(n *Node) map[string]string {
	return map[string]string{
		"/etc/hostname": n.Name + "\n", "/etc/passwd": passwd, "/etc/group": group, "/etc/pve/": "",
		"/etc/os-release": "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nNAME=\"Debian " +
			"GNU/Linux\"\nID=debian\nVERSION_ID=\"13\"\n",
		"/etc/hosts": "127.0.0.1 localhost\n" + n.IP + " " + n.Name + ".lab.test " + n.Name +
			"\n",
		"/root/": "", "/tmp/": "", "/var/tmp/": "", "/var/lib/vz/dump/": "",
		"/run/lock/": "", "/home/": "", "/opt/": "",
		"/sys/class/thermal/thermal_zone0/temp": "47000\n",
		"/sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
		"/sys/class/thermal/thermal_zone1/temp": "41500\n",
		"/sys/class/thermal/thermal_zone1/type": "acpitz\n",
		"/proc/loadavg":                         "0.08 0.11 0.09 1/200 4000\n",
		"/proc/version": "Linux version " +
			kernel + "\n",
		"/var/log/syslog": "systemd[1]: Started pveproxy.\n",
	}
}

func ctFiles(g *Guest) map[string]string {
	return map[string]string{
		"/etc/hostname": g.name() + "\n", "/etc/passwd": passwd, "/etc/group": group,
		"/etc/alpine-release": "3.20.3\n",
		"/etc/os-release": "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.3\n" +
			"PRETTY_NAME=\"Alpine Linux v3.20\"\n",
		"/proc/1/environ": "container=lxc\x00TERM=linux\x00", "/proc/uptime": "400.00 800.00\n",
		"/bin/": "", "/dev/": "", "/home/": "", "/mnt/": "", "/root/": "", "/run/": "",
		"/sbin/": "", "/sys/": "", "/tmp/": "", "/usr/bin/": "", "/var/log/": "",
	}
}
