package pvelab

import (
	"slices"
	"strings"
	"time"
)

// base is the machine of the recordings 01 to 06: a stand-alone node pve1.
func base() *State {
	t := time.Now().Unix()
	n := labNode("pve1", "10.99.0.1", 0, t)
	n.Fingerprint, n.NoStats, n.Services = "", true, map[string]string{}
	n.Kernel, n.KernelVersion = "6.18.44-fc-v669", "#1 SMP PREEMPT_DYNAMIC @0"
	s := &State{
		NextPID:    74,
		Nodes:      []*Node{n},
		StartNoise: []string{"failed to connect to monitor socket: Connection refused"},
	}
	web := on(
		lxc(
			101,
			"web01",
			"pve1",
			"local",
			"cores",
			"2",
			"swap",
			"512",
			"tags",
			"prod;web",
			"description",
			"web frontend\nsecond line\n",
		),
		t-390,
	)
	web.DiskRead = 4096
	s.Guests = []*Guest{
		web,
		lxc(102, "db01", "pve1", "local", "memory", "1024", "protection", "1", "unprivileged", "1"),
		lxc(103, "jarvis", "pve1", "local", "memory", "256", "lock", "backup"),
		lxc(104, "snapct", "pve1", "btr", "memory", "256", "cores", "1"),
		vm200(),
		{
			VMID:   201,
			Type:   "qemu",
			Node:   "pve1",
			Config: map[string]string{"name": "tmpl", "memory": "512", "template": "1"},
		},
	}
	content := strings.Split("images,snippets,backup,vztmpl,rootdir,iso", ",")
	local := &Storage{
		ID:        "local",
		Node:      "pve1",
		Type:      "dir",
		Content:   content,
		Total:     270553174016,
		Used:      20813365248,
		Available: 75175712 << 10,
	}
	for _, id := range []int{101, 102, 103} {
		local.Volumes = append(local.Volumes, subvol("local", id, t))
	}
	local.Volumes = append(
		local.Volumes,
		&Volume{
			VolID:   "local:200/vm-200-disk-0.qcow2",
			Content: "images",
			Format:  "qcow2",
			Size:    67108864,
			Used:    200704,
			CTime:   t,
			VMID:    200,
		},
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
			CTime:   t,
		},
		&Volume{
			VolID:   "local:vztmpl/alpine-3.20-default_20240908_amd64.tar.xz",
			Content: "vztmpl",
			Format:  "txz",
			Size:    1024,
			CTime:   t,
		},
	)
	btr := &Storage{
		ID:        "btr",
		Node:      "pve1",
		Type:      "btrfs",
		Content:   []string{"images", "rootdir"},
		Total:     419430400,
		Used:      6094848,
		Available: 326656 << 10,
		Volumes:   []*Volume{subvol("btr", 104, t)},
	}
	s.Storages = []*Storage{btr, local}
	s.Pools = []*Pool{
		{ID: "prod", Comment: "Production", Guests: []int{101, 200}, Storages: []string{"local"}},
	}
	for _, x := range [][3]string{
		{"vzstart", "101", "x"}, {"vzstart", "101", "x"}, {"vzstart", "101", "x"},
		{"vzstart", "101", "OK"},
		{"push_file", "101", "OK"}, {"push_file", "101", "x"}, {"push_file", "101", "x"},
		{"pull_file", "101", "OK"}, {"pull_file", "101", "x"},
		{"pull_file", "101", "failed to open /root/missing: No such file or directory"},
		{"vzstart", "103", "CT is locked (backup)"},
	} {
		task := newTask(s, "pve1", x[0], x[1], t-300)
		task.End, task.Status = t-299, x[2]
	}
	return s
}

