# METADATA
# scope: package
# description: What package testing makes questions of. Tests use that package.
package caponier.testing.parts

import data.caponier.core.roles
import data.caponier.core.scope
import data.caponier.testing.lowered
import data.caponier.testing.operations

# stop ends a test: two values of one function are an error that nothing catches, and that shows
# how they begin.
stop(what, mistakes) := text if {
	print(sprintf("testing.%s: %s", [what, concat("; ", mistakes)]))
	some text in (mistakes | {"the host would not ask this"})
}

tool(name) := data.testing.tools[name] if contains(name, ":")

tool(name) := data.testing.tools[concat(":", ["tool", name])] if not contains(name, ":")

in_question := ["name", "cluster", "host", "aliases"]

names := [n.name | some n in data.testing.nodes]

default known_tools := {}

known_tools := data.testing.tools

# mistakes says what is wrong with a call, before anything is made of it.
mistakes(name, args, who) := (odd_tool(name) | odd_args(tool(name), args)) | odd_who(who) if {
	odd_tool(name) == set()
	is_object(args)
} else := odd_tool(name) | odd_who(who) if {
	is_object(args)
} else := {"the arguments are no object"}

odd_tool(name) := {concat(" ", [
	"no lock is known, so no tool is: name a configuration (--config), or with plain opa load",
	"the file testing/data.json that `caponier policy export` writes",
])} if {
	known_tools == {}
} else := {sprintf("the lock has no tool %q%s", [name, near(name)])} if {
	not tool(name)
} else := set()

# near names tools that have all words of the name but one.
near(name) := sprintf("; there is %s", [concat(", ", sort(like))]) if {
	words := {w | some w in split(name, "_")}
	like := {t.tool.name |
		some t in known_tools
		count(words - {w | some w in split(t.tool.name, "_")}) < 2
	}
	like != set()
} else := ""

odd_who(who) := set() if {
	who.id
	who.auth
} else := {sprintf(
	"data.yaml lists no principal %v; write {\"id\": …, \"auth\": …} for another",
	[who],
)} if {
	not data.site.principals[who]
} else := set()

odd_args(t, args) := ((unknown | missing) | wrong) | forms if {
	unknown := {sprintf("%s has no argument %q, only %s", [t.tool.name, key, listed]) |
		some key, _ in args
		not t.params[key]
		listed := concat(", ", sort(object.keys(t.params)))
	}
	missing := {sprintf("%s needs the argument %q", [t.tool.name, key]) |
		some key, p in t.params
		p.required
		not key in object.keys(args)
	}
	wrong := {sprintf("%s: the argument %q is of type %s", [t.tool.name, key, p.type]) |
		some key, p in t.params
		p.type != ""
		v := args[key]
		not typed(p.type, v)
	}
	forms := {sprintf("%s: %s: %s", [t.tool.name, key, why]) |
		some key, p in t.params
		p.target != ""
		some v in values(args[key])
		why := odd_form(p.target, v)
	}
}

typed("integer", v) if {
	is_number(v)
	floor(v) == v
}

typed("number", v) if is_number(v)

typed("string", v) if is_string(v)

typed("boolean", v) if is_boolean(v)

typed("array", v) if is_array(v)

typed("object", v) if is_object(v)

values(v) := v if {
	is_array(v)
} else := [v]

odd_form(target, v) := why if {
	target in {"command", "guest_command"}
	why := lowered.odd(v)
} else := sprintf("there is no node %v; the inventory has %s", [v, concat(", ", names)]) if {
	target == "node"
	not v in names
} else := sprintf("%v is not in the form of a %s", [v, target]) if {
	not target in {"node", "command", "guest_command"}
	not canonical(target, v)
}

# canonical gives the one form of a target.
canonical("vmid", v) := sprintf("%d", [v]) if {
	is_number(v)
	v >= 100
	v <= 999999999
}

canonical("node", v) := v

canonical("service", v) := v if {
	regex.match(concat("", [`^[a-z0-9][a-z0-9:_.@-]*\.`, unit_ends, `$`]), v)
} else := concat("", [v, ".service"]) if {
	regex.match(`^[a-z0-9][a-z0-9:_.@-]*$`, v)
}

canonical("host", v) := v if regex.match(host, v)

