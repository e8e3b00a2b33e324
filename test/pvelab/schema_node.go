package pvelab

import "strings"

// nodeMethods are the methods of the cluster, the nodes and the storages.
func nodeMethods() []*method {
	node := []param{pNode}
	storage := []param{pNode, pStorage}
	task := []param{pNode, pUPID}
	service := []param{pNode, pService}
	nodeConf := join(
		node,
		strs("acme acmedomain0 description delete digest"),
		ints("startall-onboot-delay"),
		[]param{
			opt("wakeonlan", "string").format("pve-node-wakeonlan"),
			opt("property",
				"string").enum("acme acmedomain0 description startall-onboot-delay wakeonlan"),
		},
	)
	taskFilter := join(
		node,
		bools("errors"),
		ints("limit since start until"),
		strs("statusfilter typefilter userfilter"),
		[]param{
			opt("source", "string").enum("archive active all"),
			opt("vmid", "integer").format("pve-vmid"),
		},
	)
	const nodes, tasks, services, stores = "PVE::API2::Nodes::Nodeinfo", "PVE::API2::Tasks",
		"PVE::API2::Services", "PVE::API2::Storage"
	return []*method{
		{Class: "PVE::API2", Name: "version", Run: version},
		{Class: "PVE::API2", Name: "index", Run: emptyList},
		{Class: "PVE::API2::Cluster", Name: "index", Run: emptyList},
		{
			Class:  "PVE::API2::Cluster",
			Name:   "resources",
			Params: []param{opt("type", "string").enum("vm storage node sdn")},
			Run:    resources,
		},
		{Class: "PVE::API2::Cluster", Name: "get_status", Run: clusterStatus},
		{Class: "PVE::API2::Cluster", Name: "tasks", Run: clusterTasks},
		{
			Class:  "PVE::API2::Cluster",
			Name:   "nextid",
			Params: []param{pVMID.optional()},
			Run:    nextID,
		},
		{Class: "PVE::API2::HA::Status", Name: "status", Run: haStatus},
		{Class: "PVE::API2::Backup", Name: "index", Run: backupJobs},
		{Class: "PVE::API2::ReplicationConfig", Name: "index", Run: replicationJobs},
		{
			Class: "PVE::API2::Pool",
			Name:  "index",
			Params: join([]param{opt("poolid", "string")},
				[]param{opt("type", "string").enum("qemu lxc storage")}),
			Run: pools,
		},
		{
			Class:  "PVE::API2::Pool",
			Name:   "read_pool",
			Params: []param{{Name: "poolid", Type: "string"}},
			Run:    poolRead,
		},
		{
			Class:  "PVE::API2::Storage::Config",
			Name:   "index",
			Params: strs("type"),
			Run:    storageConfig,
		},
		{
			Class:  "PVE::API2::Storage::Config",
			Name:   "read",
			Params: []param{pStorage},
			Run:    storageConfigRead,
		},
		{Class: "PVE::API2::Nodes", Name: "index", Run: nodeList},
		{Class: nodes, Name: "index", Params: node, Run: emptyList},
		{Class: nodes, Name: "status", Params: node, Proxy: true, Run: nodeStatus},
		{
			Class: nodes,
			Name:  "node_cmd",
			Params: with(node,
				param{Name: "command", Type: "string", Enum: []string{"reboot", "shutdown"}}),
			Proxy: true,
			Run:   nodeCommand,
		},
		{Class: nodes, Name: "version", Params: node, Proxy: true, Run: version},
		{
			Class:  nodes,
			Name:   "syslog",
			Params: join(node, ints("limit start"), strs("service since until")),
			Proxy:  true,
			Run:    syslog,
		},
		{Class: nodes, Name: "rrddata", Params: rrdParams(node), Proxy: true, Run: emptyList},
		{Class: nodes, Name: "dns", Params: node, Proxy: true, Run: nodeDNS},
		{Class: nodes, Name: "time", Params: node, Proxy: true, Run: nodeTime},
		{Class: nodes, Name: "wakeonlan", Params: node, Run: wake},
		{
			Class:  nodes,
			Name:   "startall",
			Params: join(node, bools("force"), strs("vms")),
			Proxy:  true,
			Run:    allGuests("startall", true),
		},
		{
			Class:  nodes,
			Name:   "stopall",
			Params: join(node, bools("force-stop"), strs("vms"), ints("timeout")),
			Proxy:  true,
			Run:    allGuests("stopall", false),
		},
		{Class: nodes, Name: "suspendall", Params: join(node, strs("vms")), Proxy: true},
		{
			Class: nodes,
			Name:  "migrateall",
			Params: join(node, []param{{Name: "target", Type: "string", Format: "pve-node"}},
				strs("vms"), ints("maxworkers"), bools("with-local-disks")),
			Proxy: true,
		},
		{
			Class:  nodes,
			Name:   "execute",
			Params: with(node, param{Name: "commands", Type: "string"}),
			Proxy:  true,
		},
		{Class: nodes, Name: "termproxy", Params: join(node, strs("cmd cmd-opts")), Proxy: true},
		{
			Class:  nodes,
			Name:   "vncshell",
			Params: join(node, strs("cmd cmd-opts"), bools("websocket"), ints("height width")),
			Proxy:  true,
		},
		{
			Class:  nodes,
			Name:   "spiceshell",
			Params: join(node, strs("cmd cmd-opts proxy")),
			Proxy:  true,
		},
		{
			Class:  "PVE::API2::NodeConfig",
			Name:   "get_config",
			Params: nodeConf,
			Proxy:  true,
			Run:    nodeConfigGet,
		},
		{
			Class:  "PVE::API2::NodeConfig",
			Name:   "set_options",
			Params: nodeConf,
			Proxy:  true,
			Run:    nodeConfigSet,
		},
		{
			Class:  "PVE::API2::Network",
			Name:   "index",
			Params: join(node, strs("type")),
			Proxy:  true,
			Run:    networks,
		},
		{
			Class:  "PVE::API2::Disks",
			Name:   "list",
			Params: join(node, bools("include-partitions skipsmart"), strs("type")),
			Proxy:  true,
			Run:    disks,
		},
		{Class: tasks, Name: "node_tasks", Params: taskFilter, Proxy: true, Run: nodeTasks},
		{Class: tasks, Name: "stop_task", Params: task, Proxy: true, Run: stopTask},
		{Class: tasks, Name: "upid_index", Params: task, Run: emptyList},
		{Class: tasks, Name: "read_task_status", Params: task, Proxy: true, Run: taskStatus},
		{
			Class: tasks,
			Name:  "read_task_log",
			Params: join(task, bools("download"),
				[]param{opt("limit", "integer").min("0"), opt("start", "integer").min("0")}),
			Proxy: true,
			Run:   taskLog,
		},
		{Class: services, Name: "index", Params: node, Proxy: true, Run: serviceList},
		{Class: services, Name: "srvcmdidx", Params: service, Run: emptyList},
		{Class: services, Name: "service_state", Params: service, Proxy: true, Run: serviceState},
		{
			Class:  services,
			Name:   "service_start",
			Params: service,
			Proxy:  true,
			Run:    serviceCommand("start", "running"),
		},
		{
			Class:  services,
			Name:   "service_stop",
			Params: service,
			Proxy:  true,
			Run:    serviceCommand("stop", "stopped"),
		},
		{
			Class:  services,
			Name:   "service_restart",
			Params: service,
			Proxy:  true,
			Run:    serviceCommand("restart", "running"),
		},
		{
			Class:  services,
			Name:   "service_reload",
			Params: service,
			Proxy:  true,
			Run:    serviceCommand("reload", "running"),
		},
		{
			Class: stores + "::Status",
			Name:  "index",
			Params: join(node, []param{pStorage.optional()}, strs("content target"),
				bools("enabled format")),
			Proxy: true,
			Run:   storageList,
		},
		{Class: stores + "::Status", Name: "diridx", Params: storage, Run: emptyList},
		{
			Class:  stores + "::Status",
			Name:   "read_status",
			Params: storage,
			Proxy:  true,
			Run:    storageStatus,
		},
		{
			Class: stores + "::Content",
			Name:  "index",
			Params: join(storage, strs("content"),
				[]param{opt("vmid", "integer").format("pve-vmid")}),
			Proxy: true,
			Run:   storageContent,
		},
		{
			Class:  stores + "::Content",
			Name:   "info",
			Params: with(storage, param{Name: "volume", Type: "string"}),
			Proxy:  true,
			Run:    volumeInfo,
		},
		{
			Class:  stores + "::Content",
			Name:   "delete",
			Params: join(storage, []param{{Name: "volume", Type: "string"}}, ints("delay")),
			Proxy:  true,
			Run:    volumeDelete,
		},
		{
			Class: "PVE::API2::VZDump",
			Name:  "vzdump",
			Params: join(
				node,
				bools("all protected quiet remove stdexcludes stop"),
				ints("bwlimit ionice lockwait maxfiles pigz stopwait zstd"),
				strs(
					"compress dumpdir exclude exclude-path fleecing mailto mailnotification mode "+
						"notes-template notification-mode performance pool prune-backups script "+
						"storage tmpdir vmid",
				),
			),
			Proxy: true,
		},
		{Class: "PVE::CLI::pvecm", Name: "status", Run: cmStatus},
		{Class: "PVE::CLI::pvecm", Name: "nodes", Run: cmNodes},
		{
			Class:  "PVE::CLI::pvecm",
			Name:   "expected",
			Params: []param{{Name: "expected", Type: "integer", Min: "1"}},
			Run:    cmExpected,
		},
		{
			Class:  "PVE::CLI::pvecm",
			Name:   "add",
			Params: []param{{Name: "hostname", Type: "string"}},
		},
		{
			Class:  "PVE::CLI::pvecm",
			Name:   "create",
			Params: []param{{Name: "clustername", Type: "string"}},
		},
		{Class: "PVE::CLI::pvecm", Name: "delnode", Params: node},
		{
			Class:  "PVE::CLI::pvecm",
			Name:   "keygen",
			Params: []param{{Name: "filename", Type: "string"}},
		},
		{Class: "PVE::CLI::pvecm", Name: "updatecerts", Params: bools("force silent")},
		{Class: "PVE::CLI::pvenode", Name: "help", Params: bools("verbose")},
	}
}