func vm200() *Guest {
	return &Guest{
		VMID: 200,
		Type: "qemu",
		Node: "pve1",
		Config: map[string]string{"boot": "order=scsi0", "cores": "2", "memory": "2048",
			"meta": "creation-qemu=9.2.0,ctime=1750000000", "name": "vm-app",
			"net0": "virtio=BC:24:11:AA:CC:01,bridge=vmbr0", "ostype": "l26",
			"scsi0": "local:200/vm-200-disk-0.qcow2,size=4G", "scsihw": "virtio-scsi-single",
			"smbios1": "uuid=11111111-2222-3333-4444-555555555555",
			"vmgenid": "11111111-2222-3333-4444-555555555556"},
	}
}

// pair is the two-node cluster of the recordings 07 to 09.
func pair() *State {
	t := time.Now().Unix()
	s := &State{
		Cluster:        "labcluster",
		ClusterVersion: 2,
		NextPID:        2000,
		StartNoise:     []string{"failed to connect to monitor socket: Connection refused"},
	}
	for i, name := range []string{"pve1", "pve2"} {
		n := labNode(name, []string{"10.99.0.1", "10.99.0.2"}[i], i+1, t)
		n.Fingerprint, n.MemUsed = "", []int64{978907136, 965996544}[i]
		s.Nodes = append(s.Nodes, n)
		s.Storages = append(
			s.Storages,
			&Storage{
				ID:      "local",
				Node:    name,
				Type:    "dir",
				Content: []string{"images", "backup", "rootdir"},
				Total:   n.RootTotal,
				Used:    n.RootUsed,
			},
		)
	}
	s.Nodes[0].Unreachable, s.Nodes[1].WakeMAC = true, "AA:BB:CC:DD:EE:FF"
	vm := vm200()
	vm.Node, vm.Version = "pve2", 8
	s.Guests = []*Guest{
		vm,
		lxc(104, "other", "pve2", "local", "memory", "256"),
		lxc(101, "web01", "pve1", "local"),
		lxc(103, "jarvis", "pve2", "local", "memory", "256"),
	}
	s.Guests[1].Version, s.Guests[2].Version, s.Guests[3].Version = 6, 2, 4
	s.Guests[3].StartError = "unable to get PID for CT 103 (not running?)"
	s.Storages[1].Volumes = []*Volume{
		{
			VolID:   "local:backup/vzdump-lxc-103-2026_01_02-03_04_05.tar.zst",
			Content: "backup",
			Format:  "tar.zst",
			Size:    900,
			CTime:   1767323045,
			VMID:    103,
			Subtype: "lxc",
		},
		subvol("local", 103, t), subvol("local", 104, t)}
	s.Storages[0].Volumes = []*Volume{subvol("local", 101, t)}
	return s
}

// recording says how one file of recordings is replayed: what it began with, and what was done
// between its lines without being recorded.
type recording struct {
	file   string
	state  func() *State
	setup  [][]string                   // before the first line
	before map[string][][]string        // commands before a line, by its id
	change map[string]func(*State)      // what the recording machine did by other means
	stdin  map[string]string            //
	files  map[string]map[string]string // tree key to files
}

func edit(vmid int, fn func(*Guest)) func(*State) {
	return func(s *State) { fn(s.guest(vmid)) }
}

var noise = func() (out string) {
	for _, n := range []string{"2642", "2643", "2644", "2645", "2646", "2647"} {
		out += "Use of uninitialized value in multiplication (*) at " +
			"/usr/share/perl5/PVE/QemuServer.pm line " + n + ".\n"
	}
	return out
}()

func sh(text string) []string { return []string{"sh", "-c", text} }