canonical("url", v) := h if {
	some [_, h] in regex.find_all_string_submatch_n(url, v, 1)
	regex.match(host, h)
	not regex.match(`[^!-~]|\\`, v)
}

canonical("remote_path", v) := v if absolute(v)

canonical("remote_dir", v) := v if absolute(v)

canonical("guest_path", v) := v if absolute(v)

canonical(kind, v) := v if {
	kind in {"local_path", "local_dir"}
	v != "."
	absolute(concat("", ["/", v]))
}

canonical("call", v) := v if regex.match(`^[0-9A-V]{26}$`, v)

unit_ends := concat("", [
	`(service|socket|target|timer|mount|automount|device|swap`,
	`|path|slice|scope)`,
])

host := concat("", [
	`^((([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?)`,
	`|((0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3})|([0-9a-f:]*:[0-9a-f:]*))$`,
])

url := `^https?://([^/:?#@%]+)(?::[0-9]+)?(?:[/?#]|$)`

absolute(v) if {
	regex.match(`^/[^\x00-\x1f\x7f]*$`, v)
	not regex.match(`//|/\.\.?(/|$)|./$`, v)
}

fields := {
	"node": "nodes", "vmid": "vmids", "service": "services", "host": "hosts", "url": "hosts",
	"remote_path": "paths", "guest_path": "guest_paths", "local_path": "local_paths",
	"remote_dir": "paths", "local_dir": "local_paths",
}

# call gives the question of a call in which mistakes found nothing.
call(name, args, who) := {
	"schema": "caponier.call/1", "id": "test", "kind": t.kind, "time": clock(3, 720),
	"source": source(who), "principal": principal(who), "plugin": t.plugin, "tool": t.tool,
	"mode": {"read_only": false, "freezes": []}, "planning": false, "guests": null,
	"args": {
		"digest": "sha256:00", "bytes": size(args),
		"scalars": {k: v | some k, v in args; scalar(v)},
		"omitted": sort([k | some k, v in args; not scalar(v)]),
	},
	"targets": targets(t, args),
	"nodes": [object.filter(n, in_question) | some n in data.testing.nodes],
	"commands": [c |
		some key, p in t.params
		p.target in {"command", "guest_command"}
		some i, v in values(args[key])
		c := object.union(
			lowered.script(v),
			{"arg": arg(p, key, i), "guest": p.target == "guest_command"},
		)
	],
	"confirmation": {"state": confirmed(t, args), "by": "", "channel": "", "answers": []},
	"facts": {
		"calls_60s": 1, "tool_calls_60s": 1, "target_calls_60s": 1, "calls_retry_s": 60,
		"tool_retry_s": 60, "target_retry_s": 60, "usd_micros_today": 0,
	},
} if {
	t := tool(name)
}

arg(p, key, i) := sprintf("%s[%d]", [key, i]) if {
	p.type == "array"
} else := key

confirmed(t, args) := "argument" if {
	args[t.confirm] == true
} else := "none"

# 2026-01-04 was a Sunday.
clock(weekday, minute) := {
	"unix_ms": 1767484800000 + ((((weekday * 1440) + minute) * 60) * 1000),
	"hour_utc": floor(minute / 60), "minute_utc": minute % 60, "weekday": weekday,
}

# weekday gives the number of a day, which is one already or a name such as "mon".
weekday(day) := day if {
	day in {0, 1, 2, 3, 4, 5, 6}
} else := i if {
	some i, d in scope.days
	d.key == day
}

# minute gives the minute of the day of an hour, or of a time such as "09:30".
minute(time) := time * 60 if {
	is_number(time)
	floor(time) == time
	time >= 0
	time <= 23
} else := scope.minutes(time) if {
	time != "24:00"
}

source(who) := "stdio" if {
	identity(who).auth == "config"
} else := "http"

# identity gives what a credential says: "roles" are those that it names.
identity(who) := object.union({"roles": [], "narrowed": false}, who) if {
	is_object(who)
} else := {
	"id": who, "auth": data.site.principals[who].auth[0], "roles": [], "narrowed": false,
}

principal(who) := {
	"id": one.id, "auth": one.auth, "roles": held(one), "credential_roles": one.roles,
	"narrowed": one.narrowed,
} if {
	one := identity(who)
}

