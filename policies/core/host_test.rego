package caponier.core.host_test

import data.caponier.core.call
import data.caponier.core.fixture as f
import data.caponier.core.operation

me := {"id": "host", "auth": "host", "roles": [], "credential_roles": [], "narrowed": false}

tool := {
	"name": "remove_leftovers", "imports": ["discard"], "commands": [], "target_kinds": [],
	"hints": {"read_only": false, "destructive": true, "idempotent": true, "open_world": false},
}

own := {
	"principal": me, "source": "host", "kind": "host", "tool": tool,
	"targets": {"vmids": []},
}

discard(path) := {
	"principal": me, "source": "host", "kind": "host", "tool": tool, "op": "discard",
	"parent": {"tool": "remove_leftovers", "targets": {"vmids": []}, "stages": []},
	"file": {
		"action": "discard", "path": path, "real_path": null, "local": null, "bytes": null,
		"sha256": null, "mode": "", "type": null, "exists": null, "overwrite": false,
		"parents": false,
		"current_mode": null,
	},
}

name := "caponier-0123456789abcdef0123456789abcdef"

partial := ".caponier-partial-0123456789abcdef0123456789abcdef"

here(path) := object.union(discard(path), {"target": null})

test_the_host_may_remove_what_it_left if {
	f.decided(own).allow
	f.decided(own).tier == "yellow"
	f.seen(own).allow
	every p in [name, partial] {
		f.operated(discard(concat("/", ["/tmp", p]))).allow
		f.operated(discard(concat("", ["/", p]))).allow
	}
	f.operated(here(concat("/", ["agent-a/sub", partial]))).allow
}

test_only_names_that_the_host_makes if {
	every p in [
		"/tmp/x", "/etc/passwd", "", name, "/", "/tmp/caponier-backup",
		sprintf("/tmp/../%s", [name]), sprintf("/tmp//%s", [name]), sprintf("/tmp/%s/x", [name]),
		sprintf("/tmp/%s/", [name]), sprintf("/tmp/x%s", [name]), sprintf("/tmp/%s0", [name]),
		sprintf("/tmp/\n%s", [name]), sprintf("/tmp/%s\n", [name]),
		"/tmp/caponier-0123456789ABCDEF0123456789abcdef",
	] {
		"file" in f.failed(f.operated(discard(p)))
	}
	every p in [
		partial, sprintf("/agent-a/%s", [partial]), sprintf("agent-a/../%s", [partial]),
		sprintf("../agent-a/%s", [partial]), sprintf("agent-a/%s", [name]), "agent-a/file",
	] {
		"file" in f.failed(f.operated(here(p)))
	}
}

# A principal that has only some of the host's marks is not the host.
test_no_other_principal_is_the_host if {
	every other in [
		{"principal": {"id": "ann"}}, {"principal": {"auth": "config"}},
		{"principal": {"auth": "token"}}, {"principal": {"auth": "oidc"}},
		{"source": "http"}, {"source": "stdio"}, {"source": "cli"},
		{"kind": "tool"},
		{"principal": {"id": "ann", "auth": "token"}},
		{"principal": {"id": "ann", "auth": "token"}, "source": "http"},
		{"principal": {"id": "bob", "auth": "oidc", "credential_roles": ["reader"]}},
	] {
		"identity" in f.failed(f.decided(object.union(own, other)))
		not f.seen(object.union(own, other)).allow
		op := object.union(discard(concat("/", ["/tmp", name])), other)
		"identity" in f.failed(f.operated(op))
	}
	"file" in f.failed(f.operated({
		"op": "discard", "tool": {"imports": ["discard"]},
		"file": discard(concat("/", ["/tmp", name])).file,
	}))
}

widening := {
	"principals": {"host": {"auth": ["config", "token", "oidc", "host"], "roles": ["operator"]}},
	"roles": {"host": f.site.roles.operator},
	"claimable_roles": ["host", "operator"],
	"tiers": {"host:remove_leftovers": "green", "host:stop": "green", "host:look": "green"},
}

# A site can give the host nothing: neither another tool, nor a role to who has its name.
test_a_site_cannot_widen_what_the_host_may if {
	f.decided_in(own, widening).tier == "yellow"
	every t in [
		{"name": "look"}, {"name": "stop"}, {"imports": ["discard", "ssh_exec"]},
		{"imports": ["ssh_exec"]}, {"commands": ["pct stop"]},
	] {
		not f.decided_in(object.union(own, {"tool": t}), widening).allow
	}
	every auth in ["config", "token", "oidc"] {
		"identity" in f.failed(f.decided_in(
			{"principal": {"id": "host", "auth": auth, "credential_roles": ["operator"]}},
			widening,
		))
	}
}

test_a_freeze_of_everything_stops_the_host if {
	every z in [
		{"kind": "all", "name": "", "reason": "r"},
		{"kind": "principal", "name": "host", "reason": "r"},
		{"kind": "tool", "name": "remove_leftovers", "reason": "r"},
		{"kind": "node", "name": "pve1", "reason": "r"},
	] {
		m := {"mode": {"freezes": [z]}}
		f.failed(f.decided(object.union(own, m))) == {"freeze"}
		op := object.union(discard(concat("/", ["/tmp", name])), m)
		f.failed(f.operated(op)) == {"freeze"}
	}
}

test_a_read_only_host_removes_nothing if {
	"readonly" in f.failed(f.decided(object.union(own, {"mode": {"read_only": true}})))
}

test_a_rule_of_the_site_holds_for_the_host if {
	no := {"deny": {{"id": "site.no", "msg": "not now"}}}
	d := call.decision with input as object.union(f.a_call, own)
		with data.site as f.site
		with data.caponier.site as {"call": no}
	f.failed(d) == {"site"}
	o := operation.decision
		with input as object.union(f.an_operation, discard(concat("/", ["/tmp", name])))
		with data.site as f.site
		with data.caponier.site as {"operation": no}
	f.failed(o) == {"site"}
}

test_a_protected_node_is_left_alone if {
	f.failed(f.decided(object.union(own, {"targets": {"nodes": ["agent1"]}}))) == {"protected"}
}