func recordings() []recording {
	full := base
	return []recording{
		{file: "01-read", state: full, change: map[string]func(*State){
			"pvesh-text": func(s *State) { s.storage("pve1", "local").Used = 20818000000 },
		}},
		{file: "02-argv", state: func() *State {
			s := base()
			s.Foreign = map[string]string{"PVE1": "remote", "pve2": "remote"}
			return s
		}, stdin: map[string]string{"stdin-exec": "piped through\n"}},
		{file: "03-transfer", state: func() *State {
			s := base()
			s.guest(101).Full = map[string]int64{"/mnt/full": 4096}
			return s
		},
			files: map[string]map[string]string{
				"nodes/pve1": {
					"/tmp/t/src":  "v1-content\n",
					"/tmp/t/dir/": "",
					"/tmp/t/big":  strings.Repeat("x", 200000),
					"/tmp/t/keep": "precious\n",
					"/tmp/t/link": "-> /tmp/t/keep",
				},
				"ct/101": {
					"/etc/os-release": "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.3\n" +
						"PRETTY_NAME=\"Alpine Linux v3.20\"\n",
					"/etc/alpine-release": "3.20.3\n",
					"/root/h.txt":         "hello\n",
					"/mnt/full/":          "",
					"/etc/shadow":         "ct-shadow\n",
					"/root/shadow":        "-> /etc/shadow",
					"/root/lnk.tmp":       "-> /etc/passwd",
				},
			},
			setup: [][]string{
				sh("chmod 600 /tmp/t/keep"),
				{
					"pct",
					"exec",
					"101",
					"--",
					"sh",
					"-c",
					"chmod 640 /root/h.txt; chown 33:33 /root/h.txt; mv /root/lnk.tmp /lnk; mv " +
						"/root/shadow /shadow",
				},
			},
			before: map[string][][]string{
				"push-ls": {
					{"pct", "push", "101", "/tmp/t/src", "/root/d", "--perms", "4755"},
					{"pct", "push", "101", "/tmp/t/src", "/root/e", "--perms", "0x1ff"},
				},
				"push-ls2": {
					{"pct", "exec", "101", "--", "chmod", "600", "/root/a"},
					{"pct", "push", "101", "/tmp/t/src", "/root/a"},
				},
				"push-dest-rel-ls":     {{"pct", "push", "101", "/tmp/t/src", "relname"}},
				"push-through-symlink": {{"pct", "exec", "101", "--", "mv", "/lnk", "/root/lnk"}},
				"pull-symlink-ls": {
					{"pct", "pull", "101", "/etc/alpine-release", "/tmp/t/link"},
				},
				"pull-rel-ls":         {sh("cd /tmp/t; pct pull 101 /etc/os-release o3")},
				"pull-ct-symlink-cat": {{"pct", "pull", "101", "/shadow", "/tmp/t/shadow"}},
				"tasks-after": {
					{"timeout", "0.2", "pct", "pull", "101", "/root/ff", "/tmp/t/ff"},
				},
			}},
		{file: "04-lifecycle", state: func() *State {
			s := base()
			s.Guests = append(s.Guests, lxc(105, "elsewhere", "pve2", "local"))
			s.guest(104).Stubborn = true
			return s
		}, before: map[string][][]string{"reboot": {{"pct", "start", "101"}}}},
		{file: "05-qm", state: full, change: map[string]func(*State){
			"status-running": edit(
				200,
				func(g *Guest) {
					g.Running, g.PID, g.Started, g.Noise = true, 1948, now()-3,
						noise
				},
			),
			"snapshot": edit(
				200,
				func(g *Guest) { g.Running, g.PID, g.Started, g.Noise = false, 0, 0, "" },
			),
		}},
		{file: "06-snapshot-destroy", state: func() *State {
			s := base()
			s.Guests = slices.DeleteFunc(s.Guests, func(g *Guest) bool { return g.VMID == 103 })
			s.Nodes[0].NoStorageStats = true
			return s
		}},
		{file: "07-cluster", state: pair},
		{file: "08-no-quorum", state: func() *State {
			s := pair()
			s.Nodes[1].Offline = true
			return s
		}},
		{file: "09-wol", state: func() *State {
			s := pair()
			s.Nodes[0].Unreachable = false
			return s
		}},
	}
}
