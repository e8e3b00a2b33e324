package caponier.core.call_test

import data.caponier.core.fixture as f

# Each check alone refuses, also those that others imply: whoever takes one out of the conjunction hears of it here.
test_with_all_checks_it_is_allowed if f.decided({}).allow

test_schema_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.schema.ok as false

test_freeze_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.freeze.ok as false

test_identity_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.identity.ok as false

test_grant_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.grant.ok as false

test_known_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.known.ok as false

test_target_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.target.ok as false

test_protected_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.protected.call_ok as false

test_tier_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.tier.call_ok as false

test_role_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.role.call_ok as false

test_node_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.node.call_known as false

test_readonly_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.readonly.call_ok as false

test_command_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.command.call_ok as false

test_path_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.path.call_ok as false

test_egress_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.egress.call_ok as false

test_arguments_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.arguments.ok as false

test_rate_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.rate.ok as false

test_budget_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.budget.ok as false

test_confirmation_alone_refuses if f.decided({}).allow == false with data.caponier.core.check.confirmation.ok as false

test_site_alone_refuses if f.decided({}).allow == false with data.caponier.core.call.site_deny as {{"id": "x", "msg": "y"}}