// route is one API path and the method behind each verb, as VERB=CLASS::NAME.
type route struct {
	path    string
	methods map[string]*method
}

// routes is the API tree. The order of a folder's children is that of `pvesh ls`.
func routes() []route {
	m := apiMethods()
	var out []route
	add := func(path string, verbs ...string) {
		r := route{path, map[string]*method{}}
		for _, v := range verbs {
			verb, name, _ := strings.Cut(v, "=")
			r.methods[verb] = mustMethod(m, "PVE::API2"+name)
		}
		out = append(out, r)
	}
	add("/", "get=::index")
	add("/version", "get=::version")
	add("/cluster", "get=::Cluster::index")
	add("/cluster/resources", "get=::Cluster::resources")
	add("/cluster/status", "get=::Cluster::get_status")
	add("/cluster/tasks", "get=::Cluster::tasks")
	add("/cluster/nextid", "get=::Cluster::nextid")
	add("/cluster/ha/status/current", "get=::HA::Status::status")
	add("/cluster/backup", "get=::Backup::index")
	add("/cluster/replication", "get=::ReplicationConfig::index")
	add("/pools", "get=::Pool::index")
	add("/pools/{poolid}", "get=::Pool::read_pool")
	add("/storage", "get=::Storage::Config::index")
	add("/storage/{storage}", "get=::Storage::Config::read")
	add("/nodes", "get=::Nodes::index")
	const n = "/nodes/{node}"
	const info = "::Nodes::Nodeinfo::"
	add(n, "get="+info+"index")
	add(n+"/status", "get="+info+"status", "create="+info+"node_cmd")
	for _, name := range strings.Fields("version syslog rrddata dns time") {
		add(n+"/"+name, "get="+info+name)
	}
	for _, name := range strings.Fields("wakeonlan startall stopall suspendall migrateall " +
		"execute termproxy vncshell spiceshell") {
		add(n+"/"+name, "create="+info+name)
	}
	add(n+"/config", "get=::NodeConfig::get_config", "set=::NodeConfig::set_options")
	add(n+"/network", "get=::Network::index")
	add(n+"/disks/list", "get=::Disks::list")
	add(n+"/tasks", "get=::Tasks::node_tasks")
	add(n+"/tasks/{upid}", "get=::Tasks::upid_index", "delete=::Tasks::stop_task")
	add(n+"/tasks/{upid}/status", "get=::Tasks::read_task_status")
	add(n+"/tasks/{upid}/log", "get=::Tasks::read_task_log")
	add(n+"/services", "get=::Services::index")
	add(n+"/services/{service}", "get=::Services::srvcmdidx")
	add(n+"/services/{service}/state", "get=::Services::service_state")
	for _, verb := range strings.Fields("start stop restart reload") {
		add(n+"/services/{service}/"+verb, "create=::Services::service_"+verb)
	}
	add(n+"/storage", "get=::Storage::Status::index")
	add(n+"/storage/{storage}", "get=::Storage::Status::diridx")
	add(n+"/storage/{storage}/status", "get=::Storage::Status::read_status")
	add(n+"/storage/{storage}/content", "get=::Storage::Content::index")
	add(n+"/storage/{storage}/content/{volume}", "get=::Storage::Content::info",
		"delete=::Storage::Content::delete")
	add(n+"/vzdump", "create=::VZDump::vzdump")
	for _, k := range []struct{ dir, top, status, snap, list, config string }{
		{"/lxc", "::LXC::", "::LXC::Status::", "::LXC::Snapshot::", "list", "::LXC::Config::"},
		{"/qemu", "::Qemu::", "::Qemu::", "::Qemu::", "snapshot_list", "::Qemu::"},
	} {
		g := n + k.dir + "/{vmid}"
		add(n+k.dir, "get="+k.top+"vmlist", "create="+k.top+"create_vm")
		add(g, "get="+k.top+"vm_pending", "delete="+k.top+"destroy_vm")
		add(g+"/config", "get="+k.config+"vm_config", "set="+k.config+"update_vm")
		add(g+"/pending", "get="+k.top+"vm_pending")
		add(g+"/feature", "get="+k.top+"vm_feature")
		add(g+"/rrddata", "get="+k.top+"rrddata")
		add(g+"/clone", "create="+k.top+"clone_vm")
		add(g+"/migrate", "create="+k.top+"migrate_vm")
		add(g+"/resize", "set="+k.top+"resize_vm")
		add(g+"/template", "create="+k.top+"template")
		add(g+"/status/current", "get="+k.status+"vm_status")
		for _, verb := range strings.Fields("start stop shutdown reboot suspend resume") {
			add(g+"/status/"+verb, "create="+k.status+"vm_"+verb)
		}
		add(g+"/snapshot", "get="+k.snap+k.list, "create="+k.snap+"snapshot")
		add(g+"/snapshot/{snapname}", "get="+k.snap+"snapshot_cmd_idx",
			"delete="+k.snap+"delsnapshot")
		add(g+"/snapshot/{snapname}/config", "get="+k.snap+"get_snapshot_config")
		add(g+"/snapshot/{snapname}/rollback", "create="+k.snap+"rollback")
	}
	add(n+"/lxc/{vmid}/interfaces", "get=::LXC::ip")
	add(n+"/qemu/{vmid}/status/reset", "create=::Qemu::vm_reset")
	add(n+"/qemu/{vmid}/agent", "create=::Qemu::Agent::agent")
	return out
}

// match finds the route of a path; path parameters match anything but a slash, and a volume may
// hold slashes.
func match(rs []route, path []string) (*route, map[string]string) {
	for i := range rs {
		want := strings.Split(strings.Trim(rs[i].path, "/"), "/")
		if rs[i].path == "/" {
			want = nil
		}
		vals := map[string]string{}
		ok := len(want) == len(path) ||
			(len(want) > 0 && want[len(want)-1] == "{volume}" && len(path) > len(want))
		for j := 0; ok && j < len(want); j++ {
			if name := strings.Trim(want[j], "{}"); name != want[j] {
				if vals[name] = path[j]; name == "volume" {
					vals[name] = strings.Join(path[j:], "/")
				}
			} else {
				ok = want[j] == path[j]
			}
		}
		if ok {
			return &rs[i], vals
		}
	}
	return nil, nil
}
