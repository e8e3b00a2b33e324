package caponier.core.roles_test

import data.caponier.core.fixture as f
import data.caponier.core.lint
import data.caponier.core.roles

# A site in which ann holds a role of her own, and everybody reads.
site(more) := object.union(f.site, object.union(
	{
		"roles": object.union(f.site.roles, {"none": {
			"tools": [], "imports": [], "ceiling": "green", "nodes": [], "commands": [],
		}}),
		"everybody": ["reader"],
	},
	more,
))

held(who, more) := found if {
	found := roles.held with input as {"principal": who} with data.site as site(more)
}

ann := f.head.principal

test_who_holds_a_role_holds_that_of_everybody if {
	held(ann, {}) == {"operator", "reader"}
	both := object.union(ann, {"credential_roles": ["operator", "reader"]})
	held(both, {}) == {"operator", "reader"}
	held({"id": "x", "auth": "oidc", "credential_roles": ["none"], "narrowed": false}, {
		"claimable_roles": ["none"],
	}) == {"none", "reader"}
}

test_it_gives_nothing_to_who_holds_none if {
	held(object.union(ann, {"id": "nobody"}), {}) == set()
	held(object.union(ann, {"auth": "config"}), {}) == set()
	held({"id": "x", "auth": "oidc", "credential_roles": ["y"], "narrowed": false}, {}) == set()
	held(object.union(ann, {"narrowed": true}), {}) == set()
	held(object.union(ann, {"id": "host"}), {}) == set()
	held(object.union(ann, {"auth": "host"}), {}) == set()
}

test_a_credential_that_names_roles_leaves_these if {
	held(object.union(ann, {"credential_roles": ["operator"]}), {}) == {"operator"}
}

test_what_is_above_green_is_never_everybodys if {
	held(ann, {"everybody": ["wide", "gone"]}) == {"operator"}
	found := lint.problems with data.site as site({"everybody": ["wide", "gone"]})
	`everybody: there is no role "gone"` in found
	some text in found
	startswith(text, `everybody: role "wide" goes up to red`)
}
