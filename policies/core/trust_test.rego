package caponier.core.trust_test

import data.caponier.core.fixture as f
import data.caponier.core.lint
import data.caponier.core.trust

acme := {"keys": ["k"], "plugins": ["acme-*", "zfs"], "imports": ["ssh_exec", "ask"]}

site(who) := object.union(f.site, {"plugins": {"trust": who}})

module(name, imports, signers) := {"name": name, "imports": imports, "signers": signers}

decided(who, m) := d if {
	d := trust.decision with data.site as site(who) with data.module as m
}

test_a_site_without_trust_takes_what_the_lock_lists if {
	d := trust.decision with data.site as f.site with data.module as module("x", ["ask"], [])
	d.allow
	not trust.required with data.site as f.site
}

test_nothing_is_decided_about_nothing if {
	not trust.decision.allow with data.site as f.site
	not trust.decision.allow with data.site as site({"acme": acme})
}

test_a_signer_may_sign_its_names if {
	every name in ["acme-", "acme-x", "zfs"] {
		d := decided({"acme": acme}, module(name, ["ask", "ssh_exec"], ["acme"]))
		d.allow
		d.by == "acme"
	}
	every name in ["acme", "Acme-x", "x-acme-x", "zfs2", "zf", "", "acme*"] {
		d := decided({"acme": acme}, module(name, [], ["acme"]))
		not d.allow
		contains(d.msg, "acme may not sign a plugin")
	}
}

test_no_signature_is_no_trust if {
	d := decided({"acme": acme}, module("zfs", [], []))
	not d.allow
	d.msg == "nobody has signed it whom plugins.trust lists"
	not decided({"acme": acme}, module("zfs", [], ["bob"])).allow
	not decided({}, module("zfs", [], [])).allow
	not decided({}, module("zfs", [], ["bob"])).allow
}

test_imports_have_a_ceiling if {
	d := decided({"acme": acme}, module("zfs", ["ask", "sftp_write", "http_request"], ["acme"]))
	not d.allow
	d.msg == "acme may not sign a plugin that imports http_request, sftp_write"
}

# Two signers do not add up: one of them has to be allowed all of it.
test_signers_do_not_add_up if {
	bob := {"keys": ["b"], "plugins": ["*"], "imports": ["sftp_write"]}
	m := module("zfs", ["ask", "sftp_write"], ["acme", "bob"])
	not decided({"acme": acme, "bob": bob}, m).allow
	all := object.union(bob, {"imports": ["ask", "sftp_write"]})
	decided({"acme": acme, "bob": all}, m).by == "bob"
}

test_a_star_alone_is_every_name if {
	decided({"a": object.union(acme, {"plugins": ["*"]})}, module("x", [], ["a"])).allow
}

test_mistakes_in_the_data_are_named if {
	every change, text in {
		{"plugins": ["a*b"]}: "plugins/trust/acme/plugins: \"a*b\"",
		{"imports": ["ssh"]}: "plugins/trust/acme/imports: there is no operation \"ssh\"",
	} {
		some p in lint.problems with data.site as site({"acme": object.union(acme, change)})
		contains(p, text)
	}
	lint.problems == set() with data.site as site({"acme": acme})
}
