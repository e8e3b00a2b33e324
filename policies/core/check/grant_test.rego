package caponier.core.check.grant_test

import data.caponier.core.fixture as f

test_tool_outside_the_role_is_refused if "grant" in f.failed(f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}}))

test_import_outside_the_role_is_refused if {
	"grant" in f.failed(f.decided({"principal": {"id": "two"}, "tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]}}))
}

test_granted_tool_passes if f.decided({"principal": {"id": "two"}, "tool": {"name": "look"}}).allow

test_tool_outside_the_role_is_not_shown if f.failed(f.seen({"principal": {"id": "two"}, "tool": {"name": "kill"}})) == {"grant"}