held(one) := found if {
	who := {
		"id": one.id, "auth": one.auth, "roles": [], "credential_roles": one.roles,
		"narrowed": one.narrowed,
	}
	found := [name | some name in roles.held] with input as {"principal": who}
}

scalar(v) if is_boolean(v)

scalar(v) if typed("integer", v)

scalar(v) if {
	is_string(v)
	bytes(v) <= 256
}

bytes(text) := count(sprintf("%x", [text])) / 2

# size is that of the arguments as JSON without spaces, where their texts are plain.
size(args) := 2 if {
	args == {}
} else := bytes(sprintf("%v", [args])) - spaces if {
	spaces := ((2 * count(args)) - 1) + sum([max([0, count(v) - 1]) | some v in args; is_array(v)])
}

targets(t, args) := {field: found |
	some field in fields
	found := with_default(t, field, sort({canonical(p.target, v) |
		some key, p in t.params
		fields[p.target] == field
		some v in values(args[key])
	}))
}

with_default(t, "nodes", []) := [n.name | some n in data.testing.nodes; n.is_default; t.on_node]

with_default(_, field, found) := found if not missing_nodes(field, found)

missing_nodes("nodes", [])

guest := {
	"name": "", "kind": "lxc", "node": "", "status": "running", "tags": [], "pool": "",
	"template": false, "ha": "", "age_s": 0, "protection": "off",
}

with_guests(q, facts) := object.union(q, {"guests": {id: g |
	some id, f in facts
	g := object.union(guest, f)
}})

# fallen says that what was to be a question has ended the test already.
fallen(q) if not is_object(q)

odd_guests(facts) := {sprintf("%v is no VMID; write it as text", [id]) |
	some id, _ in facts
	not regex.match(`^[1-9][0-9]{2,8}$`, sprintf("%v", [id]))
} | {sprintf("a guest has no %q", [key]) |
	some f in facts
	some key, _ in f
	not key in object.keys(guest)
}

# odd says what is wrong with an operation.
odd(q, name, op) := {sprintf("there is no such operation as %q, only %s", [name, listed])} if {
	not operations.takes[name]
	listed := concat(", ", sort(object.keys(operations.takes)))
} else := {"the operation is no object"} if {
	not is_object(op)
} else := {sprintf("%s does not declare %s, only %s", [q.tool.name, name, listed])} if {
	not name in q.tool.imports
	listed := concat(", ", q.tool.imports)
} else := (unknown | missing) | (nodes | texts) if {
	unknown := {sprintf("%s has no %q, only %s", [name, key, listed]) |
		some key, _ in op
		not key in (operations.takes[name] | {"node", "phase"})
		listed := concat(", ", sort(operations.takes[name]))
	}
	missing := {sprintf("%s needs %q", [name, key]) |
		some key in operations.needs[name]
		not key in object.keys(op)
	}
	nodes := {why | operations.on_node(name); why := odd_node(node_of(q, op))}
	texts := {why | why := lowered.odd(op.script)}
}

node_of(q, op) := op.node if {
	op.node
} else := q.targets.nodes[0] if {
	count(q.targets.nodes) == 1
} else := ""

odd_node(name) := "the call does not name one node: say which as \"node\"" if {
	name == ""
} else := sprintf("there is no node %v; the inventory has %s", [name, concat(", ", names)]) if {
	not name in names
}

operation(q, name, op, tier) := object.union(
	object.union(object.remove(q, ["targets", "commands", "confirmation", "facts"]), {
		"schema": "caponier.operation/1", "op": name, "phase": object.get(op, "phase", "effect"),
		"parent": {
			"id": q.id, "tool": q.tool.name, "tier": tier, "targets": q.targets,
			"clusters": sort({n.cluster |
				some n in data.testing.nodes
				n.name in q.targets.nodes
			}),
			"commands": q.commands, "stages": [], "confirmation": q.confirmation,
			"revision": "test",
		},
		"target": target(q, name, op), "plan": null, "touches": null,
	}),
	operations.part(name, op),
)

target(q, name, op) := t if {
	operations.on_node(name)
	some n in data.testing.nodes
	n.name == node_of(q, op)
	t := {
		"node": n.name, "cluster": n.cluster, "host": n.host, "port": n.port, "user": n.user,
		"addrs": [], "services": null,
	}
} else := null
