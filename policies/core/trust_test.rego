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
	d.msg == "no signer in plugins.trust has signed it"
	not decided({"acme": acme}, module("zfs", [], ["bob"])).allow
	not decided({}, module("zfs", [], [])).allow
	not decided({}, module("zfs", [], ["bob"])).allow
}

forge := "https://token.actions.githubusercontent.com"

release := "https://github.com/acme/zfs/.github/workflows/release.yml@refs/tags/"

keyless := {
	"identities": [{"issuer": forge, "subject": concat("", [release, "*"])}],
	"plugins": ["zfs"], "imports": ["ssh_exec"],
}

certified(subject, issuer) := object.union(
	module("zfs", ["ssh_exec"], []),
	{"identities": [{"issuer": issuer, "subject": subject}]},
)

test_an_identity_signs_for_who_has_it if {
	d := decided({"acme": keyless}, certified(concat("", [release, "v1.0.0"]), forge))
	d.allow
	d.by == "acme"
	every subject in [
		"https://github.com/acme/zfs/.github/workflows/release.yml@refs/heads/main",
		"https://github.com/acme/zfs/.github/workflows/test.yml@refs/tags/v1.0.0",
		"https://github.com/acme-/zfs/.github/workflows/release.yml@refs/tags/v1.0.0",
		"", trim_suffix(release, "/"), "*",
	] {
		e := decided({"acme": keyless}, certified(subject, forge))
		not e.allow
		e.msg == sprintf("plugins.trust has no signer with the identity %s of %s", [subject, forge])
	}
}

test_an_identity_is_of_its_issuer if {
	every issuer in ["https://accounts.example.org", "", concat("", [forge, "/"])] {
		not decided({"acme": keyless}, certified(concat("", [release, "v1"]), issuer)).allow
	}
}

test_an_identity_has_the_same_limits_as_a_key if {
	tag := concat("", [release, "v1"])
	d := decided({"acme": object.union(keyless, {"plugins": ["other"]})}, certified(tag, forge))
	d.msg == `acme may not sign a plugin "zfs"`
	e := decided({"acme": object.union(keyless, {"imports": []})}, certified(tag, forge))
	e.msg == "acme may not sign a plugin that imports ssh_exec"
}

# A key that somebody has does not count for who is listed with identities alone.
test_a_key_counts_for_who_has_keys if {
	not decided({"acme": keyless}, module("zfs", [], ["acme"])).allow
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
	lint.problems == set() with data.site as site({"acme": keyless})
}

test_an_identity_is_of_one_owner if {
	every subject in [
		"*", "https://*", "https://github.com/*", "https://github.com/acme*",
		"https://github.com/acme/zfs*", "https://github.com/a*/zfs/x", "*@acme.org",
		"https://github.com//*", "ann@*", "https://github.com/acme/*/*",
	] {
		who := {"acme": object.union(keyless, {"identities": [{
			"issuer": forge,
			"subject": subject,
		}]})}
		some p in lint.problems with data.site as site(who)
		contains(p, "plugins/trust/acme/identities/0/subject")
	}
	every subject in [
		"ann@acme.org", "https://github.com/acme/*", "https://github.com/acme/zfs/*",
		"https://github.com/acme/zfs/.github/workflows/release.yml@*",
	] {
		who := {"acme": object.union(keyless, {"identities": [{
			"issuer": forge,
			"subject": subject,
		}]})}
		lint.problems == set() with data.site as site(who)
	}
}

test_who_signs_has_a_key_or_an_identity if {
	some p in lint.problems with data.site as site({"acme": object.remove(acme, ["keys"])})
	p == "plugins/trust/acme: has neither keys nor identities"
}
