package pvelab

import "strings"

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
