package caponier.core.result_test

import data.caponier.core.result

asked := {
	"schema": "caponier.result/1", "op": "ssh_exec",
	"principal": {
		"id": "a", "auth": "token",
		"credential_roles": [], "roles": [], "narrowed": false,
	},
	"hits": {"private_key": 1, "password_hash": 2, "token": 1, "badge": 1},
}

test_without_a_word_of_the_site_keys_and_hashes_are_masked_and_unknown_ones_refused if {
	got := result.answer.actions with input as asked with data.site as {}
	got == {"private_key": "mask", "password_hash": "mask", "token": "allow", "badge": "refuse"}
}

test_the_site_says_what_becomes_of_each if {
	got := result.answer.actions with input as asked
		with data.site as {"results": {"actions": {"private_key": "refuse", "badge": "mask"}}}
	got == {"private_key": "refuse", "password_hash": "mask", "token": "allow", "badge": "mask"}
}

test_what_takes_calls_back_and_what_the_host_asks_is_whole if {
	every changed in [{"op": "undo_steps"}, {"principal": {"auth": "host"}}] {
		got := result.answer.actions with input as object.union(asked, changed) with data.site as {}
		{action | some action in got} == {"allow"}
	}
}

test_a_rule_of_the_site_refuses if {
	deny := {{"id": "site.large", "msg": "too much"}}
	got := result.answer.deny with input as asked
		with data.site as {}
		with data.caponier.site.result.deny as deny
	got == [{"id": "site.large", "msg": "too much"}]
}

test_another_question_has_no_answer if {
	not result.answer with input as object.union(asked, {"schema": "caponier.call/1"})
}
