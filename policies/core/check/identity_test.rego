package caponier.core.check.identity_test

import data.caponier.core.fixture as f

test_unknown_principal_is_refused if "identity" in f.failed(f.decided({"principal": {"id": "eve"}}))

test_known_principal_passes if f.decided({}).allow

test_other_authentication_is_refused if {
	"identity" in f.failed(f.decided({"principal": {"auth": "oidc"}}))
}

test_claimed_role_of_an_unlisted_person_counts_where_the_site_says_so if {
	f.decided({
		"principal": {"id": "oidc:bob", "auth": "oidc", "credential_roles": ["reader"]},
		"tool": {"name": "look"},
	}).allow
}

test_claimed_role_that_the_site_does_not_list_grants_nothing if {
	"identity" in f.failed(f.decided({"principal": {
		"id": "oidc:bob", "auth": "oidc", "credential_roles": ["operator"],
	}}))
}

test_claims_do_not_add_to_a_listed_principal if {
	"identity" in f.failed(f.decided({"principal": {
		"id": "ann", "auth": "oidc", "credential_roles": ["reader"],
	}}))
}

test_token_can_narrow_but_not_widen if {
	"identity" in f.failed(f.decided({"principal": {"credential_roles": ["reader"]}}))
	f.decided({"principal": {"credential_roles": ["operator"]}}).allow
}

test_claim_by_token_grants_nothing if {
	"identity" in f.failed(f.decided({"principal": {
		"id": "bob", "auth": "token", "credential_roles": ["reader"],
	}}))
}

# An identity provider that drops the claim does not widen.
test_narrowed_credential_without_roles_has_no_roles if {
	f.failed(f.decided({"principal": {"narrowed": true}})) == {"identity"}
	f.decided({"principal": {"narrowed": true, "credential_roles": ["operator"]}}).allow
	every odd in [null, "", 0] {
		f.failed(f.decided({"principal": {"narrowed": odd}})) == {"identity"}
	}
	every odd in [null, "", {}] {
		f.failed(f.decided({"principal": {"credential_roles": odd}})) == {"identity"}
	}
}
